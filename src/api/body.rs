//! The bodies of answers and records.

use std::time::SystemTime;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::problem::{Problem, problem_response};
use crate::domain::{Exit, KillMode, KillReason, KillReport, LeftBehind, RunReport, Status};
use crate::pipeline::{Execution, Finished};

/// The answer for a command that started and ended by itself.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Answer<'a> {
    /// The text for the model: `[stdout]`, `[stderr]` and `[exit_code]` or `[signal]`.
    content: &'a str,
    /// Whether the command failed.
    is_error: bool,
    /// The id of the model's call, handed back.
    tool_use_id: Option<&'a str>,
    /// The execution's name.
    execution_id: String,
    /// The facts of the run.
    #[serde(flatten)]
    run: RunBody,
}

/// The facts of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RunBody {
    /// The exit code; null when a signal ended it, or the executor did.
    exit_code: Option<i32>,
    /// The signal that ended it.
    signal: Option<SignalBody>,
    /// Whether the kernel killed something of it for want of memory.
    oom_killed: bool,
    /// From the start of the process to its end, in milliseconds.
    duration_ms: u64,
    /// Whether `content` lacks a part of the output.
    truncated: bool,
    /// What it wrote to standard output, in bytes.
    stdout_bytes: u64,
    /// What it wrote to standard error, in bytes.
    stderr_bytes: u64,
    /// Processes that outlived the command.
    background: Vec<BackgroundBody>,
    /// What it used up.
    usage: UsageBody,
    /// The proof of the kill; there exactly when a signal was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    kill: Option<KillBody>,
}

#[derive(Debug, Serialize, ToSchema)]
struct SignalBody {
    /// Its number on this machine.
    number: i32,
    /// Its name, such as `SIGKILL`.
    name: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct BackgroundBody {
    /// The process id.
    pid: u32,
    /// The command line.
    command: String,
    /// The output streams it held open.
    held: Vec<&'static str>,
    /// Whether it was killed before the answer.
    killed: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct UsageBody {
    /// User and system time, in milliseconds.
    cpu_ms: u64,
    /// The most memory the tree held at once, in bytes.
    memory_peak_bytes: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct KillBody {
    /// By what the tree was found: `cgroup` or `group`.
    by: &'static str,
    /// `timeout`, `cancelled`, `disconnect`, `shutdown` or `background`.
    reason: &'static str,
    /// Processes in the tree at the first signal.
    signalled: u32,
    /// Processes left at the end; null where the mode cannot prove it.
    survivors: Option<u32>,
}

/// An execution as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RecordBody {
    /// Its name.
    execution_id: String,
    /// `running`, `success`, `error`, `timeout`, `cancelled` or `failed`.
    status: &'static str,
    /// The tool that was called.
    tool: String,
    /// Who called it.
    caller_uid: u32,
    /// When the call came in (RFC 3339, UTC, milliseconds).
    created_at: String,
    /// When its process was started.
    started_at: Option<String>,
    /// When it ended.
    ended_at: Option<String>,
    /// The status that `POST /execute` answers it with.
    http_status: Option<u16>,
    /// The body that `POST /execute` answers it with.
    #[schema(value_type = Option<Object>)]
    result: Option<Box<RawValue>>,
}

impl RunBody {
    pub(super) fn new(run: &RunReport, stopped: bool) -> Self {
        let (exit_code, signal) = match run.exit {
            Some(Exit::Code(code)) if !stopped => (Some(code), None),
            Some(Exit::Code(_)) | None => (None, None),
            Some(Exit::Signal(signal)) => (
                None,
                Some(SignalBody {
                    number: signal.0,
                    name: signal.name(),
                }),
            ),
        };
        Self {
            exit_code,
            signal,
            oom_killed: run.oom_killed,
            duration_ms: millis(run.duration),
            truncated: run.truncated,
            stdout_bytes: run.stdout_bytes,
            stderr_bytes: run.stderr_bytes,
            background: run.background.iter().map(BackgroundBody::from).collect(),
            usage: UsageBody {
                cpu_ms: millis(run.usage.cpu),
                memory_peak_bytes: run.usage.memory_peak,
            },
            kill: run.kill.as_ref().map(KillBody::from),
        }
    }
}

impl From<&LeftBehind> for BackgroundBody {
    fn from(left: &LeftBehind) -> Self {
        Self {
            pid: left.pid,
            command: left.command.clone(),
            held: left.held.iter().map(|stream| stream.as_str()).collect(),
            killed: left.killed,
        }
    }
}

impl From<&KillReport> for KillBody {
    fn from(kill: &KillReport) -> Self {
        Self {
            by: match kill.by {
                KillMode::Cgroup => "cgroup",
                KillMode::Group => "group",
            },
            reason: match kill.reason {
                KillReason::Timeout => "timeout",
                KillReason::Cancelled => "cancelled",
                KillReason::Disconnect => "disconnect",
                KillReason::Shutdown => "shutdown",
                KillReason::Background => "background",
            },
            signalled: kill.signalled,
            survivors: kill.survivors,
        }
    }
}

/// The status and the body that `POST /execute` answers a finished execution with.
pub(super) fn result(execution: &Execution, finished: &Finished) -> (StatusCode, Vec<u8>) {
    let text = finished.text();
    let tool_use_id = execution.tool_use_id.as_deref();
    match (finished.error(), finished.run()) {
        (Some(error), _) => {
            let problem = Problem::of_execution(error, execution.id, tool_use_id, &text);
            let status = StatusCode::from_u16(problem.status());
            (
                status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                to_json(&problem),
            )
        }
        (None, Some(run)) => {
            let answer = Answer {
                content: &text,
                is_error: finished.is_error(),
                tool_use_id,
                execution_id: execution.id.to_string(),
                run: RunBody::new(run, false),
            };
            (StatusCode::OK, to_json(&answer))
        }
        // An output always has a run.
        (None, None) => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
    }
}

/// The response to a call that was waited for.
pub(super) fn response(execution: &Execution, finished: &Finished) -> Response {
    match result(execution, finished) {
        (StatusCode::OK, body) => json_response(StatusCode::OK, body),
        (status, body) => problem_response(status, body),
    }
}

/// An execution's record, with its result when it has ended.
pub(super) fn record(execution: &Execution) -> RecordBody {
    let finished = execution.finished();
    let result = finished
        .as_ref()
        .map(|finished| result(execution, finished));
    let status = finished
        .as_ref()
        .map_or(Status::Running, |finished| finished.status);
    RecordBody {
        execution_id: execution.id.to_string(),
        status: status.as_str(),
        tool: execution.tool.clone(),
        caller_uid: execution.caller.uid,
        created_at: timestamp(execution.created_at),
        started_at: execution.started_at().map(timestamp),
        ended_at: finished
            .as_ref()
            .map(|finished| timestamp(finished.ended_at)),
        http_status: result.as_ref().map(|(status, _)| status.as_u16()),
        result: result
            .and_then(|(_, body)| String::from_utf8(body).ok())
            .and_then(|json| RawValue::from_string(json).ok()),
    }
}

pub(super) fn json_response(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// JSON of one of our own bodies, none of which has anything that JSON cannot hold.
pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot write an answer as JSON");
        b"{}".to_vec()
    })
}

/// RFC 3339, UTC, with milliseconds.
fn timestamp(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
