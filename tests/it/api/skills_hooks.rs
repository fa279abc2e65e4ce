//! Hooks that are skills: recall before a call and capture after it.

use std::fs;

use serde_json::json;

use super::skills::{Room, done};
use crate::support::{Fifo, wait_for, wait_until};

const RECALL: &str = "#!/usr/bin/python3
import shelly_skill as s
s.run(lambda input: {'memories': ['you asked: ' + input['query']]})
";

/// Writes down what it is told.
const CAPTURE: &str = "#!/usr/bin/python3
import json, os, shelly_skill as s
def main(input):
    with open(os.environ['SHELLY_SKILL_DIR'] + '/log', 'a') as log:
        log.write(json.dumps(input) + chr(10))
    return None
s.run(main)
";

const ASKS: &str = "#!/usr/bin/python3
import shelly_skill as s
s.run(lambda input: s._request('GET', '/context/scratch'))
";

const HOOKS: &str = r#"
[[hooks]]
name = "relevant"
before = "execution"
skill = "recall"
tools = ["asks"]
input = { query = "{{ input.message }}" }
[[hooks]]
name = "capture"
after = "formatting"
skill = "capture"
tools = ["asks", "bash"]
input = { tool = "{{ tool }}", response = "{{ result.content }}", exit = "{{ result.exit }}" }
"#;

#[test]
fn a_skill_is_called_before_and_another_after() {
    let room = Room::new(HOOKS);
    let log = room.dir.join("skills/capture/log");
    room.program("recall", RECALL, json!({}));
    room.program("capture", CAPTURE, json!({}));
    room.program("asks", ASKS, json!({}));
    let daemon = room.start();
    let seen = done(&daemon, "asks", json!({"message": "hello"}));
    assert_eq!(
        seen,
        json!({"relevant": {"memories": ["you asked: hello"]}})
    );
    let body = daemon.bash("echo hi; exit 3").json();
    let lines = fs::read_to_string(&log).expect("written");
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0]["tool"], "asks");
    assert_eq!(
        lines[1],
        json!({"tool": "bash", "response": body["content"], "exit": "3"})
    );
    // They are executions like any other, and no hook is asked about them.
    let id = body["execution_id"].as_str().expect("an id");
    let record = daemon.ended(id);
    let children = record["children"].as_array().expect("children");
    assert_eq!(children.len(), 1);
    assert_eq!(
        (&children[0]["tool"], &children[0]["status"]),
        (&json!("capture"), &json!("success"))
    );
}

#[test]
fn a_skill_is_told_of_a_call_that_was_cancelled() {
    let room = Room::new(HOOKS);
    let log = room.dir.join("skills/capture/log");
    room.program("capture", CAPTURE, json!({}));
    let daemon = room.start();
    let fifo = Fifo::new(daemon.dir().join("fifo"));
    let id = daemon.begin(&format!("read _ <{}", fifo.path().display()), &json!({}));
    let _gate = fifo.reached();
    let path = format!("/executions/{id}");
    let cancelled = daemon.connect().request("DELETE", &path, &[], b"");
    assert_eq!(cancelled.json()["status"], "cancelled");
    let told = fs::read_to_string(&log).expect("told");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["exit"], "cancelled");
}

#[test]
fn a_skill_that_fails_or_is_not_there_stops_nothing() {
    let room = Room::new(HOOKS);
    room.program("capture", "#!/bin/sh\nexit 1\n", json!({}));
    let daemon = room.start();
    assert_eq!(daemon.bash("true").status, 200);
    wait_until("/health says so", || {
        let problems = daemon.get("/health").json()["problems"].to_string();
        problems.contains("hook_invalid") && problems.contains("recall")
    });
    daemon.wait_until("it is logged", || {
        daemon.log().contains("the hook capture failed")
    });
}

#[test]
fn a_program_that_cannot_be_executed_is_no_secret() {
    let program =
        "[[hooks]]\nname = \"gone\"\nbefore = \"permission\"\ncommand = [\"/no/such/program\"]\n";
    let room = Room::new(program);
    let daemon = room.start();
    let problem = wait_for("/health says so", || {
        let health = daemon.get("/health").json();
        health["problems"].get(0).cloned()
    });
    assert_eq!(problem["code"], "hook_invalid", "{problem}");
    assert_eq!(
        problem["detail"],
        "the hook `gone` fails for every call: cannot execute `/no/such/program`"
    );
}

#[test]
fn a_skill_may_be_asked_strictly() {
    let strict = HOOKS.replace(
        "skill = \"recall\"",
        "skill = \"recall\"\non_failure = \"deny\"",
    );
    let room = Room::new(&strict);
    room.program("recall", "#!/bin/sh\necho broken >&2; exit 1\n", json!({}));
    room.program("asks", ASKS, json!({}));
    let daemon = room.start();
    let refused = daemon.post(&json!({"name": "asks", "input": {"message": "x"}}));
    let body = refused.json();
    assert_eq!(
        (refused.status, &body["code"]),
        (403, &json!("permission_denied")),
        "{body}"
    );
    assert!(body["detail"].to_string().contains("relevant"), "{body}");
}

/// All that a program would be given is there for a skill's input, and nothing else.
#[test]
fn an_input_names_what_there_is() {
    let names = "hook stage when execution_id tool chain input stdin working_dir env_names caller_uid trace_id tenant_id session_id judgement result";
    let members = names
        .split(' ')
        .map(|name| format!("{name} = \"{{{{ {name} }}}}\""));
    let members = members.collect::<Vec<_>>().join(", ");
    let toml = format!(
        "[[hooks]]\nname = \"all\"\nafter = \"formatting\"\nskill = \"capture\"\ntools = [\"bash\"]\ninput = {{ {members} }}\n"
    );
    let room = Room::new(&toml);
    let log = room.dir.join("skills/capture/log");
    room.program("capture", CAPTURE, json!({}));
    let daemon = room.start();
    let ids = json!({"trace_id": "t", "tenant_id": "n", "session_id": "s", "stdin": "", "working_dir": "/"});
    assert_eq!(daemon.bash_with("true", &ids).status, 200);
    let told = fs::read_to_string(&log).expect("written");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told.as_object().expect("an object").len(), 16, "{told}");
    assert_eq!(
        (&told["session_id"], &told["chain"]),
        (&json!("s"), &json!([]))
    );
    assert_eq!(daemon.get("/health").json()["status"], "ok");

    let room = Room::new(&HOOKS.replace("{{ tool }}", "{{ colour }}"));
    room.program("recall", RECALL, json!({}));
    room.program("capture", CAPTURE, json!({}));
    let daemon = room.start();
    let health = daemon.get("/health").json();
    let problems = health["problems"].to_string();
    assert!(
        problems.contains("`colour` is a missing value: there is `hook`"),
        "{health}"
    );
}

/// Whatever stops the call stops the skill that is asked about it, which has refused nothing then.
#[test]
fn a_call_that_is_stopped_while_a_skill_is_asked_was_not_refused() {
    const NAPS: &str = "#!/bin/sh\ntouch \"$SHELLY_SKILL_DIR/asked\"; exec sleep 60\n";
    let hook = "[[hooks]]\nname = \"nap\"\nbefore = \"execution\"\nskill = \"naps\"\ntools = [\"bash\"]\ntimeout_secs = 60\non_failure = \"deny\"\n";
    let room = Room::new(hook);
    let asked = room.dir.join("skills/naps/asked");
    room.program("naps", NAPS, json!({}));
    let daemon = room.start();
    let id = daemon.begin("echo never", &json!({}));
    wait_until("the skill is asked", || asked.exists());
    daemon
        .connect()
        .request("DELETE", &format!("/executions/{id}"), &[], b"");
    let record = daemon.ended(&id);
    assert_eq!(
        (&record["status"], &record["result"]["code"]),
        (&json!("cancelled"), &json!("cancelled")),
        "{record}"
    );
}
