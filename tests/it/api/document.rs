//! The OpenAPI document itself, and that the tests' check of answers against it can fail.

use std::panic::catch_unwind;

use serde_json::{Value, json};

use crate::support::openapi::{DOCUMENT, check_schema};

fn operations() -> impl Iterator<Item = (&'static String, &'static String, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().expect("paths");
    paths.iter().flat_map(|(path, item)| {
        let operations = item.as_object().expect("an item").iter();
        operations.map(move |(method, operation)| (path, method, operation))
    })
}

/// All schemas, wherever in the document.
fn schemas<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    if let Value::Object(object) = value {
        // A member may be called `type` too; its schema is no word and no list of words.
        let typed = object.get("type").is_some_and(|kind| !kind.is_object());
        if typed
            || ["$ref", "anyOf", "allOf"]
                .iter()
                .any(|k| object.contains_key(*k))
        {
            found.push(value);
        }
        object.values().for_each(|value| schemas(value, found));
    } else if let Value::Array(array) = value {
        array.iter().for_each(|value| schemas(value, found));
    }
}

#[test]
fn operations_are_named_tagged_and_described() {
    assert!(
        DOCUMENT["openapi"]
            .as_str()
            .is_some_and(|version| version.starts_with("3.1."))
    );
    let tags: Vec<&Value> = DOCUMENT["tags"]
        .as_array()
        .expect("tags")
        .iter()
        .map(|tag| &tag["name"])
        .collect();
    let mut ids = std::collections::HashSet::new();
    for (path, method, operation) in operations() {
        let what = format!("{method} {path}");
        assert!(
            ids.insert(operation["operationId"].as_str().expect("an id")),
            "{what}"
        );
        assert!(operation["summary"].is_string(), "{what}");
        assert_eq!(
            operation["tags"].as_array().map(Vec::len),
            Some(1),
            "{what}"
        );
        assert!(tags.contains(&&operation["tags"][0]), "{what}");
        // Every parameter in the path is declared as one, and nothing else is.
        let declared: Vec<&str> = operation["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|parameter| parameter["in"] == "path")
            .map(|parameter| parameter["name"].as_str().expect("a name"))
            .collect();
        let in_path: Vec<&str> = path
            .split('/')
            .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
            .collect();
        assert_eq!(declared, in_path, "{what}");
        for (status, response) in operation["responses"].as_object().expect("responses") {
            assert!(
                response["description"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{what} {status}"
            );
            assert!(
                response["content"].is_object() || status == "204",
                "{what} {status}"
            );
        }
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_required_member_exists() {
    let mut found = Vec::new();
    schemas(&DOCUMENT, &mut found);
    assert!(found.len() > 50);
    for schema in found {
        if let Some(reference) = schema["$ref"].as_str() {
            let pointer = reference.strip_prefix('#').expect("a local reference");
            assert!(DOCUMENT.pointer(pointer).is_some(), "{reference}");
        }
        if let (Some(required), Some(properties)) = (
            schema["required"].as_array(),
            schema["properties"].as_object(),
        ) {
            for member in required {
                assert!(
                    properties.contains_key(member.as_str().expect("a name")),
                    "{member}: {schema}"
                );
            }
        }
        jsonschema::draft202012::meta::validate(schema)
            .unwrap_or_else(|error| panic!("{error}: {schema}"));
    }
}

#[test]
fn calls_are_described_as_they_are_read() {
    let config = shelly_executor::ExecutorConfig::default();
    let schema = json!({"$ref": "#/components/schemas/Call", "components": DOCUMENT["components"]});
    let schema = jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .build(&schema)
        .expect("a schema");
    for (call, good) in [
        (json!({"name": "bash", "input": {}}), true),
        (json!({"tool": "bash", "input": {}}), true),
        (
            json!({"tool_name": "bash", "input": {}, "id": "x", "type": "tool_use", "caller": 7, "cache_control": {}}),
            true,
        ),
        (
            json!({"name": "bash", "input": {}, "timeout_secs": 0.5, "working_dir": "/", "env": {"A": "1"}, "stdin": "", "background": "keep"}),
            true,
        ),
        (
            json!({"name": "bash", "input": {}, "id": null, "env": null, "background": null}),
            true,
        ),
        (json!({"name": "bash", "tool": "bash", "input": {}}), false),
        (json!({"input": {}}), false),
        (json!({"name": "bash"}), false),
        (json!({"name": "bash", "input": {}, "no_such": 1}), false),
        (
            json!({"name": "bash", "input": {}, "timeout_secs": 0}),
            false,
        ),
        (
            json!({"name": "bash", "input": {}, "working_dir": "tmp"}),
            false,
        ),
        (json!({"name": "bash", "input": {}, "env": {"A": 1}}), false),
        (json!({"name": "bash", "input": {}, "type": "text"}), false),
        (
            json!({"name": "bash", "input": {}, "background": "no"}),
            false,
        ),
    ] {
        let parsed = shelly_executor::api::parse_call(call.to_string().as_bytes(), &config);
        assert_eq!(schema.is_valid(&call), good, "the document on {call}");
        assert_eq!(parsed.is_ok(), good, "the parser on {call}");
    }
}

#[test]
fn the_check_of_answers_can_fail() {
    let answer = "#/components/schemas/Answer";
    let good = json!({
        "content": "[exit_code]\n0", "is_error": false, "tool_use_id": null,
        "execution_id": "0198c0de-0000-7000-8000-000000000000", "exit_code": 0, "signal": null,
        "oom_killed": false, "duration_ms": 1, "truncated": false, "stdout_bytes": 0,
        "stderr_bytes": 0, "background": [], "usage": {"cpu_ms": 1, "memory_peak_bytes": null},
        "display": {"title": "bash: true", "summary": "", "duration_ms": 1, "exit": "0"},
        "risk_level": "trusted", "sandbox": null,
    });
    check_schema(answer, &good);
    let bad = |change: &dyn Fn(&mut Value)| {
        let mut body = good.clone();
        change(&mut body);
        catch_unwind(|| check_schema(answer, &body)).is_err()
    };
    assert!(bad(&|body| body["undocumented"] = json!(1)));
    assert!(bad(&|body| body["usage"]["undocumented"] = json!(1)));
    assert!(bad(&|body| drop(
        body.as_object_mut().map(|body| body.remove("signal"))
    )));
    assert!(bad(&|body| body["exit_code"] = json!("0")));
    assert!(bad(
        &|body| body["kill"] =
            json!({"by": "magic", "reason": "timeout", "signalled": 1, "survivors": 0})
    ));
    assert!(bad(&|body| body["execution_id"] = json!("7")));
    assert!(bad(&|body| body["background"] = json!([{"pid": 1}])));
}
