//! Skills that are lists of calls.

use std::fs;

use serde_json::{Value, json};

use super::skills::{Room, call, done};

/// Seed 003's example as one skill.
const SEED: &str = r#"[
    {"tool": "execute_command", "parameters": {"command": "sh {{ input.script }}"}, "save_output_as": "script_output"},
    {"tool": "check_condition", "parameters": {"condition": "script_output.strip() == '1'",
        "context": {"script_output": "{{ script_output }}"}}, "save_output_as": "condition_result"},
    {"tool": "bash", "parameters": {"command": "sed -i 's/echo 1/echo 2/' {{ input.script }}"},
        "condition": "condition_result == True"},
    {"tool": "bash", "parameters": {"command": "sh {{ input.script }}"}, "save_output_as": "new_output"}
]"#;

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
