use super::Execution;
use super::Finished;
use super::finished::status;
use crate::domain::{
    ExecutorError, Exit, Failure, RunReport, Status, ToolOutput, TraceId, whole_millis,
};

/// Writes the record of an execution that is kept nowhere else.
pub(super) fn result(execution: &Execution, result: &Result<ToolOutput, ExecutorError>) {
    let failure = result.as_ref().err().map(|error| Failure::of(error, None));
    let run = match result {
        Ok(output) => Some(&output.run),
        Err(error) => error.partial().map(|partial| &partial.run),
    };
    let status = status(failure.as_ref(), result.as_ref().ok());
    write(execution, status, run, failure.as_ref());
}

/// Writes the record of an execution that has ended.
pub(super) fn ending(execution: &Execution, finished: &Finished) {
    let failure = finished.failure.as_ref();
    write(execution, finished.status, finished.run(), failure);
}

/// The one record each execution leaves in the log. The names are those of the journal's fields; a
/// value that is not known is left out.
fn write(
    execution: &Execution,
    status: Status,
    run: Option<&RunReport>,
    failure: Option<&Failure>,
) {
    let call = execution.call();
    let summary = &call.summary;
    let correlation = &execution.correlation;
    let exit_code = match (failure, run.and_then(|run| run.exit)) {
        (None, Some(Exit::Code(code))) => Some(code),
        _ => None,
    };
    let error = failure.map(|failure| &failure.detail);
    let output_bytes = run.map(|run| run.stdout_bytes + run.stderr_bytes);
    let duration_ms = run.map_or(0, |run| whole_millis(run.duration));
    macro_rules! write {
        ($level:ident) => {
            tracing::$level!(
                EXECUTION_ID = %execution.id,
                TOOL_NAME = execution.tool,
                COMMAND_SUMMARY = summary.as_str(),
                DURATION_MS = duration_ms,
                EXIT_CODE = exit_code,
                OUTPUT_BYTES = output_bytes,
                STATUS = status.as_str(),
                CALLER_UID = execution.caller.uid,
                TRACE_ID = correlation.trace_id.as_ref().map(TraceId::as_str),
                TENANT_ID = correlation.tenant_id.as_deref(),
                SESSION_ID = correlation.session_id.as_deref(),
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
