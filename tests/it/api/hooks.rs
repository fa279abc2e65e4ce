//! `[[hooks]]`: asked on a call's way, obeyed, and recorded whatever they say.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::call;
use crate::support::{Daemon, Fifo, Mode, Reply, scratch, wait_until};

pub(super) const ALLOW: &str = r#"echo '{"decision":"allow"}'"#;

/// A hook: its name, where it stands with whatever other keys it has, and its script, which runs
/// in the daemon's directory.
pub(super) type Hook<'a> = (&'a str, &'a str, &'a str);

pub(super) fn tables(hooks: &[Hook<'_>]) -> String {
    let table = |(name, keys, _): &Hook<'_>| {
        format!("[[hooks]]\nname = \"{name}\"\ncommand = [\"/bin/sh\", \"{name}.sh\"]\n{keys}\n")
    };
    hooks.iter().map(table).collect()
}

pub(super) fn write_scripts(dir: &Path, hooks: &[Hook<'_>]) {
    for (name, _, script) in hooks {
        fs::write(dir.join(format!("{name}.sh")), script).expect("written");
    }
}

pub(super) fn start(hooks: &[Hook<'_>]) -> Daemon {
    start_in(Mode::Group, "", hooks)
}

fn start_in(mode: Mode, toml: &str, hooks: &[Hook<'_>]) -> Daemon {
    let daemon = Daemon::start_with(mode, &format!("{toml}\n{}", tables(hooks)));
    write_scripts(daemon.dir(), hooks);
    daemon
}

/// A daemon with a policy, whose callers may approve for themselves.
pub(super) fn start_with_policy(policy: &str, hooks: &[Hook<'_>]) -> Daemon {
    let dir = scratch();
    let toml = "[cgroup]\nmode = \"group\"\n[confirmation]\nself_approval = true\n";
    fs::write(dir.join("executor.toml"), tables(hooks) + toml).expect("written");
    fs::write(dir.join("policy.toml"), policy).expect("written");
    write_scripts(&dir, hooks);
    Daemon::launch(dir, None, |_| {})
}

pub(super) fn record(daemon: &Daemon, reply: &Reply) -> Value {
    let body = reply.json();
    daemon.ended(body["execution_id"].as_str().expect("an id"))
}

/// What the events of an execution say of hooks.
pub(super) fn events(daemon: &Daemon, id: &Value) -> Vec<Value> {
    let id = id.as_str().expect("an id");
    let path = format!("/events?follow=false&type=hookCompleted&execution_id={id}");
    let text = String::from_utf8(daemon.get(&path).body).expect("text");
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect()
}

/// What the audit trail says of hooks.
fn audit(daemon: &Daemon) -> Vec<Value> {
    let text = String::from_utf8(daemon.get("/audit").body).expect("text");
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|entry| entry["kind"] == "hook")
        .map(|mut entry| entry["body"].take())
        .collect()
}

/// Which hooks were asked about a call, and what they said.
#[track_caller]
pub(super) fn assert_said(daemon: &Daemon, reply: &Reply, expected: &[(&str, &str)]) {
    let events = events(daemon, &reply.json()["execution_id"]);
    let said: Vec<_> = events
        .iter()
        .map(|event| {
            let text = |member: &str| event[member].as_str().expect("text");
            (text("hook"), text("decision"))
        })
        .collect();
    assert_eq!(said, expected);
}

#[track_caller]
pub(super) fn assert_denied(reply: &Reply, stage: &str, parts: &[&str]) {
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["code"], &body["stage"]),
        (403, &json!("permission_denied"), &json!(stage)),
        "{body}"
    );
    for part in parts {
        let content = reply.content();
        assert!(content.contains(part), "{content:?} lacks {part:?}");
    }
}

#[test]
fn one_that_takes_its_time_does_not_keep_an_execution_out_of_the_ledgers_file() {
    // Longer than an execution takes that is entered at its end only.
    let slow = format!("sleep 0.05; {ALLOW}");
    let daemon = start(&[("slow", "before = \"execution\"", &slow)]);
    let (script, fifo) = super::blocked(&daemon, "go");
    let mut caller = daemon.connect();
    let body = call(&script).to_string();
    caller.send("POST", "/execute", &[], body.as_bytes());
    let gate = fifo.reached();
    let file = daemon.dir().join("state/ledger.db");
    let file = rusqlite::Connection::open(file).expect("a ledger");
    wait_until("its row", || {
        let open = "SELECT count(*) FROM executions WHERE ended_at IS NULL";
        let count = file.query_row(open, [], |row| row.get::<_, u32>(0));
        count.expect("read") == 1
    });
    gate.say("on");
    assert_eq!(caller.reply().status, 200);
}

#[test]
fn it_is_given_the_call_and_lets_it_pass() {
    let script = format!("cat >given; env >env; {ALLOW}");
    let daemon = start(&[
        ("early", "before = \"discovery\"", ALLOW),
        ("look", "after = \"permission\"", &script),
    ]);
    let members =
        json!({"env": {"LD_PRELOAD": "x", "WORD": "y"}, "stdin": "sun", "working_dir": "/usr"});
    let token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let reply = daemon.bash_with(&format!("cat; : {token}"), &members);
    assert_eq!(reply.stdout(), "sun");
    let given = fs::read_to_string(daemon.dir().join("given")).expect("given");
    let given: Value = serde_json::from_str(&given).expect("JSON");
    let expected = json!({
        "hook": "look", "stage": "permission", "when": "after",
        "execution_id": reply.json()["execution_id"], "tool": "bash", "chain": [],
        "input": {"command": format!("cat; : {token}")}, "stdin": "sun", "working_dir": "/usr",
        "env_names": ["LD_PRELOAD", "WORD"], "caller_uid": nix::unistd::geteuid().as_raw(),
        "judgement": given["judgement"], "result": null,
    });
    assert_eq!(given, expected);
    assert_eq!(given["judgement"]["verdict"], "allow");
    // Nothing of the call's, and nothing of the daemon's.
    let env = fs::read_to_string(daemon.dir().join("env")).expect("written");
    assert!(
        !env.contains("WORD=") && !env.contains("PRELOAD") && !env.contains("RUST_LOG"),
        "{env}"
    );
    assert_said(&daemon, &reply, &[("early", "allow"), ("look", "allow")]);
    let record = record(&daemon, &reply);
    assert_eq!(record["changed_by"], json!([]));
    assert_eq!(record["stages"].as_array().map(Vec::len), Some(6));
    let entries = audit(&daemon);
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert_eq!(
        (&entries[1]["hook"], &entries[1]["decision"]),
        (&json!("look"), &json!("allow"))
    );
    assert_eq!(
        (&entries[1]["stage"], &entries[1]["when"]),
        (&json!("permission"), &json!("after"))
    );
    assert_eq!(entries[1]["reason"], Value::Null);
    assert_eq!(daemon.get("/audit/verify").json()["intact"], true);
}

#[test]
fn it_refuses_with_a_reason_and_before_anything_is_run() {
    let deny = r#"echo '{"decision":"deny","reason":"no ticket for AKIAIOSFODNN7EXAMPLE"}'"#;
    for (place, stage) in [
        ("before = \"discovery\"", "discovery"),
        ("after = \"validation\"", "validation"),
        ("before = \"permission\"", "permission"),
        ("after = \"confirmation\"", "confirmation"),
        ("before = \"execution\"", "execution"),
    ] {
        let never = ("never", "before = \"execution\"", "touch asked");
        let other = format!("{place}\ntools = [\"other\"]");
        let daemon = start(&[
            ("other", &other, "touch asked"),
            ("ticket", place, deny),
            never,
        ]);
        let marker = daemon.dir().join("marker");
        let reply = daemon.bash(&format!("touch {}", marker.display()));
        assert_denied(&reply, stage, &["hook `ticket`", "no ticket for ***"]);
        assert!(
            !marker.exists() && !daemon.dir().join("asked").exists(),
            "{place}"
        );
        assert_said(&daemon, &reply, &[("ticket", "deny")]);
        assert_eq!(record(&daemon, &reply)["status"], "denied");
        let entry = &audit(&daemon)[0];
        assert_eq!(entry["reason"], "no ticket for ***");
        assert_eq!(entry["on_failure"], Value::Null);
    }
}

#[test]
fn one_that_fails_refuses_unless_told_otherwise() {
    let cases = [
        ("true", "it said nothing"),
        ("echo allow", "its answer is none"),
        (r#"echo '{"decision":"allow","because":"x"}'"#, "because"),
        (
            r#"echo '{"decision":"allow"}'; echo broken >&2; exit 3"#,
            "exit code 3: broken",
        ),
        (r#"echo '{"decision":"deny"}'; kill -9 $$"#, "SIGKILL"),
        ("yes | head -c 2000000", "longer than 1048576 bytes"),
    ];
    for (script, why) in cases {
        let daemon = start(&[
            (
                "open",
                "before = \"permission\"\non_failure = \"allow\"",
                script,
            ),
            ("shut", "before = \"execution\"", script),
        ]);
        let reply = daemon.bash("echo ran");
        assert_denied(
            &reply,
            "execution",
            &["hook `shut`", "the hook failed", why],
        );
        assert_said(&daemon, &reply, &[("open", "failed"), ("shut", "failed")]);
        let entries = audit(&daemon);
        let told: Vec<_> = entries.iter().map(|entry| &entry["on_failure"]).collect();
        assert_eq!(told, ["allow", "deny"]);
        assert!(entries[0]["reason"].as_str().expect("why").contains(why));
        wait_until("it is in the log", || {
            daemon.log().contains("the hook open failed: ")
        });
    }
    let toml =
        "[[hooks]]\nname = \"gone\"\nbefore = \"validation\"\ncommand = [\"/no/such/hook\"]\n";
    let daemon = Daemon::start_with(Mode::Group, toml);
    let reply = daemon.bash("echo ran");
    assert_denied(&reply, "validation", &["/no/such/hook", "No such file"]);
}

#[test]
fn its_whole_tree_ends_at_its_time_limit() {
    let script = "setsid sh -c 'trap \"\" TERM; sleep 600' & trap '' TERM; sleep 600";
    for mode in Mode::all() {
        for (on_failure, status) in [("deny", 403), ("allow", 200)] {
            let keys =
                format!("after = \"validation\"\ntimeout_secs = 3\non_failure = \"{on_failure}\"");
            let daemon = start_in(mode, "kill_grace_ms = 10", &[("slow", &keys, ALLOW)]);
            let baseline = daemon.baseline();
            fs::write(daemon.dir().join("slow.sh"), script).expect("written");
            let reply = daemon.bash("echo ran");
            assert_eq!(reply.status, status, "{}", reply.content());
            assert_said(&daemon, &reply, &[("slow", "failed")]);
            let detail = &events(&daemon, &reply.json()["execution_id"])[0]["detail"];
            assert_eq!(detail, "it gave no answer within 3s");
            daemon.wait_clean(&baseline);
        }
    }
}

#[test]
fn a_stop_of_the_call_is_a_stop_of_its_hook() {
    let keys = "before = \"permission\"\ntimeout_secs = 600";
    for mode in Mode::all() {
        let mut daemon = start_in(
            mode,
            "kill_grace_ms = 10\nshutdown_grace_secs = 0",
            &[("slow", keys, ALLOW)],
        );
        let baseline = daemon.baseline();
        let fifo = Fifo::new(daemon.dir().join("go"));
        let script = format!(
            "setsid sleep 600 & read _ <{}; touch went_on",
            fifo.path().display()
        );
        fs::write(daemon.dir().join("slow.sh"), script).expect("written");

        let id = daemon.begin("echo ran", &json!({}));
        let gate = fifo.reached();
        let record = daemon
            .connect()
            .request("DELETE", &format!("/executions/{id}"), &[], b"")
            .json();
        assert_eq!(
            (&record["status"], &record["started_at"]),
            (&json!("cancelled"), &Value::Null)
        );
        assert_eq!(events(&daemon, &json!(id))[0]["decision"], "stopped");
        drop(gate);
        daemon.wait_clean(&baseline);

        // A caller that hangs up.
        let mut caller = daemon.connect();
        caller.send(
            "POST",
            "/execute",
            &[],
            call("echo ran").to_string().as_bytes(),
        );
        let gate = fifo.reached();
        drop(caller);
        wait_until("it has ended", || {
            daemon.get("/health").json()["running"] == 0
        });
        drop(gate);
        daemon.wait_clean(&baseline);

        daemon.begin("echo ran", &json!({}));
        let _gate = fifo.reached();
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.wait().success());
        assert_eq!(daemon.processes(), Vec::<i32>::new());
        assert!(!daemon.dir().join("went_on").exists());
    }
}

#[test]
fn after_the_run_they_are_told_and_change_nothing() {
    let tell =
        |file: &str| format!("cat >{file}; echo '{{\"decision\":\"deny\",\"reason\":\"late\"}}'");
    let (first, second, third) = (tell("first"), tell("second"), tell("third"));
    let hooks = [
        ("first", "after = \"execution\"", first.as_str()),
        ("second", "before = \"formatting\"", &second),
        ("third", "after = \"formatting\"", &third),
        (
            "change",
            "after = \"formatting\"",
            r#"echo '{"decision":"change","input":{"command":"id"}}'"#,
        ),
        ("broken", "after = \"formatting\"", "exit 1"),
    ];
    let daemon = start(&hooks);
    let given = |file: &str| -> Value {
        let text = fs::read_to_string(daemon.dir().join(file)).expect("told");
        serde_json::from_str::<Value>(&text).expect("JSON")["result"].take()
    };
    let reply = daemon.bash("echo out; echo err >&2; exit 3");
    assert_eq!((reply.status, reply.stdout().as_str()), (200, "out"));
    let said = [
        ("first", "deny"),
        ("second", "deny"),
        ("third", "deny"),
        ("change", "failed"),
        ("broken", "failed"),
    ];
    assert_said(&daemon, &reply, &said);
    for file in ["first", "second"] {
        let result = given(file);
        let expected = json!({"exit": "3", "duration_ms": result["duration_ms"], "stdout_bytes": 4, "stderr_bytes": 4});
        assert_eq!(result, expected);
    }
    assert_eq!(given("third")["display"], reply.json()["display"]);
    assert_eq!(
        record(&daemon, &reply)["input"],
        json!({"command": "echo out; echo err >&2; exit 3"})
    );

    // Of what was stopped, too.
    let reply = daemon.bash_with("sleep 600", &json!({"timeout_secs": 0.1}));
    assert_eq!(
        (reply.status, &given("third")["exit"]),
        (504, &json!("timeout"))
    );
    let id = daemon.begin("sleep 600", &json!({}));
    wait_until("it runs", || {
        daemon.get(&format!("/executions/{id}")).json()["started_at"] != Value::Null
    });
    daemon
        .connect()
        .request("DELETE", &format!("/executions/{id}"), &[], b"");
    assert_eq!(daemon.ended(&id)["status"], "cancelled");
    assert_eq!(given("third")["exit"], "cancelled");
    // And of nothing that was not run.
    let reply = daemon.post(&json!({"name": "bash", "input": {}}));
    assert_said(&daemon, &reply, &[]);
}

/// Of a cancelled call it is told all the same, but not for longer than the daemon has.
#[test]
fn what_is_told_of_a_cancelled_call_does_not_outlast_the_daemon() {
    let keys = "after = \"execution\"\ntimeout_secs = 3600";
    let mut daemon = start_in(
        Mode::Group,
        "kill_grace_ms = 10\nshutdown_grace_secs = 0",
        &[("slow", keys, ALLOW)],
    );
    let (call, hook) = (
        Fifo::new(daemon.dir().join("call")),
        Fifo::new(daemon.dir().join("hook")),
    );
    let script = format!("read _ <{}", hook.path().display());
    fs::write(daemon.dir().join("slow.sh"), script).expect("written");
    let id = daemon.begin(&format!("read _ <{}", call.path().display()), &json!({}));
    let _call = call.reached();
    daemon
        .connect()
        .send("DELETE", &format!("/executions/{id}"), &[], b"");
    let _hook = hook.reached();
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert_eq!(daemon.processes(), Vec::<i32>::new());
}

/// Where it need not be on file, that is not waited for as long as somebody holds the file.
#[test]
fn what_a_hook_said_holds_nobody_up_while_the_ledger_is_locked() {
    let daemon = start(&[("look", "before = \"execution\"", ALLOW)]);
    daemon.bash("true");
    let file = rusqlite::Connection::open(daemon.dir().join("state/ledger.db")).expect("a file");
    file.execute_batch("BEGIN IMMEDIATE").expect("free");
    let begun = Instant::now();
    assert_eq!(daemon.bash("echo hi").stdout(), "hi");
    // SQLite would wait for the lock for five seconds.
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn of_a_secret_no_part_is_told_with_what_a_hook_wrote() {
    let value = "correct-horse-battery-staple-0123456789";
    let toml = format!("[secrets]\nvariables = [\"DB_PASS\"]\n[env]\nDB_PASS = {value:?}\n");
    let script = format!("echo {} {value} >&2; exit 3", "x".repeat(175));
    let hooks = [("gate", "before = \"execution\"", script.as_str())];
    let daemon = start_in(Mode::Group, &toml, &hooks);
    let reply = daemon.bash("true");
    assert_denied(&reply, "execution", &["exit code 3: xx", "x ***"]);
    let told = [
        reply.content(),
        json!(events(&daemon, &reply.json()["execution_id"])).to_string(),
        json!(audit(&daemon)).to_string(),
        daemon.log(),
    ];
    for text in told {
        assert!(!text.contains("correct-"), "{text}");
    }
}
