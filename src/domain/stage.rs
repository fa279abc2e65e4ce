use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The stages every call goes through, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
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

impl Stage {
    /// The word for it in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Discovery => "discovery",
            Self::Validation => "validation",
            Self::Permission => "permission",
            Self::Confirmation => "confirmation",
            Self::Execution => "execution",
            Self::Formatting => "formatting",
        }
    }
}

/// On which side of a stage. Ordered as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Before it has begun.
    Before,
    /// When it has let the call through.
    After,
}

/// A place between what the stages do. Ordered as a call comes by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The stage it belongs to.
    pub stage: Stage,
    /// On which side.
    pub when: When,
}

impl Point {
    /// Before a stage.
    pub const fn before(stage: Stage) -> Self {
        let when = When::Before;
        Self { stage, when }
    }

    /// After a stage.
    pub const fn after(stage: Stage) -> Self {
        let when = When::After;
        Self { stage, when }
    }

    /// Whether nothing has been run there yet, so that a call can still be refused or changed.
    pub fn precedes_the_run(self) -> bool {
        self <= Self::before(Stage::Execution)
    }
}

/// When an execution was in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTimes {
    /// Which.
    pub stage: Stage,
    /// When it began.
    #[serde(with = "super::micros")]
    pub started_at: SystemTime,
    /// When it ended; `None` until then.
    #[serde(with = "super::micros::option")]
    pub ended_at: Option<SystemTime>,
}
