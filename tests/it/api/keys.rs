//! `Idempotency-Key`: a call runs once, however often it is sent and whoever dies meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::history::{killed, list};
use super::{blocked, call, hooks, release};
use crate::support::{Daemon, Events, Mode, Reply, bash_call, can_trace, wait_until};

const KEY: &str = "Idempotency-Key";

pub(super) fn keyed(daemon: &Daemon, key: &str, body: &Value) -> Reply {
    let body = body.to_string();
    daemon
        .connect()
        .request("POST", "/execute", &[(KEY, key)], body.as_bytes())
}

/// With its record its key is forgotten; whoever meets with that begins anew.
#[test]
fn a_key_that_is_forgotten_at_the_moment_is_nobody_elses() {
    let daemon = Daemon::start();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let clearing = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                daemon.connect().request("DELETE", "/executions", &[], b"");
            }
        });
        let calling = [0, 1, 2].map(|_| {
            scope.spawn(|| {
                // So long that its text is a file of its own.
                let call = || keyed(&daemon, "same", &call("seq 9000"));
                (0..300).map(|_| call()).find(|reply| {
                    // The others are at it.
                    let is_under_way = reply.status == 409 && reply.content().contains("wait");
                    let is_whole = reply.status == 200 && reply.content().contains("\n9000\n");
                    !is_whole && !is_under_way
                })
            })
        });
        let refused = calling.map(|caller| caller.join().expect("called"));
        is_done.store(true, Ordering::Relaxed);
        clearing.join().expect("cleared");
        let refused: Vec<String> = refused.iter().flatten().map(Reply::content).collect();
        assert!(refused.is_empty(), "{refused:?}");
    });
}

#[test]
fn a_key_runs_its_call_once() {
    let mut daemon = Daemon::start();
    let count = daemon.dir().join("count");
    let body = call(&format!("echo x >>{0}; date +%N; exit 4", count.display()));
    let first = keyed(&daemon, "once", &body);
    assert_eq!((first.status, &first.json()["exit_code"]), (200, &json!(4)));
    let again = keyed(&daemon, "once", &body);
    assert_eq!((again.status, again.json()), (200, first.json()));
    // Problems are answers, too.
    let unknown = json!({"name": "none", "input": {}, "id": "toolu_1"});
    let refused = keyed(&daemon, "refused", &unknown);
    assert_eq!(refused.status, 404);
    assert_eq!(keyed(&daemon, "refused", &unknown).json(), refused.json());

    let daemon = killed(&mut daemon);
    assert_eq!(keyed(&daemon, "once", &body).json(), first.json());
    let other = keyed(&daemon, "once", &call("echo other"));
    assert_eq!(
        (other.status, &other.json()["code"]),
        (409, &json!("idempotency_conflict"))
    );
    assert_eq!(fs::read_to_string(&count).expect("written"), "x\n");
    let body = body.to_string();
    let streamed = [(KEY, "once"), ("Accept", "text/event-stream")];
    let events = daemon
        .connect()
        .request("POST", "/execute", &streamed, body.as_bytes());
    let events = String::from_utf8(events.body).expect("text");
    assert!(
        events.starts_with("event: started\n") || events.contains("\nevent: started\n"),
        "{events}"
    );
    assert!(
        events.contains("\"exit_code\":4") && events.contains("\"status\":200"),
        "{events}"
    );

    let long = "x".repeat(256);
    // A blank stands between the tools that led to a call and its own key.
    for key in ["", &long, "skill key", "skill\tkey"] {
        let named = json!({"name": "bash", "id": "toolu_1", "input": {"command": "true"}});
        let refused = keyed(&daemon, key, &named);
        let problem = refused.json();
        assert_eq!(
            (refused.status, &problem["code"], &problem["tool_use_id"]),
            (400, &json!("malformed_request"), &json!("toolu_1"))
        );
    }
}

#[test]
fn a_key_outlives_its_caller_and_a_crash_does_not_run_it_again() {
    let mut daemon = Daemon::start();
    let (script, fifo) = blocked(&daemon, "go");
    let body = call(&script);
    let mut caller = daemon.connect();
    let text = body.to_string();
    caller.send("POST", "/execute", &[(KEY, "k")], text.as_bytes());
    daemon.wait_until("it runs", || daemon.get("/health").json()["running"] == 1);
    let busy = keyed(&daemon, "k", &body);
    assert_eq!(
        (busy.status, &busy.json()["code"]),
        (409, &json!("idempotency_conflict"))
    );
    drop(caller);
    let running = list(&daemon, "status=running")["executions"][0]["execution_id"].take();
    let running = running.as_str().expect("an id").to_owned();
    release(&fifo, "on");
    // Nobody waited for it, and it was not stopped.
    assert_eq!(daemon.ended(&running)["status"], "success");
    assert_eq!(keyed(&daemon, "k", &body).stdout(), "begun\non");

    let (script, fifo) = blocked(&daemon, "stop");
    let body = call(&script);
    let text = body.to_string();
    let mut caller = daemon.connect();
    caller.send("POST", "/execute", &[(KEY, "l")], text.as_bytes());
    // Until it executes its program it holds a copy of the socket that is listened on.
    let _gate = fifo.reached();
    let daemon = killed(&mut daemon);
    let lost = keyed(&daemon, "l", &body);
    assert_eq!((lost.status, &lost.json()["code"]), (500, &json!("lost")));
}

#[test]
fn many_callers_with_one_key_run_one_command() {
    let daemon = Daemon::start();
    let count = daemon.dir().join("count");
    let body = call(&format!("echo x >>{}", count.display()));
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| keyed(&daemon, "one", &body)))
            .collect();
        let statuses: BTreeSet<u16> = callers
            .into_iter()
            .map(|caller| caller.join().expect("answered").status)
            .collect();
        assert!(
            statuses.is_subset(&BTreeSet::from([200, 409])),
            "{statuses:?}"
        );
    });
    assert_eq!(keyed(&daemon, "one", &body).status, 200);
    assert_eq!(fs::read_to_string(&count).expect("written"), "x\n");
}

/// The text of each stream as it was told, piece by piece, and what was told last.
fn streamed(daemon: &Daemon, key: &str, body: &Value) -> (BTreeMap<String, String>, Value) {
    let (_, events) = Events::open_with(daemon, body, &[(KEY, key)]);
    let mut events = events.rest();
    let last = events.pop().expect("an end");
    assert_eq!(last.name, "result");
    assert_eq!(events.remove(0).name, "started");
    let mut streams = BTreeMap::<String, String>::new();
    for event in events {
        let text = streams.entry(event.name).or_default();
        assert_eq!(event.data["offset"], text.len());
        text.push_str(event.data["text"].as_str().expect("text"));
    }
    (streams, last.data)
}

#[test]
fn a_stream_is_repeated_with_what_is_kept_of_its_output() {
    let mut daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 200_000");
    // In the record, in the spool, and of an execution that did not end well.
    let calls = [
        ("short", bash_call("echo out; echo err >&2", &json!({}))),
        // The cap is amid a character.
        (
            "long",
            bash_call("yes aéé | head -c 300000; echo err >&2", &json!({})),
        ),
        (
            "late",
            bash_call("echo so far; sleep 600", &json!({"timeout_secs": 1})),
        ),
    ];
    let first = calls
        .each_ref()
        .map(|(key, call)| streamed(&daemon, key, call));
    assert_eq!(first[0].0["stdout"], "out\n");
    assert_eq!(first[0].0["stderr"], "err\n");
    assert_eq!(first[1].0["stdout"].len(), 199_999);
    assert_eq!(first[2].0["stdout"], "so far\n");
    let assert_same = |daemon: &Daemon| {
        for ((key, call), first) in calls.iter().zip(&first) {
            assert!(streamed(daemon, key, call) == *first, "{key}");
        }
    };
    assert_same(&daemon);
    let daemon = killed(&mut daemon);
    assert_same(&daemon);
    // Of what has been given up nothing is told.
    let (key, call) = &calls[1];
    let id = first[1].1["execution_id"].as_str().expect("an id");
    fs::remove_file(daemon.dir().join(format!("state/spool/{id}.stdout"))).expect("spooled");
    let (streams, last) = streamed(&daemon, key, call);
    assert_eq!(streams.into_keys().collect::<Vec<_>>(), ["stderr"]);
    assert_eq!(last["stdout_bytes"], first[1].1["stdout_bytes"]);
}

/// As a stream, too, what was refused before it started is a plain problem.
#[test]
fn a_refusal_is_repeated_as_it_was() {
    let daemon = Daemon::start();
    let headers = [(KEY, "k"), ("Accept", "text/event-stream")];
    for (call, status) in [
        (json!({"name": "bsh", "input": {}}), 404),
        (json!({"name": "bash", "input": {}}), 422),
        (
            json!({"name": "bash", "input": {"command": "true"}, "working_dir": "/no/such"}),
            500,
        ),
    ] {
        let key = format!("k{status}");
        let headers = headers.map(|(name, value)| (name, if name == KEY { &*key } else { value }));
        let call = call.to_string();
        let ask = || {
            daemon
                .connect()
                .request("POST", "/execute", &headers, call.as_bytes())
        };
        let (first, again) = (ask(), ask());
        assert_eq!(first.status, status);
        assert_eq!(
            first.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!((again.status, again.json()), (first.status, first.json()));
    }
}

/// What became known of it behind its key is on file before it is told, however slow the disk is.
#[test]
fn what_was_said_of_a_refusal_survives_a_crash() {
    let policy = "default = \"allow\"\ndeny = [\"bash(command:false)\"]\n";
    let Some((refused, daemon)) = crashed_behind(policy, hooks::ALLOW, "false") else {
        return;
    };
    assert_eq!(refused.json()["code"], "permission_denied");
    let record = recorded(&daemon, &refused, "executionFailed");
    assert_eq!(record["judgement"]["verdict"], "deny", "{record}");
}

/// The same of what a hook made of it, and of what was allowed.
#[test]
fn what_was_run_behind_a_key_survives_a_crash() {
    let change = r#"echo '{"decision":"change","input":{"command":"echo changed"}}'"#;
    let policy = "default = \"allow\"\ndeny = [\"bash(command:false)\"]\n";
    let Some((reply, daemon)) = crashed_behind(policy, change, "echo asked") else {
        return;
    };
    assert_eq!(reply.stdout(), "changed");
    let record = recorded(&daemon, &reply, "executionCompleted");
    assert_eq!(
        (
            &record["input"],
            &record["changed_by"],
            &record["judgement"]["verdict"]
        ),
        (
            &json!({"command": "echo changed"}),
            &json!(["look"]),
            &json!("allow")
        ),
        "{record}"
    );
}

/// The answer to a call with a key, a hook before its judgement, and a slow disk, and the daemon that was started when
/// the first was killed as soon as it had answered. `None` where that cannot be had.
fn crashed_behind(policy: &str, hook: &str, command: &str) -> Option<(Reply, Daemon)> {
    if !can_trace("a crash behind an answer") {
        return None;
    }
    let hook = ("look", "before = \"permission\"", hook);
    let mut daemon = hooks::start_with_policy(policy, &[hook]);
    daemon.bash("true");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", "-e", "trace=pwrite64"]);
    strace.args(["-e", "inject=pwrite64:delay_enter=200000", "-p"]);
    strace.arg(daemon.pid().to_string()).stderr(Stdio::null());
    let mut strace = strace.spawn().expect("strace");
    wait_until("it is traced", || daemon.status("TracerPid") != 0);
    let reply = keyed(&daemon, "k", &call(command));
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    strace.wait().expect("all that it traced has ended");
    let daemon = daemon.restart();
    Some((reply, daemon))
}

/// What is on record of an execution that was answered so, whose events go from its start to an ending of this kind, and
/// are in the trail.
fn recorded(daemon: &Daemon, reply: &Reply, ending: &str) -> Value {
    let body = reply.json();
    let id = body["execution_id"].as_str().expect("an id");
    let record = daemon.get(&format!("/executions/{id}")).json();
    let events = Events::get(
        daemon,
        &format!("/events?follow=false&after=0&execution_id={id}"),
    )
    .rest();
    let kinds: Vec<&str> = events.iter().map(|event| &*event.name).collect();
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&"executionStarted"), Some(&ending)),
        "{kinds:?}"
    );
    let trail = String::from_utf8(daemon.get("/audit").body).expect("text");
    let of_it = trail.lines().filter(|line| line.contains(id));
    let kinds = of_it.map(|line| serde_json::from_str::<Value>(line).expect("JSON")["kind"].take());
    assert_eq!(kinds.collect::<Vec<_>>(), ["hook", "decision", "ending"]);
    record
}

/// What only waited for its turn when the daemon stopped has not run, and is told to come again.
#[test]
fn a_key_whose_call_only_waited_is_good_for_another_try() {
    let toml = "shutdown_grace_secs = 0\n[flow.tools.bash]\nmax_running = 1\n";
    let mut daemon = Daemon::start_with(Mode::Group, toml);
    let (long, short) = (call("exec sleep 100"), call("echo ran"));
    let count = |status| {
        let page = list(&daemon, &format!("status={status}"));
        page["executions"].as_array().expect("entries").len()
    };
    let replies = thread::scope(|scope| {
        let first = scope.spawn(|| keyed(&daemon, "long", &long));
        wait_until("it runs", || count("running") == 1);
        let second = scope.spawn(|| keyed(&daemon, "short", &short));
        wait_until("it waits", || count("queued") == 1);
        daemon.signal(Signal::SIGTERM);
        [first, second].map(|reply| reply.join().expect("answered"))
    });
    for (reply, after) in replies.iter().zip([None, Some("1")]) {
        let body = reply.json();
        assert_eq!(
            (reply.status, &body["code"]),
            (503, &json!("shutting_down"))
        );
        assert_eq!(reply.header("retry-after"), after);
    }
    daemon.wait();
    let daemon = daemon.restart();
    assert_eq!(keyed(&daemon, "long", &long).status, 503);
    assert_eq!(keyed(&daemon, "short", &short).stdout(), "ran");
}
