//! What of executions goes to whoever follows traces.

use super::termination::Termination;
use super::{Execution, Executor};
use crate::domain::FailureKind;
use crate::otlp::{ExecutionSpan, Exporter};

impl Executor {
    /// Sends the spans that wait to be sent, for a few seconds at the most. For the end, when nothing
    /// runs any more.
    pub async fn end_spans(&self) {
        self.inner.spans.end().await;
    }
}

/// Tells of an execution that has ended.
pub(super) fn tell(spans: &Exporter, execution: &Execution, end: &Termination<'_>) {
    if !spans.is_on() {
        return;
    }
    let context = execution.span_context();
    if !context.is_sampled {
        return;
    }
    let (known, run) = (execution.known(), end.run);
    let tool = execution.tool_found();
    let judged = known.ruling.as_ref();
    let stages = execution.stages();
    let failure = end.failure().map(|failure| failure.kind);
    // What was stopped did not, whatever it made of the signal.
    let ended_by_itself = failure.is_none_or(FailureKind::ended_by_itself);
    spans.tell(ExecutionSpan {
        id: execution.id,
        context,
        lineage: execution.family.lineage().cloned(),
        caller: execution.family.caller().copied(),
        belongs: execution.correlation.clone(),
        tool: execution.tool.clone(),
        version: tool.map(|tool| tool.implementation.version().to_owned()),
        tool_use_id: execution.tool_use_id.clone(),
        caller_uid: execution.caller.uid,
        verdict: judged.map(|ruling| ruling.verdict),
        approver_uid: known.approved.map(|(_, uid)| uid),
        risk: run.map(|run| run.risk_level).or(known.risk),
        sandbox: run.and_then(|run| Some(run.sandbox.as_ref()?.runtime.clone())),
        started_at: execution.created_at,
        ended_at: end.at,
        stages: if execution.timed { stages } else { Vec::new() },
        status: end.status,
        failure: end.failure().map(|failure| (failure.kind, failure.stage)),
        exit: run.and_then(|run| run.exit.filter(|_| ended_by_itself)),
        oom_killed: run.is_some_and(|run| run.oom_killed),
        kill: run.and_then(|run| Some(run.kill.as_ref()?.reason)),
    });
}
