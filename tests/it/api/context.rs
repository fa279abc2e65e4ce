//! The values that skills share.

use std::fs;

use serde_json::{Value, json};

use super::approvals::{approve, during, pending};
use super::skills::{Room, done};
use crate::cli;
use crate::support::Daemon;

/// Does what its input says, in order: `["get", scope, name]`, `["set", scope, name, value]`,
/// `["del", …]`, `["all", scope]` or `["call", tool, input]`; answers what came of each.
const WORKS: &str = "#!/usr/bin/python3
import shelly_skill as s
def one(what, *args):
    try:
        if what == 'call':
            return s.call(*args)['output']
        path = '/context/' + '/'.join(args[:2])
        method = {'get': 'GET', 'all': 'GET', 'set': 'PUT', 'del': 'DELETE'}[what]
        return s._request(method, path, *args[2:])
    except s.CallFailed as error:
        return [error.status, error.code]
s.run(lambda input: [one(*step) for step in input['do']])
";

fn start() -> Daemon {
    let room = Room::new("[skills]\nmax_context_bytes = 1000\n");
    room.program("outer", WORKS, json!({"calls": ["inner", "bash"]}));
    room.program("inner", WORKS, json!({}));
    room.start()
}

fn with(daemon: &Daemon, steps: Value, members: Value) -> Value {
    let mut call = json!({"name": "outer", "input": {"do": steps}});
    let all = members.as_object().expect("an object").clone();
    call.as_object_mut().expect("an object").extend(all);
    let reply = daemon.post(&call);
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["is_error"]),
        (200, &json!(false)),
        "{body}"
    );
    body["output"].clone()
}

#[test]
fn a_call_brings_values_along_that_skills_read_and_write() {
    let daemon = start();
    let context =
        json!({"context": {"memory": {"name": "Ada"}, "config": {"model": {"name": "m"}}}});
    let steps = json!([
        ["get", "memory", "name"],
        ["all", "config"],
        ["set", "scratch", "n", {"a": [1]}],
        ["call", "inner", {"do": [["get", "scratch", "n"], ["set", "scratch", "back", 2], ["get", "memory", "name"]]}],
        ["get", "scratch", "back"],
        ["del", "scratch", "n"],
        ["get", "scratch", "n"],
        ["del", "scratch", "n"],
        ["get", "elsewhere", "n"],
    ]);
    assert_eq!(
        with(&daemon, steps, context),
        json!([
            "Ada", {"model": {"name": "m"}}, null, [{"a": [1]}, null, "Ada"], 2, null,
            [404, "not_found"], [404, "not_found"], [404, "not_found"],
        ])
    );
    // It is gone with the outermost call.
    let nothing = with(
        &daemon,
        json!([["all", "scratch"], ["all", "memory"]]),
        json!({}),
    );
    assert_eq!(nothing, json!([{}, {}]));
}

/// The same by the module that Python skills have.
#[test]
fn the_module_has_a_word_for_each() {
    let room = Room::new("");
    let script = "#!/usr/bin/python3 -B
import shelly_skill as s
def main(input):
    s.keep('scratch', 'a/b ?', None)
    s.keep('scratch', 'n', [1])
    kept = [s.values('scratch'), s.value('scratch', 'n'), s.value('memory', 'name'), s.value('scratch', 'x', 7)]
    s.drop('scratch', 'n')
    return kept + [s.values('scratch')]
s.run(main)
";
    room.program("keeps", script, json!({}));
    let daemon = room.start();
    let call = json!({"name": "keeps", "input": {}, "context": {"memory": {"name": "Ada"}}});
    let answer = daemon.post(&call).json();
    assert_eq!(
        answer["output"],
        json!([{"a/b ?": null, "n": [1]}, [1], "Ada", 7, {"a/b ?": null}]),
        "{answer}"
    );
}

#[test]
fn a_session_lasts_from_call_to_call() {
    let daemon = start();
    let (one, other) = (json!({"session_id": "one"}), json!({"session_id": "other"}));
    with(&daemon, json!([["set", "session", "seen", 1]]), one.clone());
    assert_eq!(
        with(&daemon, json!([["get", "session", "seen"]]), one),
        json!([1])
    );
    let nothing = json!([[404, "not_found"]]);
    assert_eq!(
        with(&daemon, json!([["get", "session", "seen"]]), other),
        nothing
    );
    assert_eq!(
        with(&daemon, json!([["get", "session", "seen"]]), json!({})),
        nothing
    );
}

#[test]
fn values_are_bounded_and_nobody_elses() {
    let daemon = start();
    let long = "x".repeat(990);
    let steps = json!([
        ["set", "scratch", "a", long],
        ["set", "scratch", "a", "short"],
        ["set", "memory", "b", "x".repeat(980)],
        ["set", "memory", "c", "x".repeat(20)],
        ["set", "scratch", "y".repeat(300), 1],
    ]);
    assert_eq!(
        with(&daemon, steps, json!({})),
        json!([
            null,
            null,
            null,
            [413, "payload_too_large"],
            [413, "payload_too_large"]
        ])
    );
    let much = json!({"name": "bash", "input": {"command": "true"}, "context": {"scratch": {"a": "x".repeat(2000)}}});
    let refused = daemon.post(&much);
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (413, &json!("payload_too_large"))
    );
    // Who has no token has no values.
    let refused = daemon.get("/context/scratch");
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (401, &json!("bad_capability"))
    );
    for (members, status) in [
        (json!({"context": {"elsewhere": {}}}), 400),
        (json!({"context": {"memory": 1}}), 400),
        (json!({"session_id": ""}), 400),
        (json!({"session_id": "s"}), 200),
    ] {
        let mut call = json!({"name": "bash", "input": {"command": "true"}});
        call.as_object_mut()
            .expect("an object")
            .extend(members.as_object().expect("one").clone());
        assert_eq!(daemon.post(&call).status, status, "{members}");
    }
    assert_eq!(done(&daemon, "inner", json!({"do": []})), json!([]));
}

#[test]
fn shellyctl_brings_values_along_too() {
    let daemon = start();
    let call = |args: &[&str], steps: Value| {
        let input = json!({"do": steps}).to_string();
        let args: Vec<&str> = [&["call"], args, &["outer", &input]].concat();
        let output = cli::run(&daemon, &args);
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let args = [
        "--context",
        r#"{"memory": {"name": "Ada"}}"#,
        "--session",
        "s1",
    ];
    let steps = json!([["get", "memory", "name"], ["set", "session", "n", 1]]);
    assert_eq!(call(&args, steps), json!(["Ada", null]));
    let steps = json!([["get", "session", "n"]]);
    assert_eq!(call(&["--session", "s1"], steps.clone()), json!([1]));
    assert_eq!(
        call(&["--session", "s2"], steps),
        json!([[404, "not_found"]])
    );
    let output = cli::run(&daemon, &["call", "--context", "{", "outer", "{}"]);
    assert_eq!(cli::code(&output), 2);
}

/// Whoever approves a skill's call has seen the values that it finds, and approves no others.
#[test]
fn values_are_a_part_of_what_is_approved() {
    let access = "callers = [\"user:root\"]\napprovers = [\"user:root\"]\n";
    let room = Room::new(&format!(
        "[confirmation]\nself_approval = true\n[access]\n{access}"
    ));
    let policy = "default = \"allow\"\nask = [\"outer\"]\n";
    fs::write(room.dir.join("policy.toml"), policy).expect("written");
    room.program("outer", WORKS, json!({}));
    let daemon = room.start();
    let mut call = json!({
        "name": "outer",
        "input": {"do": [["get", "config", "target"], ["get", "session", "n"]]},
        "session_id": "S",
        "context": {"config": {"target": "staging"}, "session": {"n": 1}},
    });
    let (reply, asked) = during(&daemon, &call, || {
        let asked = pending(&daemon);
        approve(&daemon, &asked);
        asked
    });
    assert_eq!(reply.json()["output"], json!(["staging", 1]));
    assert_eq!(asked["context"], call["context"]);
    assert_eq!(
        (&asked["tool_version"], &asked["risk_level"]),
        (&json!("1.0.0"), &json!("trusted"))
    );
    call["context"] = json!({"config": {"target": "production"}});
    let (reply, other) = during(&daemon, &call, || {
        let asked = pending(&daemon);
        // It was asked about with 1.
        let meanwhile = json!({"session_id": "S", "context": {"session": {"n": 2}}});
        assert_eq!(daemon.bash_with("true", &meanwhile).status, 200);
        approve(&daemon, &asked);
        asked
    });
    assert_ne!(asked["digest"], other["digest"]);
    assert_eq!(other["context"]["session"], json!({"n": 1}));
    assert_eq!(reply.json()["output"], json!(["production", 1]));
    // What comes of it finds the same, and what it keeps itself; the session goes on without it.
    call["input"] = json!({"do": [["set", "session", "own", 3], ["get", "session", "own"], ["get", "session", "n"]]});
    let (reply, ()) = during(&daemon, &call, || approve(&daemon, &pending(&daemon)));
    let output = &reply.json()["output"];
    assert_eq!((&output[1], &output[2]), (&json!(3), &json!(2)));
}
