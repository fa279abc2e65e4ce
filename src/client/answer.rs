//! The answer to a call: an outcome, or a problem, or both. Reading is lenient, so that a client
//! understands a newer daemon.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The answer to a call: what came of it, or the problem that kept it from a result, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The HTTP status; 200 for every command that started and ended by itself.
    pub status: u16,
    /// The whole body as it arrived.
    pub json: String,
    /// What the command did. All defaults, but for `content`, when nothing ran.
    pub outcome: Outcome,
    /// There exactly when `status` is not 200.
    pub problem: Option<Problem>,
}

impl Answer {
    pub(super) fn parse(status: u16, json: String) -> Result<Self, serde_json::Error> {
        let outcome = serde_json::from_str(&json)?;
        let problem = if status == 200 {
            None
        } else {
            Some(serde_json::from_str(&json)?)
        };
        Ok(Self {
            status,
            json,
            outcome,
            problem,
        })
    }
}

/// What a command did, as the body of an answer tells it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The text for the model.
    #[serde(default)]
    pub content: String,
    /// What a `tool_result` says as `is_error`.
    #[serde(default)]
    pub is_error: bool,
    /// The id the caller gave.
    pub tool_use_id: Option<String>,
    /// The daemon's id of this call's life.
    pub execution_id: Option<String>,
    /// The exit code, unless a signal ended the command or it never ran.
    pub exit_code: Option<i32>,
    /// The signal that ended the command.
    pub signal: Option<Signal>,
    /// Whether the kernel killed it for want of memory.
    #[serde(default, deserialize_with = "known")]
    pub oom_killed: bool,
    /// From the start of the process to its end.
    pub duration_ms: Option<u64>,
    /// Whether `content` leaves out some of the output.
    #[serde(default, deserialize_with = "known")]
    pub truncated: bool,
    /// How much it wrote to standard output, cut or not.
    pub stdout_bytes: Option<u64>,
    /// How much it wrote to standard error, cut or not.
    pub stderr_bytes: Option<u64>,
    /// Processes it left behind.
    #[serde(default, deserialize_with = "known")]
    pub background: Vec<LeftBehind>,
    /// There exactly when a signal was sent.
    pub kill: Option<Kill>,
    /// What it used.
    pub usage: Option<Usage>,
    /// How far it was trusted: `trusted` or `untrusted`.
    pub risk_level: Option<String>,
    /// The sandbox it ran in, if it did.
    pub sandbox: Option<Sandboxed>,
}

/// A member that is null where nobody knows.
fn known<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Where an untrusted call ran.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Sandboxed {
    /// The OCI runtime.
    pub runtime: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// What it wanted to connect to.
    #[serde(default)]
    pub connections: Vec<Connection>,
}

/// Connections that a sandboxed process wanted, of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Connection {
    /// Where to, as `host:port`.
    pub to: String,
    /// What became of it: `connected`, `refused`, `failed`.
    pub result: String,
    /// How many there were.
    #[serde(default)]
    pub count: u64,
}

/// A signal, by number and name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Signal {
    /// Its number on the daemon's machine.
    pub number: i32,
    /// Its name, like `SIGKILL`.
    pub name: String,
}

/// A process that outlived the command that started it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct LeftBehind {
    /// Its process id.
    pub pid: u32,
    /// Its command line.
    #[serde(default)]
    pub command: String,
    /// The streams it held open: `stdout`, `stderr`.
    #[serde(default)]
    pub held: Vec<String>,
    /// Whether the daemon killed it.
    #[serde(default)]
    pub killed: bool,
}

/// How a process tree was brought down.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Kill {
    /// What held the tree together: `cgroup` or `group`.
    pub by: String,
    /// Why: `timeout`, `cancelled`, `disconnect`, `shutdown` or `background`.
    pub reason: String,
    /// How many processes were in it at the first signal.
    pub signalled: Option<u64>,
    /// How many were left, where that can be proved.
    pub survivors: Option<u64>,
}

/// What a command used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// Processor time of the whole tree.
    pub cpu_ms: Option<u64>,
    /// The most memory it held at once, where the kernel counts it.
    pub memory_peak_bytes: Option<u64>,
}

/// Why there is no result (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// The kind of problem for people.
    pub title: String,
    /// This very problem for people.
    pub detail: Option<String>,
    /// The kind of problem for programs, like `unknown_tool`.
    pub code: String,
    /// The stage of the pipeline that refused or failed.
    pub stage: Option<String>,
    /// What in the input does not match the tool's schema.
    #[serde(default)]
    pub errors: Vec<SchemaError>,
    /// What the policy said of a call that it refused. A hook's refusal has none.
    pub judgement: Option<Value>,
    /// How long a process ran for the call, in milliseconds; `None` when none did.
    pub duration_ms: Option<u64>,
}

/// One place where an input does not match its schema.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct SchemaError {
    /// The place, as a JSON pointer.
    pub pointer: String,
    /// What is wrong there.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_and_a_problem_are_both_answers() {
        let result = Answer::parse(
            200,
            r#"{"content": "[exit_code]\n3", "is_error": true, "exit_code": 3}"#.into(),
        );
        let result = result.expect("succeeds");
        assert_eq!((result.outcome.exit_code, result.problem), (Some(3), None));

        let body = r#"{"type": "about:blank", "title": "Time limit", "status": 504, "detail": "30s", "code": "timeout",
            "stage": "execution", "content": "[timeout]\n30s", "is_error": true, "exit_code": null,
            "signal": {"number": 15, "name": "SIGTERM"}, "background": []}"#;
        let problem = Answer::parse(504, body.into()).expect("succeeds");
        assert_eq!(problem.outcome.content, "[timeout]\n30s");
        assert_eq!(problem.outcome.signal.map(|signal| signal.number), Some(15));
        assert_eq!(
            problem.problem.map(|problem| problem.code).as_deref(),
            Some("timeout")
        );

        let body = r#"{"title": "Internal Server Error", "code": "lost", "content": "[lost]", "is_error": true,
            "oom_killed": null, "truncated": null, "background": null, "usage": null}"#;
        let lost = Answer::parse(500, body.into()).expect("succeeds");
        assert_eq!(lost.outcome.background, []);
    }
}
