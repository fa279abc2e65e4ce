//! Schemas that say why a value does not fit without looking into each alternative. With all of them looked into, what
//! is wrong at the end of a tree of n levels, each of one of three kinds, is told 3^n times.

use serde_json::{Map, Value, json};

/// Whose value is a schema.
const OF_ONE: [&str; 11] = [
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];

/// Whose value has a schema for each name.
const OF_NAMES: [&str; 5] = [
    "$defs",
    "definitions",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// The same schema, but that of its alternatives it is only told whether they fit: `not` of `not` is what it was, and
/// nobody looks into it for what is wrong. Of what all have to fit it is the same where that may lead to itself.
pub(super) fn closed(document: &Value) -> Value {
    let mut document = document.clone();
    let has = |names: &[&str]| mentions(&document, names);
    let closes_all = has(&["$ref", "$dynamicRef"]);
    let closing = Closing {
        closes_all,
        // What they have looked at is not known behind `not`.
        sees_less: has(&["anyOf", "oneOf"]) || closes_all && has(&["allOf"]),
    };
    closing.schema(&mut document);
    document
}

/// Whether something depends on what its other parts have looked at.
pub(super) fn looks_at_the_rest(document: &Value) -> bool {
    mentions(document, &["unevaluatedItems", "unevaluatedProperties"])
}

struct Closing {
    /// Whether what all have to fit may lead to itself.
    closes_all: bool,
    /// Whether anything is closed.
    sees_less: bool,
}

impl Closing {
    fn schema(&self, schema: &mut Value) {
        let Value::Object(members) = schema else {
            return;
        };
        if self.sees_less {
            members.remove("unevaluatedItems");
            members.remove("unevaluatedProperties");
        }
        for (name, value) in members {
            match name.as_str() {
                "anyOf" | "oneOf" => close(value),
                "allOf" if self.closes_all && value.as_array().is_some_and(|all| all.len() > 1) => {
                    close(value);
                }
                "allOf" | "prefixItems" => {
                    let all = value.as_array_mut();
                    all.into_iter().flatten().for_each(|one| self.schema(one));
                }
                name if OF_ONE.contains(&name) => self.schema(value),
                name if OF_NAMES.contains(&name) => {
                    let all = value.as_object_mut().map(Map::values_mut);
                    all.into_iter().flatten().for_each(|one| self.schema(one));
                }
                _ => {}
            }
        }
    }
}

fn close(schemas: &mut Value) {
    for schema in schemas.as_array_mut().into_iter().flatten() {
        *schema = json!({"not": {"not": schema.take()}});
    }
}

/// Whether a member has one of these names, wherever it is.
fn mentions(value: &Value, names: &[&str]) -> bool {
    match value {
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| names.contains(&name.as_str()) || mentions(value, names)),
        Value::Array(items) => items.iter().any(|item| mentions(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
