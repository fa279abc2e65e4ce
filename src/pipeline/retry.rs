//! Calls that are tried again: of tools that the operator says may run twice, and only what the daemon
//! could not do, or commands that failed where that is asked for.

use std::sync::Arc;
use std::time::Duration;

use super::Execution;
use super::event::{Event, fractional_millis};
use super::executor::Inner;
use crate::config::{ExecutorConfig, RetryConfig};
use crate::domain::{Ending, ExecutorError, Exit, FailureKind, StopReason, Verbatim, backoff};
use crate::runner::{Live, Outcome};
use crate::tools::{Answer, Produced};

/// The longest wait between two tries.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// What it takes to try a call again.
pub(super) struct Again<'a> {
    pub(super) inner: &'a Inner,
    pub(super) execution: &'a Execution,
    /// What the call runs under.
    pub(super) config: &'a ExecutorConfig,
    /// `None` where nothing is tried again.
    pub(super) retries: Option<RetryConfig>,
}

/// What follows a try.
pub(super) enum After {
    /// Nothing: what came of it stands.
    Nothing,
    /// Another one, whose output goes into this.
    Try(Arc<Live>),
    /// There would have been another one, and the call was to end before.
    Stop(StopReason),
}

impl Again<'_> {
    /// Waits until it is time for another try, if there is to be one. `attempt` is the number of the last one, from 1 on.
    pub(super) async fn after(
        &self,
        attempt: u32,
        result: &Result<Produced, ExecutorError>,
    ) -> After {
        let Some(retries) = self.retries.filter(|retries| attempt <= retries.max) else {
            return After::Nothing;
        };
        let Some(detail) = failed(result, retries.exit_codes) else {
            return After::Nothing;
        };
        let execution = self.execution;
        let delay = jittered(retries.delay, attempt);
        execution.note(Event::ExecutionRetried {
            attempt,
            delay_ms: fractional_millis(delay),
            detail: execution.secrets.mask_text(&detail),
        });
        let live = execution.live();
        tokio::select! {
            biased;
            reason = live.stop_requested() => return After::Stop(reason),
            () = tokio::time::sleep(delay) => {}
        }
        if let Some(metrics) = &execution.metrics {
            metrics.retried();
        }
        // What the last try has written is no part of the answer.
        live.end_streams();
        // Nor is it to be saved for who comes after a crash.
        live.release(Verbatim::default());
        if let Some(spool) = self.inner.spool.clone() {
            let id = execution.id;
            // Only a panic makes this fail.
            let _ = tokio::task::spawn_blocking(move || spool.remove(id)).await;
        }
        let fresh = self
            .inner
            .live_for(execution.id, self.config, &execution.secrets);
        After::Try(execution.begin_again(fresh))
    }
}

impl Execution {
    /// A try that has failed, of a call that was to end before the next one: it is not the tool's failure that ended it.
    /// What the try has written is kept.
    pub(super) fn cut_short(
        &self,
        result: Result<Produced, ExecutorError>,
        reason: StopReason,
    ) -> Result<Produced, ExecutorError> {
        let partial = match result {
            Ok(produced) => match produced.stopped(reason) {
                Some(produced) => return Ok(produced),
                None => None,
            },
            Err(error) => error.into_partial(),
        };
        Err(ExecutorError::Cancelled {
            tool_name: self.tool.clone(),
            input_summary: self.summary(),
            reason,
            partial: partial.map(Box::new),
        })
    }
}

/// A random part of the delay, which doubles with each try.
fn jittered(delay: Duration, attempt: u32) -> Duration {
    backoff::doubled(delay, attempt, MAX_DELAY).mul_f64(backoff::share())
}

/// In what way a try has failed that is worth another.
fn failed(result: &Result<Produced, ExecutorError>, exit_codes: bool) -> Option<String> {
    let of_answer = |answer: &Answer| {
        let counts = exit_codes && answer.is_error;
        counts.then(|| "it answered with an error".to_owned())
    };
    match result {
        Ok(Produced::Answered(answer)) => of_answer(answer),
        Ok(Produced::Ran(outcome) | Produced::Told(outcome, _)) => of_run(outcome, exit_codes),
        Ok(Produced::Spoke(outcome, answer)) => {
            of_run(outcome, exit_codes).or_else(|| of_answer(answer))
        }
        Ok(Produced::Garbled(outcome, detail)) => match outcome.ending {
            Ending::Itself(_) => Some(format!("its output is invalid: {detail}")),
            Ending::Stopped { .. } => None,
        },
        // After a time limit another try would take the time that the caller has not.
        Err(error) => FailureKind::of(error)
            .is_of_the_tool()
            .then(|| error.chain()),
    }
}

fn of_run(outcome: &Outcome, exit_codes: bool) -> Option<String> {
    let exit = match outcome.ending {
        Ending::Itself(exit) => exit,
        Ending::Stopped { .. } => return None,
    };
    if let Some(error) = &outcome.capture_error {
        return Some(format!("its output could not be read: {error}"));
    }
    match exit {
        Exit::Code(0) => None,
        Exit::Code(code) => exit_codes.then(|| format!("exit code {code}")),
        Exit::Signal(signal) => exit_codes.then(|| signal.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_part_of_a_delay_that_doubles() {
        let delay = Duration::from_millis(100);
        for (attempt, longest) in [(1, 100), (2, 200), (3, 400), (20, 60_000), (100, 60_000)] {
            let longest = Duration::from_millis(longest);
            let waits: Vec<Duration> = (0..50).map(|_| jittered(delay, attempt)).collect();
            assert!(waits.iter().all(|wait| *wait <= longest), "{waits:?}");
            // Fifty equal draws would mean that there is no jitter.
            assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        }
    }
}
