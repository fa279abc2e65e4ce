//! What can be read without running anything.

use serde_json::{Value, json};

use super::{begin, blocked, release};
use crate::support::Daemon;

#[test]
fn the_tools_can_be_pasted_into_a_messages_request() {
    let daemon = Daemon::start();
    let tools = daemon.get("/tools").json();
    let tools = tools.as_array().expect("a bare array");
    let bash = tools
        .iter()
        .find(|tool| tool["name"] == "bash")
        .expect("bash");
    for tool in tools {
        let mut members: Vec<&String> = tool.as_object().expect("an object").keys().collect();
        members.sort_unstable();
        // The Messages API refuses members it does not know.
        assert_eq!(members, ["description", "input_schema", "name"]);
        assert_eq!(tool["input_schema"]["type"], "object");
        jsonschema::draft202012::meta::validate(&tool["input_schema"]).expect("a schema");
    }
    let schema = jsonschema::validator_for(&bash["input_schema"]).expect("a schema");
    assert!(schema.is_valid(&json!({"command": "df -h"})));
    assert!(!schema.is_valid(&json!({})) && !schema.is_valid(&json!({"command": 1})));
    // The shipped configuration runs bash, and says so.
    assert!(
        bash["description"]
            .as_str()
            .is_some_and(|text| text.contains("/bin/bash"))
    );
}

#[test]
fn a_tool_tells_the_rest() {
    let daemon = Daemon::start();
    let listed = daemon.get("/tools").json()[0].clone();
    let mut shown = daemon.get("/tools/bash").json();
    let members = shown.as_object_mut().expect("an object");
    assert_eq!(
        members.remove("version"),
        Some(json!(env!("CARGO_PKG_VERSION")))
    );
    assert_eq!(members.remove("risk_level"), Some(json!("trusted")));
    assert_eq!(members.remove("output_schema"), Some(Value::Null));
    assert_eq!(members.remove("source"), Some(json!("builtin")));
    assert_eq!(members.remove("category"), Some(json!("shell")));
    assert_eq!(members.remove("timeout_secs"), Some(json!(30.0)));
    assert_eq!(
        members.remove("versions"),
        Some(json!([env!("CARGO_PKG_VERSION")]))
    );
    assert_eq!(shown, listed);
}

#[test]
fn a_tool_is_shown_in_the_version_that_is_asked_for() {
    let daemon = Daemon::start();
    let version = env!("CARGO_PKG_VERSION");
    let shown = daemon.get(&format!("/tools/bash?version={version}"));
    assert_eq!(shown.json(), daemon.get("/tools/bash").json());
    let missing = daemon.get("/tools/bash?version=0.0.0");
    assert_eq!(missing.status, 404);
    let detail = missing.json()["detail"].to_string();
    assert!(
        detail.contains("`0.0.0`") && detail.contains(version),
        "{detail}"
    );
    assert_eq!(daemon.get("/tools/bash?vresion=1").status, 400);
    let mut call = json!({"name": "bash", "input": {"command": "true"}, "tool_version": version});
    assert_eq!(daemon.post(&call).status, 200);
    call["tool_version"] = json!("0.0.0");
    let refused = daemon.post(&call);
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (404, &json!("unknown_tool"))
    );
}

#[test]
fn health_counts_what_runs() {
    let daemon = Daemon::start();
    let health = daemon.get("/health");
    assert_eq!(health.status, 200);
    let health = health.json();
    assert_eq!(health["status"], "ok");
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (&health["running"], &health["problems"]),
        (&json!(0), &json!([]))
    );
    assert!(health["uptime_secs"].as_u64() < Some(60));
    let (script, fifo) = blocked(&daemon, "go");
    let id = begin(&daemon, &script);
    assert_eq!(daemon.get("/health").json()["running"], 1);
    release(&fifo, "on");
    assert_eq!(daemon.ended(&id)["status"], "success");
    daemon.wait_until("nothing runs", || {
        daemon.get("/health").json()["running"] == 0
    });
}

#[test]
fn the_document_is_served_as_it_is_generated() {
    let daemon = Daemon::start();
    let served = daemon.get("/openapi.json");
    assert_eq!(served.header("content-type"), Some("application/json"));
    assert_eq!(served.json(), *crate::support::openapi::DOCUMENT);
}
