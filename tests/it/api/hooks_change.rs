//! Hooks that change a call, a configuration of hooks that changes, and the one that is shown.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use super::call;
use super::hooks::{ALLOW, assert_denied, assert_said, record, start, start_with_policy};
use crate::support::{Daemon, Mode, scratch, wait_for, wait_until};

/// Changes the input to what stands in a file.
const CHANGE: &str = r#"echo "{\"decision\":\"change\",\"input\":$(cat input)}""#;

fn set_input(daemon: &Daemon, input: &Value) {
    fs::write(daemon.dir().join("input"), input.to_string()).expect("written");
}

#[test]
fn what_it_changes_is_what_is_run_and_recorded() {
    for place in [
        "before = \"discovery\"",
        "after = \"validation\"",
        "before = \"permission\"",
        "after = \"permission\"",
        "before = \"execution\"",
    ] {
        let daemon = start(&[("change", place, CHANGE)]);
        let token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
        let command = format!("printf %s {token} | wc -c");
        set_input(&daemon, &json!({"command": command}));
        let reply = daemon.bash("echo old");
        assert_eq!(reply.stdout(), token.len().to_string(), "{place}");
        assert_said(&daemon, &reply, &[("change", "change")]);
        let record = record(&daemon, &reply);
        let masked = "printf %s *** | wc -c";
        assert_eq!(record["input"], json!({"command": masked}));
        assert_eq!(
            (&record["summary"], &record["changed_by"]),
            (&json!(masked), &json!(["change"]))
        );
        let trail = String::from_utf8(daemon.get("/audit").body).expect("text");
        assert!(
            trail.contains("input_digest") && !trail.contains(token),
            "{trail}"
        );
        wait_until("the log tells of it", || daemon.log().contains(masked));
    }
}

#[test]
fn what_it_changes_is_judged_again() {
    let policy = "default = \"allow\"\ndeny = [\"bash(command:rm *)\"]\n";
    for place in [
        "before = \"validation\"",
        "after = \"permission\"",
        "before = \"execution\"",
    ] {
        let gate = format!("cat >>asked; echo >>asked; {ALLOW}");
        let hooks = [
            ("gate", "before = \"validation\"", gate.as_str()),
            ("change", place, CHANGE),
        ];
        let daemon = start_with_policy(policy, &hooks);
        let marker = daemon.dir().join("marker");
        fs::write(&marker, "").expect("written");
        set_input(
            &daemon,
            &json!({"command": format!("rm {}", marker.display())}),
        );
        let reply = daemon.bash("echo old");
        assert_denied(&reply, "permission", &["rm *"]);
        assert!(marker.exists(), "{place}");
        // Who let the old one pass is asked about the new one.
        assert_said(
            &daemon,
            &reply,
            &[("gate", "allow"), ("change", "change"), ("gate", "allow")],
        );
        let asked = fs::read_to_string(daemon.dir().join("asked")).expect("asked");
        assert!(
            asked.lines().last().expect("two").contains("rm "),
            "{asked}"
        );

        set_input(&daemon, &json!({"cmd": "id"}));
        let reply = daemon.bash("echo old");
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (422, &json!("invalid_input"))
        );
        assert_eq!(record(&daemon, &reply)["input"], json!({"cmd": "id"}));
        // What was denied already is not saved by it where it comes later.
        set_input(&daemon, &json!({"command": "echo new"}));
        let reply = daemon.bash("rm x");
        let expected = if place.contains("validation") {
            200
        } else {
            403
        };
        assert_eq!(reply.status, expected, "{place}");
    }
}

#[test]
fn hooks_that_change_on_and_on_come_to_an_end() {
    let wrap = |name: &str| {
        format!(
            r#"printf '{{"decision":"change","input":{{"command":"echo {name}; %s"}}}}' "$(sed 's/.*"command":"\([^"]*\)".*/\1/')""#
        )
    };
    let (a, b, c) = (wrap("a"), wrap("b"), wrap("c"));
    let daemon = start(&[
        ("a", "after = \"permission\"", a.as_str()),
        ("b", "before = \"execution\"", &b),
        ("c", "before = \"validation\"", &c),
    ]);
    let reply = daemon.bash("echo x");
    assert_eq!(reply.stdout(), "b\na\nc\nx");
    assert_said(
        &daemon,
        &reply,
        &[("c", "change"), ("a", "change"), ("b", "change")],
    );
    assert_eq!(
        record(&daemon, &reply)["changed_by"],
        json!(["c", "a", "b"])
    );
}

#[test]
fn what_is_changed_after_an_approval_takes_another() {
    let hooks = [("change", "after = \"confirmation\"", CHANGE)];
    let daemon = start_with_policy("default = \"ask\"\n", &hooks);
    set_input(&daemon, &json!({"command": "echo new"}));
    let pending = |command: &str| {
        wait_for("it waits for approval", || {
            let body = daemon.get("/approvals").json();
            let waiting = body["approvals"]
                .as_array()
                .expect("a list")
                .first()
                .cloned();
            waiting.filter(|approval| approval["input"]["command"] == command)
        })
    };
    let answer = |approval: &Value, decision: &str| {
        let path = format!("/approvals/{}", approval["id"].as_str().expect("an id"));
        let body = json!({"decision": decision}).to_string();
        let reply = daemon
            .connect()
            .request("POST", &path, &[], body.as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.content());
    };
    for (decision, status) in [("approve", 200), ("deny", 403)] {
        thread::scope(|scope| {
            let calling = scope.spawn(|| daemon.bash("echo old"));
            let first = pending("echo old");
            answer(&first, "approve");
            let second = pending("echo new");
            // Nothing will be run under it.
            let path = format!("/approvals/{}", first["id"].as_str().expect("an id"));
            assert_eq!(daemon.get(&path).json()["status"], "withdrawn");
            answer(&second, decision);
            let reply = calling.join().expect("answered");
            assert_eq!(reply.status, status, "{}", reply.content());
            let approval = match decision {
                "approve" => {
                    json!({"id": second["id"], "approver_uid": nix::unistd::geteuid().as_raw()})
                }
                _ => Value::Null,
            };
            assert_eq!(record(&daemon, &reply)["approval"], approval);
        });
    }
    // Who reads along hears of both.
    let mut caller = daemon.connect();
    let headers = [("Accept", "text/event-stream")];
    let old = call("echo old").to_string();
    caller.send("POST", "/execute", &headers, old.as_bytes());
    assert_eq!(caller.reply_head().status, 200);
    for command in ["echo old", "echo new"] {
        let asked = pending(command);
        let event = String::from_utf8(caller.chunk().expect("an event")).expect("text");
        assert!(event.contains("event: confirmation_required\n"), "{event}");
        assert!(
            event.contains(asked["id"].as_str().expect("an id")),
            "{event}"
        );
        answer(&asked, "approve");
    }
    while caller.chunk().is_some() {}
    // One that is given up withdraws its second question.
    let id = daemon.begin("echo old", &json!({}));
    answer(&pending("echo old"), "approve");
    let second = pending("echo new");
    daemon
        .connect()
        .request("DELETE", &format!("/executions/{id}"), &[], b"");
    let path = format!("/approvals/{}", second["id"].as_str().expect("an id"));
    assert_eq!(daemon.get(&path).json()["status"], "withdrawn");
}

#[test]
fn what_a_hook_leaves_time_to_change_is_not_run_under_an_approval() {
    let hooks = [(
        "slow",
        "before = \"execution\"",
        "echo 'echo evil' >deploy; echo '{\"decision\":\"allow\"}'",
    )];
    let daemon = start_with_policy("default = \"ask\"\n", &hooks);
    fs::write(daemon.dir().join("deploy"), "echo fine\n").expect("written");
    let body =
        json!({"name": "bash", "input": {"command": "bash ./deploy"}, "working_dir": daemon.dir()});
    thread::scope(|scope| {
        let calling = scope.spawn(|| daemon.post(&body));
        let approval = wait_for("it waits for approval", || {
            daemon.get("/approvals").json()["approvals"]
                .as_array()
                .expect("a list")
                .first()
                .cloned()
        });
        let path = format!("/approvals/{}", approval["id"].as_str().expect("an id"));
        daemon
            .connect()
            .request("POST", &path, &[], br#"{"decision":"approve"}"#);
        let reply = calling.join().expect("answered");
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (409, &json!("approval_stale"))
        );
        assert_eq!(daemon.get(&path).json()["status"], "withdrawn");
        assert_eq!(record(&daemon, &reply)["approval"], Value::Null);
    });
}

/// What waited for approval goes on with the next daemon as it was.
#[test]
fn a_restart_does_not_have_it_changed_twice() {
    let change = r#"echo x >>asked; echo '{"decision":"change","input":{"command":"echo new"}}'"#;
    let hooks = [("change", "before = \"permission\"", change)];
    let mut daemon = start_with_policy("default = \"ask\"\n", &hooks);
    let id = daemon.begin("echo old", &json!({}));
    let waiting = |daemon: &Daemon| daemon.get("/approvals").json()["approvals"][0].clone();
    wait_until("it waits", || waiting(&daemon) != Value::Null);
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    daemon.wait();
    let daemon = daemon.restart();
    let path = wait_for("it waits again", || {
        Some(waiting(&daemon)["id"].as_str()?.to_owned())
    });
    daemon.connect().request(
        "POST",
        &format!("/approvals/{path}"),
        &[],
        br#"{"decision":"approve"}"#,
    );
    let record = daemon.ended(&id);
    assert_eq!(
        (&record["status"], &record["changed_by"]),
        (&json!("success"), &json!(["change"]))
    );
    assert_eq!(daemon.output(&id, "stdout"), b"new\n");
    assert_eq!(
        fs::read_to_string(daemon.dir().join("asked")).expect("asked"),
        "x\n"
    );
}

#[test]
fn a_change_of_the_configuration_is_taken_up_when_it_is_valid() {
    let daemon = start(&[]);
    let configure = |hooks: &str| {
        let file = daemon.dir().join("executor.toml");
        fs::write(
            daemon.dir().join("new"),
            format!("{hooks}[cgroup]\nmode = \"group\"\n"),
        )
        .expect("written");
        fs::rename(daemon.dir().join("new"), file).expect("renamed");
    };
    let status = || daemon.bash("echo ran").status;
    assert_eq!(status(), 200);
    let no = "\n[[hooks]]\nname = \"no\"\nbefore = \"permission\"\ncommand = [\"/bin/false\"]\n";
    configure(no);
    wait_until("it is in force", || status() == 403);
    configure(&no.replace("\"permission\"", "\"lunch\""));
    wait_until("it is refused", || {
        let health = daemon.get("/health").json();
        let detail = health["problems"][0]["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        detail.contains("executor.toml:4: `before`") && detail.contains("confirmation")
    });
    assert_eq!(status(), 403);
    configure("");
    wait_until("it is gone", || status() == 200);
}

#[test]
fn a_check_of_the_configuration_looks_for_the_program() {
    let dir = scratch();
    let check = |text: &str| {
        fs::write(dir.join("e.toml"), text).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_shelly-executord"));
        let output = command
            .args(["--check-config", "--config", "e.toml"])
            .current_dir(&dir)
            .output();
        let output = output.expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).expect("text"))
    };
    let good = "[[hooks]]\nname = \"gone\"\nafter = \"execution\"\ncommand = [\"/no/such/hook\"]\n";
    let (code, said) = check(good);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("hook `gone`") && said.contains("/no/such/hook"),
        "{said}"
    );
    let (code, said) = check(&format!("{good}on_failure = \"deny\"\n"));
    assert_eq!(code, Some(78), "{said}");
    assert!(
        said.contains("e.toml:1: ") && said.contains("on_failure"),
        "{said}"
    );
    fs::remove_dir_all(dir).expect("ours");
}

/// The example of docs/hooks.md is taken from there and tried.
#[test]
fn the_documented_example_works() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/hooks.md"));
    let text = text.expect("there");
    let block = |language: &str| {
        let (_, rest) = text
            .split_once(&format!("```{language}\n"))
            .expect("a block");
        rest.split_once("```").expect("its end").0
    };
    let program = "\"/usr/local/lib/shelly-executor/freeze\"";
    assert!(block("toml").contains(program));
    let toml = block("toml").replace(program, "\"/bin/sh\", \"freeze.sh\"");
    let daemon = Daemon::start_with(Mode::Group, &toml);
    let script = block("sh").replace("/run/shelly-freeze", "frozen");
    fs::write(daemon.dir().join("freeze.sh"), script).expect("written");
    assert_eq!(daemon.bash("echo ran").stdout(), "ran");
    fs::write(daemon.dir().join("frozen"), "").expect("written");
    let reply = daemon.post(&call("echo ran"));
    assert_denied(
        &reply,
        "permission",
        &["hook `freeze`", "until the release is out"],
    );
}
