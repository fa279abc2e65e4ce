//! Tools that are left alone when the daemon fails at them, and calls that are tried again.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::flow::refused;
use super::skills::{Room, call};
use crate::support::{Daemon, Events, Mode, wait_for};

/// A tool that takes too long as long as there is a file `slow` in `dir`.
fn slow_tool(room: &Room) -> std::path::PathBuf {
    let mark = room.dir.join("slow");
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\n[ -e {mark} ] && sleep 100\necho '1'\n",
        mark = mark.display()
    );
    room.program("shaky", &script, json!({}));
    mark
}

/// As little time as every call gets. Less than that would be the caller's own affair.
const LITTLE_TIME: &str = "default_timeout_secs = 1\n";

/// Calls it with as much time as it gets.
fn shaky(daemon: &Daemon) -> crate::support::Reply {
    daemon.post(&json!({"name": "shaky", "input": {}}))
}

/// Calls it with more.
fn patiently(daemon: &Daemon) -> crate::support::Reply {
    daemon.post(&json!({"name": "shaky", "input": {}, "timeout_secs": 30}))
}

fn problems(daemon: &Daemon) -> Value {
    let health = daemon.get("/health").json();
    let all = health["problems"].as_array().expect("a list").clone();
    let codes = all.iter().map(|problem| problem["code"].clone());
    codes.collect()
}

fn circuits(daemon: &Daemon) -> Value {
    daemon.get("/health").json()["circuits"].clone()
}

/// What `/metrics` says of it.
fn gauge(daemon: &Daemon) -> u64 {
    let text = String::from_utf8(daemon.get("/metrics").body).expect("text");
    let name = "shelly_flow_circuit_open{tool=\"shaky\"} ";
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.expect("a line").parse().expect("a number")
}

fn circuit_events(daemon: &Daemon) -> Vec<String> {
    let path = "/events?follow=false&type=circuitOpened,circuitHalfOpened,circuitClosed&tool=shaky";
    let text = String::from_utf8(daemon.get(path).body).expect("text");
    let kinds = text.lines().filter_map(|line| line.strip_prefix("event: "));
    kinds.map(str::to_owned).collect()
}

fn touch(path: &Path) {
    fs::write(path, "").expect("written");
}

#[test]
fn a_tool_that_fails_again_and_again_is_left_alone_and_tried_again() {
    let breaker = "[flow.tools.shaky]\nbreaker = { failures = 2, open_secs = 5 }\n";
    let room = Room::new(&format!("{LITTLE_TIME}{breaker}"));
    let mark = slow_tool(&room);
    let daemon = room.start();
    assert_eq!(patiently(&daemon).status, 200);
    touch(&mark);
    assert_eq!(problems(&daemon), json!([]));
    for _ in 0..2 {
        assert_eq!(shaky(&daemon).status, 504);
    }
    let reply = shaky(&daemon);
    assert!((1..=5).contains(&refused(&reply, 503, "circuit_open")));
    assert!(
        reply.content().contains("left alone"),
        "{}",
        reply.content()
    );
    assert_eq!(problems(&daemon), json!(["circuit_open"]));
    assert_eq!(circuits(&daemon), json!({"shaky": "open"}));
    // Others are not concerned.
    let members = json!({"timeout_secs": 30});
    assert_eq!(daemon.bash_with("true", &members).status, 200);
    // The trial fails.
    let unless_open =
        |reply: crate::support::Reply| Some(reply.status).filter(|status| *status != 503);
    // Whoever waits for the daemon to be well before the next call does not wait for ever.
    wait_for("it is well without a call", || {
        (problems(&daemon) == json!([])).then_some(())
    });
    assert_eq!(gauge(&daemon), 0);
    assert_eq!(circuits(&daemon), json!({"shaky": "half_open"}));
    let trial = || unless_open(shaky(&daemon));
    assert_eq!(wait_for("a trial", trial), 504);
    assert_eq!(gauge(&daemon), 1);
    refused(&shaky(&daemon), 503, "circuit_open");
    // And goes well.
    fs::remove_file(&mark).expect("removed");
    let trial = || unless_open(patiently(&daemon));
    assert_eq!(wait_for("a trial", trial), 200);
    assert_eq!(patiently(&daemon).status, 200);
    assert_eq!(problems(&daemon), json!([]));
    assert_eq!(circuits(&daemon), json!({}));
    let expected = [
        "circuitOpened",
        "circuitHalfOpened",
        "circuitOpened",
        "circuitHalfOpened",
        "circuitClosed",
    ];
    wait_for("its events", || {
        (circuit_events(&daemon) == expected).then_some(())
    });
}

#[test]
fn exit_codes_count_only_where_they_are_to() {
    for (counts, status) in [(false, 200), (true, 503)] {
        let flow = format!(
            "[flow.tools.bash]\nbreaker = {{ failures = 2, open_secs = 1000, exit_codes = {counts} }}\n"
        );
        let daemon = Daemon::start_with(Mode::Group, &flow);
        for _ in 0..3 {
            // Success in between begins the count anew.
            assert_eq!(daemon.bash("false").status, 200);
            assert_eq!(daemon.bash("true").status, 200);
        }
        assert_eq!(daemon.bash("false").status, 200);
        assert_eq!(daemon.bash("kill -9 $$").status, 200);
        assert_eq!(daemon.bash("true").status, status);
    }
}

/// Nobody can have a tool left alone for all others.
#[test]
fn what_a_caller_does_wrong_is_not_the_tools_failure() {
    let flow = "[sandbox]\nruntime = \"/nowhere/runsc\"\n[flow.tools.bash]\nbreaker = { failures = 1, open_secs = 1000 }\n";
    let daemon = Daemon::start_with(Mode::Group, flow);
    let too_much: serde_json::Map<String, Value> = (0..60)
        .map(|n| (format!("V{n}"), json!("x".repeat(100_000))))
        .collect();
    for (own, status) in [
        (json!({"working_dir": "/nowhere"}), 500),
        (
            json!({"env": {"A": "x".repeat(131_069)}, "timeout_secs": 0.1}),
            504,
        ),
        (json!({"env": {"A": "x".repeat(131_070)}}), 400),
        (json!({"env": too_much}), 500),
        (json!({"timeout_secs": 0.1}), 504),
        (json!({"risk_level": "untrusted"}), 503),
        (
            json!({"risk_level": "untrusted", "workspace": "/nowhere"}),
            422,
        ),
    ] {
        let mut members = json!({});
        let own = own.as_object().expect("members").clone();
        members
            .as_object_mut()
            .expect("members")
            .extend(own.clone());
        let reply = daemon.bash_with("sleep 60", &members);
        assert_eq!(reply.status, status, "{:?}", own.keys());
        assert_eq!(daemon.bash("true").status, 200, "{:?}", own.keys());
    }
}

/// Which says nothing of the tool.
#[test]
fn a_trial_that_is_cancelled_leaves_the_next_call_to_be_it() {
    let breaker = "[flow.tools.shaky]\nbreaker = { failures = 1, open_secs = 1 }\n";
    let room = Room::new(&format!("{LITTLE_TIME}{breaker}"));
    let mark = slow_tool(&room);
    let daemon = room.start();
    touch(&mark);
    assert_eq!(shaky(&daemon).status, 504);
    let begin = || {
        let body = json!({"name": "shaky", "input": {}, "timeout_secs": 600}).to_string();
        let prefer = [("Prefer", "respond-async")];
        let reply = daemon
            .connect()
            .request("POST", "/execute", &prefer, body.as_bytes());
        reply.json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned()
    };
    let trial = wait_for("a trial", || {
        let id = begin();
        let record = || daemon.get(&format!("/executions/{id}")).json();
        let known = wait_for("it runs or is refused", || {
            let record = record();
            (record["started_at"].is_string() || record["status"] == "failed").then_some(record)
        });
        (known["status"] != "failed").then_some(id)
    });
    refused(&call(&daemon, "shaky", json!({})), 503, "circuit_open");
    let path = format!("/executions/{trial}");
    daemon.connect().request("DELETE", &path, &[], b"");
    fs::remove_file(&mark).expect("removed");
    assert_eq!(patiently(&daemon).status, 200);
}

/// A skill that fails as often as there are lines in the file `left`, each time taking one.
fn flaky(room: &Room, name: &str, failing: &str) {
    let left = room.dir.join("left");
    let script = format!(
        "#!/bin/bash\ncat >/dev/null\necho attempt >&2\nif [ -s {left} ]; then sed -i 1d {left}; {failing}; fi\necho '\"done\"'\n",
        left = left.display()
    );
    room.program(name, &script, json!({}));
}

fn set_failures(daemon: &Daemon, count: usize) {
    fs::write(daemon.dir().join("left"), "x\n".repeat(count)).expect("written");
}

#[test]
fn what_may_run_twice_is_tried_again_and_nothing_else_is() {
    let room = Room::new(
        "[flow.tools.again]\nidempotent = true\nretries = { max = 2, delay_ms = 1, exit_codes = true }\n\
         [flow.tools.careful]\nidempotent = true\nretries = { max = 2, delay_ms = 1 }\n",
    );
    for name in ["again", "careful", "once"] {
        flaky(&room, name, "exit 3");
    }
    flaky(&room, "garbled", "echo no JSON; exit 0");
    let daemon = room.start();
    set_failures(&daemon, 2);
    let reply = call(&daemon, "again", json!({}));
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["output"]),
        (200, &json!("done")),
        "{body}"
    );
    // The answer is of the last try alone.
    let id = body["execution_id"].as_str().expect("an id");
    assert_eq!(daemon.output(id, "stderr"), b"attempt\n");
    assert_eq!(daemon.output(id, "stdout"), b"\"done\"\n");
    let path = format!("/events?follow=false&type=executionRetried&execution_id={id}");
    wait_for("both retries are told", || {
        let text = String::from_utf8(daemon.get(&path).body).expect("text");
        (text.matches("exit code 3").count() == 2).then_some(())
    });
    // Who follows is told of each try.
    set_failures(&daemon, 1);
    let (_, events) = Events::open(&daemon, &json!({"name": "again", "input": {}}));
    let events = events.rest();
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names[..3], ["started", "stderr", "started"], "{names:?}");
    let told = events.iter().filter(|event| event.name == "stderr");
    let told: Vec<_> = told.map(|event| &event.data).collect();
    assert_eq!(told, [&json!({"text": "attempt\n", "offset": 0}); 2]);
    assert_eq!(events.last().expect("a result").data["output"], "done");
    // No more often than it is to be.
    set_failures(&daemon, 3);
    assert_eq!(call(&daemon, "again", json!({})).json()["exit_code"], 3);
    assert_eq!(
        fs::read_to_string(daemon.dir().join("left")).expect("there"),
        ""
    );
    for name in ["careful", "once"] {
        set_failures(&daemon, 2);
        assert_eq!(
            call(&daemon, name, json!({})).json()["exit_code"],
            3,
            "{name}"
        );
        assert_eq!(
            fs::read_to_string(daemon.dir().join("left")).expect("there"),
            "x\n"
        );
    }
}

#[test]
fn what_the_daemon_could_not_do_is_tried_again() {
    let room =
        Room::new("[flow.tools.again]\nidempotent = true\nretries = { max = 3, delay_ms = 1 }\n");
    flaky(&room, "again", "echo no JSON; exit 0");
    let daemon = room.start();
    set_failures(&daemon, 1);
    let body = call(&daemon, "again", json!({})).json();
    assert_eq!(body["output"], "done", "{body}");
    set_failures(&daemon, 4);
    let reply = call(&daemon, "again", json!({}));
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (500, &json!("output_invalid"))
    );
}

/// However often it has failed until then.
#[test]
fn a_call_that_is_cancelled_between_two_tries_is_cancelled() {
    let limits = "idempotent = true\nretries = { max = 100, delay_ms = 60_000, exit_codes = true }\n\
                  breaker = { failures = 1, open_secs = 1000, exit_codes = true }";
    let daemon = Daemon::start_with(Mode::Group, &format!("[flow.tools.bash]\n{limits}\n"));
    let cancel = |id: &str| {
        let path = format!("/executions/{id}");
        daemon.connect().request("DELETE", &path, &[], b"");
        daemon.ended(id)
    };
    let (id, record) = loop {
        let id = daemon.begin("echo written; exit 3", &json!({}));
        let path = format!("/events?follow=false&type=executionRetried&execution_id={id}");
        let delay = wait_for("it waits for another try", || {
            let told = Events::get(&daemon, &path).rest();
            told.first()
                .and_then(|event| event.data["delay_ms"].as_f64())
        });
        let record = cancel(&id);
        // A random part of a minute may be over by now.
        if delay > 20_000.0 {
            break (id, record);
        }
    };
    assert_eq!(record["status"], "cancelled", "{record}");
    assert_eq!(daemon.output(&id, "stdout"), b"written\n");
    let path = format!("/events?follow=false&type=executionAborted&execution_id={id}");
    wait_for("its event", || {
        let text = String::from_utf8(daemon.get(&path).body).expect("text");
        text.contains("executionAborted").then_some(())
    });
    // Nor is the tool left alone for it.
    assert_eq!(daemon.bash("true").status, 200);
}

/// The answer of a call whose first two tries leave `sleep 60` and `sleep 61` behind, with that done to their outputs.
fn tried(outputs: &str, members: &Value) -> Value {
    let retries = "idempotent = true\nretries = { max = 2, delay_ms = 1, exit_codes = true }";
    let toml = format!("[flow.tools.bash]\n{retries}\n");
    let daemon = Daemon::start_with(Mode::Group, &toml);
    let left = daemon.dir().join("left");
    fs::write(&left, "60\n61\n").expect("written");
    let command = format!(
        "read -r secs < {left} || {{ echo done; exit; }}; sed -i 1d {left}; sleep $secs {outputs} & exit 3",
        left = left.display()
    );
    let reply = daemon.bash_with(&command, members);
    let body = reply.json();
    assert_eq!(reply.stdout(), "done", "{body}");
    body
}

/// Of what an earlier try has written nothing is told, but it was of this call all the same.
#[test]
fn whom_an_earlier_try_has_left_behind_is_told() {
    let body = tried("", &json!({}));
    let left = body["background"].as_array().expect("a list");
    let told: Vec<_> = left
        .iter()
        .map(|one| (one["command"].as_str(), one["killed"].as_bool()))
        .collect();
    let expected = ["sleep 60", "sleep 61"].map(|command| (Some(command), Some(true)));
    assert_eq!(told, expected, "{body}");
}

/// Each try finds those that the ones before it have left alive.
#[test]
fn whom_earlier_tries_have_left_alive_is_told_once() {
    let body = tried(">/dev/null 2>&1", &json!({"background": "keep"}));
    let left = body["background"].as_array().expect("a list");
    let pids: Vec<_> = left.iter().filter_map(|one| one["pid"].as_i64()).collect();
    for pid in pids {
        // Told twice, it is not there any more.
        let _ = kill(
            Pid::from_raw(pid.try_into().expect("a pid")),
            Signal::SIGKILL,
        );
    }
    let mut told: Vec<_> = left.iter().map(|one| one["command"].as_str()).collect();
    told.sort();
    assert_eq!(told, [Some("sleep 60"), Some("sleep 61")], "{body}");
}

/// Which an error has no room for.
#[test]
fn whom_an_earlier_try_has_left_alive_is_logged_when_the_last_one_cannot_be_made() {
    let retries = "idempotent = true\nretries = { max = 1, delay_ms = 1, exit_codes = true }";
    let toml = format!("[flow.tools.bash]\n{retries}\n");
    let daemon = Daemon::start_with(Mode::Group, &toml);
    let here = daemon.dir().join("here");
    fs::create_dir(&here).expect("made");
    let members = json!({"working_dir": here, "background": "keep"});
    let reply = daemon.bash_with(
        "sleep 60 >/dev/null 2>&1 & echo $! > ../pid; rmdir \"$PWD\"; exit 3",
        &members,
    );
    assert_ne!(reply.status, 200, "{}", reply.json());
    let pid = fs::read_to_string(daemon.dir().join("pid")).expect("it ran");
    let told = wait_for("it is logged", || {
        let log = daemon.log();
        let mut lines = log.lines();
        let told = lines.find(|line| line.contains("left a process behind"));
        told.map(str::to_owned)
    });
    assert!(
        told.contains(pid.trim()) && told.contains("sleep 60"),
        "{told}"
    );
    let pid = Pid::from_raw(pid.trim().parse().expect("a number"));
    kill(pid, Signal::SIGKILL).expect("it lives");
}

/// A skill that somebody has removed does not fail: it is not there, and it is there at once when it is put back.
#[test]
fn what_is_removed_has_not_failed() {
    let room = Room::new("[flow.tools.gone]\nbreaker = { failures = 1, open_secs = 3600 }\n");
    let is_unknown = |reply: &crate::support::Reply| {
        let body = reply.json();
        let told = (reply.status, &body["code"]);
        assert_eq!(told, (404, &json!("unknown_tool")), "{body}");
    };
    let script = "#!/bin/sh\ncat >/dev/null\necho 1\n";
    room.program("gone", script, json!({}));
    let (there, away) = (room.dir.join("skills/gone"), room.dir.join("away"));
    let daemon = room.start();
    assert_eq!(call(&daemon, "gone", json!({})).status, 200);
    for _ in 0..5 {
        fs::rename(&there, &away).expect("moved");
        // Until it is known, too.
        wait_for("it is gone from the list", || {
            is_unknown(&call(&daemon, "gone", json!({})));
            (daemon.get("/tools/gone").status == 404).then_some(())
        });
        fs::rename(&away, &there).expect("moved");
        wait_for("it is back", || {
            let reply = call(&daemon, "gone", json!({}));
            if reply.status == 200 {
                return Some(());
            }
            is_unknown(&reply);
            None
        });
    }
}
