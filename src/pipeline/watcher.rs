//! What happens to an execution, in order, for who watches it from its beginning.

use std::sync::Arc;

use tokio::sync::watch;

use super::Execution;
use super::approvals::Asked;
use crate::domain::StreamName;
use crate::runner::{Follower, Live};

/// What there was to see.
#[derive(Debug)]
pub enum Seen {
    /// Somebody is asked about it, or about something else in its place.
    Asked(Asked),
    /// Its process is started. Another time when it is tried again: what came before is no part of the answer.
    Started,
    /// What it has written to a stream, as far as an answer may hold it.
    Output(StreamName, Vec<u8>),
    /// There is no more of a stream.
    End(StreamName),
}

/// Somebody who watches.
#[derive(Debug)]
pub struct Watcher {
    execution: Arc<Execution>,
    questions: watch::Receiver<Option<Asked>>,
    /// Whether `questions` may hold a question that was not shown yet.
    is_asked: bool,
    cap: usize,
    attempt: Attempt,
    /// Whether it is known to have ended.
    is_over: bool,
}

/// One try.
#[derive(Debug)]
struct Attempt {
    live: Arc<Live>,
    is_started: bool,
    /// Those of its streams that have not ended.
    stdout: Option<Follower>,
    stderr: Option<Follower>,
}

impl Attempt {
    fn new(live: Arc<Live>, cap: usize) -> Self {
        Self {
            stdout: Some(live.stdout.follow(cap)),
            stderr: Some(live.stderr.follow(cap)),
            is_started: false,
            live,
        }
    }
}

impl Watcher {
    /// Watches `execution` from now on, of each stream the first `cap` bytes. What has been written by now is not missed.
    pub fn new(execution: &Arc<Execution>, cap: usize) -> Self {
        Self {
            execution: Arc::clone(execution),
            questions: execution.questions(),
            is_asked: true,
            cap,
            attempt: Attempt::new(execution.live(), cap),
            is_over: false,
        }
    }

    /// What comes next; `None` once it has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Seen> {
        loop {
            let Attempt {
                live,
                is_started,
                stdout,
                stderr,
            } = &mut self.attempt;
            if !*is_started {
                let asked = std::mem::take(&mut self.is_asked)
                    .then(|| self.questions.borrow_and_update().clone());
                if let Some(asked) = asked.flatten() {
                    return Some(Seen::Asked(asked));
                }
                tokio::select! {
                    biased;
                    () = live.started() => {
                        *is_started = true;
                        return Some(Seen::Started);
                    }
                    next = live.successor() => self.attempt = Attempt::new(next, self.cap),
                    _ = self.execution.wait() => return None,
                    // It lives as long as the execution does.
                    _ = self.questions.changed() => self.is_asked = true,
                }
            } else if stdout.is_some() || stderr.is_some() {
                let (name, piece, stream) = tokio::select! {
                    piece = piece(stdout) => (StreamName::Stdout, piece, stdout),
                    piece = piece(stderr) => (StreamName::Stderr, piece, stderr),
                    // Nobody closes the streams of what could not execute its program.
                    finished = self.execution.wait(), if !self.is_over => {
                        self.is_over = true;
                        finished.ran.as_ref()?;
                        continue;
                    }
                };
                return Some(match piece {
                    Some(piece) => Seen::Output(name, piece),
                    None => {
                        *stream = None;
                        Seen::End(name)
                    }
                });
            } else {
                tokio::select! {
                    biased;
                    next = live.successor() => self.attempt = Attempt::new(next, self.cap),
                    _ = self.execution.wait() => return None,
                }
            }
        }
    }
}

/// The next piece of a stream; never, of one that has ended.
async fn piece(stream: &mut Option<Follower>) -> Option<Vec<u8>> {
    match stream {
        Some(follower) => follower.next().await,
        None => std::future::pending().await,
    }
}
