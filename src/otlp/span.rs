use std::time::SystemTime;

use crate::domain::{
    Correlation, ExecutionId, Exit, FailureKind, KillReason, Lineage, RiskLevel, SpanContext,
    Stage, StageTimes, Status, Verdict,
};

/// What is told of an execution that has ended. Nothing of what it was called with or answered is
/// in it.
#[derive(Clone, Debug)]
pub(crate) struct ExecutionSpan {
    pub(crate) id: ExecutionId,
    pub(crate) context: SpanContext,
    /// The execution whose call it is, when a tool made it.
    pub(crate) lineage: Option<Lineage>,
    /// The span of that.
    pub(crate) caller: Option<SpanContext>,
    /// What it belongs to, secrets masked.
    pub(crate) belongs: Correlation,
    /// The tool as it was called.
    pub(crate) tool: String,
    /// Its version; `None` when there is no such tool.
    pub(crate) version: Option<String>,
    pub(crate) tool_use_id: Option<String>,
    pub(crate) caller_uid: u32,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) approver_uid: Option<u32>,
    pub(crate) risk: Option<RiskLevel>,
    /// The OCI runtime of its sandbox.
    pub(crate) sandbox: Option<String>,
    pub(crate) started_at: SystemTime,
    pub(crate) ended_at: SystemTime,
    /// The stages it has been in; none where they are not timed.
    pub(crate) stages: Vec<StageTimes>,
    pub(crate) status: Status,
    /// What kept the executor from doing it, and in which stage.
    pub(crate) failure: Option<(FailureKind, Option<Stage>)>,
    /// How its process ended by itself.
    pub(crate) exit: Option<Exit>,
    pub(crate) oom_killed: bool,
    pub(crate) kill: Option<KillReason>,
}

impl ExecutionSpan {
    /// How many spans are made of it.
    pub(super) fn count(&self) -> usize {
        1 + self.stages.len()
    }
}
