//! The stages of the pipeline, as far as they can be seen from outside.

use serde_json::{Value, json};

use super::call;
use crate::support::{Daemon, Mode};

pub(super) const ALL: [&str; 6] = [
    "discovery",
    "validation",
    "permission",
    "confirmation",
    "execution",
    "formatting",
];

/// The names of the stages in a record, whose times must follow each other.
#[track_caller]
fn stages(record: &Value) -> Vec<String> {
    let stages = record["stages"].as_array().expect("stages");
    let times: Vec<&str> = stages
        .iter()
        .flat_map(|stage| [&stage["started_at"], &stage["ended_at"]])
        .map(|time| time.as_str().expect("a time"))
        .collect();
    // As texts of one form they sort by time.
    assert!(times.is_sorted(), "{record}");
    let names = stages.iter().map(|stage| stage["name"].as_str());
    names.map(|name| name.expect("a name").to_owned()).collect()
}

#[test]
fn a_record_names_the_stages_it_went_through() {
    let daemon = Daemon::start();
    let id = daemon.begin("true", &json!({}));
    assert_eq!(stages(&daemon.ended(&id)), ALL);
    // What is refused got no further.
    for (call, last) in [
        (json!({"name": "nosuch", "input": {}}), 1),
        (json!({"name": "bash", "input": {}}), 2),
    ] {
        let refused = daemon.post(&call).json();
        let id = refused["execution_id"].as_str().expect("an id");
        assert_eq!(stages(&daemon.ended(id)), ALL[..last]);
        assert_eq!(refused["stage"], ALL[last - 1]);
    }
}

#[test]
fn the_times_of_stages_can_be_left_out() {
    let daemon = Daemon::start_with(Mode::Group, "[metrics]\nenabled = false");
    let record = daemon.ended(&daemon.begin("true", &json!({})));
    let expected: Vec<Value> = ALL.iter().map(|name| json!({"name": name})).collect();
    assert_eq!(record["stages"], Value::Array(expected));
}

#[test]
fn a_disabled_tool_is_gone_and_its_calls_say_so() {
    let daemon = Daemon::start_with(Mode::Group, "[tools]\ndisabled = [\"bash\"]");
    let tools = daemon.get("/tools").json();
    let tools = tools.as_array().expect("a list");
    assert!(!tools.is_empty() && tools.iter().all(|tool| tool["name"] != "bash"));
    assert_eq!(daemon.get("/tools/bash").status, 404);
    let refused = daemon.post(&call("true"));
    let body = refused.json();
    assert_eq!(refused.status, 403);
    assert_eq!(
        (&body["code"], &body["stage"]),
        (&json!("tool_disabled"), &json!("discovery"))
    );
}

#[test]
fn a_person_is_shown_a_line_or_two() {
    let daemon = Daemon::start();
    for (command, summary, exit) in [
        ("echo; echo one; echo two", "one", "0"),
        ("echo out; echo why >&2; exit 3", "why", "3"),
        ("kill -9 $$", "", "SIGKILL"),
        ("echo AKIAIOSFODNN7EXAMPLE", "***", "0"),
    ] {
        let body = daemon.bash(command).json();
        let display = &body["display"];
        assert_eq!(display["summary"], summary, "{command}");
        assert_eq!(display["exit"], exit, "{command}");
        assert_eq!(display["duration_ms"], body["duration_ms"]);
        let title = display["title"].as_str().expect("a title");
        assert!(
            title.starts_with("bash: ") && !title.contains('\n'),
            "{title}"
        );
    }
    let timeout = daemon.bash_with("echo so far; sleep 1000", &json!({"timeout_secs": 2}));
    let body = timeout.json();
    assert_eq!(body["display"]["exit"], "timeout");
    assert_eq!(body["display"]["summary"], "so far");
    assert_eq!(body["stage"], "execution");
}
