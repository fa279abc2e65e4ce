//! The parts of what an error says.

use std::time::Duration;

use super::Violation;
use crate::domain::{Judgement, StopReason, Verdict, mask_secrets, whole_secs};

/// Whole seconds, for a wait that is not to be too short.
pub(super) fn secs(wait: Duration) -> String {
    format!("{}s", whole_secs(wait))
}

/// Why, by which rule, and what to do instead.
pub(super) fn refused(judgement: &Judgement) -> String {
    let mut text = judgement.reason.clone();
    if let Some(source) = &judgement.source {
        text.push_str(&format!(" ({}:{})", source.file.display(), source.line));
    }
    if judgement.verdict == Verdict::Ask {
        text.push_str("; somebody would have to approve it, and nobody can be asked: [access] in executor.toml names `approvers`");
    }
    if let Some(suggest) = &judgement.suggest {
        text.push_str(&format!("; instead: {suggest}"));
    }
    // It repeats what decided.
    mask_secrets(&text)
}

pub(super) fn no_tool(name: &str) -> String {
    match name {
        "" => "the name of the tool is empty: expected that of one that there is".to_owned(),
        name => format!("there is no tool `{name}`"),
    }
}

pub(super) fn did_you_mean(nearest: Option<&str>) -> String {
    suggested(nearest).unwrap_or_else(|| "; GET /tools lists what there is".to_owned())
}

/// The end of a sentence about a name that there is not, where another is near.
pub(crate) fn suggested(nearest: Option<&str>) -> Option<String> {
    nearest.map(|name| format!("; did you mean `{name}`?"))
}

pub(super) fn join(violations: &[Violation]) -> String {
    let texts: Vec<String> = violations
        .iter()
        .map(|v| match v.pointer.as_str() {
            "" => v.detail.clone(),
            pointer => format!("{pointer}: {}", v.detail),
        })
        .collect();
    texts.join("; ")
}

pub(super) fn said_by(by: Option<u32>) -> String {
    by.map(|uid| format!(" by uid {uid}")).unwrap_or_default()
}

pub(super) fn because(reason: Option<&str>) -> String {
    reason.map(|why| format!(": {why}")).unwrap_or_default()
}

pub(super) fn stopped_by(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Timeout(_) => "its time limit ran out",
        StopReason::Cancelled => "it was cancelled",
        StopReason::Disconnect => "the client hung up",
        StopReason::Shutdown => "the daemon is shutting down",
    }
}
