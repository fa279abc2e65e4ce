//! Work that the daemon does itself, where it may block and still be stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

impl Context<'_> {
    /// Has `work` done on a thread of its own. When its time is up or it is stopped, it is told so
    /// and given `kill_grace` to leave nothing half done; what is done all the same counts. A thread
    /// that the disk holds longer than that is left to itself. When it has started is the caller's to say.
    ///
    /// # Errors
    /// `Timeout` or `Cancelled` of what was stopped, `Internal` of what panicked.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        call: &Call,
        work: impl FnOnce(&Stop) -> Result<T, Stopped> + Send + 'static,
    ) -> Result<T, ExecutorError> {
        let config = &self.config;
        let limit = call.options.timeout.unwrap_or(config.default_timeout);
        let stop = Stop::default();
        let (told, begun) = (stop.clone(), Instant::now());
        let workers = Arc::clone(&self.workers);
        let mut task = tokio::spawn(async move {
            // It is never closed.
            let place = workers.acquire_owned().await;
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
            Some(Ok(Ok(Err(Stopped)))) | None => Err(self.stopped(call, reason, begun.elapsed())),
            Some(Ok(Err(error)) | Err(error)) => Err(ExecutorError::Internal {
                tool_name: call.tool.clone(),
                input_summary: self.summary.clone(),
                detail: "it panicked; the log says where".to_owned(),
                source: Some(Box::new(error)),
            }),
        }
    }

    /// That it was stopped, in the words in which a process's end is told.
    pub(super) fn stopped(&self, call: &Call, reason: StopReason, took: Duration) -> ExecutorError {
        let (tool_name, input_summary) = (call.tool.clone(), self.summary.clone());
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
