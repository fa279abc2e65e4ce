//! What a call belongs to, everywhere it is told: record, events, log, environment, nested calls.

use serde_json::{Value, json};

use super::skills::Room;
use crate::support::{Daemon, Events, Mode, Reply, bash_call, skip, wait_for};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Prints what a process knows of it, a line each.
const TELL: &str = "env | grep -E '^(SHELLY_(TRACE|TENANT|SESSION)_ID|TRACEPARENT)=' | sort";

fn ids() -> Value {
    json!({"trace_id": TRACE, "tenant_id": "acme", "session_id": "chat 7"})
}

fn post(daemon: &Daemon, body: &Value, traceparent: &str) -> Reply {
    let headers = [("traceparent", traceparent)];
    let body = body.to_string();
    daemon
        .connect()
        .request("POST", "/execute", &headers, body.as_bytes())
}

fn id_of(answer: &Value) -> String {
    answer["execution_id"].as_str().expect("an id").to_owned()
}

/// What a process of an execution is to find.
fn told(id: &str) -> String {
    let digits = id.replace('-', "");
    let parent = &digits[16..];
    format!(
        "SHELLY_SESSION_ID=chat 7\nSHELLY_TENANT_ID=acme\nSHELLY_TRACE_ID={TRACE}\nTRACEPARENT=00-{TRACE}-{parent}-01"
    )
}

/// Of an execution that has ended.
#[track_caller]
fn assert_correlated(thing: &Value) {
    for (name, value) in ids().as_object().expect("an object") {
        assert_eq!(thing[name], *value, "{name} of {thing}");
    }
}

#[test]
fn ids_go_from_the_call_to_record_events_and_environment() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let reply = daemon.bash_with(TELL, &ids());
        let id = id_of(&reply.json());
        assert_eq!(reply.stdout().trim_end(), told(&id));
        assert_correlated(&daemon.ended(&id));
        let path = format!("/events?follow=false&execution_id={id}");
        let events = Events::get(&daemon, &path).rest();
        assert!(events.len() > 10, "{events:?}");
        for event in &events {
            assert_correlated(&event.data);
        }
    }
}

#[test]
fn ids_are_fields_of_the_log() {
    let daemon = Daemon::start_adjusted(Mode::Group, "[log]\nformat = \"json\"", |command| {
        command.env_remove("RUST_LOG");
    });
    let id = id_of(&daemon.bash_with("true", &ids()).json());
    let line = wait_for("the record is there", || {
        let log = daemon.log();
        let mut lines = log.lines();
        let line = lines.find(|line| line.contains(&id) && line.contains("TENANT_ID"))?;
        serde_json::from_str::<Value>(line).ok()
    });
    assert_eq!(line["TRACE_ID"], TRACE);
    assert_eq!(line["TENANT_ID"], "acme");
    assert_eq!(line["SESSION_ID"], "chat 7");
}

#[test]
fn nothing_is_told_of_what_was_not_given() {
    let daemon = Daemon::start();
    let reply = daemon.bash(TELL);
    assert_eq!(reply.stdout(), "");
    let record = daemon.ended(&id_of(&reply.json()));
    for member in ["trace_id", "tenant_id", "session_id"] {
        assert!(record.as_object().expect("an object").contains_key(member));
        assert_eq!(record[member], Value::Null);
    }
}

#[test]
fn a_trace_in_body_and_header_is_one_or_refused() {
    let daemon = Daemon::start();
    let other = TRACE.replace('4', "5");
    for (body, header, expected) in [
        (json!({}), PARENT, Ok(TRACE)),
        (json!({"trace_id": TRACE}), PARENT, Ok(TRACE)),
        (json!({"trace_id": TRACE.to_uppercase()}), PARENT, Ok(TRACE)),
        // What is no traceparent says nothing.
        (
            json!({"trace_id": other}),
            "00-nonsense",
            Ok(other.as_str()),
        ),
        (json!({"trace_id": "order 4711"}), "", Ok("order 4711")),
        (json!({"trace_id": other}), PARENT, Err("contradicts")),
        (
            json!({"trace_id": "order 4711"}),
            PARENT,
            Err("contradicts"),
        ),
        (json!({"trace_id": ""}), "", Err("empty")),
        (json!({"trace_id": "a\nb"}), "", Err("control")),
        (json!({"trace_id": "x".repeat(257)}), "", Err("long")),
        (json!({"tenant_id": "a\u{0}b"}), "", Err("control")),
    ] {
        let reply = post(&daemon, &bash_call("true", &body), header);
        let answer = reply.json();
        match expected {
            Ok(trace) => {
                assert_eq!(reply.status, 200, "{body} {header}: {answer}");
                assert_eq!(daemon.ended(&id_of(&answer))["trace_id"], trace);
            }
            Err(why) => {
                assert_eq!(reply.status, 400, "{why}: {body} {header}: {answer}");
                assert_eq!(answer["code"], "malformed_request");
            }
        }
    }
}

#[test]
fn a_name_that_is_no_trace_of_the_w3c_has_no_parent() {
    let daemon = Daemon::start();
    let reply = daemon.bash_with(TELL, &json!({"trace_id": "order 4711"}));
    assert_eq!(reply.stdout().trim_end(), "SHELLY_TRACE_ID=order 4711");
}

#[test]
fn a_call_does_not_say_otherwise_in_its_own_variables() {
    let daemon = Daemon::start();
    let call = json!({
        "tenant_id": "acme", "trace_id": TRACE,
        "env": {"SHELLY_TENANT_ID": "other", "SHELLY_SESSION_ID": "other", "TRACEPARENT": PARENT},
    });
    // The parent of what it starts is for the caller to name.
    let expected = format!("SHELLY_TENANT_ID=acme\nSHELLY_TRACE_ID={TRACE}\nTRACEPARENT={PARENT}");
    assert_eq!(daemon.bash_with(TELL, &call).stdout().trim_end(), expected);
}

#[test]
fn nested_calls_belong_to_what_their_parent_does() {
    let room = Room::new("");
    let steps = json!([{"tool": "bash", "parameters": {"command": TELL}}]);
    room.steps("teller", steps, json!({}));
    let daemon = room.start();
    let mut call = json!({"name": "teller", "input": {}});
    let members = call.as_object_mut().expect("an object");
    members.extend(ids().as_object().expect("an object").clone());
    let answer = daemon.post(&call).json();
    assert_eq!(answer["is_error"], false, "{answer}");
    let record = daemon.ended(&id_of(&answer));
    let child = record["children"][0].clone();
    assert_correlated(&record);
    let child = id_of(&child);
    assert_correlated(&daemon.ended(&child));
    let stdout = String::from_utf8(daemon.output(&child, "stdout")).expect("text");
    assert_eq!(stdout.trim_end(), told(&child));
}

#[test]
fn a_sandboxed_process_is_told_as_well() {
    let daemon = Daemon::start();
    let mut call = bash_call(TELL, &ids());
    call["risk_level"] = json!("untrusted");
    let reply = daemon.post(&call);
    let answer = reply.json();
    if answer["code"] == "sandbox_unavailable" {
        return skip("ids inside the sandbox, for there is none");
    }
    assert_eq!(answer["risk_level"], "untrusted", "{answer}");
    assert_eq!(reply.stdout().trim_end(), told(&id_of(&answer)));
    let metrics = daemon.get("/metrics");
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for line in [
        "shelly_sandbox_starts_total{result=\"started\"} 1",
        "shelly_executions_total{ending=\"success\",risk=\"untrusted\",tool=\"bash\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[test]
fn history_has_the_calls_of_a_trace() {
    let daemon = Daemon::start();
    let of_turn = daemon.bash_with("echo turn", &json!({"trace_id": "turn-7"}));
    let of_turn = id_of(&of_turn.json());
    let of_trace = post(&daemon, &bash_call("echo trace", &json!({})), PARENT);
    let of_trace = id_of(&of_trace.json());
    daemon.bash("echo neither");
    let found = |query: &str| {
        let page = daemon.get(&format!("/executions?trace_id={query}")).json();
        let entries = page["executions"].as_array().expect("entries").iter();
        entries.map(id_of).collect::<Vec<_>>()
    };
    assert_eq!(found("turn-7"), [of_turn]);
    // Hexadecimal digits are the same in either case (W3C Trace Context).
    for trace in [TRACE, &TRACE.to_uppercase()] {
        assert_eq!(found(trace), [&*of_trace]);
    }
    for (more, count) in [
        ("status=success", 1),
        ("status=error", 0),
        ("tool=bash&caller=0&text=trace", 1),
        ("text=turn", 0),
    ] {
        assert_eq!(found(&format!("{TRACE}&{more}")).len(), count, "{more}");
    }
    assert_eq!(found("none"), [""; 0]);
}

/// A new execution belongs where its own caller is.
#[test]
fn a_replay_is_a_part_of_the_trace_that_its_caller_names() {
    let daemon = Daemon::start();
    let first = daemon.bash_with("echo hi", &json!({"trace_id": "turn-7"}));
    let path = format!("/executions/{}/replay", id_of(&first.json()));
    let trace = |headers: &[(&str, &str)]| {
        let again = daemon.connect().request("POST", &path, headers, b"");
        daemon.ended(&id_of(&again.json()))["trace_id"].take()
    };
    assert_eq!(trace(&[("traceparent", PARENT)]), TRACE);
    assert_eq!(trace(&[]), Value::Null);
}
