use std::error::Error;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Judgement, StopReason, ToolOutput};

mod words;
pub(crate) use words::suggested;
use words::{because, did_you_mean, join, no_tool, refused, said_by, secs, stopped_by};

/// What kept the executor from doing a call, as opposed to a command that failed by itself.
///
/// Every variant names the tool and carries a summary of the input: at most
/// [`SUMMARY_CHARS`](super::SUMMARY_CHARS) characters, secrets masked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// No tool has this name.
    #[error("{}{}", no_tool(tool_name), did_you_mean(nearest.as_deref()))]
    UnknownTool {
        /// The name that was asked for.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// The registered name nearest to it, if one is near.
        nearest: Option<String>,
    },

    /// The tool is there, and not in this version.
    #[error("there is no version `{version}` of `{tool_name}`; there is `{}`", versions.join("`, `"))]
    UnknownVersion {
        /// The name that was asked for.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// The version that was asked for.
        version: String,
        /// Those that there are.
        versions: Vec<String>,
    },

    /// The tool is switched off by configuration.
    #[error(
        "the tool `{tool_name}` is disabled: an operator enables it in executor.toml ([tools] disabled, for the file tools also [files] enabled)"
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

    /// The tool that calls it was itself called by so many others that this is one too many.
    #[error("`{tool_name}` would be call {depth} within one another, and {max_depth} may be: `{}`", chain.join("` calls `"))]
    DepthExceeded {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// How deep it would be; 0 is a call from outside.
        depth: u32,
        /// How deep it may be.
        max_depth: u32,
        /// The tools that called one another, the outermost first.
        chain: Vec<String>,
    },

    /// The tool is among those that led to its own call.
    #[error("`{tool_name}` would call itself: `{}` calls `{tool_name}`", chain.join("` calls `"))]
    CallCycle {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// The tools that called one another, the outermost first.
        chain: Vec<String>,
    },

    /// The tool that calls it does not say that it does.
    #[error(
        "`{caller}` may not call `{tool_name}`: it is not among the `calls` that its skill.json declares"
    )]
    CallNotDeclared {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// The tool that calls it.
        caller: String,
    },

    /// What was called from outside has led to as many calls as it may.
    #[error(
        "`{tool_name}` was not run: the outermost call has led to {max_calls} calls, and no more may come of one"
    )]
    CallsUsedUp {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// How many may come of one.
        max_calls: u32,
    },

    /// It is called more often than it may be.
    #[error(
        "`{tool_name}` was not run: {rate}, and there have been as many; call it again in {}",
        secs(*retry_after)
    )]
    RateLimited {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// How often who or what may call or be called: "uid 1000 may make 10 calls in 1s".
        rate: String,
        /// When it would be let through.
        retry_after: Duration,
    },

    /// As many calls run at once as may, and there is no waiting for their end, or no more.
    #[error("`{tool_name}` was not run: {detail}")]
    QueueFull {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// How many wait, or how long this one has.
        detail: String,
        /// When it is likely to find a place in the queue.
        retry_after: Duration,
    },

    /// The executor has failed at calls of the tool, one after the other, and leaves it alone.
    #[error(
        "`{tool_name}` was not run: calls of it have failed one after the other, and it is left alone; call it again in {}",
        secs(*retry_after)
    )]
    CircuitOpen {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// When one is let through again.
        retry_after: Duration,
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
        "`{tool_name}` was not run under its approval: {changed}; call it again to have it approved as it is now"
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
    #[error("`{tool_name}` was not run: it cannot be recorded, as it has to be: {detail}")]
    AuditUnavailable {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// What is wrong with the ledger.
        detail: String,
    },

    /// The tool is not trusted, and there is nothing to keep it apart by.
    #[error("`{tool_name}` was not run: it is untrusted, and the sandbox cannot be used: {detail}")]
    SandboxUnavailable {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// Why, and what to do.
        detail: String,
    },

    /// The tool asks a model, and there is none.
    #[error("`{tool_name}` was not run: it asks a model, and no model provider is configured")]
    ProviderMissing {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
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
        /// Why it was stopped.
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

    /// What the tool answered breaks its own output schema.
    #[error("the output of `{tool_name}` is invalid: {}", join(violations))]
    OutputInvalid {
        /// The tool.
        tool_name: String,
        /// What it was called with.
        input_summary: String,
        /// Each thing wrong with it.
        violations: Vec<Violation>,
        /// What it answered, as text.
        partial: Box<ToolOutput>,
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

/// What every variant has.
macro_rules! in_each {
    ($error:ident, $member:ident) => {
        match $error {
            Self::UnknownTool { $member, .. }
            | Self::UnknownVersion { $member, .. }
            | Self::ToolDisabled { $member, .. }
            | Self::InvalidInput { $member, .. }
            | Self::PermissionDenied { $member, .. }
            | Self::HookDenied { $member, .. }
            | Self::UserRejected { $member, .. }
            | Self::ApprovalExpired { $member, .. }
            | Self::ApprovalStale { $member, .. }
            | Self::AuditUnavailable { $member, .. }
            | Self::SpawnFailed { $member, .. }
            | Self::Timeout { $member, .. }
            | Self::Cancelled { $member, .. }
            | Self::OutputCaptureFailed { $member, .. }
            | Self::OutputInvalid { $member, .. }
            | Self::Internal { $member, .. }
            | Self::DepthExceeded { $member, .. }
            | Self::CallCycle { $member, .. }
            | Self::CallNotDeclared { $member, .. }
            | Self::CallsUsedUp { $member, .. }
            | Self::RateLimited { $member, .. }
            | Self::QueueFull { $member, .. }
            | Self::CircuitOpen { $member, .. }
            | Self::SandboxUnavailable { $member, .. }
            | Self::ProviderMissing { $member, .. } => $member,
        }
    };
}

impl ExecutorError {
    /// The tool that was called.
    pub fn tool_name(&self) -> &str {
        in_each!(self, tool_name)
    }

    /// What the tool was called with, in brief.
    pub fn input_summary(&self) -> &str {
        in_each!(self, input_summary)
    }

    /// What the process had written and how it ended, if one ran.
    pub fn partial(&self) -> Option<&ToolOutput> {
        if let Self::Timeout { partial, .. }
        | Self::OutputCaptureFailed { partial, .. }
        | Self::OutputInvalid { partial, .. } = self
        {
            Some(partial)
        } else if let Self::Cancelled { partial, .. } = self {
            partial.as_deref()
        } else {
            None
        }
    }

    /// The same, taken out.
    pub(crate) fn into_partial(self) -> Option<ToolOutput> {
        if let Self::Timeout { partial, .. }
        | Self::OutputCaptureFailed { partial, .. }
        | Self::OutputInvalid { partial, .. } = self
        {
            Some(*partial)
        } else if let Self::Cancelled { partial, .. } = self {
            partial.map(|partial| *partial)
        } else {
            None
        }
    }

    /// The same, to be taken out or replaced.
    pub fn partial_mut(&mut self) -> Option<&mut ToolOutput> {
        if let Self::Timeout { partial, .. }
        | Self::OutputCaptureFailed { partial, .. }
        | Self::OutputInvalid { partial, .. } = self
        {
            Some(partial)
        } else if let Self::Cancelled { partial, .. } = self {
            partial.as_deref_mut()
        } else {
            None
        }
    }

    /// Replaces every text in it that comes from the call by what `mask` makes of it.
    pub fn mask(&mut self, mask: impl Fn(&str) -> String) {
        let over = |text: &mut String| *text = mask(text);
        match self {
            Self::UnknownTool { tool_name, .. } => over(tool_name),
            Self::UnknownVersion { version, .. } => over(version),
            Self::InvalidInput { violations, .. } | Self::OutputInvalid { violations, .. } => {
                for violation in violations {
                    over(&mut violation.pointer);
                    over(&mut violation.detail);
                }
            }
            Self::PermissionDenied { judgement, .. } => judgement.mask(mask),
            Self::SpawnFailed { step, .. } => over(step),
            Self::Internal { detail, .. } => over(detail),
            Self::ApprovalStale { changed, .. } => over(changed),
            // It may name a tenant.
            Self::RateLimited { rate, .. } => over(rate),
            Self::UserRejected {
                reason: Some(reason),
                ..
            }
            | Self::HookDenied {
                reason: Some(reason),
                ..
            } => over(reason),
            Self::ToolDisabled { .. }
            | Self::DepthExceeded { .. }
            | Self::CallCycle { .. }
            | Self::CallNotDeclared { .. }
            | Self::CallsUsedUp { .. }
            | Self::QueueFull { .. }
            | Self::CircuitOpen { .. }
            | Self::UserRejected { reason: None, .. }
            | Self::HookDenied { reason: None, .. }
            | Self::ApprovalExpired { .. }
            | Self::AuditUnavailable { .. }
            | Self::SandboxUnavailable { .. }
            | Self::ProviderMissing { .. }
            | Self::Timeout { .. }
            | Self::Cancelled { .. }
            | Self::OutputCaptureFailed { .. } => {}
        }
    }

    /// In what the input breaks its schema, if that is what kept it.
    pub fn violations(&self) -> &[Violation] {
        if let Self::InvalidInput { violations, .. } | Self::OutputInvalid { violations, .. } = self
        {
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

    /// How long to wait before the call is worth another try, if that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::RateLimited { retry_after, .. }
        | Self::QueueFull { retry_after, .. }
        | Self::CircuitOpen { retry_after, .. } = self
        {
            return Some(*retry_after);
        }
        // What has run in part would run again.
        let is_left_to_the_next = matches!(
            self,
            Self::Cancelled {
                reason: StopReason::Shutdown,
                partial: None,
                ..
            }
        );
        is_left_to_the_next.then_some(Duration::from_secs(1))
    }

    /// The message and every cause behind it, joined by ": ".
    pub fn chain(&self) -> String {
        with_causes(self)
    }
}

/// An error and every cause behind it, joined by ": ".
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// One way in which an input breaks its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Where, as a JSON Pointer (RFC 6901) into the input; empty for the input itself.
    pub pointer: String,
    /// What is wrong and what was expected.
    pub detail: String,
}

impl Violation {
    /// Of the input as a whole.
    pub(crate) fn of_all(detail: String) -> Self {
        let pointer = String::new();
        Self { pointer, detail }
    }
}
