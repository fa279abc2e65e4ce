//! Tools that people add: what all of them share, and programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Daemon, Mode, Reply, scratch};

const PYTHON: &str = "/usr/bin/python3";

/// A place for skills, and the daemon that finds them there.
pub(super) struct Room {
    pub(super) dir: PathBuf,
    pub(super) mode: Mode,
    pub(super) toml: String,
}

impl Room {
    pub(super) fn new(toml: &str) -> Self {
        Self::in_mode(Mode::Group, toml)
    }

    pub(super) fn in_mode(mode: Mode, toml: &str) -> Self {
        let dir = scratch();
        fs::create_dir_all(dir.join("skills")).expect("created");
        Self {
            dir,
            mode,
            toml: toml.to_owned(),
        }
    }

    pub(super) fn start(self) -> Daemon {
        Daemon::start_in(self.dir, self.mode, &self.toml, |_| {})
    }

    /// A skill that is a program.
    pub(super) fn program(&self, name: &str, script: &str, more: Value) {
        put_program(&self.dir.join("skills"), name, script, more);
    }

    /// A skill that is a list of steps.
    pub(super) fn steps(&self, name: &str, steps: Value, more: Value) {
        put_steps(&self.dir.join("skills"), name, steps, more);
    }
}

fn merged(mut manifest: Value, more: Value) -> Value {
    let members = manifest.as_object_mut().expect("an object");
    members.extend(more.as_object().expect("an object").clone());
    manifest
}

pub(super) fn put_program(skills: &Path, name: &str, script: &str, more: Value) {
    let dir = skills.join(name);
    fs::create_dir_all(&dir).expect("created");
    let program = dir.join("run");
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    let lib = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/config/skills/lib/shelly_skill.py"
    );
    fs::copy(lib, dir.join("shelly_skill.py")).expect("copied");
    let manifest = json!({
        "name": name, "version": "1.0.0", "description": "For a test.", "mode": "code",
        "input": {"type": "object"}, "command": ["./run"],
    });
    write(&dir, &merged(manifest, more));
}

pub(super) fn put_steps(skills: &Path, name: &str, steps: Value, more: Value) {
    let dir = skills.join(name);
    fs::create_dir_all(&dir).expect("created");
    let manifest = json!({
        "name": name, "version": "1.0.0", "description": "For a test.", "mode": "composite",
        "input": {"type": "object"}, "steps": steps,
    });
    write(&dir, &merged(manifest, more));
}

/// All at once, as an editor does.
pub(super) fn write(dir: &Path, manifest: &Value) {
    let new = dir.join("skill.json.tmp");
    fs::write(&new, manifest.to_string()).expect("written");
    fs::rename(new, dir.join("skill.json")).expect("renamed");
}

pub(super) fn call(daemon: &Daemon, name: &str, input: Value) -> Reply {
    daemon.post(&json!({"name": name, "input": input}))
}

#[track_caller]
pub(super) fn done(daemon: &Daemon, name: &str, input: Value) -> Value {
    let reply = call(daemon, name, input);
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["is_error"]),
        (200, &json!(false)),
        "{body}"
    );
    body["output"].clone()
}

#[track_caller]
pub(super) fn refused(daemon: &Daemon, name: &str, status: u16, code: &str) -> Value {
    let reply = call(daemon, name, json!({}));
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["code"]),
        (status, &json!(code)),
        "{body}"
    );
    body
}

pub(super) const ADD: &str = "#!/usr/bin/python3\nimport json, sys\nn = json.load(sys.stdin)\njson.dump({'sum': n['a'] + n['b']}, sys.stdout)\n";

pub(super) fn of_numbers() -> Value {
    json!({
        "input": {
            "type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 40}},
        },
        "output": {
            "type": "object", "required": ["sum"], "properties": {"sum": {"type": "integer"}},
        },
    })
}

#[test]
fn a_program_is_a_tool_like_any_other() {
    let room = Room::new("");
    room.program("add", ADD, of_numbers());
    let script = "#!/bin/sh\nprintf '\"%s\"' \"$SHELL\"\n";
    room.program("shell", script, json!({}));
    let daemon = room.start();
    assert_eq!(done(&daemon, "add", json!({"a": 2})), json!({"sum": 42}));
    // What runs the commands of others: a program that took itself for it would start itself.
    assert_eq!(done(&daemon, "shell", json!({})), "/bin/bash");
    let invalid = call(&daemon, "add", json!({"a": "2"}));
    assert_eq!(
        (invalid.status, &invalid.json()["errors"][0]["pointer"]),
        (422, &json!("/a"))
    );
    let listed = daemon.get("/tools").json();
    let listed = listed
        .as_array()
        .expect("a list")
        .iter()
        .find(|tool| tool["name"] == "add");
    assert_eq!(
        listed.expect("there")["input_schema"],
        of_numbers()["input"]
    );
    let shown = daemon.get("/tools/add").json();
    assert_eq!(shown["output_schema"], of_numbers()["output"]);
    assert_eq!(shown["version"], "1.0.0");
    let source = shown["source"].as_str().expect("a path");
    assert!(source.ends_with("skills/add/skill.json"), "{source}");
    let answer = call(&daemon, "add", json!({"a": 1, "b": 1})).json();
    assert_eq!(answer["content"], "{\"sum\":2}");
    // Its standard output is kept like that of any command.
    let id = answer["execution_id"].as_str().expect("an id");
    assert_eq!(daemon.output(id, "stdout"), b"{\"sum\": 2}");
    assert_eq!(daemon.ended(id)["result"], answer);
}

#[test]
fn what_a_program_gets_wrong_is_told() {
    let room = Room::new("max_output_bytes = 100000\n");
    let sh = |script: &str| format!("#!/bin/sh\n{script}\n");
    room.program("garbage", &sh("echo hello"), json!({}));
    room.program("silent", &sh("true"), json!({}));
    room.program("half", &sh("printf '{\"sum\": '"), json!({}));
    room.program(
        "wrong",
        &sh("echo '{\"sum\": \"2\"}'"),
        json!({"output": of_numbers()["output"]}),
    );
    room.program("huge", &sh("head -c 1000000000 /dev/zero"), json!({}));
    room.program("fails", &sh("echo no >&2; exit 3"), json!({}));
    room.program("hangs", &sh("sleep 600"), json!({"timeout_secs": 0.3}));
    room.program("forks", &sh("setsid sleep 600 & echo 1"), json!({}));
    let daemon = room.start();
    for (name, part) in [
        ("garbage", "no JSON"),
        ("silent", "wrote nothing"),
        ("half", "EOF"),
        ("huge", "1000000000 bytes"),
        ("wrong", "/sum"),
    ] {
        let body = refused(&daemon, name, 500, "output_invalid");
        let detail = body["detail"].as_str().expect("a text");
        assert!(detail.contains(part), "{name}: {detail}");
        // It is all that a model reads.
        let content = body["content"].as_str().expect("a text");
        assert!(
            content.ends_with(&format!("[error]\n{detail}")),
            "{name}: {content}"
        );
        assert!(
            body["errors"].is_array() && body["stdout_bytes"].is_u64(),
            "{body}"
        );
    }
    let wrong = refused(&daemon, "wrong", 500, "output_invalid");
    assert_eq!(wrong["errors"][0]["pointer"], "/sum");
    assert_eq!(wrong["exit_code"], 0);
    let failed = call(&daemon, "fails", json!({})).json();
    assert_eq!(
        (&failed["is_error"], &failed["exit_code"]),
        (&json!(true), &json!(3))
    );
    assert!(
        failed["content"].to_string().contains("[stderr]"),
        "{failed}"
    );
    refused(&daemon, "hangs", 504, "timeout");
    let forked = call(&daemon, "forks", json!({})).json();
    assert_eq!(forked["output"], 1);
    daemon.wait_until("nothing is left", || daemon.processes().is_empty());
}

#[test]
fn a_skill_for_a_model_waits_for_one() {
    let room = Room::new("");
    let dir = room.dir.join("skills/ask");
    fs::create_dir_all(&dir).expect("created");
    fs::write(dir.join("prompt.md"), "Say {{ input.what }}.").expect("written");
    let manifest = json!({
        "name": "ask", "version": "1.0.0", "description": "For a test.", "mode": "llm",
        "input": {"type": "object"}, "prompt": "prompt.md",
    });
    write(&dir, &manifest);
    let daemon = room.start();
    refused(&daemon, "ask", 503, "provider_missing");
}

#[test]
fn python_is_there() {
    assert!(
        Path::new(PYTHON).exists(),
        "the tests of skills are run with it"
    );
}
