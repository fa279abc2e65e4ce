use std::time::SystemTime;

use serde::Serialize;
use utoipa::ToSchema;

/// The stages every call goes through, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The tool is found.
    Discovery,
    /// The input is held against the tool's schema.
    Validation,
    /// The policy judges it.
    Permission,
    /// Who may approve it is asked.
    Confirmation,
    /// The tool does it.
    Execution,
    /// What it said is made ready for the model and for people.
    Formatting,
}

/// When an execution was in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTimes {
    /// Which.
    pub stage: Stage,
    /// When it began.
    pub started_at: SystemTime,
    /// When it ended; `None` until then.
    pub ended_at: Option<SystemTime>,
}
