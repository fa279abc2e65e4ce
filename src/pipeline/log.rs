use std::borrow::Cow;

use super::termination::Termination;
use super::{CallRecord, Execution};
use crate::domain::{ExecutionId, Failure, Status, TraceId, misleads, summarize, whole_millis};
use crate::ledger::OpenRecord;

/// Writes the record of an execution that has ended.
pub(super) fn ending(execution: &Execution, ended: &Termination<'_>) {
    let (correlation, run) = (&execution.correlation, ended.run);
    let failure = ended.failure().map(|failure| failure.kind);
    write(&Line {
        id: execution.id,
        tool: &execution.tool,
        summary: &execution.call().summary,
        duration_ms: Some(run.map_or(0, |run| whole_millis(run.duration))),
        exit_code: run.and_then(|run| run.exit_told(failure).0),
        output_bytes: run.map(|run| run.stdout_bytes + run.stderr_bytes),
        status: ended.status,
        caller_uid: execution.caller.uid,
        trace_id: correlation.trace_id.as_ref().map(TraceId::as_str),
        tenant_id: correlation.tenant_id.as_deref(),
        session_id: correlation.session_id.as_deref(),
        error: ended.failure().map(|failure| failure.detail.as_str()),
    });
}

/// Writes the record of an execution whose daemon did not live to see its end.
pub(super) fn lost(record: &OpenRecord) {
    let call: CallRecord = record.call.read().unwrap_or_default();
    write(&Line {
        id: record.id,
        tool: &record.tool,
        summary: &call.summary,
        duration_ms: None,
        exit_code: None,
        output_bytes: None,
        status: Status::Lost,
        caller_uid: record.caller_uid,
        trace_id: record.trace_id.as_ref().map(TraceId::as_str),
        tenant_id: call.tenant_id.as_deref(),
        session_id: call.session_id.as_deref(),
        error: Some(Failure::LOST),
    });
}

/// The one record each execution leaves in the log. A value that is not known is left out.
struct Line<'a> {
    id: ExecutionId,
    tool: &'a str,
    summary: &'a str,
    duration_ms: Option<u64>,
    exit_code: Option<i32>,
    output_bytes: Option<u64>,
    status: Status,
    caller_uid: u32,
    trace_id: Option<&'a str>,
    tenant_id: Option<&'a str>,
    session_id: Option<&'a str>,
    error: Option<&'a str>,
}

/// Writes it under the names of the journal's fields.
fn write(line: &Line<'_>) {
    let Line {
        tool,
        summary,
        status,
        ..
    } = *line;
    // The caller's own word, where there is no such tool: it is not to begin another line.
    let named = match tool.contains(misleads) {
        true => Cow::Owned(summarize(tool)),
        false => Cow::Borrowed(tool),
    };
    macro_rules! write {
        ($level:ident) => {
            tracing::$level!(
                EXECUTION_ID = %line.id,
                TOOL_NAME = tool,
                COMMAND_SUMMARY = summary,
                DURATION_MS = line.duration_ms,
                EXIT_CODE = line.exit_code,
                OUTPUT_BYTES = line.output_bytes,
                STATUS = status.as_str(),
                CALLER_UID = line.caller_uid,
                TRACE_ID = line.trace_id,
                TENANT_ID = line.tenant_id,
                SESSION_ID = line.session_id,
                ERROR = line.error,
                "{named} {}: {summary}", status.as_str(),
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
