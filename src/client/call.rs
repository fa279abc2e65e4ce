//! The call that is sent, in the shape a model emits it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::domain::unique;

/// One tool call, in the shape a model emits it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Call {
    /// The tool to call.
    pub name: String,
    /// What the tool gets; its schema is in [`ToolDefinition`](super::ToolDefinition).
    pub input: Value,
    /// The caller's own id for this call; comes back in the [`Outcome`](super::Outcome).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The time limit, counted from the start of the process. The daemon's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<f64>,
    /// Where the command runs. The daemon's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Variables on top of the environment that the daemon builds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// What the command reads on standard input; `/dev/null` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// What becomes of processes that outlive the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
    /// The version of the tool. The newest that is released when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_version: Option<String>,
    /// The session that it is of, whose values skills share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Values that skills may read and write: an object of `memory`, `config`, `session` and `scratch`, each
    /// an object of values by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
    /// How far it is trusted: `untrusted` has it run in the sandbox. As the tool and the policy have it when
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk_level: Option<String>,
    /// The directory that it may write to in the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The trace that it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The tenant that it is made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Sent as the `Idempotency-Key` header: the same key never runs a call twice.
    #[serde(skip)]
    pub idempotency_key: Option<String>,
    /// Sent as the `traceparent` header (W3C Trace Context).
    #[serde(skip)]
    pub traceparent: Option<String>,
}

/// Reads a value as the daemon reads it.
///
/// # Errors
/// What is no JSON, and an object with a member twice: which of the two counts differs from reader to reader.
pub fn read_json(text: &str) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = unique::value(&mut reader)?;
    reader.end()?;
    Ok(value)
}

impl Call {
    /// A call of `name` with `input`, everything else left to the daemon's defaults.
    pub fn new(name: impl Into<String>, input: Value) -> Self {
        Self {
            name: name.into(),
            input,
            id: None,
            timeout_secs: None,
            working_dir: None,
            env: BTreeMap::new(),
            stdin: None,
            background: None,
            tool_version: None,
            session_id: None,
            context: None,
            risk_level: None,
            workspace: None,
            trace_id: None,
            tenant_id: None,
            idempotency_key: None,
            traceparent: None,
        }
    }

    /// A call of the `bash` tool.
    pub fn bash(command: &str) -> Self {
        Self::new("bash", json!({ "command": command }))
    }
}

/// What becomes of processes that outlive the command that started them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Background {
    /// They are killed before the answer is sent.
    Kill,
    /// They are left alone and listed in the answer.
    Keep,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_call_has_only_name_and_input() {
        let sent = serde_json::to_value(Call::bash("df -h")).expect("succeeds");
        assert_eq!(sent, json!({"name": "bash", "input": {"command": "df -h"}}));
    }

    #[test]
    fn options_are_sent_by_their_wire_names_and_headers_are_not() {
        let mut call = Call::bash("true");
        call.id = Some("toolu_01A".into());
        call.timeout_secs = Some(1.5);
        call.working_dir = Some("/tmp".into());
        call.env.insert("A".into(), "b".into());
        call.stdin = Some("x".into());
        call.background = Some(Background::Keep);
        call.idempotency_key = Some("key".into());
        assert_eq!(
            serde_json::to_value(call).expect("succeeds"),
            json!({
                "name": "bash", "input": {"command": "true"}, "id": "toolu_01A", "timeout_secs": 1.5,
                "working_dir": "/tmp", "env": {"A": "b"}, "stdin": "x", "background": "keep"
            })
        );
    }
}
