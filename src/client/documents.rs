//! The documents that can be read from the daemon: tools, health, records. Reading is lenient, so
//! that a client understands a newer daemon, and `Received` keeps each document as it came.

use std::ops::Deref;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::Answer;

/// A document from the daemon: read into `T`, and kept letter for letter in `json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Received<T> {
    /// The document as it arrived, with every member, also those `T` does not know.
    pub json: String,
    /// The document as this client reads it.
    pub value: T,
}

impl<T> Deref for Received<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A document inside another keeps its letters too.
impl<'de, T: for<'any> Deserialize<'any>> Deserialize<'de> for Received<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(Box::<str>::from(raw).into()).map_err(D::Error::custom)
    }
}

impl<T: for<'de> Deserialize<'de>> Received<T> {
    pub(super) fn parse(json: String) -> Result<Self, serde_json::Error> {
        Ok(Self {
            value: serde_json::from_str(&json)?,
            json,
        })
    }
}

/// A tool as a Messages request lists it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct ToolDefinition {
    /// The name to call it by.
    pub name: String,
    /// What the model reads.
    pub description: String,
    /// The JSON schema of its input.
    pub input_schema: Value,
}

/// Everything the daemon tells about one tool.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct ToolDetails {
    /// What a Messages request would list.
    #[serde(flatten)]
    pub definition: ToolDefinition,
    /// Its version.
    pub version: Option<Value>,
    /// All versions that can be called, the default first.
    #[serde(default)]
    pub versions: Vec<String>,
    /// How far it is trusted.
    pub risk_level: Option<Value>,
    /// What kind of tool it is, in a word.
    pub category: Option<String>,
    /// The time limit of a call that names none, in seconds.
    pub timeout_secs: Option<f64>,
    /// Where its definition comes from.
    pub source: Option<Value>,
    /// The JSON schema of its output.
    pub output_schema: Option<Value>,
}

/// What the policy says of a call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Judgement {
    /// `allow`, `ask` or `deny`.
    pub verdict: String,
    /// The rule that decided, if one did.
    pub rule: Option<String>,
    /// Where it stands.
    pub source: Option<RuleSource>,
    /// The command in a script, or the value in an input, that decided.
    pub segment: Option<String>,
    /// Why.
    pub reason: String,
    /// What to do instead.
    pub suggest: Option<String>,
    /// What would make the verdict another one.
    #[serde(default)]
    pub would_change: String,
    /// How far the call is trusted: `untrusted` has it run in the sandbox.
    pub risk_level: Option<String>,
    /// The rule that raised that, if one did.
    pub risk_rule: Option<String>,
    /// The directory that the policy lets it write to in the sandbox.
    pub workspace: Option<String>,
    /// The rules for `allow` that would let exactly this pass.
    #[serde(default)]
    pub remember_rules: Vec<String>,
}

/// Where a rule stands.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct RuleSource {
    /// The file.
    pub file: String,
    /// Counted from 1.
    pub line: u64,
}

/// How the daemon is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Health {
    /// `ok` or `degraded`.
    pub status: String,
    /// The daemon's version.
    pub version: String,
    /// Seconds since it started.
    pub uptime_secs: f64,
    /// Executions under way.
    pub running: u64,
    /// The policy in force.
    pub policy: Option<PolicyHealth>,
    /// The sandbox.
    pub sandbox: Option<SandboxHealth>,
    /// Why it is degraded.
    #[serde(default)]
    pub problems: Vec<HealthProblem>,
}

/// Which policy is in force.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct PolicyHealth {
    /// Its file; none where everything is allowed for lack of one.
    pub file: Option<String>,
    /// How many rules it has.
    pub rules: usize,
    /// How many of them are approvals that are remembered.
    #[serde(default)]
    pub remembered: usize,
}

/// How the sandbox is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct SandboxHealth {
    /// The runtime that is configured.
    pub runtime: String,
    /// Its version, once it was asked.
    pub version: Option<String>,
    /// How many wait for a call.
    #[serde(default)]
    pub ready: usize,
    /// `untested`, `passed` or `failed`.
    pub self_test: String,
    /// How long the test took, in milliseconds.
    pub self_test_ms: Option<u64>,
    /// Why it failed.
    pub detail: Option<String>,
}

/// One reason for a degraded daemon.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct HealthProblem {
    /// The kind of problem for programs.
    pub code: String,
    /// This very problem for people.
    pub detail: String,
    /// The file or part it comes from.
    pub source: Option<String>,
}

/// What the daemon keeps of an execution.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// The execution's id.
    pub execution_id: String,
    /// How far it is: `queued`, `waiting`, `running`, or one of the ends.
    pub status: String,
    /// The tool that was called.
    pub tool: Option<String>,
    /// Who called.
    pub caller_uid: Option<u32>,
    /// When the call came in (RFC 3339, UTC).
    pub created_at: Option<String>,
    /// When the process started.
    pub started_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// The status that a waiting caller got or would have got.
    pub http_status: Option<u16>,
    /// What was asked for, in a line.
    pub summary: Option<String>,
    /// The tool's input, what is secret masked.
    pub input: Option<Value>,
    /// The hooks that changed the input.
    #[serde(default)]
    pub changed_by: Vec<String>,
    /// The directory that the call named.
    pub working_dir: Option<String>,
    /// The variables that the call set, without their values.
    #[serde(default)]
    pub env_names: Vec<String>,
    /// Its standard input, what is secret masked.
    pub stdin: Option<String>,
    /// The time limit it asked for, in seconds.
    pub timeout_secs: Option<f64>,
    /// `keep` where the processes it leaves behind go on.
    pub background: Option<String>,
    /// What the policy said.
    pub judgement: Option<RecordedJudgement>,
    /// The approval it ran with.
    pub approval: Option<GivenApproval>,
    /// The execution that it repeats.
    pub replay_of: Option<String>,
    /// The execution whose tool made the call.
    pub parent_id: Option<String>,
    /// What came of it by calls of its tool.
    #[serde(default)]
    pub children: Vec<Child>,
    /// The trace it belongs to (W3C Trace Context, or another name).
    pub trace_id: Option<String>,
    /// On whose behalf it was called.
    pub tenant_id: Option<String>,
    /// The session it belongs to.
    pub session_id: Option<String>,
    /// The stages it has been in.
    #[serde(default)]
    pub stages: Vec<StageTimes>,
    result: Option<Box<RawValue>>,
}

impl Record {
    /// The answer that a waiting caller got or would have got; none until the execution has ended.
    ///
    /// # Errors
    /// When the result in the record is not the body of an answer.
    pub fn answer(&self) -> Result<Option<Answer>, serde_json::Error> {
        match (self.http_status, &self.result) {
            (Some(status), Some(body)) => Answer::parse(status, body.get().to_owned()).map(Some),
            (None, _) | (_, None) => Ok(None),
        }
    }
}

/// An execution that a tool's call became.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Child {
    /// The execution's id.
    pub execution_id: String,
    /// The tool that was called.
    pub tool: String,
    /// What was asked for, in a line.
    #[serde(default)]
    pub summary: String,
    /// How far it is.
    pub status: String,
    /// How long its work took.
    pub duration_ms: Option<u64>,
    /// What came of it in turn.
    #[serde(default)]
    pub children: Vec<Child>,
}

/// A stage that an execution is or was in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct StageTimes {
    /// Which.
    pub name: String,
    /// When it began, where that is kept.
    pub started_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
}

/// What the policy said of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct RecordedJudgement {
    /// `allow`, `ask` or `deny`.
    pub verdict: String,
    /// The rule that decided, if one did.
    pub rule: Option<String>,
    /// Where it stands, as `FILE:LINE`.
    pub source: Option<String>,
}

/// The approval an execution ran with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct GivenApproval {
    /// Its id.
    pub id: String,
    /// Who decided.
    pub approver_uid: Option<u32>,
}

/// One of a command's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl OutputStream {
    /// Its name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_its_answer_once_it_has_one() {
        let running =
            r#"{"execution_id": "1", "status": "running", "http_status": null, "result": null}"#;
        let running: Record = serde_json::from_str(running).expect("succeeds");
        assert_eq!(running.answer().expect("succeeds"), None);

        let ended = r#"{"execution_id": "1", "status": "success", "http_status": 200,
            "result": {"content": "x", "is_error": false, "new_member": 1}}"#;
        let answer = serde_json::from_str::<Record>(ended)
            .expect("succeeds")
            .answer()
            .expect("succeeds")
            .expect("succeeds");
        assert_eq!((answer.status, answer.outcome.content.as_str()), (200, "x"));
        assert!(answer.json.contains("new_member"));
    }

    #[test]
    fn a_document_is_kept_letter_for_letter() {
        let json = r#"[{"name": "bash", "description": "d",  "input_schema": {"z": 1, "a": 2}, "more": 3}]"#;
        let tools = Received::<Vec<ToolDefinition>>::parse(json.into()).expect("succeeds");
        assert_eq!(
            (tools.json.as_str(), tools[0].name.as_str()),
            (json, "bash")
        );
    }
}
