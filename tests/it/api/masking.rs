//! Values that are secret, in all the ways in which an answer or a record may have them.

use std::fs;

use serde_json::{Value, json};

use super::call;
use super::skills::Room;
use crate::support::{Daemon, Mode, scratch};

const AWKWARD: &str = "pa\"ss\\wörd\n-line two-";
const PLAIN: &str = "plain-s3cret*value";

/// A skill that says both secrets, one of them in no way that the stream itself could be known by.
const TELLS: &str = "#!/usr/bin/python3 -B
import json, os
code = ''.join('\\\\u%04x' % ord(c) for c in os.environ['PLAIN'])
print('{\"key\": %s, \"code\": \"%s\"}' % (json.dumps(os.environ['AWKWARD']), code))
";

fn start() -> Daemon {
    let room = Room::new(&format!(
        "[env]\nAWKWARD = {}\nPLAIN = {PLAIN:?}\n[secrets]\nvariables = [\"AWKWARD\", \"PLAIN\"]\n\
         [confirmation]\nself_approval = true\n",
        Value::from(AWKWARD)
    ));
    room.program("tells", TELLS, json!({}));
    room.steps(
        "repeats",
        json!([{"tool": "check_condition", "parameters": {"condition": "1 == 1"}}]),
        json!({"result": {"x": "{{ input.x }}"}}),
    );
    let policy = "default = \"allow\"\nask = [\"bash(command:echo *)\"]\n";
    fs::write(room.dir.join("policy.toml"), policy).expect("written");
    room.start()
}

/// The beginnings of both, as they are and as JSON has them.
#[track_caller]
fn assert_none_in(text: &str, place: &str) {
    for secret in ["pa\"ss", "pa\\\"ss", "plain-s3cret"] {
        assert!(!text.contains(secret), "{secret} is in {place}: {text}");
    }
}

#[test]
fn a_secret_stays_one_in_json() {
    let daemon = start();
    let told = daemon.post(&json!({"name": "tells", "input": {}})).json();
    assert_eq!(
        told["output"],
        json!({"key": "***", "code": "***"}),
        "{told}"
    );
    let repeated = daemon.post(&json!({"name": "repeats", "input": {"x": AWKWARD}}));
    let repeated = repeated.json();
    assert_eq!(repeated["output"], json!({"x": "***"}), "{repeated}");
    let mut bodies = vec![told, repeated];
    let rehearsal = json!({"name": "repeats", "input": {"x": AWKWARD, "dry_run": true}});
    bodies.push(daemon.post(&rehearsal).json());
    let named = json!({"name": "tells", "input": {}, "context": {"scratch": {PLAIN: 1}}});
    bodies.push(daemon.post(&named).json());
    let version = json!({"name": "bash", "input": {"command": "true"}, "tool_version": PLAIN});
    bodies.push(daemon.post(&version).json());
    for body in &bodies {
        assert_none_in(&body.to_string(), "an answer");
        let id = body["execution_id"].as_str().expect("an id");
        assert_none_in(&daemon.ended(id).to_string(), "a record");
    }
    for path in ["/events?follow=false", "/audit", "/executions"] {
        let reply = daemon.get(path);
        assert_none_in(&String::from_utf8_lossy(&reply.body), path);
    }
    daemon.wait_until("all is logged", || {
        daemon.log().matches("EXECUTION_ID").count() >= bodies.len()
    });
    assert_none_in(&daemon.log(), "the log");
    for entry in fs::read_dir(daemon.dir().join("state"))
        .expect("ours")
        .flatten()
    {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        let place = entry.path().display().to_string();
        assert_none_in(&String::from_utf8_lossy(&bytes), &place);
    }
}

/// A rule would have it with escapes of its own.
#[test]
fn no_rule_is_remembered_that_has_a_secret_in_it() {
    let daemon = start();
    let explain = |command: &str| {
        let body = call(command).to_string();
        let mut connection = daemon.connect();
        let reply = connection.request("POST", "/permissions/explain", &[], body.as_bytes());
        reply.json()
    };
    let harmless = explain("echo 'a*b'");
    assert_eq!(harmless["verdict"], "ask", "{harmless}");
    assert_ne!(harmless["remember_rules"], json!([]));
    let told = explain(&format!("echo '{PLAIN}'"));
    assert_eq!(
        (&told["verdict"], &told["remember_rules"]),
        (&json!("ask"), &json!([]))
    );
    assert_none_in(&told.to_string(), "the explanation");
}

/// One that a call gives as a number is masked in its record; what a tool has counted is none, though it may look like it.
#[test]
fn a_number_that_was_said_is_masked_and_one_that_was_counted_is_not() {
    let dir = scratch();
    let toml = format!(
        "[env]\nPIN = \"4711\"\n[secrets]\nvariables = [\"PIN\"]\n[files]\nbase_dirs = [{dir:?}]\n"
    );
    let daemon = Daemon::start_in(dir, Mode::Group, &toml, |_| {});
    let said =
        json!({"name": "check_condition", "input": {"condition": "a > 1", "context": {"a": 4711}}});
    let id = daemon.post(&said).json()["execution_id"].take();
    let record = daemon.ended(id.as_str().expect("an id"));
    assert_eq!(record["input"]["context"], json!({"a": "***"}), "{record}");
    let path = daemon.dir().join("file");
    let input = json!({"file_path": path, "content": "x".repeat(4711)});
    let written = daemon.post(&json!({"name": "write_file", "input": input}));
    assert_eq!(written.status, 200, "{}", written.json());
    assert_eq!(written.json()["output"]["size_bytes"], 4711);
}

/// What a cut leaves of one nobody would recognise.
#[test]
fn a_secret_is_masked_before_a_line_is_cut_in_it() {
    let dir = scratch();
    let toml = format!("[files]\nbase_dirs = [{dir:?}]\n");
    let daemon = Daemon::start_in(dir, Mode::Group, &toml, |_| {});
    let [pad, name, rest] = [("q", 400), ("y", 84), ("z", 600)].map(|(c, n)| c.repeat(n));
    let token = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
    let line = format!(r#"{{"pad":"{pad}","token":"{token}","{name}":"NEEDLE{rest}"}}"#);
    fs::write(daemon.dir().join("found.json"), line).expect("written");
    let input = json!({"dir_path": daemon.dir(), "pattern": "NEEDLE", "glob": "found.json"});
    let found = daemon.post(&json!({"name": "search_files", "input": input}));
    let text = found.json().to_string();
    assert!(text.contains("NEEDLE") && text.contains("***"), "{text}");
    assert!(!text.contains("A1b2") && !text.contains("Q7r8"), "{text}");
}
