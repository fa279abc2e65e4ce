use std::error::Error;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Judgement, StopReason, ToolOutput, Verdict, mask_secrets};

/// What kept the executor from doing a call, as opposed to a command that failed by itself.
///
/// Every variant names the tool and carries a summary of the input: at most
/// [`SUMMARY_CHARS`](super::SUMMARY_CHARS) characters, secrets masked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// No tool has this name.
    #[error("there is no tool `{tool_name}`{}", did_you_mean(nearest.as_deref()))]
    UnknownTool {
        /// The name that was asked for.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// The registered name nearest to it, if one is near.
        nearest: Option<String>,
    },

    /// The tool is switched off by configuration.
    #[error(
        "the tool `{tool_name}` is disabled: an operator enables it in [tools] of executor.toml"
    )]
    ToolDisabled {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
    },

    /// The input does not fit the tool.
    #[error("the input of `{tool_name}` is invalid: {}", join(violations))]
    InvalidInput {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// Each thing wrong with it.
        violations: Vec<Violation>,
    },

    /// The policy does not permit it, or asks about it and nobody is there to be asked.
    #[error("`{tool_name}` is not permitted: {}", refused(judgement))]
    PermissionDenied {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// What the policy said.
        judgement: Box<Judgement>,
    },

    /// A hook of the operator's does not let it pass, or failed and lets nothing pass then.
    #[error("`{tool_name}` was refused by the hook `{hook}`{}", because(reason.as_deref()))]
    HookDenied {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// The hook, by its name in the configuration.
        hook: String,
        /// Why, in its words, or how it failed.
        reason: Option<String>,
    },

    /// Somebody was asked for approval and said no.
    #[error("`{tool_name}` was refused{}{}", said_by(*by), because(reason.as_deref()))]
    UserRejected {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// Who; `None` when it was withdrawn.
        by: Option<u32>,
        /// Why, in their words.
        reason: Option<String>,
    },

    /// Nobody approved it in time.
    #[error("`{tool_name}` needs an approval, and nobody gave it within {}s", waited.as_secs_f64())]
    ApprovalExpired {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// How long it was waited for.
        waited: Duration,
    },

    /// What was approved is not what would run.
    #[error(
        "`{tool_name}` was approved and yet not run: {changed}; call it again to have it approved as it is now"
    )]
    ApprovalStale {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// What has changed.
        changed: String,
    },

    /// It cannot be recorded, and what cannot be recorded may not run.
    #[error(
        "`{tool_name}` was not run: it cannot be recorded, and `audit` is \"required\": {detail}"
    )]
    AuditUnavailable {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// What is wrong with the ledger.
        detail: String,
    },

    /// The process could not be started.
    #[error("cannot start `{tool_name}`: {step}")]
    SpawnFailed {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// What was being done, with its operand: "cannot execute `/bin/bash`".
        step: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },

    /// The time limit ran out; the whole tree was killed.
    #[error("`{tool_name}` was killed at its time limit of {}s", limit.as_secs_f64())]
    Timeout {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// The limit.
        limit: Duration,
        /// What it had written until then.
        partial: Box<ToolOutput>,
    },

    /// The call was stopped before its end.
    #[error("`{tool_name}` was stopped: {}", stopped_by(*reason))]
    Cancelled {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// By whom.
        reason: StopReason,
        /// What it had written until then; `None` when it had not started.
        partial: Option<Box<ToolOutput>>,
    },

    /// The output of the process could not be read.
    #[error("cannot read the output of `{tool_name}`")]
    OutputCaptureFailed {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// What could be read.
        partial: Box<ToolOutput>,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },

    /// A defect of the executor itself.
    #[error("internal error in `{tool_name}`: {detail}")]
    Internal {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// What is known.
        detail: String,
        /// The cause, if there is one.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl ExecutorError {
    /// The tool that was called.
    pub fn tool_name(&self) -> &str {
        match self {
            Self::UnknownTool { tool_name, .. }
            | Self::ToolDisabled { tool_name, .. }
            | Self::PermissionDenied { tool_name, .. }
            | Self::HookDenied { tool_name, .. }
            | Self::UserRejected { tool_name, .. }
            | Self::ApprovalExpired { tool_name, .. }
            | Self::ApprovalStale { tool_name, .. }
            | Self::AuditUnavailable { tool_name, .. }
            | Self::InvalidInput { tool_name, .. }
            | Self::SpawnFailed { tool_name, .. }
            | Self::Timeout { tool_name, .. }
            | Self::Cancelled { tool_name, .. }
            | Self::OutputCaptureFailed { tool_name, .. }
            | Self::Internal { tool_name, .. } => tool_name,
        }
    }

    /// What the tool was called with, in brief.
    pub fn input_summary(&self) -> &str {
        match self {
            Self::UnknownTool { input_summary, .. }
            | Self::ToolDisabled { input_summary, .. }
            | Self::PermissionDenied { input_summary, .. }
            | Self::HookDenied { input_summary, .. }
            | Self::UserRejected { input_summary, .. }
            | Self::ApprovalExpired { input_summary, .. }
            | Self::ApprovalStale { input_summary, .. }
            | Self::AuditUnavailable { input_summary, .. }
            | Self::InvalidInput { input_summary, .. }
            | Self::SpawnFailed { input_summary, .. }
            | Self::Timeout { input_summary, .. }
            | Self::Cancelled { input_summary, .. }
            | Self::OutputCaptureFailed { input_summary, .. }
            | Self::Internal { input_summary, .. } => input_summary,
        }
    }

    /// What the process had written and how it ended, if one ran.
    pub fn partial(&self) -> Option<&ToolOutput> {
        match self {
            Self::Timeout { partial, .. } | Self::OutputCaptureFailed { partial, .. } => {
                Some(partial)
            }
            Self::Cancelled { partial, .. } => partial.as_deref(),
            Self::UnknownTool { .. }
            | Self::ToolDisabled { .. }
            | Self::PermissionDenied { .. }
            | Self::HookDenied { .. }
            | Self::UserRejected { .. }
            | Self::ApprovalExpired { .. }
            | Self::ApprovalStale { .. }
            | Self::AuditUnavailable { .. }
            | Self::InvalidInput { .. }
            | Self::SpawnFailed { .. }
            | Self::Internal { .. } => None,
        }
    }

    /// The same, taken out.
    pub(crate) fn into_partial(self) -> Option<ToolOutput> {
        match self {
            Self::Timeout { partial, .. } | Self::OutputCaptureFailed { partial, .. } => {
                Some(*partial)
            }
            Self::Cancelled { partial, .. } => partial.map(|partial| *partial),
            Self::UnknownTool { .. }
            | Self::ToolDisabled { .. }
            | Self::InvalidInput { .. }
            | Self::PermissionDenied { .. }
            | Self::HookDenied { .. }
            | Self::UserRejected { .. }
            | Self::ApprovalExpired { .. }
            | Self::ApprovalStale { .. }
            | Self::AuditUnavailable { .. }
            | Self::SpawnFailed { .. }
            | Self::Internal { .. } => None,
        }
    }

    /// The same, to be taken out or replaced.
    pub fn partial_mut(&mut self) -> Option<&mut ToolOutput> {
        match self {
            Self::Timeout { partial, .. } | Self::OutputCaptureFailed { partial, .. } => {
                Some(partial)
            }
            Self::Cancelled { partial, .. } => partial.as_deref_mut(),
            Self::UnknownTool { .. }
            | Self::ToolDisabled { .. }
            | Self::PermissionDenied { .. }
            | Self::HookDenied { .. }
            | Self::UserRejected { .. }
            | Self::ApprovalExpired { .. }
            | Self::ApprovalStale { .. }
            | Self::AuditUnavailable { .. }
            | Self::InvalidInput { .. }
            | Self::SpawnFailed { .. }
            | Self::Internal { .. } => None,
        }
    }

    /// Replaces every text in it that comes from the call by what `mask` makes of it.
    pub fn mask(&mut self, mask: impl Fn(&str) -> String) {
        let over = |text: &mut String| *text = mask(text);
        match self {
            Self::UnknownTool { tool_name, .. } => over(tool_name),
            Self::InvalidInput { violations, .. } => {
                for violation in violations {
                    over(&mut violation.pointer);
                    over(&mut violation.detail);
                }
            }
            Self::PermissionDenied { judgement, .. } => judgement.mask(mask),
            Self::SpawnFailed { step, .. } => over(step),
            Self::Internal { detail, .. } => over(detail),
            Self::ApprovalStale { changed, .. } => over(changed),
            Self::UserRejected {
                reason: Some(reason),
                ..
            }
            | Self::HookDenied {
                reason: Some(reason),
                ..
            } => over(reason),
            Self::ToolDisabled { .. }
            | Self::UserRejected { reason: None, .. }
            | Self::HookDenied { reason: None, .. }
            | Self::ApprovalExpired { .. }
            | Self::AuditUnavailable { .. }
            | Self::Timeout { .. }
            | Self::Cancelled { .. }
            | Self::OutputCaptureFailed { .. } => {}
        }
    }

    /// In what the input breaks its schema, if that is what kept it.
    pub fn violations(&self) -> &[Violation] {
        if let Self::InvalidInput { violations, .. } = self {
            violations
        } else {
            &[]
        }
    }

    /// What the policy said, if that is what kept it.
    pub fn judgement(&self) -> Option<&Judgement> {
        if let Self::PermissionDenied { judgement, .. } = self {
            Some(judgement)
        } else {
            None
        }
    }

    /// The message and every cause behind it, joined by ": ".
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// One way in which an input breaks its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Where, as a JSON Pointer (RFC 6901) into the input; empty for the input itself.
    pub pointer: String,
    /// What is wrong and what was expected.
    pub detail: String,
}

/// Why, by which rule, and what to do instead.
fn refused(judgement: &Judgement) -> String {
    let mut text = judgement.reason.clone();
    if let Some(source) = &judgement.source {
        text.push_str(&format!(" ({}:{})", source.file.display(), source.line));
    }
    if judgement.verdict == Verdict::Ask {
        text.push_str("; somebody would have to approve it, and nobody can be asked");
    }
    if let Some(suggest) = &judgement.suggest {
        text.push_str(&format!("; instead: {suggest}"));
    }
    // It repeats what decided.
    mask_secrets(&text)
}

fn did_you_mean(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("; did you mean `{name}`?"),
        None => "; GET /tools lists what there is".to_owned(),
    }
}

fn join(violations: &[Violation]) -> String {
    let texts: Vec<String> = violations
        .iter()
        .map(|v| match v.pointer.as_str() {
            "" => v.detail.clone(),
            pointer => format!("{pointer}: {}", v.detail),
        })
        .collect();
    texts.join("; ")
}

fn said_by(by: Option<u32>) -> String {
    by.map(|uid| format!(" by uid {uid}")).unwrap_or_default()
}

fn because(reason: Option<&str>) -> String {
    reason.map(|why| format!(": {why}")).unwrap_or_default()
}

fn stopped_by(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Timeout(_) => "its time limit ran out",
        StopReason::Cancelled => "it was cancelled",
        StopReason::Disconnect => "the client hung up",
        StopReason::Shutdown => "the daemon is shutting down",
    }
}
