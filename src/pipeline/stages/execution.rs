use std::time::{Duration, Instant};

use super::confirmation::Confirmed;
use crate::domain::{Call, ExecutorError, LeftBehind};
use crate::pipeline::Execution;
use crate::pipeline::retry::{After, Again};
use crate::tools::{Context, Produced};

/// What came of it, whole.
pub(super) struct Ran {
    pub(super) call: Call,
    pub(super) produced: Produced,
    /// How long the tool took; of a process there is its own time.
    pub(super) took: Duration,
}

/// Has the tool do it, more than once where that is allowed and the first time is not enough.
pub(super) async fn run(
    confirmed: Confirmed,
    context: Context<'_>,
    again: &Again<'_>,
) -> Result<Ran, ExecutorError> {
    let Confirmed {
        call,
        tool,
        resolved,
        ..
    } = confirmed;
    let mut context = Context {
        resolved,
        ..context
    };
    let mut attempt = 1;
    let mut left = Vec::new();
    loop {
        // Only where there may be another try is anything kept for it.
        let next = again.retries.map(|_| context.clone());
        let begun = Instant::now();
        let result = tool.implementation.run(&call, context).await;
        let took = begun.elapsed();
        let (result, live) = match again.after(attempt, &result).await {
            After::Nothing => (result, None),
            After::Try(live) => (result, Some(live)),
            // What is kept running is so by a try that stands.
            After::Stop(_) if keeps(&left, &result) => (result, None),
            After::Stop(reason) => (again.execution.cut_short(result, reason), None),
        };
        let Some((next, live)) = next.zip(live) else {
            let mut produced = result.inspect_err(|_| log_left(again.execution, &left))?;
            produced.add_background(left);
            return Ok(Ran {
                took,
                produced,
                call,
            });
        };
        // This try's output is dropped. The processes it left running are not: they are listed with the last try.
        if let Ok(mut produced) = result {
            produced.add_background(std::mem::take(&mut left));
            left = produced.into_background();
        }
        context = Context { live, ..next };
        attempt += 1;
    }
}

/// Whom earlier tries have left alive, where the last one came to an error, which has no room for them.
fn log_left(execution: &Execution, left: &[LeftBehind]) {
    for one in left.iter().filter(|one| !one.killed) {
        let command = execution.secrets.summarize(&one.command);
        let (id, pid) = (&execution.id, one.pid);
        tracing::warn!(execution_id = %id, pid, command, "an earlier try has left a process behind, and the last one could not be made");
    }
}

/// Whether tries have left something running on purpose.
fn keeps(left: &[LeftBehind], result: &Result<Produced, ExecutorError>) -> bool {
    let lives = |one: &LeftBehind| !one.killed;
    left.iter().any(lives) || result.as_ref().is_ok_and(Produced::keeps)
}
