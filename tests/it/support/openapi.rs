//! Holds answers against the document that describes them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::http::Reply;

/// The document as the daemon serves it.
pub static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::to_value(shelly_executor::api::openapi_document()).expect("the document is JSON")
});

/// The document's schemas, with what they do not name forbidden: a client may ignore a member it
/// does not know, but no answer may have one that is not documented.
static STRICT: LazyLock<Value> = LazyLock::new(|| {
    let mut components = DOCUMENT["components"].clone();
    for (_, schema) in components["schemas"].as_object_mut().expect("schemas") {
        close_members(schema);
    }
    components
});

type Validators = Mutex<HashMap<String, Arc<Validator>>>;
static VALIDATORS: LazyLock<Validators> = LazyLock::new(Mutex::default);

/// Fails when the answer to `method` `target` is not what the document says.
#[track_caller]
pub fn check(method: &str, target: &str, reply: &Reply) {
    let is_json = reply
        .header("content-type")
        .is_some_and(|kind| kind.ends_with("/json") || kind.ends_with("+json"));
    if method == "HEAD" || !is_json {
        return;
    }
    let path = target.split('?').next().unwrap_or_default();
    let Some(operation) = operation(method, path) else {
        check_schema("#/components/schemas/Problem", &reply.json());
        let code = reply.json()["code"].clone();
        assert!(
            matches!(
                (reply.status, code.as_str()),
                (404, Some("not_found"))
                    | (405, Some("method_not_allowed"))
                    | (503, Some("too_many_connections"))
            ),
            "{method} {target} is not documented, and answers {}: {code}",
            reply.status
        );
        return;
    };
    let status = reply.status.to_string();
    let response = &operation["responses"][&status];
    assert!(
        response.is_object(),
        "{method} {target} answers {status}, which is not documented: {}",
        String::from_utf8_lossy(&reply.body)
    );
    let kind = reply.header("content-type").expect("it has one");
    let content = &response["content"][kind];
    assert!(
        content.is_object(),
        "{method} {target} {status} answers {kind}"
    );
    let body = reply.json();
    if let Some(code) = body["code"].as_str() {
        let words = response["description"].as_str().unwrap_or_default();
        assert!(
            words.contains(&format!("`{code}`")),
            "{method} {target} {status}: `{code}` is not documented"
        );
    }
    validate(
        &format!("{method} {path} {status}"),
        &content["schema"],
        &body,
    );
}

/// Fails when `value` is not what the named schema says.
#[track_caller]
pub fn check_schema(reference: &str, value: &Value) {
    validate(reference, &json!({"$ref": reference}), value);
}

/// The operation of a request, whose path may fill in what the document's leaves open.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let paths = DOCUMENT["paths"].as_object().expect("paths");
    let fits = |pattern: &str| {
        let (pattern, path): (Vec<_>, Vec<_>) =
            (pattern.split('/').collect(), path.split('/').collect());
        pattern.len() == path.len()
            && pattern
                .iter()
                .zip(&path)
                .all(|(p, s)| p == s || (p.starts_with('{') && !s.is_empty()))
    };
    let (_, item) = paths.iter().find(|(pattern, _)| fits(pattern))?;
    item.get(method.to_ascii_lowercase())
}

#[track_caller]
fn validate(what: &str, schema: &Value, value: &Value) {
    let validator = validator(schema);
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(
        errors.is_empty(),
        "{what} is not as documented: {errors:#?}\n{value:#}"
    );
}

/// The validator of a schema that refers to the document's components.
fn validator(schema: &Value) -> Arc<Validator> {
    let mut validators = VALIDATORS.lock().unwrap_or_else(|held| held.into_inner());
    let made = validators.entry(schema.to_string()).or_insert_with(|| {
        let mut schema = schema.clone();
        close(&mut schema);
        schema["components"] = STRICT.clone();
        let validator = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .should_validate_formats(true)
            .build(&schema);
        Arc::new(validator.expect("a JSON Schema"))
    });
    Arc::clone(made)
}

/// Forbids what a schema does not name. Not in the parts of an `allOf`, each of which knows only
/// its own members.
fn close(schema: &mut Value) {
    let names_members = ["$ref", "properties", "allOf", "anyOf"]
        .iter()
        .any(|keyword| schema.get(keyword).is_some());
    // A reference to a mere word or to an array has no members to forbid, and does not mind.
    if names_members && schema.get("additionalProperties").is_none() {
        schema["unevaluatedProperties"] = json!(false);
    }
    close_members(schema);
}

fn close_members(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    close_each(object);
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for part in object
            .get_mut(keyword)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            close_members(part);
        }
    }
}

fn close_each(object: &mut Map<String, Value>) {
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(close);
    }
    if let Some(items) = object.get_mut("items") {
        close(items);
    }
}
