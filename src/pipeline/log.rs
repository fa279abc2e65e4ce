use std::time::Duration;

use super::Execution;
use super::finished::status;
use crate::domain::{ExecutorError, Exit, Failure, Status, ToolOutput, TraceId};

/// Writes the one record each execution leaves in the log. The names are those of the journal's
/// fields; a value that is not known is left out.
pub(super) fn execution(
    execution: &Execution,
    result: &Result<ToolOutput, ExecutorError>,
    summary: &str,
) {
    let failure = result.as_ref().err().map(|error| Failure::of(error, None));
    let status = status(failure.as_ref(), result.as_ref().ok());
    let (run, error) = match result {
        Ok(output) => (Some(&output.run), None),
        Err(error) => (
            error.partial().map(|partial| &partial.run),
            Some(error.chain()),
        ),
    };
    let exit_code = match (result, run.and_then(|run| run.exit)) {
        (Ok(_), Some(Exit::Code(code))) => Some(code),
        _ => None,
    };
    let output_bytes = run.map(|run| run.stdout_bytes + run.stderr_bytes);
    let duration_ms = run.map_or(0, |run| millis(run.duration));
    macro_rules! write {
        ($level:ident) => {
            tracing::$level!(
                EXECUTION_ID = %execution.id,
                TOOL_NAME = execution.tool,
                COMMAND_SUMMARY = summary,
                DURATION_MS = duration_ms,
                EXIT_CODE = exit_code,
                OUTPUT_BYTES = output_bytes,
                STATUS = status.as_str(),
                CALLER_UID = execution.caller.uid,
                TRACE_ID = execution.trace_id.as_ref().map(TraceId::as_str),
                ERROR = error,
                "{} {}: {summary}", execution.tool, status.as_str(),
            )
        };
    }
    match status {
        Status::Denied | Status::Failed | Status::Lost => write!(warn),
        Status::Queued
        | Status::Waiting
        | Status::Running
        | Status::Success
        | Status::Error
        | Status::Timeout
        | Status::Cancelled => write!(info),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
