use std::borrow::Cow;
use std::time::SystemTime;

use super::Finished;
use super::finished::status;
use crate::domain::{ExecutorError, Failure, RunReport, Stage, Status, ToolOutput};

/// How an execution ended, as it is counted, logged, and told to whoever follows traces.
pub(super) struct Termination<'a> {
    pub(super) at: SystemTime,
    /// In one word.
    pub(super) status: Status,
    /// What kept the executor from doing it, if something did.
    pub(super) failure: Option<Cow<'a, Failure>>,
    /// The facts, when a process ran.
    pub(super) run: Option<&'a RunReport>,
}

impl<'a> Termination<'a> {
    /// What comes now of an execution that is kept nowhere, whose last stage is given.
    pub(super) fn now(result: &'a Result<ToolOutput, ExecutorError>, stage: Option<Stage>) -> Self {
        let failure = result.as_ref().err().map(|error| Failure::of(error, stage));
        Self {
            at: SystemTime::now(),
            status: status(failure.as_ref(), result.as_ref().ok()),
            failure: failure.map(Cow::Owned),
            run: match result {
                Ok(output) => Some(&output.run),
                Err(error) => error.partial().map(|partial| &partial.run),
            },
        }
    }

    /// The failure, if there is one.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.as_deref()
    }
}

impl<'a> From<&'a Finished> for Termination<'a> {
    fn from(finished: &'a Finished) -> Self {
        Self {
            at: finished.ended_at,
            status: finished.status,
            failure: finished.failure.as_ref().map(Cow::Borrowed),
            run: finished.run(),
        }
    }
}
