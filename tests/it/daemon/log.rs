//! One record per execution, with all of its fields, in the form that was asked for.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::sys::stat;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use crate::support::{Daemon, Mode, bash_call, scratch, wait_until};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn start(toml: &str) -> Daemon {
    Daemon::start_adjusted(Mode::Group, toml, |command| {
        command.env_remove("RUST_LOG");
    })
}

fn executions(daemon: &Daemon) -> Vec<Value> {
    let log = daemon.log();
    // The last line may be on its way.
    let complete = log.rsplit_once('\n').map_or("", |(lines, _)| lines);
    complete
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .filter(|line| !line["EXECUTION_ID"].is_null())
        .collect()
}

#[test]
fn what_a_caller_calls_a_tool_begins_no_line() {
    let daemon = Daemon::start_with(Mode::Group, "[log]\nformat = \"text\"\n");
    let forged = "2026-01-01T00:00:00.000Z  INFO bash success: true";
    let call = json!({"name": format!("x\n{forged}\n"), "input": {}});
    assert_eq!(daemon.post(&call).status, 404);
    wait_until("it is recorded", || daemon.log().contains(forged));
    let log = daemon.log();
    assert!(!log.lines().any(|line| line.starts_with(forged)), "{log}");
}

#[test]
fn every_execution_leaves_one_record_however_it_ends() {
    let daemon = start("max_output_bytes = 10\n[log]\nformat = \"json\"\n");
    let mut expected = BTreeMap::new();
    for (command, members, status, exit_code) in [
        ("echo out; echo err >&2", json!({}), "success", json!(0)),
        ("exit 3", json!({}), "error", json!(3)),
        ("kill -KILL $$", json!({}), "error", Value::Null),
        (
            "sleep 1000",
            json!({"timeout_secs": 0.01}),
            "timeout",
            Value::Null,
        ),
        (
            "true",
            json!({"working_dir": "/nowhere"}),
            "failed",
            Value::Null,
        ),
        ("true", json!({"name": "bsh"}), "failed", Value::Null),
        ("true", json!({"input": {}}), "failed", Value::Null),
    ] {
        let body = bash_call(command, &members).to_string();
        let header = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let headers = [("traceparent", header.as_str())];
        let reply = daemon
            .connect()
            .request("POST", "/execute", &headers, body.as_bytes());
        let answer = reply.json();
        let id = answer["execution_id"].as_str().expect("an id").to_owned();
        expected.insert(id, (answer, status, exit_code));
    }
    let cancelled = daemon.begin("sleep 1000", &json!({}));
    let record = daemon
        .connect()
        .request("DELETE", &format!("/executions/{cancelled}"), &[], b"");
    expected.insert(
        cancelled,
        (record.json()["result"].clone(), "cancelled", Value::Null),
    );

    wait_until("all records are there", || {
        executions(&daemon).len() >= expected.len()
    });
    let records = executions(&daemon);
    assert_eq!(records.len(), expected.len(), "{records:#?}");
    for record in records {
        let id = record["EXECUTION_ID"].as_str().expect("text");
        let (answer, status, exit_code) = &expected[id];
        assert_eq!(record["STATUS"], *status, "{record}");
        assert_eq!(record["EXIT_CODE"], *exit_code, "{record}");
        assert_eq!(record["CALLER_UID"], nix::unistd::getuid().as_raw());
        let ran = !answer["stdout_bytes"].is_null();
        if ran {
            let bytes = answer["stdout_bytes"].as_u64().expect("a number")
                + answer["stderr_bytes"].as_u64().expect("a number");
            assert_eq!(record["OUTPUT_BYTES"], bytes, "{record}");
            assert_eq!(record["DURATION_MS"], answer["duration_ms"], "{record}");
        }
        if *status != "cancelled" {
            assert_eq!(record["TRACE_ID"], TRACE, "{record}");
        }
        assert!(record["TOOL_NAME"].is_string() && record["COMMAND_SUMMARY"].is_string());
        let level = if *status == "failed" { "WARN" } else { "INFO" };
        assert_eq!(record["level"], level, "{record}");
    }
}

#[test]
fn what_is_lost_with_its_daemon_has_its_record_from_the_next() {
    let mut daemon = start("[log]\nformat = \"json\"\n");
    let id = daemon.begin(
        "sleep 1000",
        &json!({"trace_id": TRACE, "tenant_id": "blue"}),
    );
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    let dir = daemon.dir().to_owned();
    let daemon = daemon.restart_with(|| {
        Daemon::launch(dir, None, |command| {
            command.env_remove("RUST_LOG");
        })
    });
    let records = executions(&daemon);
    assert_eq!(records.len(), 1, "{records:#?}");
    let record = &records[0];
    for (field, value) in [
        ("EXECUTION_ID", json!(id)),
        ("TOOL_NAME", json!("bash")),
        ("COMMAND_SUMMARY", json!("sleep 1000")),
        ("STATUS", json!("lost")),
        ("CALLER_UID", json!(nix::unistd::getuid().as_raw())),
        ("TRACE_ID", json!(TRACE)),
        ("TENANT_ID", json!("blue")),
        ("level", json!("WARN")),
        // Nobody knows.
        ("DURATION_MS", Value::Null),
    ] {
        assert_eq!(record[field], value, "{field}: {record}");
    }
    let error = record["ERROR"].as_str().expect("text");
    assert!(error.contains("not known"), "{error}");
}

#[test]
fn a_summary_is_short_and_keeps_secrets() {
    let daemon = start("[log]\nformat = \"json\"\n");
    let command = format!("API_TOKEN=hunter2hunter2 true; : {}", "é".repeat(300));
    daemon.bash(&command);
    wait_until("the record is there", || executions(&daemon).len() == 1);
    let record = executions(&daemon).remove(0);
    let summary = record["COMMAND_SUMMARY"].as_str().expect("text");
    assert!(summary.chars().count() <= 200, "{summary}");
    assert!(!daemon.log().contains("hunter2"), "{summary}");
}

#[test]
fn without_a_journal_lines_are_for_people() {
    let daemon = start("");
    let answer = daemon.bash("exit 3").json();
    let id = answer["execution_id"].as_str().expect("an id");
    let line = || {
        daemon
            .log()
            .lines()
            .find(|line| line.contains(id))
            .map(str::to_owned)
    };
    wait_until("the record is there", || line().is_some());
    let line = line().expect("just seen");
    for part in [
        " INFO ",
        "bash error: exit 3",
        "EXIT_CODE=3",
        "STATUS=\"error\"",
    ] {
        assert!(line.contains(part), "{line:?} lacks {part:?}");
    }
    assert!(!line.contains('\x1b'), "colour is for terminals: {line:?}");
}

#[test]
fn the_end_of_the_audit_trail_is_logged_whatever_the_level() {
    let mut daemon = start("[log]\nlevel = \"error\"\n");
    daemon.bash(": unheard");
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let log = daemon.log();
    assert!(log.contains("AUDIT_HEAD"), "{log}");
    assert!(!log.contains(": unheard"), "{log}");
}

#[test]
fn how_far_the_audit_trail_has_come_is_logged_now_and_then() {
    let daemon = start("[log]\nlevel = \"warn\"\n");
    // A decision and an ending each.
    for _ in 0..500 {
        daemon.bash("true");
    }
    daemon.wait_until("its end is logged", || {
        let log = daemon.log();
        let heads = log
            .lines()
            .filter_map(|line| line.split("AUDIT_HEAD=\"").nth(1));
        let mut numbers = heads.filter_map(|head| head.split(':').next()?.parse::<u64>().ok());
        numbers.any(|number| number >= 1000)
    });
}

#[test]
fn the_level_changes_with_the_configuration() {
    let daemon = start("[log]\nlevel = \"warn\"\n");
    daemon.bash(": unheard");
    let path = daemon.dir().join("executor.toml");
    std::fs::write(
        path,
        "[log]\nlevel = \"info\"\n[cgroup]\nmode = \"group\"\n",
    )
    .expect("written");
    wait_until("the new level is in force", || {
        daemon.bash(": heard");
        daemon.log().contains(": heard")
    });
    assert!(!daemon.log().contains(": unheard"));
}

#[test]
fn a_log_that_nobody_reads_holds_up_nobody() {
    let dir = scratch();
    fs::write(dir.join("executor.toml"), "[cgroup]\nmode = \"group\"\n").expect("written");
    let log = dir.join("log");
    mkfifo(&log, stat::Mode::S_IRWXU).expect("made");
    let nonblocking = OFlag::O_NONBLOCK.bits();
    let mut unread = OpenOptions::new();
    let mut unread = unread
        .read(true)
        .custom_flags(nonblocking)
        .open(&log)
        .expect("opened");
    fcntl(&unread, FcntlArg::F_SETPIPE_SZ(4096)).expect("a pipe");
    let mut daemon = Daemon::launch(dir, None, |_| {});
    for _ in 0..60 {
        assert_eq!(daemon.bash("true").status, 200);
    }
    let key = [("Idempotency-Key", "once")];
    let body = bash_call("true", &json!({})).to_string();
    let keyed = daemon
        .connect()
        .request("POST", "/execute", &key, body.as_bytes());
    assert_eq!(keyed.status, 200, "{}", keyed.content());
    let listed = daemon.get("/executions?limit=100").json();
    assert_eq!(listed["executions"].as_array().map(Vec::len), Some(61));
    fs::write(daemon.dir().join("executor.toml"), "what").expect("written");
    wait_until("the change is refused", || {
        daemon.get("/health").json()["status"] == "degraded"
    });
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    let mut first = Vec::new();
    unread
        .read_to_end(&mut first)
        .expect("its writers are gone");
    assert!(String::from_utf8_lossy(&first).contains("listening"));
}
