//! `skill.json`: what every skill says of itself.

use std::collections::BTreeSet;
use std::path::Path;

use semver::Version;
use serde_json::{Value, json};

use super::document::{Fault, member};
use super::fields::Fields;
use super::files::Dir;
use super::rehearsal::{self, DRY_RUN};
use super::skill::{Mode, Skill};
use super::{composite, modes};
use crate::domain::{RiskLevel, Violation};
use crate::tools::InputSchema;

/// The longest name, as models' interfaces have it.
const NAME_CHARS: usize = 64;

/// A skill's directory, while it is read.
pub(super) struct Place<'p> {
    pub path: &'p Path,
    pub dir: &'p Dir,
    /// What is wrong in other files than `skill.json`: name, line, detail.
    pub elsewhere: Vec<(String, Option<usize>, String)>,
}

/// Which of the three ways a skill works.
#[derive(Clone, Copy)]
enum Kind {
    Code,
    Composite,
    Llm,
}

/// The skill that `value` says, unless too much is missing, and everything that is wrong with it:
/// only one with which nothing is wrong is to be used.
pub(super) fn read(value: &Value, place: &mut Place<'_>) -> (Option<Skill>, Vec<Fault>) {
    let mut fields = match Fields::of("", value) {
        Ok(fields) => fields,
        Err(fault) => return (None, vec![fault]),
    };
    let name = fields.need_text("name").map(str::to_owned);
    let version = fields.need_text("version");
    let version = version.and_then(|text| fields.version("version", text));
    match (&name, &version) {
        (Some(name), _) if !is_name(name) => {
            let detail =
                format!("is {name:?}: expected up to {NAME_CHARS} of a-z, A-Z, 0-9, _ and -");
            fields.wrong("name", detail);
        }
        (Some(name), Some(version)) => check_directory(&mut fields, place.path, name, version),
        _ => {}
    }
    let description = fields.need_text("description").map(str::to_owned);
    let category = fields.text("category").unwrap_or("skill").to_owned();
    let levels = [
        ("trusted", RiskLevel::Trusted),
        ("untrusted", RiskLevel::Untrusted),
    ];
    let risk_level = fields.choice("risk_level", &levels);
    let timeout = fields.timeout();
    let is_composite = fields.says("mode", "composite");
    let input = input(&mut fields, is_composite);
    let output = fields
        .take("output")
        .and_then(|document| schema("output", document, &mut fields));
    let calls = fields.texts("calls").map(BTreeSet::from_iter);
    let mode = mode(&mut fields, place);
    let calls = declared(calls, mode.as_ref(), &mut fields);
    let faults = fields.finish("a skill of this mode");
    let parts = (name, version, description, risk_level, input, mode);
    let (Some(name), Some(version), Some(description), Some(risk_level), Some(input), Some(mode)) =
        parts
    else {
        return (None, faults);
    };
    let skill = Skill {
        name,
        version,
        description,
        category,
        risk_level,
        timeout,
        input,
        output,
        calls,
        mode,
        dir: place.path.to_owned(),
    };
    (Some(skill), faults)
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.len() <= NAME_CHARS && name.bytes().all(is_allowed)
}

fn check_directory(fields: &mut Fields<'_>, path: &Path, name: &str, version: &Version) {
    let found = path.file_name().unwrap_or_default().to_string_lossy();
    let versioned = format!("{name}@{version}");
    if found != name && found != *versioned {
        let detail = format!(
            "is {name:?} in the directory {found:?}: expected that to be called {name:?} or {versioned:?}"
        );
        fields.wrong("name", detail);
    }
}

/// The schema of the input; that of a composite has a member more, by which it is asked what it would do.
fn input(fields: &mut Fields<'_>, is_composite: bool) -> Option<InputSchema> {
    let document = fields.need("input")?;
    if document.get("type") != Some(&json!("object")) {
        fields.wrong(
            "input",
            "is no schema of an object: expected \"type\": \"object\" in it",
        );
        return None;
    }
    if !is_composite {
        return schema("input", document, fields);
    }
    let mut document = document.clone();
    let properties = &mut document["properties"];
    if !properties.is_object() {
        // Where it is something else the schema is none, which is told below.
        if properties.is_null() {
            *properties = json!({});
        }
    } else if properties.get(DRY_RUN).is_some() {
        let detail = format!("has a member `{DRY_RUN}`, which every composite has by itself");
        fields.wrong("input", detail);
    }
    if let Some(properties) = properties.as_object_mut() {
        properties.insert(DRY_RUN.to_owned(), rehearsal::property());
    }
    schema("input", &document, fields)
}

fn schema(name: &str, document: &Value, fields: &mut Fields<'_>) -> Option<InputSchema> {
    match InputSchema::compile(document.clone()) {
        Ok(schema) => {
            fields.faults.extend(wrong_defaults(name, &schema));
            Some(schema)
        }
        Err(violation) => {
            let fault = Fault {
                pointer: member("", name) + &violation.pointer,
                detail: format!("`{name}` is no JSON Schema: {}", violation.detail),
            };
            fields.faults.push(fault);
            None
        }
    }
}

/// Values that a schema puts in the place of others and does not take itself: no caller could mend that.
fn wrong_defaults(name: &str, schema: &InputSchema) -> Vec<Fault> {
    let mut filled = Value::Object(serde_json::Map::new());
    schema.fill_in(&mut filled);
    let violations = schema.violations(&filled).into_iter();
    let is_filled = |violation: &Violation| filled.pointer(&violation.pointer).is_some();
    let wrong =
        violations.filter(|violation| !violation.pointer.is_empty() && is_filled(violation));
    wrong
        .map(|violation| Fault {
            pointer: format!("{}/properties{}", member("", name), violation.pointer),
            detail: format!(
                "the `default` of `{}` {}",
                &violation.pointer[1..],
                violation.detail
            ),
        })
        .collect()
}

fn mode(fields: &mut Fields<'_>, place: &mut Place<'_>) -> Option<Mode> {
    fields.need("mode")?;
    let kinds = [
        ("code", Kind::Code),
        ("composite", Kind::Composite),
        ("llm", Kind::Llm),
    ];
    match fields.choice("mode", &kinds)? {
        Kind::Code => modes::code(fields, place),
        Kind::Composite => composite::read(fields),
        Kind::Llm => modes::llm(fields, place),
    }
}

/// What it may call: what is said, else what its steps call.
fn declared(
    calls: Option<BTreeSet<String>>,
    mode: Option<&Mode>,
    fields: &mut Fields<'_>,
) -> BTreeSet<String> {
    let Some(Mode::Composite { items, .. }) = mode else {
        return calls.unwrap_or_default();
    };
    let steps = items.iter().flat_map(|item| item.steps());
    let tools: BTreeSet<String> = steps.map(|step| step.tool.clone()).collect();
    if let Some(calls) = &calls {
        for tool in tools.difference(calls) {
            fields.wrong(
                "calls",
                format!("does not name {tool:?}, which a step calls"),
            );
        }
    }
    calls.unwrap_or(tools)
}
