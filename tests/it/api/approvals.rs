//! What the policy asks about: asked, answered, remembered, and never run without.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::access::{by, user};
use super::call;
use crate::support::{Daemon, Mode, Reply, bash_call, scratch, skip, wait_for};

/// Who approves where nobody may approve their own; the daemon's user calls.
const APPROVER: u32 = 64_301;

/// Asks about everything but what says so.
const POLICY: &str = r#"
default = "ask"
deny = ["bash(command:rm *)"]
allow = ["bash(command:echo *)", "bash(command:sleep *)"]
"#;

/// A daemon whose callers may approve for themselves.
pub(super) fn start() -> Daemon {
    start_with("self_approval = true")
}

pub(super) fn start_with(confirmation: &str) -> Daemon {
    start_above("", confirmation)
}

/// The same with what stands above all tables.
pub(super) fn start_above(above: &str, confirmation: &str) -> Daemon {
    let dir = scratch();
    let toml = format!(
        "{above}\n[cgroup]\nmode = \"group\"\n[confirmation]\n{confirmation}\n[access]\ncallers = [\"user:root\"]\napprovers = [\"user:root\", \"user:{APPROVER}\"]\n"
    );
    fs::write(dir.join("executor.toml"), toml).expect("written");
    fs::write(dir.join("policy.toml"), POLICY).expect("written");
    Daemon::launch(dir, None, |_| {})
}

pub(super) fn approvals(daemon: &Daemon, query: &str) -> Vec<Value> {
    let body = daemon.get(&format!("/approvals{query}")).json();
    body["approvals"].as_array().expect("approvals").clone()
}

/// The one that waits.
#[track_caller]
pub(super) fn pending(daemon: &Daemon) -> Value {
    wait_for("something waits for approval", || {
        approvals(daemon, "").into_iter().next()
    })
}

pub(super) fn answer(daemon: &Daemon, approval: &Value, body: &Value) -> Reply {
    let path = format!("/approvals/{}", approval["id"].as_str().expect("an id"));
    let body = body.to_string();
    daemon
        .connect()
        .request("POST", &path, &[], body.as_bytes())
}

pub(super) fn approve(daemon: &Daemon, approval: &Value) {
    let reply = answer(daemon, approval, &json!({"decision": "approve"}));
    assert_eq!(reply.status, 200, "{}", reply.content());
}

/// What comes of a call while `meanwhile` goes on.
pub(super) fn during<T>(
    daemon: &Daemon,
    body: &Value,
    meanwhile: impl FnOnce() -> T,
) -> (Reply, T) {
    thread::scope(|scope| {
        let calling = scope.spawn(|| daemon.post(body));
        let done = catch_unwind(AssertUnwindSafe(meanwhile));
        if done.is_err() {
            // Nobody will answer it any more.
            daemon.signal(Signal::SIGKILL);
        }
        let reply = calling.join();
        let done = done.unwrap_or_else(|panic| resume_unwind(panic));
        (reply.expect("answered"), done)
    })
}

fn id(reply: &Reply) -> String {
    let body = reply.json();
    body["execution_id"].as_str().expect("an id").to_owned()
}

pub(super) fn touch(path: &Path) -> String {
    format!("touch {}", path.display())
}

#[test]
fn what_is_approved_runs_and_says_who_approved() {
    let daemon = start();
    let marker = daemon.dir().join("marker");
    let members = json!({"env": {"WORD": "moon", "PGPASSWORD": "x"}, "working_dir": "/usr", "timeout_secs": 2});
    let body = bash_call(&format!("{}; pwd", touch(&marker)), &members);
    let (reply, asked) = during(&daemon, &body, || {
        let asked = pending(&daemon);
        assert!(!marker.exists());
        let id = asked["execution_id"].as_str().expect("an id");
        // The question is on record a moment before whoever has asked waits for the answer.
        let record = wait_for("it waits", || {
            let record = daemon.get(&format!("/executions/{id}")).json();
            (record["status"] == "waiting").then_some(record)
        });
        assert_eq!(
            (&record["result"], &record["started_at"]),
            (&Value::Null, &Value::Null)
        );
        // Its time limit does not run yet: another's, which began later, is over.
        let other = daemon.bash_with("sleep 60", &json!({"timeout_secs": 2}));
        assert_eq!(other.status, 504);
        let again = daemon.get(&format!(
            "/approvals/{}",
            asked["id"].as_str().expect("an id")
        ));
        assert_eq!(again.json(), asked);
        approve(&daemon, &asked);
        asked
    });
    assert_eq!((reply.status, reply.stdout().as_str()), (200, "/usr"));
    assert!(marker.exists());
    assert_eq!(asked["input"], body["input"]);
    assert_eq!(
        (&asked["working_dir"], &asked["caller_uid"]),
        (&json!("/usr"), &json!(0))
    );
    assert_eq!(asked["env_names"], json!(["PGPASSWORD", "WORD"]));
    let record = daemon.get(&format!("/executions/{}", id(&reply))).json();
    assert_eq!(
        record["approval"],
        json!({"id": asked["id"], "approver_uid": 0})
    );
    assert_eq!(record["judgement"]["verdict"], "ask");
    assert!(approvals(&daemon, "").is_empty());
    assert_eq!(approvals(&daemon, "?all=true")[0]["status"], "used");
    // Once is once.
    let late = answer(&daemon, &asked, &json!({"decision": "deny"}));
    assert_eq!(
        (late.status, &late.json()["code"]),
        (409, &json!("approval_decided"))
    );
}

#[test]
fn what_is_refused_does_not_run_and_says_why() {
    let daemon = start();
    let marker = daemon.dir().join("marker");
    let (reply, ()) = during(&daemon, &call(&touch(&marker)), || {
        let asked = pending(&daemon);
        let decision = json!({"decision": "deny", "reason": "not on a Sunday"});
        assert_eq!(answer(&daemon, &asked, &decision).status, 200);
    });
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["code"], &body["stage"]),
        (403, &json!("user_rejected"), &json!("confirmation"))
    );
    assert!(
        reply.content().contains("not on a Sunday"),
        "{}",
        reply.content()
    );
    assert_eq!(daemon.ended(&id(&reply))["status"], "denied");
    assert!(!marker.exists());
}

#[test]
fn without_an_answer_it_does_not_run() {
    let daemon = start_with("self_approval = true\ntimeout_secs = 1");
    let marker = daemon.dir().join("marker");
    let reply = daemon.post(&call(&touch(&marker)));
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["code"]),
        (403, &json!("approval_expired"))
    );
    let expired = &approvals(&daemon, "?all=true")[0];
    assert_eq!(expired["status"], "expired");
    let late = answer(&daemon, expired, &json!({"decision": "approve"}));
    assert_eq!(late.status, 409);
    assert!(!marker.exists());
}

#[test]
fn who_asked_may_not_approve() {
    if !nix::unistd::geteuid().is_root() {
        skip("approval by another user, which takes root to become one");
        return;
    }
    let daemon = start_with("");
    fs::set_permissions(
        daemon.dir(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("ours");
    fs::set_permissions(
        daemon.socket(),
        std::os::unix::fs::PermissionsExt::from_mode(0o666),
    )
    .expect("ours");
    let (reply, ()) = during(&daemon, &call("id -u"), || {
        let asked = pending(&daemon);
        let own = answer(&daemon, &asked, &json!({"decision": "approve"}));
        assert_eq!(
            (own.status, &own.json()["code"]),
            (403, &json!("access_denied"))
        );
        // Nor a stranger, who does not even see it.
        let strange = by(user(APPROVER + 1), || daemon.get("/approvals"));
        assert_eq!(strange.status, 403);
        let strange = by(user(APPROVER + 1), || {
            answer(&daemon, &asked, &json!({"decision": "approve"}))
        });
        assert_eq!(strange.status, 403);
        by(user(APPROVER), || {
            // Of others an approver hears the questions, and nothing else.
            let events = daemon.get("/events?follow=false");
            let events = String::from_utf8(events.body).expect("text");
            assert!(events.contains("event: confirmationRequired\n"), "{events}");
            assert!(!events.contains("event: executionStarted\n"), "{events}");
            assert_eq!(approvals(&daemon, "").len(), 1);
            approve(&daemon, &asked);
        });
    });
    assert_eq!(reply.stdout(), "0");
    let record = daemon.get(&format!("/executions/{}", id(&reply))).json();
    assert_eq!(record["approval"]["approver_uid"], APPROVER);
    // To change one's mind takes nobody else.
    let (reply, ()) = during(&daemon, &call("id -u"), || {
        let denied = answer(&daemon, &pending(&daemon), &json!({"decision": "deny"}));
        assert_eq!(denied.status, 200, "{}", denied.json());
    });
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (403, &json!("user_rejected"))
    );
    // An approver is no caller.
    let called = by(user(APPROVER), || daemon.bash("echo x"));
    assert_eq!(called.status, 403);
}

#[test]
fn a_cancelled_call_withdraws_its_question() {
    let daemon = start();
    let (reply, ()) = during(&daemon, &call("id"), || {
        let asked = pending(&daemon);
        let path = format!(
            "/executions/{}",
            asked["execution_id"].as_str().expect("an id")
        );
        let record = daemon.connect().request("DELETE", &path, &[], b"").json();
        assert_eq!(record["status"], "cancelled");
        assert_eq!(
            answer(&daemon, &asked, &json!({"decision": "approve"})).status,
            409
        );
    });
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (409, &json!("cancelled"))
    );
    assert_eq!(approvals(&daemon, "?all=true")[0]["status"], "withdrawn");

    // So does a caller that hangs up.
    let mut caller = daemon.connect();
    caller.send("POST", "/execute", &[], call("id").to_string().as_bytes());
    pending(&daemon);
    drop(caller);
    daemon.wait_until("nothing waits", || approvals(&daemon, "").is_empty());
    assert_eq!(approvals(&daemon, "?all=true")[1]["status"], "withdrawn");
}

#[test]
fn an_answer_can_be_remembered() {
    let mut daemon = start();
    let asks = |daemon: &Daemon, command: &str| {
        let body = call(command).to_string();
        let explained =
            daemon
                .connect()
                .request("POST", "/permissions/explain", &[], body.as_bytes());
        explained.json()["verdict"] == "ask"
    };
    for (command, remember) in [("id -u", "session"), ("uname -s", "always")] {
        let (reply, ()) = during(&daemon, &call(command), || {
            let asked = pending(&daemon);
            assert_eq!(
                asked["remember_rules"],
                json!([format!("bash(command:{command})")])
            );
            let decision = json!({"decision": "approve", "remember": remember});
            let reply = answer(&daemon, &asked, &decision);
            assert_eq!(
                (reply.status, &reply.json()["remember"]),
                (200, &json!(remember))
            );
        });
        assert_eq!(reply.status, 200);
        assert!(!asks(&daemon, command), "{command}");
        assert!(asks(&daemon, &format!("{command}; id -g")), "{command}");
        assert_eq!(daemon.bash(command).status, 200);
    }
    // A policy read anew keeps both, a daemon started anew what is for good.
    let policy = daemon.dir().join("policy.toml");
    fs::write(&policy, format!("{POLICY}# changed\n")).expect("ours");
    daemon.wait_until("it is read", || {
        daemon.log().contains("took up a changed policy")
    });
    assert!(!asks(&daemon, "id -u") && !asks(&daemon, "uname -s"));
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let daemon = daemon.restart();
    assert!(asks(&daemon, "id -u") && !asks(&daemon, "uname -s"));
    assert_eq!(
        fs::read_to_string(&policy).expect("there"),
        format!("{POLICY}# changed\n")
    );

    // What runs other programs cannot be remembered, nor can a refusal.
    for (decision, command) in [
        (
            json!({"decision": "approve", "remember": "always"}),
            "bash -c id",
        ),
        (json!({"decision": "deny", "remember": "session"}), "id"),
    ] {
        let (reply, ()) = during(&daemon, &call(command), || {
            let asked = pending(&daemon);
            let reply = answer(&daemon, &asked, &decision);
            assert_eq!(reply.status, 400, "{}", reply.content());
            assert_eq!(
                answer(&daemon, &asked, &json!({"decision": "deny"})).status,
                200
            );
        });
        assert_eq!(reply.json()["code"], "user_rejected");
    }
}

#[test]
fn a_stream_says_that_it_waits() {
    let daemon = start();
    for (decision, last) in [("approve", "\"exit_code\":0"), ("deny", "user_rejected")] {
        let mut caller = daemon.connect();
        let headers = [("Accept", "text/event-stream")];
        caller.send(
            "POST",
            "/execute",
            &headers,
            call("id").to_string().as_bytes(),
        );
        assert_eq!(caller.reply_head().status, 200);
        let first = String::from_utf8(caller.chunk().expect("an event")).expect("text");
        assert!(first.contains("event: confirmation_required\n"), "{first}");
        let asked = pending(&daemon);
        assert!(
            first.contains(asked["id"].as_str().expect("an id")),
            "{first}"
        );
        assert_eq!(
            answer(&daemon, &asked, &json!({"decision": decision})).status,
            200
        );
        let mut rest = String::new();
        while let Some(chunk) = caller.chunk() {
            rest.push_str(std::str::from_utf8(&chunk).expect("text"));
        }
        assert_eq!(
            rest.contains("event: started\n"),
            decision == "approve",
            "{rest}"
        );
        assert!(rest.contains(last), "{rest}");
    }
}

#[test]
fn what_cannot_be_read_decides_nothing() {
    let daemon = start();
    let (reply, ()) = during(&daemon, &call("id"), || {
        let asked = pending(&daemon);
        let words = "expected `approve` or `deny`";
        let lengths = "expected one of `once`, `session`, `always`";
        for (body, said) in [
            (json!({}), "missing field `decision`"),
            (json!({"decision": "maybe"}), words),
            (
                json!({"decision": true}),
                "`decision`: invalid type: boolean `true`, expected `approve` or `deny`",
            ),
            (json!({"decision": null}), "`decision`: invalid type: null"),
            (
                json!({"decision": {"deny": null}}),
                "`decision`: invalid type: map",
            ),
            (
                json!({"decision": "approve", "colour": "red"}),
                "unknown field `colour`",
            ),
            (
                json!({"decision": "approve", "remember": "sometimes"}),
                lengths,
            ),
            (
                json!({"decision": "approve", "remember": null}),
                "`remember`: invalid type: null, expected one of `once`, `session`, `always`",
            ),
            (
                json!({"decision": "approve", "remember": {"once": null}}),
                "`remember`: invalid type: map",
            ),
            (json!("approve"), "such as {\"decision\": \"approve\"}"),
            (json!(["approve", null, "once"]), "no JSON object"),
        ] {
            let problem = answer(&daemon, &asked, &body).json();
            assert_eq!(
                (&problem["status"], &problem["code"]),
                (&json!(400), &json!("malformed_request")),
                "{body}"
            );
            let detail = problem["detail"].as_str().expect("text");
            assert!(detail.contains(said), "{body}: {detail}");
        }
        let nobody = json!({"id": "0198c0de-0000-7000-8000-000000000000"});
        assert_eq!(
            answer(&daemon, &nobody, &json!({"decision": "approve"})).status,
            404
        );
        assert_eq!(approvals(&daemon, "").len(), 1);
        approve(&daemon, &asked);
    });
    assert_eq!(reply.status, 200);
}

#[test]
fn what_an_approver_says_is_masked_before_it_is_kept() {
    let daemon = start();
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let members = json!({"working_dir": format!("/tmp/{token}")});
    let (reply, ()) = during(&daemon, &bash_call("id", &members), || {
        let asked = pending(&daemon);
        assert!(!asked.to_string().contains(token), "{asked}");
        let decision = json!({"decision": "deny", "reason": format!("use {token}")});
        let decided = answer(&daemon, &asked, &decision).json();
        assert_eq!(decided["reason"], "use ***");
    });
    assert!(!reply.content().contains(token));
    let trail = String::from_utf8(daemon.get("/audit").body).expect("text");
    assert!(!trail.contains(token), "{trail}");
}

#[test]
fn all_that_would_run_is_shown() {
    let daemon = start();
    let members = json!({"stdin": "rm -r /srv", "timeout_secs": 2.5, "background": "keep"});
    let (_, asked) = during(&daemon, &bash_call("id; cat", &members), || {
        let asked = pending(&daemon);
        answer(&daemon, &asked, &json!({"decision": "deny"}));
        asked
    });
    let record = format!(
        "/executions/{}",
        asked["execution_id"].as_str().expect("an id")
    );
    let record = daemon.get(&record).json();
    for shown in [&asked, &record] {
        for (name, value) in members.as_object().expect("members") {
            assert_eq!(&shown[name], value, "{shown}");
        }
    }
    let (_, plain) = during(&daemon, &call("id"), || {
        let asked = pending(&daemon);
        approve(&daemon, &asked);
        asked
    });
    let shown = ["stdin", "timeout_secs", "background"].map(|name| plain[name].clone());
    assert_eq!(json!(shown), json!([null, null, "kill"]));
}

/// They have the daemon's user, who may approve.
#[test]
fn commands_approve_nothing() {
    const POLICY: &str = "default = \"allow\"\nask = [\"bash(command:touch *)\"]\n";
    let daemon = Daemon::start_under(POLICY, "[confirmation]\nself_approval = true\n");
    let marker = daemon.dir().join("marker");
    let (reply, ()) = during(&daemon, &call(&touch(&marker)), || {
        let asked = pending(&daemon);
        let approve_it = format!(
            "{} --socket {} approve {}",
            env!("CARGO_BIN_EXE_shellyctl"),
            daemon.socket().display(),
            asked["id"].as_str().expect("an id")
        );
        for command in [approve_it.clone(), format!("setsid sh -c '{approve_it}'")] {
            let tried = daemon.bash(&command);
            assert!(
                tried.content().contains("a process of execution"),
                "{}",
                tried.content()
            );
        }
        assert!(!marker.exists());
        approve(&daemon, &asked);
    });
    assert_eq!(reply.status, 200, "{}", reply.content());
    assert!(marker.exists());
}

/// Who has connected is gone, and what it has started holds the connection: it could be anybody.
#[test]
fn a_connection_whose_process_has_ended_approves_nothing() {
    const POLICY: &str = "default = \"allow\"\nask = [\"bash(command:touch *)\"]\n";
    for mode in Mode::all() {
        let dir = scratch();
        std::fs::write(dir.join("policy.toml"), POLICY).expect("written");
        let toml = "[confirmation]\nself_approval = true\n";
        let daemon = Daemon::start_in(dir, mode, toml, |_| {});
        let marker = daemon.dir().join("marker");
        let (reply, ()) = during(&daemon, &call(&touch(&marker)), || {
            let asked = pending(&daemon);
            let script = format!(
                "exec python3 -c '{BY_A_CHILD}' {} {}",
                daemon.socket().display(),
                asked["id"].as_str().expect("an id")
            );
            // The child's answer is what the command waits for.
            let tried = daemon.bash(&format!("({script}) | cat"));
            assert!(tried.stdout().contains(" 403 "), "{}", tried.content());
            assert!(tried.stdout().contains("has ended"), "{}", tried.content());
            assert!(!marker.exists());
            answer(&daemon, &asked, &json!({"decision": "deny"}));
        });
        assert_eq!(reply.status, 403, "{}", reply.content());
    }
}

/// For Python: connects to a socket, and has a child send the approval that is named when it is gone itself.
const BY_A_CHILD: &str = r#"
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.path.exists("/proc/%d" % parent):
    time.sleep(0.001)
body = b"{\"decision\": \"approve\"}"
s.sendall(b"POST /approvals/%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (sys.argv[2].encode(), len(body), body))
while True:
    got = s.recv(65536)
    if not got:
        break
    sys.stdout.write(got.decode())
"#;

/// Who decides sees the whole of one, and of all as much as can be read.
#[test]
fn of_what_is_long_a_list_has_the_beginning() {
    const LONG: usize = 12 << 20;
    const CALLS: usize = 4;
    let daemon = start();
    let stdin = "y".repeat(LONG);
    for n in 0..CALLS {
        daemon.begin(&format!("true {n}"), &json!({"stdin": stdin}));
    }
    wait_for("all wait", || {
        (approvals(&daemon, "").len() == CALLS).then_some(())
    });
    let before = daemon.reset_peak();
    let listed = daemon.get("/approvals");
    let grown = daemon.memory("VmHWM").saturating_sub(before);
    assert!(listed.body.len() < CALLS * 20_000, "{}", listed.body.len());
    // One at a time.
    assert!(grown < 4 * LONG as u64, "grew by {grown} bytes");
    let first = &listed.json()["approvals"][0];
    let cut = first["stdin"].as_str().expect("text");
    assert!(cut.starts_with("yyy") && cut.ends_with("y\n...(truncated)"));
    assert_eq!(
        (&first["truncated"], &first["input"]["command"]),
        (&json!(true), &json!("true 0"))
    );
    let path = format!("/approvals/{}", first["id"].as_str().expect("an id"));
    let whole = daemon.get(&path).json();
    assert_eq!(
        (&whole["truncated"], &whole["stdin"]),
        (&json!(false), &json!(stdin))
    );
    let denied = answer(&daemon, first, &json!({"decision": "deny"})).json();
    assert_eq!(
        (&denied["status"], &denied["stdin"]),
        (&json!("denied"), &json!(stdin))
    );
}
