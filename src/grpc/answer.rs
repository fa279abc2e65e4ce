//! How an execution ended, in the words of the contract.

use super::proto;
use crate::domain::{Connection, FailureKind, KillReport, LeftBehind, whole_millis};
use crate::pipeline::{Execution, Ran, Record};

/// What an answer says of the execution it is about.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) execution_id: String,
    pub(super) tool_use_id: Option<String>,
}

impl From<&Execution> for Subject {
    fn from(execution: &Execution) -> Self {
        Self {
            execution_id: execution.id.to_string(),
            tool_use_id: execution.tool_use_id.clone(),
        }
    }
}

impl From<&Record> for Subject {
    fn from(record: &Record) -> Self {
        Self {
            execution_id: record.id.to_string(),
            tool_use_id: record.tool_use_id.clone(),
        }
    }
}

/// The facts of a run, with `content` as its text, which came to `failure` if to any.
pub(super) fn response(
    subject: Subject,
    ran: &Ran,
    content: String,
    failure: Option<FailureKind>,
) -> proto::ExecuteToolResponse {
    let run = &ran.report;
    let (exit_code, signal) = run.exit_told(failure);
    proto::ExecuteToolResponse {
        execution_id: subject.execution_id,
        content,
        output_json: ran.output.as_ref().map(ToString::to_string),
        is_error: ran.is_error || failure.is_some(),
        tool_use_id: subject.tool_use_id,
        exit_code,
        signal: signal.map(|signal| proto::Signal {
            number: signal.0,
            name: signal.name(),
        }),
        oom_killed: run.oom_killed,
        duration_ms: whole_millis(run.duration),
        truncated: run.truncated,
        stdout_bytes: run.stdout_bytes,
        stderr_bytes: run.stderr_bytes,
        background: run.background.iter().map(background).collect(),
        usage: Some(proto::Usage {
            cpu_ms: whole_millis(run.usage.cpu),
            memory_peak_bytes: run.usage.memory_peak,
        }),
        display: Some(proto::Display {
            title: ran.display.title.clone(),
            summary: ran.display.summary.clone(),
            duration_ms: ran.display.duration_ms,
            exit: ran.display.exit.clone(),
        }),
        risk_level: run.risk_level.as_str().to_owned(),
        sandbox: run.sandbox.as_ref().map(|sandbox| proto::Sandbox {
            runtime: sandbox.runtime.clone(),
            version: sandbox.version.clone(),
            connections: sandbox.connections.iter().map(connection).collect(),
        }),
        kill: run.kill.as_ref().map(kill),
    }
}

fn background(left: &LeftBehind) -> proto::Background {
    let held = left.held.iter().map(|stream| stream.as_str().to_owned());
    proto::Background {
        pid: left.pid,
        command: left.command.clone(),
        held: held.collect(),
        killed: left.killed,
    }
}

fn connection(asked: &Connection) -> proto::Connection {
    proto::Connection {
        to: asked.to.clone(),
        result: asked.result.as_str().to_owned(),
        count: asked.count,
    }
}

fn kill(kill: &KillReport) -> proto::Kill {
    proto::Kill {
        by: kill.by.as_str().to_owned(),
        reason: kill.reason.as_str().to_owned(),
        signalled: kill.signalled,
        survivors: kill.survivors,
    }
}
