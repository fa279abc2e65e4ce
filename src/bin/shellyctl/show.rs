//! `shellyctl show`: everything about one execution.

use std::process::ExitCode;

use shelly_executor::client::{
    self, Answer, Approval, Child, Client, Connection, Kill, Outcome, Record, RecordedJudgement,
    StageTimes,
};

use crate::failure::Failure;
use crate::print::{self, Fields, Look, Page};
use crate::{approvals, clock, ending, ids};

/// Prints the record.
pub async fn run(client: &Client, id: &str, json: bool) -> Result<ExitCode, Failure> {
    let id = ids::execution(client, id).await?;
    let record = client.execution(&id, None).await?;
    if json {
        print::line(&record.json)?;
    } else {
        let answer = record
            .answer()
            .map_err(|source| Failure::Record { id, source })?;
        let asked = match record.status.as_str() {
            "waiting" => asked(client, &record.execution_id).await,
            _ => None,
        };
        let shown = Shown {
            record: &record,
            answer: answer.as_ref(),
            asked: asked.as_ref(),
        };
        print::text(&shown.render(Page::stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What an execution waits for, where this user may see it.
async fn asked(client: &Client, execution_id: &str) -> Option<Approval> {
    let list = client.approvals().await.ok()?;
    let approvals = list.value.approvals.into_iter();
    let mut approvals = approvals.map(|approval| approval.value);
    let asked = approvals.find(|approval| approval.execution_id == execution_id)?;
    Some(approvals::whole(client, asked).await)
}

/// An execution as it is shown.
struct Shown<'a> {
    record: &'a Record,
    /// What came of it.
    answer: Option<&'a Answer>,
    /// What it waits for.
    asked: Option<&'a Approval>,
}

/// How a status stands out.
pub fn look(status: &str) -> Look {
    match status {
        "success" | "approved" | "used" => Look::Good,
        "queued" | "waiting" | "running" | "pending" => Look::Heading,
        _ => Look::Bad,
    }
}

impl Shown<'_> {
    fn render(&self, page: Page) -> String {
        let Self {
            record,
            answer,
            asked,
        } = *self;
        let look = look(&record.status);
        let tool = record.tool.as_deref().unwrap_or("?");
        let summary = record.summary.as_deref().unwrap_or_default();
        let heading = print::one_line(&format!("{} {tool}: {summary}", record.execution_id));
        let mut text = format!("{} {heading}\n", page.look(look, "●"));
        text += &format!("  {}\n", page.look(look, &status(record, answer)));
        let mut fields = call(record, asked);
        fields.extend(answer.map(|answer| outcome(&answer.outcome)));
        text += &fields.render();
        if let Some(input) = record.input.as_ref().filter(|input| !input.is_null()) {
            let input = print::plain(&format!("{input:#}"));
            text += &format!("\n{}\n{input}\n", page.look(Look::Heading, "Input"));
        }
        if !record.children.is_empty() {
            text += &format!("\n{}\n", page.look(Look::Heading, "Calls"));
            text += &calls(&record.children, "", page);
        }
        if let Some(content) = answer.map(|answer| answer.outcome.content.trim_end()) {
            let content = print::plain(content);
            text += &format!("\n{}\n{content}\n", page.look(Look::Heading, "Result"));
        }
        text
    }
}

/// The status, and how it came about.
fn status(record: &Record, answer: Option<&Answer>) -> String {
    let status = &record.status;
    print::one_line(&match answer {
        Some(Answer {
            problem: Some(problem),
            ..
        }) => {
            let detail = problem.detail.as_ref().unwrap_or(&problem.title);
            format!("{status}, {detail} ({})", problem.code)
        }
        Some(Answer { outcome, .. }) => match (outcome.exit_code, &outcome.signal) {
            (Some(code), _) => format!("{status}, exit code {code}"),
            (None, Some(signal)) if outcome.oom_killed => {
                format!("{status}, {}, out of memory", signal.name)
            }
            (None, Some(signal)) => format!("{status}, {}", signal.name),
            (None, None) => status.clone(),
        },
        None => status.clone(),
    })
}

/// A time limit.
pub fn secs(secs: f64) -> String {
    format!("{secs} s")
}

/// Whether processes that are left behind go on.
pub fn is_kept(background: &&str) -> bool {
    *background == "keep"
}

/// What was asked for and what was said to that.
fn call(record: &Record, asked: Option<&Approval>) -> Fields {
    let time = |time: &Option<String>| time.as_deref().map(clock::full);
    let mut fields = Fields::default();
    fields.add("Called", time(&record.created_at));
    fields.add("By", record.caller_uid.map(print::user));
    fields.add("Started", time(&record.started_at));
    fields.add("Ended", time(&record.ended_at));
    fields.add("Changed by", Some(record.changed_by.join(", ")));
    fields.add("Directory", record.working_dir.as_ref());
    fields.add("Variables", Some(record.env_names.join(" ")));
    fields.add("Standard input", record.stdin.as_ref());
    fields.add("Time limit", record.timeout_secs.map(secs));
    fields.add("Background", record.background.as_deref().filter(is_kept));
    fields.add("Policy", record.judgement.as_ref().map(judgement));
    fields.add(
        "Waits for",
        asked.map(|approval| {
            let until = approval.expires_at.as_deref().map(clock::full);
            format!(
                "approval {} until {}",
                approval.id,
                until.unwrap_or_default()
            )
        }),
    );
    fields.add(
        "Approval",
        record.approval.as_ref().map(|approval| {
            let by = approval.approver_uid.map(print::user).unwrap_or_default();
            format!("{} by {by}", approval.id)
        }),
    );
    fields.add("Replay of", record.replay_of.as_ref());
    fields.add("Called by", record.parent_id.as_ref());
    fields.add("Trace", record.trace_id.as_ref());
    fields.add("Tenant", record.tenant_id.as_ref());
    fields.add("Session", record.session_id.as_ref());
    let stages: Vec<String> = record.stages.iter().map(stage).collect();
    fields.add("Stages", Some(stages.join(", ")));
    fields
}

/// What came of it, as a tree.
fn calls(children: &[Child], indent: &str, page: Page) -> String {
    let mut text = String::new();
    for (at, child) in children.iter().enumerate() {
        let is_last = at + 1 == children.len();
        let (branch, below) = if is_last {
            ("└─", "  ")
        } else {
            ("├─", "│ ")
        };
        let took = child.duration_ms.map(clock::span).unwrap_or_default();
        let Child { tool, summary, .. } = child;
        let line = print::one_line(&format!("{tool}: {summary}"));
        let status = page.look(look(&child.status), &child.status);
        text += &format!(
            "{indent}{branch} {status} {took} {line} {}\n",
            child.execution_id
        );
        text += &calls(&child.children, &format!("{indent}{below}"), page);
    }
    text
}

/// `ask bash(command:rm *) [policy.toml:3]`.
pub fn judgement(judgement: &RecordedJudgement) -> String {
    let RecordedJudgement { verdict, .. } = judgement;
    let rule = judgement.rule.as_deref().unwrap_or("by default");
    let source = judgement.source.as_ref();
    let source = source.map(|source| format!(" [{source}]"));
    format!("{verdict} {rule}{}", source.unwrap_or_default())
}

fn stage(stage: &StageTimes) -> String {
    let took = clock::between(stage.started_at.as_deref(), stage.ended_at.as_deref());
    let took = took.map(|took| format!(" {took}"));
    format!("{}{}", stage.name, took.unwrap_or_default())
}

/// What the command did and what it took.
fn outcome(outcome: &Outcome) -> Fields {
    let mut fields = Fields::default();
    fields.add("Took", outcome.duration_ms.map(clock::span));
    if let (Some(stdout), Some(stderr)) = (outcome.stdout_bytes, outcome.stderr_bytes) {
        let cut = if outcome.truncated {
            "; cut below, `shellyctl output` has more"
        } else {
            ""
        };
        let output = format!("{stdout} bytes to stdout, {stderr} to stderr{cut}");
        fields.add("Output", Some(output));
    }
    if let Some(usage) = &outcome.usage {
        fields.add("CPU", usage.cpu_ms.map(clock::span));
        let peak = usage.memory_peak_bytes;
        fields.add("Memory", peak.map(|bytes| format!("{bytes} bytes at most")));
    }
    fields.add("Trusted", outcome.risk_level.as_deref().map(trusted));
    if let Some(sandbox) = &outcome.sandbox {
        let runtime = format!("{} {}", sandbox.runtime, sandbox.version);
        fields.add("Sandbox", Some(runtime));
        fields.all("Network", sandbox.connections.iter().map(connection));
    }
    fields.add("Killed", outcome.kill.as_ref().map(kill));
    fields.all("Left", outcome.background.iter().map(ending::left_behind));
    fields.add("Caller's id", outcome.tool_use_id.as_ref());
    fields
}

fn trusted(risk_level: &str) -> &'static str {
    match risk_level {
        "trusted" => "yes",
        _ => "no",
    }
}

fn connection(connection: &Connection) -> String {
    let Connection {
        to, result, count, ..
    } = connection;
    format!(
        "{to} {result}, {}",
        client::counted(*count, "time", "times")
    )
}

fn kill(kill: &Kill) -> String {
    let count = |count: Option<u64>, one, many| {
        count.map_or_else(|| format!("? {many}"), |n| client::counted(n, one, many))
    };
    format!(
        "{} by {}, reason {}, {}",
        count(kill.signalled, "process", "processes"),
        kill.by,
        kill.reason,
        count(kill.survivors, "survivor", "survivors")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(json: &str) -> String {
        let record: Record = serde_json::from_str(json).expect("a record");
        let answer = record.answer().expect("an answer");
        let shown = Shown {
            record: &record,
            answer: answer.as_ref(),
            asked: None,
        };
        shown.render(Page::plain())
    }

    #[test]
    fn a_running_one_shows_what_is_known() {
        let text = shown(
            r#"{"execution_id": "1", "status": "running", "tool": "bash", "summary": "df -h",
            "caller_uid": 4294967, "created_at": "soon", "http_status": null, "result": null,
            "input": {"command": "df -h"}, "judgement": {"verdict": "allow", "rule": null, "source": null}}"#,
        );
        assert_eq!(
            text,
            "● 1 bash: df -h\n  running\n  Called: soon\n      By: 4294967\n  Policy: allow by default\n\n\
             Input\n{\n  \"command\": \"df -h\"\n}\n"
        );
    }

    #[test]
    fn an_ended_one_shows_everything() {
        let text = shown(
            r#"{"execution_id": "2", "status": "timeout", "tool": "bash", "summary": "sleep 9", "caller_uid": 4294967,
            "created_at": "a", "started_at": "b", "ended_at": "c", "changed_by": ["first", "second"], "working_dir": "/srv", "env_names": ["A", "B"],
            "judgement": {"verdict": "ask", "rule": "bash(command:sleep *)", "source": "policy.toml:3"},
            "approval": {"id": "7", "approver_uid": 4294968}, "replay_of": "1", "trace_id": "ff", "tenant_id": "acme",
            "stages": [{"name": "execution", "started_at": "2026-11-22T09:01:02.000Z", "ended_at": "2026-11-22T09:01:02.250Z"}],
            "http_status": 504, "result": {"title": "t", "detail": "the time limit of 1s ended it", "code": "timeout",
                "content": "[timeout]\n1s\u001b[2J", "duration_ms": 1003, "stdout_bytes": 0, "stderr_bytes": 2, "truncated": true,
                "background": [{"pid": 9, "command": "x", "killed": true}], "usage": {"cpu_ms": 4, "memory_peak_bytes": 5},
                "kill": {"by": "group", "reason": "timeout", "signalled": 1, "survivors": null}, "tool_use_id": "toolu_1",
                "risk_level": "untrusted", "sandbox": {"runtime": "runsc", "version": "1.0",
                    "connections": [{"to": "a:443", "result": "connected", "count": 2}]}}}"#,
        );
        for part in [
            "  timeout, the time limit of 1s ended it (timeout)\n",
            "Changed by: first, second\n",
            "Directory: /srv\n",
            "Variables: A B\n",
            "Policy: ask bash(command:sleep *) [policy.toml:3]\n",
            "Approval: 7 by 4294968\n",
            "Replay of: 1\n",
            "Trace: ff\n",
            "Tenant: acme\n",
            "Stages: execution 250ms\n",
            "Took: 1.0s\n",
            "Output: 0 bytes to stdout, 2 to stderr; cut below",
            "CPU: 4ms\n",
            "Memory: 5 bytes at most\n",
            "Killed: 1 process by group, reason timeout, ? survivors\n",
            "Left: killed a process",
            "Trusted: no\n",
            "Sandbox: runsc 1.0\n",
            "Network: a:443 connected, 2 times\n",
            "Caller's id: toolu_1\n",
            "\nResult\n[timeout]\n1s [2J\n",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_status_says_how_the_process_ended() {
        for (result, said) in [
            (r#"{"exit_code": 3}"#, "error, exit code 3"),
            (
                r#"{"signal": {"number": 9, "name": "SIGKILL"}}"#,
                "error, SIGKILL",
            ),
            (
                r#"{"signal": {"number": 9, "name": "SIGKILL"}, "oom_killed": true}"#,
                "error, SIGKILL, out of memory",
            ),
            (r#"{"content": "x"}"#, "error"),
        ] {
            let json = format!(
                r#"{{"execution_id": "1", "status": "error", "http_status": 200, "result": {result}}}"#
            );
            assert!(shown(&json).contains(&format!("  {said}\n")), "{said}");
        }
    }
}
