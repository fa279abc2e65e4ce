//! Tools that people add: programs, lists of calls, and what they may call.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::approvals::{approve, pending};
use crate::support::{Daemon, Fifo, Mode, Reply, scratch, wait_until};

const PYTHON: &str = "/usr/bin/python3";

/// A place for skills, and the daemon that finds them there.
pub(super) struct Room {
    pub(super) dir: PathBuf,
    mode: Mode,
    toml: String,
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

fn put_program(skills: &Path, name: &str, script: &str, more: Value) {
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
fn write(dir: &Path, manifest: &Value) {
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
fn refused(daemon: &Daemon, name: &str, status: u16, code: &str) -> Value {
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

const SEED: &str = r#"[
    {"tool": "execute_command", "parameters": {"command": "sh {{ input.script }}"}, "save_output_as": "script_output"},
    {"tool": "check_condition", "parameters": {"condition": "script_output.strip() == '1'",
        "context": {"script_output": "{{ script_output }}"}}, "save_output_as": "condition_result"},
    {"tool": "bash", "parameters": {"command": "sed -i 's/echo 1/echo 2/' {{ input.script }}"},
        "condition": "condition_result == True"},
    {"tool": "bash", "parameters": {"command": "sh {{ input.script }}"}, "save_output_as": "new_output"}
]"#;

/// Seed 003's example as one skill.
/// Nothing is called: what is known beforehand is told, and what it depends on where it is not.
#[test]
fn a_list_of_calls_tells_what_it_would_do() {
    let room = Room::new("");
    let steps = json!([
        {"tool": "bash", "parameters": {"command": "touch {{ input.file }}; echo 1"}, "save_output_as": "made"},
        {"tool": "bash", "parameters": {"command": "echo {{ made }}"}, "condition": "made.return_code == 0"},
        {"tool": "bash", "parameters": {"command": "true"}, "condition": "input.file == 'x'", "save_output_as": "left"},
        {"tool": "bash", "parameters": {"command": "echo {{ left }}"}},
    ]);
    room.steps("makes", steps, json!({"output": {"type": "string"}}));
    let daemon = room.start();
    let marker = daemon.dir().join("marker");
    let input = json!({"file": marker, "dry_run": true});
    let reply = call(&daemon, "makes", input);
    assert_eq!(reply.status, 200, "{}", reply.content());
    let told: Value = serde_json::from_str(&reply.content()).expect("JSON");
    let expected = json!([
        {"step": "/steps/0", "tool": "bash", "runs": "yes", "save_output_as": "made",
         "parameters": {"command": format!("touch {}; echo 1", marker.display())}},
        {"step": "/steps/1", "tool": "bash", "runs": "depends", "depends_on": ["made"],
         "parameters": {"command": "echo {{ made }}"}},
        {"step": "/steps/2", "tool": "bash", "runs": "no", "save_output_as": "left",
         "parameters": {"command": "true"}},
        {"step": "/steps/3", "tool": "bash", "runs": "yes", "parameters": {"command": "echo None"}},
    ]);
    assert_eq!(told, json!({"dry_run": true, "steps": expected}));
    assert!(!marker.exists());
    let id = reply.json()["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert_eq!(daemon.ended(&id)["children"], Value::Null);
    // Without being asked for it does it, and the word is not among its input.
    let reply = call(&daemon, "makes", json!({"file": marker, "dry_run": false}));
    assert_eq!(reply.status, 200, "{}", reply.content());
    assert!(marker.exists());
}

#[test]
fn steps_are_taken_one_after_another() {
    let room = Room::new("");
    let result = json!({"before": "{{ script_output.strip() }}", "after": "{{ new_output.strip() }}", "code": "{{ new_output.return_code }}"});
    let steps = serde_json::from_str(SEED).expect("JSON");
    room.steps("raise", steps, json!({"result": result}));
    let daemon = room.start();
    let script = daemon.dir().join("a.sh");
    for (text, expected) in [
        ("echo 1", json!({"before": "1", "after": "2", "code": 0})),
        ("echo 7", json!({"before": "7", "after": "7", "code": 0})),
    ] {
        fs::write(&script, text).expect("written");
        let input = json!({"script": script.display().to_string()});
        assert_eq!(done(&daemon, "raise", input), expected);
    }
    // Each step is an execution of its own, and knows whose.
    let answer = call(
        &daemon,
        "raise",
        json!({"script": script.display().to_string()}),
    )
    .json();
    let id = answer["execution_id"].as_str().expect("an id");
    let all = daemon.get("/executions?limit=5").json();
    let all = all["executions"].as_array().expect("a list").clone();
    let children: Vec<&Value> = all.iter().filter(|one| one["execution_id"] != id).collect();
    let tree = &daemon.ended(id)["children"];
    let tools: Vec<&Value> = tree
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["tool"])
        .collect();
    assert_eq!(tools, ["execute_command", "check_condition", "bash"]);
    assert_eq!(
        (&tree[0]["status"], &tree[0]["depth"]),
        (&json!("success"), &json!(1))
    );
    for child in &children[..3] {
        let child = daemon.ended(child["execution_id"].as_str().expect("an id"));
        assert_eq!(
            (&child["parent_id"], &child["depth"]),
            (&json!(id), &json!(1))
        );
    }
}

#[test]
fn a_step_that_fails_ends_the_skill_or_does_not() {
    let room = Room::new("");
    room.steps(
        "stops",
        json!([{"tool": "bash", "parameters": {"command": "exit 3"}}, {"tool": "bash", "parameters": {"command": "true"}}]),
        json!({}),
    );
    room.steps(
        "goes_on",
        json!([
            {"tool": "bash", "parameters": {"command": "echo x; exit 3"}, "on_error": "continue", "save_output_as": "first"},
            {"parallel": [
                {"tool": "bash", "parameters": {"command": "echo a"}, "save_output_as": "a"},
                {"tool": "bash", "parameters": {"command": "echo b"}, "save_output_as": "b"}
            ]}
        ]),
        json!({"result": "{{ first.strip() }}{{ first.return_code }}{{ a.strip() }}{{ b.strip() }}"}),
    );
    room.steps(
        "stops_all",
        json!([{"parallel": [
            {"tool": "bash", "parameters": {"command": "sleep 1000"}},
            {"tool": "bash", "parameters": {"command": "exit 3"}}
        ]}]),
        json!({}),
    );
    let daemon = room.start();
    for skill in ["stops", "stops_all"] {
        let stopped = call(&daemon, skill, json!({}));
        let body = stopped.json();
        assert_eq!(
            (stopped.status, &body["is_error"]),
            (200, &json!(true)),
            "{body}"
        );
        assert!(body["content"].to_string().contains("exit_code"), "{body}");
    }
    // Those beside it are over as well.
    assert_eq!(daemon.get("/health").json()["running"], 0);
    assert_eq!(done(&daemon, "goes_on", json!({})), "x3ab");
}

#[test]
fn skills_come_and_go_without_a_restart() {
    let room = Room::new("");
    let skills = room.dir.join("skills");
    room.program("old", "#!/bin/sh\necho 1\n", json!({}));
    let daemon = room.start();
    assert_eq!(done(&daemon, "old", json!({})), 1);
    put_program(&skills, "new", "#!/bin/sh\necho 2\n", json!({}));
    wait_until("the new one is there", || {
        call(&daemon, "new", json!({})).status == 200
    });
    // One that is broken is told of, with its line; the others are there.
    fs::create_dir_all(skills.join("broken")).expect("created");
    fs::write(
        skills.join("broken/skill.json"),
        "{\n  \"name\": \"broken\",\n  \"colour\": 1\n}",
    )
    .expect("written");
    wait_until("the broken one is told of", || {
        let health = daemon.get("/health").json();
        let problems = health["problems"].to_string();
        health["status"] == "degraded"
            && problems.contains("skill_invalid")
            && problems.contains("skill.json:3")
    });
    assert_eq!(done(&daemon, "old", json!({})), 1);
    fs::remove_dir_all(skills.join("broken")).expect("removed");
    fs::remove_dir_all(skills.join("old")).expect("removed");
    wait_until("they are gone", || {
        call(&daemon, "old", json!({})).status == 404
            && daemon.get("/health").json()["status"] == "ok"
    });
    // Replaced again and again, it is there all the while, and in the end as it was last.
    for n in 0..1000 {
        let manifest = json!({
            "name": "new", "version": format!("1.0.{n}"), "description": "For a test.", "mode": "code",
            "input": {"type": "object"}, "command": ["./run"],
        });
        write(&skills.join("new"), &manifest);
        if n % 100 == 0 {
            assert_eq!(done(&daemon, "new", json!({})), 2);
        }
    }
    wait_until("the last is in force", || {
        daemon.get("/tools/new").json()["version"] == "1.0.999"
    });
}

/// A skill, or all of them, that the daemon may not read are told of, and the others are there.
#[test]
fn what_may_not_be_read_is_told() {
    let room = Room::new("");
    let skills = room.dir.join("skills");
    for name in ["open", "shut"] {
        room.program(name, "#!/bin/sh\necho 1\n", json!({}));
    }
    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
    };
    set(&skills.join("shut"), 0o000);
    let daemon = Daemon::start_in(room.dir, room.mode, &room.toml, obey_permissions);
    let problem = |path: &Path| {
        let health = daemon.get("/health").json();
        let problem = health["problems"][0].to_string();
        let tells = problem.contains("skill_invalid")
            && problem.contains(&format!("{}: cannot be read: ", path.display()));
        health["status"] == "degraded" && tells
    };
    daemon.wait_until("it is told of", || problem(&skills.join("shut")));
    assert_eq!(done(&daemon, "open", json!({})), 1);
    refused(&daemon, "shut", 404, "unknown_tool");
    set(&skills, 0o000);
    let reload = || {
        daemon.signal(Signal::SIGHUP);
    };
    reload();
    daemon.wait_until("all of it is told of", || problem(&skills));
    refused(&daemon, "open", 404, "unknown_tool");
    assert_eq!(daemon.bash("echo hi").stdout(), "hi");
    set(&skills, 0o755);
    set(&skills.join("shut"), 0o755);
    reload();
    daemon.wait_until("all is well", || {
        daemon.get("/health").json()["status"] == "ok"
            && call(&daemon, "shut", json!({})).status == 200
    });
}

/// Has the command do without what lets root read and enter whatever it likes.
fn obey_permissions(command: &mut Command) {
    // From linux/capability.h.
    const CAP_DAC_OVERRIDE: libc::c_ulong = 1;
    const CAP_DAC_READ_SEARCH: libc::c_ulong = 2;
    // SAFETY: prctl(2) is a system call and nothing else.
    unsafe {
        command.pre_exec(|| {
            for capability in [CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH] {
                // Only root has and can drop them.
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
            Ok(())
        });
    }
}

#[test]
fn an_execution_keeps_the_version_it_began_with() {
    let room = Room::new("");
    let skills = room.dir.join("skills");
    let fifo = Fifo::new(room.dir.join("fifo"));
    let script = format!(
        "#!/bin/sh\nread line < {}\necho '{{\"n\": 1}}'\n",
        fifo.path().display()
    );
    let output =
        |kind: &str| json!({"output": {"type": "object", "properties": {"n": {"type": kind}}}});
    room.program("slow", &script, output("integer"));
    let daemon = room.start();
    let id = daemon.connect().request(
        "POST",
        "/execute",
        &[("Prefer", "respond-async")],
        br#"{"name": "slow", "input": {}}"#,
    );
    let id = id.json()["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let pen = fifo.reached();
    let mut other = output("string");
    other["version"] = json!("2.0.0");
    put_program(&skills, "slow", &script, other);
    wait_until("it is replaced", || {
        daemon.get("/tools/slow").json()["version"] == "2.0.0"
    });
    pen.say("on");
    let record = daemon.ended(&id);
    assert_eq!(record["result"]["output"], json!({"n": 1}), "{record}");
}

#[test]
fn several_versions_stand_side_by_side() {
    let room = Room::new("");
    for (dir, version) in [
        ("v@1.2.0", "1.2.0"),
        ("v@1.10.0", "1.10.0"),
        ("v@2.0.0-rc.1", "2.0.0-rc.1"),
    ] {
        let script = format!("#!/bin/sh\necho '\"{version}\"'\n");
        room.program(dir, &script, json!({"name": "v", "version": version}));
    }
    let daemon = room.start();
    assert_eq!(done(&daemon, "v", json!({})), "1.10.0");
    for version in ["1.2.0", "1.10.0", "2.0.0-rc.1"] {
        let answer = daemon
            .post(&json!({"name": "v", "input": {}, "tool_version": version}))
            .json();
        assert_eq!(answer["output"], version, "{answer}");
        let shown = daemon.get(&format!("/tools/v?version={version}")).json();
        assert_eq!(shown["version"], version);
        assert_eq!(shown["versions"], json!(["1.10.0", "1.2.0", "2.0.0-rc.1"]));
    }
    let listed = daemon.get("/tools").json();
    let named = listed
        .as_array()
        .expect("a list")
        .iter()
        .filter(|tool| tool["name"] == "v");
    assert_eq!(named.count(), 1);
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

/// What was approved is the skill as it was, on disk and in the registry.
#[test]
fn a_skill_that_changes_is_not_what_was_approved() {
    let room = Room::new("[confirmation]\nself_approval = true\n");
    let marker = room.dir.join("marker");
    room.program("asks", "#!/bin/sh\necho 1\n", json!({}));
    fs::write(
        room.dir.join("policy.toml"),
        "default = \"allow\"\nask = [\"asks\"]\n",
    )
    .expect("written");
    let program = room.dir.join("skills/asks/run");
    let daemon = room.start();
    let begin = || {
        let call = json!({"name": "asks", "input": {}}).to_string();
        let headers = [("Prefer", "respond-async")];
        let begun = daemon
            .connect()
            .request("POST", "/execute", &headers, call.as_bytes());
        begun.json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned()
    };
    let (unchanged, first) = (begin(), pending(&daemon));
    approve(&daemon, &first);
    assert_eq!(daemon.ended(&unchanged)["result"]["output"], 1);
    let (changed, second) = (begin(), pending(&daemon));
    let script = format!("#!/bin/sh\ntouch {}\n", marker.display());
    fs::write(&program, script).expect("written");
    approve(&daemon, &second);
    let result = daemon.ended(&changed)["result"].clone();
    assert_eq!(result["code"], "approval_stale", "{result}");
    assert!(!marker.exists());
}

/// Text from outside stays a word, whatever is in it.
#[test]
fn a_quoted_value_is_one_word_of_a_command() {
    let room = Room::new("");
    let steps =
        json!([{"tool": "bash", "parameters": {"command": "printf %s {{ quote(input.x) }}"}}]);
    room.steps("says", steps, json!({}));
    let daemon = room.start();
    for x in [
        "a; id", "$(id)", "it's", "", "a\nb", "`id`", "\"", "-n", "é\\",
    ] {
        assert_eq!(done(&daemon, "says", json!({"x": x})), x);
    }
}
