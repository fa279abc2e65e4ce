//! What a schema that leads to itself has against a value. Looked into as others are, each alternative (`anyOf`,
//! `oneOf`) would say what it has against what is below, and so would those below: 3^n times the same of a tree of n
//! levels, each of one of three kinds.

use std::collections::HashSet;

use jsonschema::{ValidationError, Validator};
use serde_json::{Map, Value, json};

use crate::domain::nests_deeper;

/// How deep a value may be to be told apart by what may look at the same part of it twice on each level.
const LEVELS: usize = 8;

/// Whose value is a schema of something that errors are told of. What is in `if`, `not` and `contains` either fits or
/// does not.
const OF_ONE: [&str; 5] = [
    "additionalProperties",
    "else",
    "items",
    "propertyNames",
    "then",
];

/// Whose value has a schema for each name.
const OF_NAMES: [&str; 5] = [
    "$defs",
    "definitions",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// Such a schema, made so that of its alternatives it is only told whether they fit.
#[derive(Debug)]
pub(super) struct Closed {
    /// None where it does not compile, as with a reference to what is below an alternative.
    validator: Option<Validator>,
    may_look_twice: bool,
}

impl Closed {
    /// That of `document`; `None` where it does not lead to itself, and so is told as it is.
    pub(super) fn of(document: &Value) -> Option<Self> {
        if !leads_to_itself(document) {
            return None;
        }
        let mut closed = document.clone();
        close(&mut closed);
        Some(Self {
            validator: super::validator_of(&closed).ok(),
            may_look_twice: may_look_twice(document),
        })
    }

    /// What is wrong with a value that does not fit; nothing where that cannot be told.
    pub(super) fn errors<'v>(&'v self, value: &'v Value) -> Vec<ValidationError<'v>> {
        match &self.validator {
            Some(_) if self.may_look_twice && nests_deeper(value, LEVELS) => Vec::new(),
            Some(validator) => validator.iter_errors(value).collect(),
            None => Vec::new(),
        }
    }
}

/// Puts `not` of `not` around each alternative: that is what it was, and nobody looks into it for what is wrong.
fn close(schema: &mut Value) {
    let Value::Object(members) = schema else {
        return;
    };
    // What the alternatives have looked at is not known any more.
    members.remove("unevaluatedItems");
    members.remove("unevaluatedProperties");
    for (name, value) in members {
        match name.as_str() {
            "anyOf" | "oneOf" => {
                for schema in value.as_array_mut().into_iter().flatten() {
                    *schema = json!({"not": {"not": schema.take()}});
                }
            }
            "allOf" | "prefixItems" => {
                value.as_array_mut().into_iter().flatten().for_each(close);
            }
            name if OF_ONE.contains(&name) => close(value),
            name if OF_NAMES.contains(&name) => {
                let all = value.as_object_mut().map(Map::values_mut);
                all.into_iter().flatten().for_each(close);
            }
            _ => {}
        }
    }
}

/// Whether a reference leads to what it stands in. In doubt it does.
fn leads_to_itself(document: &Value) -> bool {
    let mut references = Vec::new();
    if !gather(document, &mut references) {
        return true;
    }
    let (mut path, mut done) = (Vec::new(), HashSet::new());
    references
        .into_iter()
        .any(|reference| leads_back(document, reference, &mut path, &mut done))
}

fn leads_back<'d>(
    document: &'d Value,
    reference: &'d str,
    path: &mut Vec<&'d str>,
    done: &mut HashSet<&'d str>,
) -> bool {
    /// So many in a row nobody needs.
    const LONGEST: usize = 256;
    if path.contains(&reference) || path.len() > LONGEST {
        return true;
    }
    if done.contains(reference) {
        return false;
    }
    let target = reference
        .strip_prefix('#')
        .and_then(|pointer| document.pointer(pointer));
    // By another name, or in another document.
    let Some(target) = target else {
        return true;
    };
    let mut references = Vec::new();
    if !gather(target, &mut references) {
        return true;
    }
    path.push(reference);
    let found = references
        .into_iter()
        .any(|reference| leads_back(document, reference, path, done));
    path.pop();
    done.insert(reference);
    found
}

/// All references in `value`; says whether those are all there are.
fn gather<'v>(value: &'v Value, references: &mut Vec<&'v str>) -> bool {
    match value {
        Value::Object(members) => members.iter().all(|(name, value)| match name.as_str() {
            "$dynamicRef" => false,
            "$ref" => {
                references.extend(value.as_str());
                gather(value, references)
            }
            _ => gather(value, references),
        }),
        Value::Array(items) => items.iter().all(|item| gather(item, references)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Whether two parts of it may be about the same part of a value, and both told of.
fn may_look_twice(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            let has = |name: &str| members.contains_key(name);
            let beside = ["properties", "items", "prefixItems", "additionalProperties"];
            [
                "allOf",
                "patternProperties",
                "dependentSchemas",
                "then",
                "else",
            ]
            .into_iter()
            .any(has)
                || has("$ref") && beside.into_iter().any(has)
                || members.values().any(may_look_twice)
        }
        Value::Array(items) => items.iter().any(may_look_twice),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether something depends on what its other parts have looked at.
pub(super) fn looks_at_the_rest(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(name, value)| {
            matches!(name.as_str(), "unevaluatedItems" | "unevaluatedProperties")
                || looks_at_the_rest(value)
        }),
        Value::Array(items) => items.iter().any(looks_at_the_rest),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
