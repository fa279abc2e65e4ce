//! Schemas hold what goes in and what comes out, wherever it runs; and what they refuse is audited.

use serde_json::{Value, json};

use super::keys::keyed;
use super::skills::Room;
use crate::support::{Daemon, skip};

/// Both tiers, as a call asks for them.
const TIERS: [&str; 2] = ["trusted", "untrusted"];

/// The audit trail's last word on an execution.
#[track_caller]
fn audited(daemon: &Daemon, answer: &Value) -> Value {
    let id = answer["execution_id"].as_str().expect("an id");
    let trail = String::from_utf8(daemon.get("/audit").body).expect("text");
    let records = trail.lines().rev();
    let records = records.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut of_it = records.filter(|record| record["execution_id"] == id);
    let last = of_it.next();
    last.unwrap_or_else(|| panic!("{id} is not in the audit trail: {trail}"))
}

#[test]
fn an_input_that_does_not_fit_is_refused_and_audited_on_both_tiers() {
    let daemon = Daemon::start();
    for tier in TIERS {
        for input in [
            json!({}),
            json!({"command": 7}),
            json!({"command": "x", "more": 1}),
        ] {
            let call = json!({"name": "bash", "input": input, "risk_level": tier});
            let reply = daemon.post(&call);
            let answer = reply.json();
            assert_eq!(reply.status, 422, "{call}: {answer}");
            assert!(answer["errors"][0]["pointer"].is_string(), "{answer}");
            let ending = audited(&daemon, &answer);
            assert_eq!(ending["kind"], "ending", "{ending}");
            assert!(ending.to_string().contains("failed"), "{ending}");
        }
    }
    assert_eq!(daemon.get("/audit/verify").json()["intact"], true);
}

#[test]
fn an_output_that_does_not_fit_is_refused_and_audited_on_both_tiers() {
    let output =
        json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
    for tier in TIERS {
        let room = Room::new("");
        let more = json!({"output": output, "risk_level": tier});
        room.program("right", "#!/bin/sh\necho '{\"sum\": 2}'\n", more.clone());
        room.program("wrong", "#!/bin/sh\necho '{\"sum\": \"2\"}'\n", more);
        let daemon = room.start();
        let right = daemon.post(&json!({"name": "right", "input": {}})).json();
        if right["code"] == "sandbox_unavailable" {
            skip("output schemas inside the sandbox, for there is none");
            continue;
        }
        assert_eq!(right["output"], json!({"sum": 2}), "{right}");
        assert_eq!(right["risk_level"], tier);
        let reply = daemon.post(&json!({"name": "wrong", "input": {}}));
        let wrong = reply.json();
        assert_eq!(
            (reply.status, &wrong["code"]),
            (500, &json!("output_invalid")),
            "{wrong}"
        );
        assert_eq!(wrong["errors"][0]["pointer"], "/sum");
        assert_eq!(wrong["risk_level"], tier);
        assert!(audited(&daemon, &wrong).to_string().contains("failed"));
    }
}

/// A record is one level more around an answer, and readers of JSON stop at some level.
#[test]
fn what_is_answered_once_can_be_read_again_however_deep_it_is() {
    let room = Room::new("");
    let script = "#!/bin/sh\nread -r input\ncase $input in *long*) n=121;; *) n=120;; esac\n\
        printf '[%.0s' $(seq $n); printf ']%.0s' $(seq $n)\n";
    room.program("deep", script, json!({}));
    room.steps(
        "deeper",
        json!([{"tool": "deep", "parameters": {}, "save_output_as": "o"},
            {"tool": "deep", "parameters": {"a": "{{ o }}"}, "save_output_as": "p"}]),
        json!({}),
    );
    let daemon = room.start();
    let call = json!({"name": "deep", "input": {}});
    let first = keyed(&daemon, "k", &call);
    assert_eq!(first.status, 200, "{}", first.content());
    assert_eq!(keyed(&daemon, "k", &call).json(), first.json());
    let id = first.json()["execution_id"].take();
    let record = daemon.ended(id.as_str().expect("an id"));
    assert_eq!(record["result"], first.json());

    let long = json!({"name": "deep", "input": {"long": 1}});
    let first = keyed(&daemon, "long", &long);
    assert_eq!(first.json()["code"], "output_invalid");
    assert!(
        first.content().contains("120 levels"),
        "{}",
        first.content()
    );
    assert_eq!(keyed(&daemon, "long", &long).json(), first.json());
    // What is put around it by a step is an input like any other.
    let wrapped = daemon.post(&json!({"name": "deeper", "input": {}}));
    assert!(
        wrapped.content().contains("120 levels"),
        "{}",
        wrapped.content()
    );
}
