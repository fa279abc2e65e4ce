use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::brief::{brief, brief_judgement, brief_violations};
use super::{ExecutorError, Judgement, Stage, Status, StopReason, Violation, words};

/// What kept the executor from doing a call, as it is told and kept: the plain words of an
/// [`ExecutorError`] that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of thing it was.
    pub kind: FailureKind,
    /// What happened, causes and all.
    pub detail: String,
    /// The stage it arose in.
    pub stage: Option<Stage>,
    /// How the input breaks its schema, when it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// What the policy said, when that was it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Box<Judgement>>,
    /// After how many seconds the call is worth another try, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<u64>,
}

words! {
    /// The kinds of failures.
    pub enum FailureKind {
        /// [`ExecutorError::UnknownTool`] and [`ExecutorError::UnknownVersion`].
        UnknownTool = "unknown_tool",
        /// [`ExecutorError::ToolDisabled`].
        ToolDisabled = "tool_disabled",
        /// [`ExecutorError::InvalidInput`].
        InvalidInput = "invalid_input",
        /// [`ExecutorError::DepthExceeded`].
        DepthExceeded = "depth_exceeded",
        /// [`ExecutorError::CallCycle`].
        CallCycle = "call_cycle",
        /// [`ExecutorError::CallNotDeclared`].
        CallNotDeclared = "call_not_declared",
        /// [`ExecutorError::CallsUsedUp`].
        CallsUsedUp = "calls_used_up",
        /// [`ExecutorError::RateLimited`].
        RateLimited = "rate_limited",
        /// [`ExecutorError::QueueFull`].
        QueueFull = "queue_full",
        /// [`ExecutorError::CircuitOpen`].
        CircuitOpen = "circuit_open",
        /// [`ExecutorError::PermissionDenied`].
        PermissionDenied = "permission_denied",
        /// [`ExecutorError::HookDenied`].
        HookDenied = "hook_denied",
        /// [`ExecutorError::UserRejected`].
        UserRejected = "user_rejected",
        /// [`ExecutorError::ApprovalExpired`].
        ApprovalExpired = "approval_expired",
        /// [`ExecutorError::ApprovalStale`].
        ApprovalStale = "approval_stale",
        /// [`ExecutorError::AuditUnavailable`].
        AuditUnavailable = "audit_unavailable",
        /// [`ExecutorError::SandboxUnavailable`].
        SandboxUnavailable = "sandbox_unavailable",
        /// [`ExecutorError::ProviderMissing`].
        ProviderMissing = "provider_missing",
        /// [`ExecutorError::SpawnFailed`].
        SpawnFailed = "spawn_failed",
        /// [`ExecutorError::Timeout`].
        Timeout = "timeout",
        /// [`ExecutorError::Cancelled`], by somebody.
        Cancelled = "cancelled",
        /// [`ExecutorError::Cancelled`], by the stop of the daemon.
        ShutDown = "shut_down",
        /// [`ExecutorError::OutputCaptureFailed`].
        OutputCaptureFailed = "output_capture_failed",
        /// [`ExecutorError::OutputInvalid`].
        OutputInvalid = "output_invalid",
        /// The daemon died while the execution was under way.
        Lost = "lost",
        /// [`ExecutorError::Internal`].
        Internal = "internal",
    }
}

impl FailureKind {
    /// What an execution that fails so comes to in one word.
    pub fn status(self) -> Status {
        match self {
            Self::Timeout => Status::Timeout,
            Self::Cancelled | Self::ShutDown => Status::Cancelled,
            Self::PermissionDenied
            | Self::CallNotDeclared
            | Self::HookDenied
            | Self::UserRejected
            | Self::ApprovalExpired
            | Self::ApprovalStale => Status::Denied,
            Self::Lost => Status::Lost,
            Self::UnknownTool
            | Self::ToolDisabled
            | Self::InvalidInput
            | Self::DepthExceeded
            | Self::CallCycle
            | Self::CallsUsedUp
            | Self::RateLimited
            | Self::QueueFull
            | Self::CircuitOpen
            | Self::AuditUnavailable
            | Self::SandboxUnavailable
            | Self::ProviderMissing
            | Self::SpawnFailed
            | Self::OutputCaptureFailed
            | Self::OutputInvalid
            | Self::Internal => Status::Failed,
        }
    }

    /// Whether the tool was to run and the executor could not have it do its work: nobody stopped it, and
    /// nothing about the call was refused.
    pub fn is_of_the_tool(self) -> bool {
        matches!(
            self,
            Self::SpawnFailed
                | Self::SandboxUnavailable
                | Self::OutputCaptureFailed
                | Self::OutputInvalid
                | Self::Internal
        )
    }

    /// Whether the process had ended by itself, so that its exit code counts. What was stopped did not, whatever it
    /// made of the signal.
    pub fn ended_by_itself(self) -> bool {
        matches!(self, Self::OutputCaptureFailed | Self::OutputInvalid)
    }

    /// What kind of failure an error is.
    pub fn of(error: &ExecutorError) -> Self {
        match error {
            ExecutorError::UnknownTool { .. } | ExecutorError::UnknownVersion { .. } => {
                Self::UnknownTool
            }
            ExecutorError::ToolDisabled { .. } => Self::ToolDisabled,
            ExecutorError::InvalidInput { .. } => Self::InvalidInput,
            ExecutorError::DepthExceeded { .. } => Self::DepthExceeded,
            ExecutorError::CallCycle { .. } => Self::CallCycle,
            ExecutorError::CallNotDeclared { .. } => Self::CallNotDeclared,
            ExecutorError::CallsUsedUp { .. } => Self::CallsUsedUp,
            ExecutorError::RateLimited { .. } => Self::RateLimited,
            ExecutorError::QueueFull { .. } => Self::QueueFull,
            ExecutorError::CircuitOpen { .. } => Self::CircuitOpen,
            ExecutorError::PermissionDenied { .. } => Self::PermissionDenied,
            ExecutorError::HookDenied { .. } => Self::HookDenied,
            ExecutorError::UserRejected { .. } => Self::UserRejected,
            ExecutorError::ApprovalExpired { .. } => Self::ApprovalExpired,
            ExecutorError::ApprovalStale { .. } => Self::ApprovalStale,
            ExecutorError::AuditUnavailable { .. } => Self::AuditUnavailable,
            ExecutorError::SandboxUnavailable { .. } => Self::SandboxUnavailable,
            ExecutorError::ProviderMissing { .. } => Self::ProviderMissing,
            ExecutorError::SpawnFailed { .. } => Self::SpawnFailed,
            ExecutorError::Timeout { .. } => Self::Timeout,
            ExecutorError::Cancelled { reason, .. } => match reason {
                StopReason::Shutdown => Self::ShutDown,
                // Of a client whose deadline passed before anything ran.
                StopReason::Timeout(_) => Self::Timeout,
                StopReason::Cancelled | StopReason::Disconnect => Self::Cancelled,
            },
            ExecutorError::OutputCaptureFailed { .. } => Self::OutputCaptureFailed,
            ExecutorError::OutputInvalid { .. } => Self::OutputInvalid,
            ExecutorError::Internal { .. } => Self::Internal,
        }
    }
}

impl Failure {
    /// What is left of an error that arose in `stage`.
    pub fn of(error: &ExecutorError, stage: Option<Stage>) -> Self {
        Self {
            kind: FailureKind::of(error),
            detail: brief(error.chain()),
            stage,
            violations: brief_violations(error.violations()),
            judgement: error.judgement().map(brief_judgement).map(Box::new),
            retry_after_secs: error.retry_after().map(whole_secs),
        }
    }

    /// Whether the caller was told to call again. After a [`FailureKind::ShutDown`] that is for who knows that nothing ran.
    pub fn asks_for_another_try(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::RateLimited
                | FailureKind::QueueFull
                | FailureKind::CircuitOpen
                | FailureKind::AuditUnavailable
                | FailureKind::ShutDown
        )
    }

    /// What is said of an execution whose end nobody saw.
    pub const LOST: &str =
        "the daemon died while this was under way: what became of it is not known";

    /// That nobody saw the end of an execution, which was in `stage` before.
    pub fn lost(stage: Option<Stage>) -> Self {
        Self {
            kind: FailureKind::Lost,
            detail: Self::LOST.to_owned(),
            stage,
            violations: Vec::new(),
            judgement: None,
            retry_after_secs: None,
        }
    }

    /// Whether it is of an execution that was lost when a process of it may have run.
    pub fn was_lost_at_work(&self) -> bool {
        let is_at_work = match self.stage {
            Some(
                Stage::Discovery | Stage::Validation | Stage::Permission | Stage::Confirmation,
            ) => false,
            Some(Stage::Execution | Stage::Formatting) | None => true,
        };
        self.kind == FailureKind::Lost && is_at_work
    }
}

/// Seconds, rounded up: who waits so long has waited long enough. At least one.
pub(crate) fn whole_secs(wait: Duration) -> u64 {
    let begun = u64::from(wait.subsec_nanos() > 0);
    (wait.as_secs() + begun).max(1)
}
