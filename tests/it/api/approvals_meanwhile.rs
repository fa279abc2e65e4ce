//! What changes, and who goes, while a call waits for its approval.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rusqlite::Connection;
use serde_json::{Value, json};

use super::approvals::{answer, approvals, approve, during, pending, start, start_with, touch};
use super::early::locked;
use super::flow::wait_for_status;
use super::{blocked, call};
use crate::support::{Daemon, Mode, bash_call};

/// Decides over HTTP/2, and is gone as soon as the daemon has begun with that, which `lock` keeps it from ending.
fn decide_and_go(daemon: &Daemon, approval: &Value, lock: Connection) {
    let path = format!("/approvals/{}", approval["id"].as_str().expect("an id"));
    let mut curl = Command::new("curl");
    curl.args(["-sv", "--http2-prior-knowledge", "--unix-socket"])
        .arg(daemon.socket())
        .args(["-d", r#"{"decision": "approve"}"#])
        .arg(format!("http://shelly{path}"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut curl = curl.spawn().expect("curl is there");
    let said = BufReader::new(curl.stderr.take().expect("a pipe"));
    let is_sent = |line: io::Result<String>| line.expect("text").contains("completely");
    assert!(said.lines().any(is_sent), "curl sends");
    // Who asks later, and is answered, comes behind it.
    assert_eq!(daemon.get("/health").status, 200);
    curl.kill().expect("it waits");
    curl.wait().expect("ours");
    assert_eq!(daemon.get("/health").status, 200);
    drop(lock);
}

#[test]
fn a_decision_that_was_begun_is_told_whoever_goes_meanwhile() {
    let daemon = start();
    let (reply, ()) = during(&daemon, &bash_call("true", &json!({})), || {
        let asked = pending(&daemon);
        decide_and_go(&daemon, &asked, locked(&daemon));
    });
    assert_eq!(reply.status, 200, "{}", reply.content());
}

#[test]
fn what_nobody_has_decided_by_the_clock_has_expired() {
    let daemon = start();
    let (reply, ()) = during(&daemon, &bash_call("true", &json!({})), || {
        let asked = pending(&daemon);
        // As after a suspend, which whoever waits has not seen yet: timers stand still meanwhile.
        let ledger = Connection::open(daemon.dir().join("state/ledger.db")).expect("a ledger");
        let past = ledger.execute("UPDATE approvals SET expires_at = 1", []);
        assert_eq!(past.expect("written"), 1);
        let late = answer(&daemon, &asked, &json!({"decision": "approve"}));
        let body = late.json();
        assert_eq!(
            (late.status, &body["code"]),
            (409, &json!("approval_decided"))
        );
        let detail = body["detail"].as_str().expect("a text");
        assert!(detail.ends_with("is expired already"), "{detail}");
    });
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (403, &json!("approval_expired"))
    );
}

#[test]
fn an_approval_is_for_what_was_shown() {
    let daemon = start();
    let dir = daemon.dir().join("work");
    let script = dir.join("deploy");
    let marker = daemon.dir().join("marker");
    let prepare = || {
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("ours");
        fs::write(&script, "echo fine\n").expect("ours");
    };
    let members = json!({"working_dir": dir});
    let evil = format!("touch {}\n", marker.display());
    let changes: [(&str, &dyn Fn()); 3] = [
        ("bash deploy", &|| fs::write(&script, &evil).expect("ours")),
        ("bash ./deploy", &|| {
            let other = dir.join("other");
            fs::write(&other, &evil).expect("ours");
            fs::rename(&other, &script).expect("ours");
        }),
        ("bash deploy; id", &|| {
            // Another directory of that name, with the same in it.
            fs::rename(&dir, daemon.dir().join("old")).expect("ours");
            prepare();
        }),
    ];
    for (command, change) in changes {
        prepare();
        let body = bash_call(command, &members);
        let (reply, ()) = during(&daemon, &body, || {
            let asked = pending(&daemon);
            change();
            approve(&daemon, &asked);
        });
        let body = reply.json();
        assert_eq!(
            (reply.status, &body["code"]),
            (409, &json!("approval_stale")),
            "{command}"
        );
        assert!(reply.content().contains("changed"), "{}", reply.content());
        assert!(!marker.exists(), "{command}");
        // It is not to be used for anything any more.
        let all = approvals(&daemon, "?all=true");
        assert!(
            all.iter().all(|one| one["status"] == "withdrawn"),
            "{all:?}"
        );
    }
    prepare();
    let (reply, ()) = during(&daemon, &bash_call("bash deploy", &members), || {
        approve(&daemon, &pending(&daemon));
    });
    assert_eq!(reply.stdout(), "fine");
}

/// Who approved what was shown has not approved what is there now, for later calls as little as for this one.
#[test]
fn what_has_changed_meanwhile_is_not_remembered_either() {
    for remember in ["session", "always"] {
        let daemon = start();
        let script = daemon.dir().join("deploy");
        let write = |text: &str| {
            fs::write(&script, text).expect("ours");
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
        };
        write("#!/bin/sh\necho fine\n");
        let body = bash_call(&script.display().to_string(), &json!({}));
        let (reply, ()) = during(&daemon, &body, || {
            let asked = pending(&daemon);
            write("#!/bin/sh\necho evil\n");
            let words = json!({"decision": "approve", "remember": remember});
            // Where the call has seen it before, this is refused.
            answer(&daemon, &asked, &words);
        });
        assert_eq!(reply.json()["code"], "approval_stale", "{remember}");
        let (reply, ()) = during(&daemon, &body, || {
            approve(&daemon, &pending(&daemon));
        });
        assert_eq!(reply.stdout(), "evil", "{remember}");
        let kept = fs::read_dir(daemon.dir().join("state/policy.d"));
        assert_eq!(kept.map_or(0, |files| files.flatten().count()), 0);
    }
}

#[test]
fn what_is_denied_meanwhile_is_not_run_whatever_is_answered() {
    let daemon = start();
    let marker = daemon.dir().join("marker");
    let (reply, ()) = during(&daemon, &call(&touch(&marker)), || {
        let asked = pending(&daemon);
        let policy = "default = \"ask\"\ndeny = [\"bash(command:touch *)\"]\n";
        fs::write(daemon.dir().join("policy.toml"), policy).expect("ours");
        daemon.wait_until("it is read", || {
            daemon.log().contains("took up a changed policy")
        });
        approve(&daemon, &asked);
    });
    assert_eq!(reply.json()["code"], "permission_denied");
    assert!(!marker.exists());
    let given = &approvals(&daemon, "?all=true")[0];
    assert_eq!(
        (&given["status"], &given["decided_by"]),
        (&json!("withdrawn"), &json!(0))
    );
}

#[test]
fn what_is_not_trusted_any_more_is_not_run_where_it_could_not_be_confined() {
    let daemon = start();
    let secret = daemon.dir().join("secret");
    fs::write(&secret, "s3cret").expect("ours");
    let toml = fs::read_to_string(daemon.dir().join("executor.toml")).expect("ours");
    let files = format!("{toml}[files]\nbase_dirs = [{:?}]\n", daemon.dir());
    fs::write(daemon.dir().join("executor.toml"), files).expect("ours");
    daemon.wait_until("it is read", || {
        daemon.log().contains("took up a changed configuration")
    });
    let call = json!({"name": "read_file", "input": {"file_path": secret}});
    let (reply, ()) = during(&daemon, &call, || {
        let asked = pending(&daemon);
        let policy = "default = \"ask\"\nuntrusted = [\"read_file\"]\n";
        fs::write(daemon.dir().join("policy.toml"), policy).expect("ours");
        daemon.wait_until("it is read", || {
            daemon.log().contains("took up a changed policy")
        });
        approve(&daemon, &asked);
    });
    let body = reply.json();
    let told = (reply.status, &body["code"]);
    assert_eq!(told, (422, &json!("invalid_input")), "{body}");
    assert!(!reply.content().contains("s3cret"));
}

/// Puts another `executor.toml` in force.
pub(super) fn reconfigure(daemon: &Daemon, toml: &str) {
    let times = || {
        daemon
            .log()
            .matches("took up a changed configuration")
            .count()
    };
    let before = times();
    fs::write(daemon.dir().join("executor.toml"), toml).expect("ours");
    daemon.wait_until("it is read", || times() > before);
}

#[test]
fn what_is_restricted_meanwhile_is_so_for_what_was_asked_about_before() {
    let daemon = start();
    let base = daemon.dir().join("base");
    fs::create_dir(&base).expect("ours");
    let shipped = fs::read_to_string(daemon.dir().join("executor.toml")).expect("ours");
    let wide = format!("{shipped}[files]\nbase_dirs = [{:?}]\n", daemon.dir());
    let marker = daemon.dir().join("marker");
    let command = call(&touch(&marker));
    let input = json!({"file_path": marker, "content": "x", "mode": "w"});
    let file = json!({"name": "write_file", "input": input});
    let narrow = format!("[files]\nbase_dirs = [{base:?}]\n");
    for (call, restriction, code) in [
        (
            &command,
            "[tools]\ndisabled = [\"bash\"]\n",
            "tool_disabled",
        ),
        // In the sandbox, if there is one: it is not where the marker would be.
        (
            &command,
            "[tools]\nuntrusted = [\"bash\"]\n",
            "sandbox_unavailable",
        ),
        (&file, "[files]\nenabled = false\n", "tool_disabled"),
        (
            &file,
            "[tools]\nuntrusted = [\"write_file\"]\n",
            "invalid_input",
        ),
        (&file, &narrow, "permission_denied"),
    ] {
        reconfigure(&daemon, &wide);
        let (reply, ()) = during(&daemon, call, || {
            let asked = pending(&daemon);
            reconfigure(&daemon, &format!("{shipped}{restriction}"));
            approve(&daemon, &asked);
        });
        let body = reply.json();
        assert!(!marker.exists(), "{restriction} {body}");
        let is_inside = body["sandbox"]["runtime"] == "runsc";
        let is_refused = body["code"] == code && body["is_error"] == true;
        match code {
            "sandbox_unavailable" => assert!(is_inside || is_refused, "{restriction} {body}"),
            _ => assert!(is_refused, "{restriction} {body}"),
        }
    }
}

#[test]
fn an_approval_of_what_was_cancelled_in_the_queue_is_withdrawn() {
    let daemon = start_with("self_approval = true\n[flow]\ntools.\"*\".max_running = 1");
    let holder = daemon.begin("sleep 600", &json!({}));
    wait_for_status(&daemon, &holder, "running");
    let marker = daemon.dir().join("marker");
    let second = daemon.begin(&touch(&marker), &json!({}));
    let asked = pending(&daemon);
    approve(&daemon, &asked);
    wait_for_status(&daemon, &second, "queued");
    let cancel = |id: &str| {
        let path = format!("/executions/{id}");
        daemon.connect().request("DELETE", &path, &[], b"")
    };
    assert_eq!(cancel(&second).status, 200);
    let record = daemon.ended(&second);
    assert_eq!(
        (&record["status"], &record["approval"]),
        (&json!("cancelled"), &Value::Null)
    );
    let given = &approvals(&daemon, "?all=true")[0];
    assert_eq!(
        (&given["id"], &given["status"], &given["decided_by"]),
        (&asked["id"], &json!("withdrawn"), &json!(0))
    );
    assert!(!marker.exists());
    cancel(&holder);
}

#[test]
fn what_is_restricted_meanwhile_is_so_for_what_waits_in_the_queue() {
    let flow = "[flow]\ntools.\"*\".max_running = 1\n";
    let daemon = Daemon::start_with(Mode::Group, flow);
    let (holder, fifo) = blocked(&daemon, "holder");
    let first = daemon.begin(&holder, &json!({}));
    let gate = fifo.reached();
    let marker = daemon.dir().join("marker");
    let second = daemon.begin(&touch(&marker), &json!({}));
    wait_for_status(&daemon, &second, "queued");
    let group = "[cgroup]\nmode = \"group\"\n";
    let disabled = "[tools]\ndisabled = [\"bash\"]\n";
    reconfigure(&daemon, &format!("{flow}{group}{disabled}"));
    gate.say("on");
    // What runs is let be.
    assert_eq!(daemon.ended(&first)["status"], "success");
    let record = daemon.ended(&second);
    assert_eq!(record["result"]["code"], "tool_disabled", "{record}");
    assert!(!marker.exists());
}
