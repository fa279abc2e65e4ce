//! Tools that people add: programs, lists of calls, and what they may call.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

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

    fn in_mode(mode: Mode, toml: &str) -> Self {
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

fn put_steps(skills: &Path, name: &str, steps: Value, more: Value) {
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

const ADD: &str = "#!/usr/bin/python3\nimport json, sys\nn = json.load(sys.stdin)\njson.dump({'sum': n['a'] + n['b']}, sys.stdout)\n";

fn of_numbers() -> Value {
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
    let daemon = room.start();
    assert_eq!(done(&daemon, "add", json!({"a": 2})), json!({"sum": 42}));
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
        assert!(
            body["errors"].is_array() && body["stdout_bytes"].is_u64(),
            "{body}"
        );
    }
    let wrong = refused(&daemon, "wrong", 500, "output_invalid");
    assert_eq!(wrong["errors"][0]["pointer"], "/sum");
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
    let daemon = room.start();
    let stopped = call(&daemon, "stops", json!({}));
    let body = stopped.json();
    assert_eq!((stopped.status, &body["is_error"]), (200, &json!(true)));
    assert!(body["content"].to_string().contains("exit_code"), "{body}");
    assert_eq!(done(&daemon, "goes_on", json!({})), "x3ab");
}

const CALLS: &str = "#!/usr/bin/python3
import shelly_skill as s
def main(input):
    try:
        answer = s.call(input['tool'], input.get('input'))
        return {'status': 200, 'content': answer['content'], 'output': answer.get('output')}
    except s.CallFailed as error:
        return {'status': error.status, 'code': error.code, 'content': str(error)}
s.run(main)
";

#[test]
fn a_program_calls_what_it_declares_and_nothing_else() {
    for mode in Mode::all() {
        calls_what_it_declares(Room::in_mode(mode, ""));
    }
}

fn calls_what_it_declares(room: Room) {
    room.program("caller", CALLS, json!({"calls": ["bash", "caller", "add"]}));
    room.program("add", ADD, of_numbers());
    let daemon = room.start();
    let output = done(
        &daemon,
        "caller",
        json!({"tool": "bash", "input": {"command": "echo hi"}}),
    );
    assert_eq!(output["content"], "[stdout]\nhi\n\n[exit_code]\n0");
    let output = done(&daemon, "caller", json!({"tool": "add", "input": {"a": 1}}));
    assert_eq!(output["output"], json!({"sum": 41}));
    for (tool, status, code, part) in [
        ("execute_command", 403, "permission_denied", "calls"),
        ("caller", 422, "call_cycle", "caller"),
        ("no_such_tool", 404, "unknown_tool", "no_such_tool"),
    ] {
        let input = json!({"tool": tool, "input": {"command": "true"}});
        let output = done(&daemon, "caller", input);
        assert_eq!(
            (&output["status"], &output["code"]),
            (&json!(status), &json!(code)),
            "{output}"
        );
        assert!(output["content"].to_string().contains(part), "{output}");
    }
}

#[test]
fn calls_within_calls_and_their_number_are_bounded() {
    let room = Room::new("[skills]\nmax_depth = 3\nmax_calls = 5\n");
    for depth in 0..5 {
        let next = format!("level{}", depth + 1);
        let script = format!(
            "#!/usr/bin/python3
import shelly_skill as s
def main(input):
    try:
        return s.call({next:?})['output']
    except s.CallFailed as error:
        return [error.code, str(error)]
s.run(main)
"
        );
        room.program(&format!("level{depth}"), &script, json!({"calls": [next]}));
    }
    room.program("level5", "#!/bin/sh\necho '\"deep\"'\n", json!({}));
    let many = "#!/usr/bin/python3
import shelly_skill as s
def main(input):
    for n in range(100):
        try:
            s.call('bash', {'command': 'true'})
        except s.CallFailed as error:
            return [n, error.status, error.code]
s.run(main)
";
    room.program("many", many, json!({"calls": ["bash"]}));
    let daemon = room.start();
    assert_eq!(done(&daemon, "level3", json!({})), "deep");
    let deep = done(&daemon, "level0", json!({}));
    assert_eq!(deep[0], "depth_exceeded");
    let chain = "`level0` calls `level1` calls `level2` calls `level3`";
    assert!(deep[1].to_string().contains(chain), "{deep}");
    assert_eq!(
        done(&daemon, "many", json!({})),
        json!([5, 429, "rate_limited"])
    );
}

/// A token is good for the processes of its execution, as long as it lasts, and is in no record.
#[test]
fn a_token_is_good_for_its_own_execution_only() {
    for mode in Mode::all() {
        is_good_for_its_own(Room::in_mode(mode, ""));
    }
}

fn is_good_for_its_own(room: Room) {
    let script = "#!/bin/sh\nprintf %s \"$SHELLY_CAPABILITY\" > \"$TOKEN_FILE\"\nread line < \"$FIFO\"\necho \"\\\"token: $SHELLY_CAPABILITY\\\"\"\n";
    room.program("tells", script, json!({"calls": ["bash"]}));
    let daemon = room.start();
    let file = daemon.dir().join("token");
    let fifo = Fifo::new(daemon.dir().join("fifo"));
    let call = json!({
        "name": "tells", "input": {},
        "env": {"TOKEN_FILE": file.display().to_string(), "FIFO": fifo.path().display().to_string()},
    });
    let started = daemon.connect().request(
        "POST",
        "/execute",
        &[("Prefer", "respond-async")],
        call.to_string().as_bytes(),
    );
    let id = started.json()["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let pen = fifo.reached();
    let token = fs::read_to_string(&file).expect("there");
    assert!(token.len() > 64, "{token}");
    let with = |token: &str| {
        let bearer = format!("Bearer {token}");
        let body = json!({"name": "bash", "input": {"command": "true"}}).to_string();
        let headers = [("Authorization", bearer.as_str())];
        daemon
            .connect()
            .request("POST", "/execute", &headers, body.as_bytes())
    };
    // This process is none of the skill's.
    for stolen in [token.as_str(), "", "x"] {
        let reply = with(stolen);
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (401, &json!("bad_capability"))
        );
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    pen.say("on");
    let record = daemon.ended(&id);
    assert_eq!(record["result"]["output"], "token: ***", "{record}");
    assert_eq!(with(&token).status, 401, "it died with its execution");
    assert!(!daemon.log().contains(&token));
    assert!(
        !daemon
            .get("/executions?limit=10")
            .json()
            .to_string()
            .contains(&token)
    );
}

/// What a skill has called ends with it.
#[test]
fn a_parent_takes_its_children_with_it() {
    for mode in Mode::all() {
        takes_its_children(Room::in_mode(mode, ""));
    }
}

fn takes_its_children(room: Room) {
    room.program("caller", CALLS, json!({"calls": ["bash"]}));
    room.steps(
        "steps",
        json!([{"tool": "bash", "parameters": {"command": "sleep 600"}}]),
        json!({}),
    );
    let daemon = room.start();
    for call in [
        json!({"name": "caller", "input": {"tool": "bash", "input": {"command": "sleep 600"}}}),
        json!({"name": "steps", "input": {}}),
    ] {
        let started = daemon.connect().request(
            "POST",
            "/execute",
            &[("Prefer", "respond-async")],
            call.to_string().as_bytes(),
        );
        let id = started.json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let sleeper = || {
            let listed = daemon.get("/executions?status=running&tool=bash").json();
            listed["executions"]
                .as_array()
                .and_then(|all| all.first().cloned())
        };
        daemon.wait_until("it has called", || sleeper().is_some());
        let child = sleeper().expect("there")["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let cancelled = daemon
            .connect()
            .request("DELETE", &format!("/executions/{id}"), &[], b"");
        assert_eq!(cancelled.json()["status"], "cancelled");
        let child = daemon.ended(&child);
        assert_eq!(
            (&child["status"], &child["parent_id"]),
            (&json!("cancelled"), &json!(id))
        );
        daemon.wait_until("nothing is left", || daemon.processes().is_empty());
    }
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

/// Calls with one key, made at once by a program that does not wait for them: none is left, and the
/// daemon stops.
#[test]
fn calls_that_never_begin_hold_nothing_up() {
    let room = Room::new("");
    let script = "#!/usr/bin/python3
import http.client, json, os, socket
for n in range(12):
    s = socket.socket(socket.AF_UNIX)
    s.connect(os.environ['SHELLY_SOCKET'])
    body = json.dumps({'name': 'bash', 'input': {'command': 'sleep 0.1'}})
    lines = ['POST /execute HTTP/1.1', 'Host: x', 'Content-Length: %d' % len(body),
             'Authorization: Bearer ' + os.environ['SHELLY_CAPABILITY']]
    if n % 2: lines.append('Idempotency-Key: k')
    if n % 3: lines.append('Prefer: respond-async')
    s.sendall(('\\r\\n'.join(lines) + '\\r\\n\\r\\n' + body).encode())
    globals()['keep%d' % n] = s
print(1)
";
    room.program("hasty", script, json!({"calls": ["bash"]}));
    let mut daemon = room.start();
    for _ in 0..5 {
        assert_eq!(done(&daemon, "hasty", json!({})), 1);
    }
    daemon.wait_until("nothing runs", || {
        daemon.get("/health").json()["running"] == 0
    });
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.wait().success());
}

/// A call of a skill's that waits for its approval does not outlive the skill, nor the daemon.
#[test]
fn a_childs_question_ends_with_its_parent() {
    let room = Room::new("[confirmation]\nself_approval = true\n");
    fs::write(
        room.dir.join("policy.toml"),
        "default = \"allow\"\nask = [\"execute_command\"]\n",
    )
    .expect("written");
    let script = "#!/usr/bin/python3
import http.client, os, shelly_skill as s, time
def main(input):
    connection = s._Connection('localhost')
    headers = {'Authorization': 'Bearer ' + os.environ['SHELLY_CAPABILITY'], 'Prefer': 'respond-async'}
    connection.request('POST', '/execute', '{\"name\": \"execute_command\", \"input\": {\"command\": \"true\"}}', headers)
    connection.getresponse().read()
    time.sleep(600)
s.run(main)
";
    room.program("asker", script, json!({"calls": ["execute_command"]}));
    let mut daemon = room.start();
    let call = json!({"name": "asker", "input": {}, "timeout_secs": 3000}).to_string();
    let headers = [("Prefer", "respond-async")];
    let begun = daemon
        .connect()
        .request("POST", "/execute", &headers, call.as_bytes());
    let id = begun.json()["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let child = pending(&daemon)["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    daemon.wait();
    daemon = daemon.restart();
    assert_eq!(daemon.ended(&id)["status"], "lost");
    let record = daemon.ended(&child);
    assert_ne!(record["status"], "success", "{record}");
    let open = daemon.get("/approvals").json();
    assert_eq!(open["approvals"], json!([]), "{open}");
    let begun = daemon
        .connect()
        .request("POST", "/execute", &headers, call.as_bytes());
    assert_eq!(begun.status, 202);
    pending(&daemon);
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.wait().success(), "it stops all the same");
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
