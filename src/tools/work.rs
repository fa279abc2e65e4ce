//! Work that the daemon does itself, where it may block and still be stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::{Closing, Context, Streams, content};
use crate::domain::{
    Call, Display, ExecutorError, RunReport, StopReason, ToolOutput, whole_millis,
};
use crate::runner::Captured;

/// Whether work that is under way is still wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

/// What work comes to that saw it is not wanted any more, and has left nothing behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

impl Stop {
    /// # Errors
    /// Once nobody wants the work any more.
    pub(crate) fn check(&self) -> Result<(), Stopped> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Stopped),
            false => Ok(()),
        }
    }

    fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How much may be done at once where it may block; others wait, within their time limits, and a thread that a disk holds
/// up keeps its place.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// For tools that are no processes: an edit of a file as large as may be takes 300 MB.
    workers: Arc<Semaphore>,
    /// For what is looked up before.
    lookers: Arc<Semaphore>,
}

impl Default for Places {
    fn default() -> Self {
        const WORKERS: usize = 8;
        const LOOKERS: usize = 64;
        Self {
            workers: Arc::new(Semaphore::new(WORKERS)),
            lookers: Arc::new(Semaphore::new(LOOKERS)),
        }
    }
}

/// Whose work it is, and how long it may take.
#[derive(Clone, Copy)]
pub(crate) struct WorkOf<'a> {
    /// The name of the tool.
    pub(crate) tool: &'a str,
    /// The time limit of the call, if it has one of its own.
    pub(crate) timeout: Option<Duration>,
}

impl<'a> WorkOf<'a> {
    pub(crate) fn call(call: &'a Call) -> Self {
        Self {
            tool: &call.tool,
            timeout: call.options.timeout,
        }
    }
}

impl Context<'_> {
    /// Has `work` done on a thread of its own. When its time is up or it is stopped, it is told so
    /// and given `kill_grace` to leave nothing half done; what is done all the same counts. A thread
    /// that the disk holds longer than that is left to itself. When it has started is the caller's to say.
    ///
    /// # Errors
    /// `Timeout` or `Cancelled` of what was stopped, `Internal` of what panicked.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        of: WorkOf<'_>,
        work: impl FnOnce(&Stop) -> Result<T, Stopped> + Send + 'static,
    ) -> Result<T, ExecutorError> {
        self.beside(&self.places.workers, of, work).await
    }

    /// The same of what only looks something up on the disk, for which nobody waits who works.
    ///
    /// # Errors
    /// As [`Self::work`].
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        of: WorkOf<'_>,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ExecutorError> {
        self.beside(&self.places.lookers, of, |_| Ok(look())).await
    }

    async fn beside<T: Send + 'static>(
        &self,
        places: &Arc<Semaphore>,
        of: WorkOf<'_>,
        work: impl FnOnce(&Stop) -> Result<T, Stopped> + Send + 'static,
    ) -> Result<T, ExecutorError> {
        let config = &self.config;
        let limit = of.timeout.unwrap_or(config.default_timeout);
        let stop = Stop::default();
        let (told, begun) = (stop.clone(), Instant::now());
        let places = Arc::clone(places);
        let mut task = tokio::spawn(async move {
            // It is never closed.
            let place = places.acquire_owned().await;
            let work = tokio::task::spawn_blocking(move || {
                // Kept by a thread that is held up, too.
                let _place = place;
                told.check().and_then(|()| work(&told))
            });
            work.await
        });
        let early = tokio::select! {
            biased;
            done = &mut task => Ok(done),
            reason = self.live.stop_requested() => Err(reason),
            () = tokio::time::sleep(limit) => Err(StopReason::Timeout(limit)),
        };
        let (done, reason) = match early {
            Ok(done) => (Some(done), StopReason::Cancelled),
            Err(reason) => {
                stop.request();
                let late = tokio::time::timeout(config.kill_grace, task).await;
                (late.ok(), reason)
            }
        };
        match done {
            Some(Ok(Ok(Ok(value)))) => Ok(value),
            Some(Ok(Ok(Err(Stopped)))) | None => {
                Err(self.stopped(of.tool, reason, begun.elapsed()))
            }
            Some(Ok(Err(error)) | Err(error)) => Err(ExecutorError::Internal {
                tool_name: of.tool.to_owned(),
                input_summary: self.summary.clone(),
                detail: "it panicked; the log says where".to_owned(),
                source: Some(Box::new(error)),
            }),
        }
    }

    /// That it was stopped, in the words in which a process's end is told.
    pub(super) fn stopped(&self, tool: &str, reason: StopReason, took: Duration) -> ExecutorError {
        let (tool_name, input_summary) = (tool.to_owned(), self.summary.clone());
        let (closing, exit) = match reason {
            StopReason::Timeout(limit) => (Closing::Timeout(limit), "timeout"),
            StopReason::Cancelled | StopReason::Disconnect | StopReason::Shutdown => {
                (Closing::Cancelled, "cancelled")
            }
        };
        let nothing = Captured::default();
        let streams = Streams {
            stdout: &nothing,
            stderr: &nothing,
        };
        let text = content(streams, 0, self.config.truncate, closing).text;
        let run = RunReport::of_no_process(took);
        let partial = Box::new(ToolOutput {
            display: Display {
                title: format!("{tool_name}: {input_summary}"),
                summary: String::new(),
                duration_ms: whole_millis(took),
                exit: exit.to_owned(),
            },
            ..ToolOutput::new(text, true, run)
        });
        match reason {
            StopReason::Timeout(limit) => ExecutorError::Timeout {
                tool_name,
                input_summary,
                limit,
                partial,
            },
            StopReason::Cancelled | StopReason::Disconnect | StopReason::Shutdown => {
                ExecutorError::Cancelled {
                    tool_name,
                    input_summary,
                    reason,
                    partial: Some(partial),
                }
            }
        }
    }
}
