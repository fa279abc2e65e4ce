//! The bodies of answers and records.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::json::{Text, json_response, to_json_around};
use super::lost::LostProblem;
use super::openapi::ResultSchema;
use super::problem::{Code, Problem, problem_response};
use crate::domain::{
    Display, ExecutionId, FailureKind, KillMode, KillReason, KillReport, LeftBehind, RiskLevel,
    Ruling, RunReport, Sandboxed, Stage, StageTimes, Status, StreamName, timestamp, whole_millis,
};
use crate::pipeline::{Execution, Finished, Record, beside};

/// The answer for a command that started and ended by itself.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Answer<'a> {
    /// The text for the model: `[stdout]`, `[stderr]` and `[exit_code]` or `[signal]`.
    #[schema(value_type = String)]
    content: Text,
    /// What a program reads; absent when the tool answers text only or did not do its work.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    output: Option<&'a serde_json::Value>,
    /// Whether the command failed.
    is_error: bool,
    /// The id of the model's call, handed back.
    #[schema(required)]
    tool_use_id: Option<&'a str>,
    /// The execution's name.
    #[schema(format = "uuid")]
    execution_id: String,
    /// The facts of the run.
    #[serde(flatten)]
    run: RunBody<'a>,
}

/// The facts of a run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Run)]
pub(super) struct RunBody<'a> {
    /// The exit code; null when a signal ended it, or the executor did.
    #[schema(required, minimum = 0, maximum = 255)]
    exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    #[schema(required)]
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
    /// What a person is shown.
    #[schema(value_type = Display)]
    display: &'a Display,
    /// How far it was trusted: what is `untrusted` ran in a sandbox, or did nothing by itself.
    risk_level: RiskLevel,
    /// The sandbox it ran in; null outside of one.
    #[schema(required, value_type = Option<Sandboxed>)]
    sandbox: Option<&'a Sandboxed>,
    /// What was killed, and how that is proven; present only if a signal was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    kill: Option<KillBody>,
}

/// A signal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Signal)]
pub(super) struct SignalBody {
    /// Its number on this machine.
    #[schema(minimum = 1)]
    number: i32,
    /// Its name, such as `SIGKILL`.
    name: String,
}

/// A process that outlived its command.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Background)]
pub(super) struct BackgroundBody {
    /// The process id.
    pid: u32,
    /// The command line.
    command: String,
    /// The output streams it held open.
    held: Vec<StreamName>,
    /// Whether it was killed before the answer.
    killed: bool,
}

/// What a run used up.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub(super) struct UsageBody {
    /// User and system time, in milliseconds.
    cpu_ms: u64,
    /// The most memory the tree held at once, in bytes; null where no cgroup counts it.
    #[schema(required)]
    memory_peak_bytes: Option<u64>,
}

/// The proof of a kill.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Kill)]
struct KillBody {
    /// By what the tree was found.
    by: KillMode,
    /// Why.
    reason: KillReason,
    /// Processes in the tree at the first signal: none where there may be one that nobody can find.
    signalled: u32,
    /// Processes left at the end; null where the mode cannot prove it.
    #[schema(required)]
    survivors: Option<u32>,
}

/// An execution as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Record)]
pub(super) struct RecordBody {
    /// Its name.
    #[schema(format = "uuid")]
    execution_id: String,
    /// Where it stands or how it ended.
    status: Status,
    /// The tool that was called.
    tool: String,
    /// What it was about, in a line.
    summary: String,
    /// Its input, defaults filled in and secrets masked.
    input: serde_json::Value,
    /// The directory the call asked for.
    #[schema(required)]
    working_dir: Option<String>,
    /// The variables the call set.
    env_names: Vec<String>,
    /// Its standard input, secrets masked; null when it was empty.
    #[schema(required)]
    stdin: Option<String>,
    /// The time limit it asked for, in seconds; null for the tool's own.
    #[schema(required)]
    timeout_secs: Option<f64>,
    /// What became of the processes it left behind: `kill` or `keep`.
    background: &'static str,
    /// Who called it.
    #[schema(format = "int64")]
    caller_uid: u32,
    /// The hooks that changed its input, in the order in which they did.
    changed_by: Vec<String>,
    /// What the policy said; null until it has.
    #[schema(required)]
    judgement: Option<Ruling>,
    /// The approval it ran under; null without one.
    #[schema(required)]
    approval: Option<ApprovedBody>,
    /// The execution that it repeats.
    #[schema(required, format = "uuid")]
    replay_of: Option<String>,
    /// The execution whose tool made the call; null of a call from outside.
    #[schema(required, format = "uuid")]
    parent_id: Option<String>,
    /// Nesting depth: how many tool calls enclose it; 0 for a call from outside.
    depth: u32,
    /// What came of it by calls of its tool, oldest first. Only of an execution that is asked for by
    /// its id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    children: Vec<ChildBody>,
    /// The trace it belongs to.
    #[schema(required)]
    trace_id: Option<String>,
    /// On whose behalf it was called.
    #[schema(required)]
    tenant_id: Option<String>,
    /// The session it belongs to.
    #[schema(required)]
    session_id: Option<String>,
    /// When the call came in (RFC 3339, UTC, milliseconds).
    #[schema(format = "date-time")]
    created_at: String,
    /// When its process was started; null when none was, or not yet, and where nobody knows (`lost`).
    #[schema(required, format = "date-time")]
    started_at: Option<String>,
    /// When it ended; null until then.
    #[schema(required, format = "date-time")]
    ended_at: Option<String>,
    /// The stages it has been in.
    stages: Vec<StageBody>,
    /// The status that `POST /execute` answers it with; null until the end.
    #[schema(required, minimum = 200, maximum = 599)]
    http_status: Option<u16>,
    /// The body that `POST /execute` answers it with; null until the end.
    #[schema(value_type = ResultSchema, required)]
    result: Option<Box<RawValue>>,
}

/// An execution that a tool's call became.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Child)]
struct ChildBody {
    /// Its name.
    #[schema(format = "uuid")]
    execution_id: String,
    /// The tool that was called.
    tool: String,
    /// What it was about, in a line.
    summary: String,
    /// Where it stands or how it ended.
    status: Status,
    /// Nesting depth: how many tool calls enclose it.
    depth: u32,
    /// From the start to the end of its work, in milliseconds; null without.
    #[schema(required)]
    duration_ms: Option<u64>,
    /// What came of it, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, no_recursion)]
    children: Vec<ChildBody>,
}

/// The tree of what came of `parent`, out of all that came of it and of its children.
fn tree(parent: ExecutionId, all: &[Record]) -> Vec<ChildBody> {
    let is_child = |record: &&Record| {
        let lineage = record.lineage.as_ref();
        lineage.is_some_and(|lineage| lineage.parent == parent)
    };
    let children = all.iter().filter(is_child);
    children
        .map(|record| ChildBody {
            execution_id: record.id.to_string(),
            tool: record.tool.clone(),
            summary: record.call.summary.clone(),
            status: record.status,
            depth: record.lineage.as_ref().map_or(0, |lineage| lineage.depth),
            duration_ms: record
                .finished
                .as_ref()
                .and_then(|finished| finished.run())
                .map(|run| whole_millis(run.duration)),
            children: tree(record.id, all),
        })
        .collect()
}

/// An execution's record, with what came of it.
pub(super) fn record_with(record: &Record, descendants: &[Record]) -> RecordBody {
    RecordBody {
        children: tree(record.id, descendants),
        ..self::record(record)
    }
}

/// An approval that an execution ran under.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Approved)]
struct ApprovedBody {
    /// The approval.
    #[schema(format = "uuid")]
    id: String,
    /// Who gave it.
    #[schema(format = "int64")]
    approver_uid: u32,
}

/// A stage that an execution is or was in.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StageTimes)]
struct StageBody {
    /// Which.
    name: Stage,
    /// When it began; absent where `metrics.enabled` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "date-time")]
    started_at: Option<String>,
    /// When it ended; null until then, absent where `metrics.enabled` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required = false, format = "date-time")]
    ended_at: Option<Option<String>>,
}

impl StageBody {
    fn new(times: &StageTimes, timed: bool) -> Self {
        Self {
            name: times.stage,
            started_at: timed.then(|| timestamp(times.started_at)),
            ended_at: timed.then(|| times.ended_at.map(timestamp)),
        }
    }
}

impl<'a> RunBody<'a> {
    pub(super) fn new(
        run: &'a RunReport,
        display: &'a Display,
        failure: Option<FailureKind>,
    ) -> Self {
        let (exit_code, signal) = run.exit_told(failure);
        Self {
            exit_code,
            signal: signal.map(|signal| SignalBody {
                number: signal.0,
                name: signal.name(),
            }),
            oom_killed: run.oom_killed,
            duration_ms: whole_millis(run.duration),
            truncated: run.truncated,
            stdout_bytes: run.stdout_bytes,
            stderr_bytes: run.stderr_bytes,
            background: run.background.iter().map(BackgroundBody::from).collect(),
            usage: UsageBody {
                cpu_ms: whole_millis(run.usage.cpu),
                memory_peak_bytes: run.usage.memory_peak,
            },
            display,
            risk_level: run.risk_level,
            sandbox: run.sandbox.as_ref(),
            kill: run.kill.as_ref().map(KillBody::from),
        }
    }
}

impl From<&LeftBehind> for BackgroundBody {
    fn from(left: &LeftBehind) -> Self {
        Self {
            pid: left.pid,
            command: left.command.clone(),
            held: left.held.clone(),
            killed: left.killed,
        }
    }
}

impl From<&KillReport> for KillBody {
    fn from(kill: &KillReport) -> Self {
        Self {
            by: kill.by,
            reason: kill.reason,
            signalled: kill.signalled,
            survivors: kill.survivors,
        }
    }
}

/// What an answer says of the execution it is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) id: ExecutionId,
    pub(super) tool_use_id: Option<&'a str>,
}

impl<'a> From<&'a Execution> for Subject<'a> {
    fn from(execution: &'a Execution) -> Self {
        Self {
            id: execution.id,
            tool_use_id: execution.tool_use_id.as_deref(),
        }
    }
}

impl<'a> From<&'a Record> for Subject<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
            id: record.id,
            tool_use_id: record.tool_use_id.as_deref(),
        }
    }
}

/// The status and the body that `POST /execute` answers a finished execution with.
pub(super) fn result<'a>(
    subject: impl Into<Subject<'a>>,
    finished: &'a Finished,
) -> (StatusCode, Vec<u8>) {
    let text = finished.text();
    let subject = subject.into();
    match (&finished.failure, &finished.ran) {
        (Some(failure), ran) => {
            let problem = Problem::of_failure(failure, subject);
            let status = problem.status();
            let body = match ran {
                Some(ran) => {
                    let run = RunBody::new(&ran.report, &ran.display, Some(failure.kind));
                    to_json_around(&text, &problem.with_run(run))
                }
                None if failure.was_lost_at_work() => {
                    to_json_around(&text, &LostProblem::new(problem, finished.lacks_output()))
                }
                None => to_json_around(&text, &problem),
            };
            (status, body)
        }
        (None, Some(ran)) => {
            let answer = Answer {
                content: Text,
                output: ran.output.as_ref(),
                is_error: ran.is_error,
                tool_use_id: subject.tool_use_id,
                execution_id: subject.id.to_string(),
                run: RunBody::new(&ran.report, &ran.display, None),
            };
            (StatusCode::OK, to_json_around(&text, &answer))
        }
        // Unreachable: without a failure there was a run.
        (None, None) => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
    }
}

/// The response to a call that was waited for.
pub(super) fn response<'a>(subject: impl Into<Subject<'a>>, finished: &'a Finished) -> Response {
    let (status, body) = result(subject, finished);
    match &finished.failure {
        None => json_response(status, body),
        Some(failure) => {
            let mut response = problem_response(Code::of(failure.kind), failure.stage, body);
            if let Some(secs) = failure.retry_after_secs {
                let headers = response.headers_mut();
                headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
            }
            response
        }
    }
}

/// As [`response`], but off the event loop where that takes long: a large text, or one that is read from the disk.
pub(super) async fn response_of(execution: &Arc<Execution>, finished: &Arc<Finished>) -> Response {
    if !finished.takes_long() {
        return response(&**execution, finished);
    }
    let (execution, finished) = (Arc::clone(execution), Arc::clone(finished));
    beside(move || response(&*execution, &finished)).await
}

/// An execution's record, with its result when it has ended.
pub(super) fn record(record: &Record) -> RecordBody {
    let finished = record.finished.as_deref();
    let result = finished.map(|finished| result(record, finished));
    RecordBody {
        execution_id: record.id.to_string(),
        status: record.status,
        tool: record.tool.clone(),
        summary: record.call.summary.clone(),
        input: record.call.input.clone(),
        working_dir: record
            .call
            .working_dir
            .as_ref()
            .map(|dir| dir.display().to_string()),
        env_names: record.call.env.keys().cloned().collect(),
        stdin: record.call.stdin.clone(),
        timeout_secs: record.call.timeout.map(|limit| limit.as_secs_f64()),
        background: background(record.call.keeps_background),
        caller_uid: record.caller_uid,
        changed_by: record.call.changed_by.clone(),
        judgement: record.ruling.clone(),
        approval: record.approved.map(|(id, approver_uid)| ApprovedBody {
            id: id.to_string(),
            approver_uid,
        }),
        replay_of: record.replay_of.map(|id| id.to_string()),
        parent_id: record
            .lineage
            .as_ref()
            .map(|lineage| lineage.parent.to_string()),
        depth: record.lineage.as_ref().map_or(0, |lineage| lineage.depth),
        children: Vec::new(),
        trace_id: record.trace_id.as_ref().map(|id| id.as_str().to_owned()),
        tenant_id: record.call.tenant_id.clone(),
        session_id: record.call.session_id.clone(),
        created_at: timestamp(record.created_at),
        started_at: record.started_at.map(timestamp),
        ended_at: finished.map(|finished| timestamp(finished.ended_at)),
        stages: record
            .stages
            .iter()
            .map(|times| StageBody::new(times, record.timed))
            .collect(),
        http_status: result.as_ref().map(|(status, _)| status.as_u16()),
        result: result
            .and_then(|(_, body)| String::from_utf8(body).ok())
            .and_then(|json| RawValue::from_string(json).ok()),
    }
}

/// The word for what becomes of processes that are left behind.
pub(super) fn background(is_kept: bool) -> &'static str {
    if is_kept { "keep" } else { "kill" }
}
