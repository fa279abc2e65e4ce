//! The answer of an execution that ended with its daemon: every member of others is there, and what nobody saw
//! is null.

use serde::Serialize;
use utoipa::ToSchema;

use super::body::{BackgroundBody, SignalBody, UsageBody};
use super::problem::Problem;
use crate::domain::{Display, RiskLevel, Sandboxed};

/// A problem of an execution that was lost when a process of it may have run.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LostProblem<'a> {
    #[serde(flatten)]
    problem: Problem<'a>,
    #[serde(flatten)]
    run: LostRun,
}

/// The facts of a run that nobody saw the end of: all null but `truncated`.
#[derive(Debug, Default, Serialize, ToSchema)]
struct LostRun {
    #[schema(required)]
    exit_code: Option<i32>,
    #[schema(required)]
    signal: Option<SignalBody>,
    #[schema(required)]
    oom_killed: Option<bool>,
    #[schema(required)]
    duration_ms: Option<u64>,
    /// True when `content` lacks a part of the output; else nobody knows.
    #[schema(required)]
    truncated: Option<bool>,
    /// What was kept of it may not be all that it wrote.
    #[schema(required)]
    stdout_bytes: Option<u64>,
    /// Likewise.
    #[schema(required)]
    stderr_bytes: Option<u64>,
    #[schema(required)]
    background: Option<Vec<BackgroundBody>>,
    #[schema(required)]
    usage: Option<UsageBody>,
    #[schema(required)]
    display: Option<Display>,
    #[schema(required)]
    risk_level: Option<RiskLevel>,
    #[schema(required)]
    sandbox: Option<Sandboxed>,
}

impl<'a> LostProblem<'a> {
    /// The same with what is known of the run.
    pub(super) fn new(problem: Problem<'a>, truncated: Option<bool>) -> Self {
        let run = LostRun {
            truncated,
            ..LostRun::default()
        };
        Self { problem, run }
    }
}
