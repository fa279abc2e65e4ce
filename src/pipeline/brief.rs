use std::time::SystemTime;

use serde::Deserialize;

use super::Record;
use crate::domain::{ExecutionId, Status};
use crate::ledger::Listed;

/// What a list tells of an execution, which is little: of its record the call and the answer may be long.
#[derive(Clone, Debug)]
pub struct Brief {
    /// Its name.
    pub id: ExecutionId,
    /// Where it stands.
    pub status: Status,
    /// The tool that was called.
    pub tool: String,
    /// What it was about, in a line.
    pub summary: String,
    /// Who called it.
    pub caller_uid: u32,
    /// When the call came in.
    pub created_at: SystemTime,
    /// When its process was started, if one was.
    pub started_at: Option<SystemTime>,
    /// When it ended, if it has.
    pub ended_at: Option<SystemTime>,
    /// What a person is shown of how it ended, if something ran.
    pub ending: Option<BriefEnding>,
    /// The execution that it repeats.
    pub replay_of: Option<ExecutionId>,
}

/// How an execution ended, in brief; a part of [`Display`](crate::domain::Display).
#[derive(Clone, Debug, Deserialize)]
pub struct BriefEnding {
    /// From the start of the process to its end, in milliseconds.
    pub duration_ms: u64,
    /// How it ended.
    pub exit: String,
}

impl From<&Record> for Brief {
    fn from(record: &Record) -> Self {
        let finished = record.finished.as_deref();
        let ran = finished.and_then(|finished| finished.ran.as_ref());
        Self {
            id: record.id,
            status: record.status,
            tool: record.tool.clone(),
            summary: record.call.summary.clone(),
            caller_uid: record.caller_uid,
            created_at: record.created_at,
            started_at: record.started_at,
            ended_at: finished.map(|finished| finished.ended_at),
            ending: ran.map(|ran| BriefEnding {
                duration_ms: ran.display.duration_ms,
                exit: ran.display.exit.clone(),
            }),
            replay_of: record.replay_of,
        }
    }
}

impl Brief {
    /// What the ledger has of it.
    pub(super) fn of(listed: Listed<'_>) -> Self {
        Self {
            id: listed.id,
            status: listed.status,
            tool: listed.tool.to_owned(),
            summary: summary(listed.call),
            caller_uid: listed.caller_uid,
            created_at: listed.created_at,
            started_at: listed.started_at,
            ended_at: listed.ended_at,
            ending: listed.ended_at.and_then(|_| ending(listed.ending)),
            replay_of: listed.replay_of,
        }
    }
}

/// The summary of a [`CallRecord`](super::CallRecord). It is its first member, behind which nothing need be read.
fn summary(call: &[u8]) -> String {
    #[derive(Default, Deserialize)]
    struct Whole {
        summary: String,
    }
    let rest = call.strip_prefix(br#"{"summary":"#);
    let first = rest.and_then(|rest| {
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<String>();
        values.next()?.ok()
    });
    first.unwrap_or_else(|| {
        let whole: Whole = serde_json::from_slice(call).unwrap_or_default();
        whole.summary
    })
}

/// What is shown of the ending of a [`Ran`](super::Ran).
fn ending(ending: &[u8]) -> Option<BriefEnding> {
    #[derive(Deserialize)]
    struct Whole {
        display: BriefEnding,
    }
    let whole: Option<Whole> = serde_json::from_slice(ending).unwrap_or_default();
    whole.map(|whole| whole.display)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_wherever_it_stands() {
        for (call, expected) in [
            (r#"{"summary":"a \"b\" \u00e9","input":{}}"#, "a \"b\" é"),
            (r#"{"input": {"summary": "no"}, "summary": "yes"}"#, "yes"),
            // Nothing behind it is looked at.
            (r#"{"summary":"cut","input":{"#, "cut"),
            ("null", ""),
            ("", ""),
        ] {
            assert_eq!(summary(call.as_bytes()), expected, "{call}");
        }
    }

    #[test]
    fn what_has_not_run_has_no_ending() {
        let shown = r#"{"is_error": false, "output": {"exit": 1}, "display": {"title": "t", "summary": "", "duration_ms": 7, "exit": "0"}}"#;
        let found = ending(shown.as_bytes()).map(|ending| (ending.duration_ms, ending.exit));
        assert_eq!(found, Some((7, "0".to_owned())));
        for none in ["null", "", "{}"] {
            assert!(ending(none.as_bytes()).is_none(), "{none}");
        }
    }
}
