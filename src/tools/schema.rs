//! Inputs held against JSON Schema 2020-12: every violation by its pointer, defaults filled in,
//! nothing coerced.

mod closed;

use std::sync::OnceLock;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use self::closed::{Closed, looks_at_the_rest};
use crate::domain::Violation;

/// The schema of a type, as a model is shown it: without the names of Rust types.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // The tool has a name and a description of its own.
    schema.remove("title");
    schema.remove("description");
    schema.to_value()
}

/// A tool's input schema, compiled once: at the first input that is held against it, unless
/// somebody did so before. That takes longer than an input does, and looks at the machine.
#[derive(Debug)]
pub(crate) struct InputSchema {
    document: Value,
    /// Else why it does not compile; then nothing fits it.
    validator: OnceLock<Result<Validator, String>>,
    /// What says why something does not fit, if the schema leads to itself; made when something does not.
    closed: OnceLock<Option<Closed>>,
}

impl InputSchema {
    pub(crate) fn new(document: Value) -> Self {
        Self {
            document,
            validator: OnceLock::new(),
            closed: OnceLock::new(),
        }
    }

    /// The schema that `document` is, compiled at once; else why it is none, and where.
    pub(crate) fn compile(document: Value) -> Result<Self, Violation> {
        match validator_of(&document) {
            Ok(validator) => Ok(Self {
                document,
                validator: OnceLock::from(Ok(validator)),
                closed: OnceLock::new(),
            }),
            Err(error) => Err(Violation {
                pointer: error.instance_path().as_str().to_owned(),
                detail: why_none(&error, error.to_string()),
            }),
        }
    }

    /// The schema as it was given.
    pub(crate) fn document(&self) -> &Value {
        &self.document
    }

    /// The members that an input can have by name.
    pub(crate) fn parameters(&self) -> Vec<String> {
        let properties = self.document.get("properties").and_then(Value::as_object);
        properties.map_or_else(Vec::new, |members| members.keys().cloned().collect())
    }

    /// Compiles it.
    pub(crate) fn compiled(&self) -> &Result<Validator, String> {
        self.validator.get_or_init(|| {
            let validator = validator_of(&self.document);
            validator.map_err(|error| why_none(&error, error.masked().to_string()))
        })
    }

    /// Puts the schema's `default` in the place of every member that is not there. Was there one?
    pub(crate) fn fill_in(&self, input: &mut Value) -> bool {
        fill_in(&self.document, input)
    }

    /// Everything in which `input` breaks the schema, by pointer. Texts are not repeated: they
    /// may be secret, and the caller knows them.
    pub(crate) fn violations(&self, input: &Value) -> Vec<Violation> {
        let validator = match self.compiled() {
            Ok(validator) => validator,
            Err(error) => {
                let detail = format!("cannot be checked: the tool's schema is none: {error}");
                return vec![Violation::of_all(detail)];
            }
        };
        if validator.is_valid(input) {
            return Vec::new();
        }
        let closed = self.closed.get_or_init(|| Closed::of(&self.document));
        let errors = match closed {
            Some(closed) => closed.errors(input),
            None => validator.iter_errors(input).collect(),
        };
        let mut all: Vec<Violation> = (errors.iter())
            .flat_map(|error| violations(error, &self.document))
            .collect();
        if all.is_empty() {
            let detail = match looks_at_the_rest(&self.document) {
                true => {
                    "does not fit the schema, or has a member or an item that it has no place for; where is not told of one that leads to itself"
                }
                false => {
                    "does not fit the schema; where is not told of one that leads to itself, and of what nests deeply"
                }
            };
            all.push(Violation::of_all(detail.to_owned()));
        }
        all.sort_by(|a, b| a.pointer.cmp(&b.pointer));
        all
    }
}

/// Why a document is no schema, in the library's words and ours.
fn why_none(error: &ValidationError<'_>, told: String) -> String {
    let is_pattern =
        matches!(error.kind(), ValidationErrorKind::Format { format } if *format == "regex");
    if !is_pattern {
        return told;
    }
    format!(
        "{told}: expected a regular expression without look-around and references to its groups, which may take minutes for a text"
    )
}

/// What holds inputs against `document`. Nothing but the document is read for it. A pattern takes a time that grows as the
/// text does: none that looks around or back, which JSON Schema advises against (Core, section 6.4), and of which a text of
/// some KiB may take minutes.
fn validator_of(document: &Value) -> Result<Validator, ValidationError<'_>> {
    let options = jsonschema::options().with_draft(Draft::Draft202012);
    options
        .with_pattern_options(PatternOptions::regex())
        .build(document)
}

fn fill_in(schema: &Value, value: &mut Value) -> bool {
    let (Some(Value::Object(properties)), Value::Object(members)) =
        (schema.get("properties"), value)
    else {
        return false;
    };
    let mut is_filled = false;
    for (name, schema) in properties {
        match (members.get_mut(name), schema.get("default")) {
            (Some(member), _) => is_filled |= fill_in(schema, member),
            (None, Some(default)) => {
                let mut member = default.clone();
                fill_in(schema, &mut member);
                members.insert(name.clone(), member);
                is_filled = true;
            }
            (None, None) => {}
        }
    }
    is_filled
}

/// One for each member that is missing or too much, at the place of the member.
fn violations(error: &ValidationError<'_>, document: &Value) -> Vec<Violation> {
    let at = error.instance_path().as_str();
    let value = error.instance().as_ref();
    let got = |what: String| format!("{what}: got {}", named(value));
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library's enum, which grows"
    )]
    match error.kind() {
        ValidationErrorKind::Required { property } => vec![Violation {
            pointer: member(at, property.as_str().unwrap_or_default()),
            detail: "is required".to_owned(),
        }],
        ValidationErrorKind::AdditionalProperties { unexpected } => unexpected
            .iter()
            .map(|name| Violation {
                pointer: member(at, name),
                detail: "is not a member of this input".to_owned(),
            })
            .collect(),
        ValidationErrorKind::OneOfNotValid { .. } | ValidationErrorKind::AnyOf { .. } => {
            let of = document.pointer(error.schema_path().as_str());
            let detail = of
                .and_then(words)
                .map(|words| format!("is none of {words}"));
            vec![Violation {
                pointer: at.to_owned(),
                detail: got(detail.unwrap_or_else(|| error.masked().to_string())),
            }]
        }
        ValidationErrorKind::Type { .. } => vec![Violation {
            pointer: at.to_owned(),
            detail: got(error.masked().to_string()),
        }],
        _ => {
            let detail = error.masked().to_string();
            vec![Violation {
                pointer: at.to_owned(),
                detail: if value.is_number() {
                    got(detail)
                } else {
                    detail
                },
            }]
        }
    }
}

/// What a value is, for who sent another than was expected.
fn named(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The values that schemas of one value each stand for, as text.
fn words(schemas: &Value) -> Option<String> {
    let words = schemas.as_array()?.iter().map(|schema| {
        let one = schema.get("const").map(Value::to_string);
        one.or_else(|| match schema.get("enum")?.as_array()?.as_slice() {
            [one] => Some(one.to_string()),
            _ => None,
        })
    });
    Some(words.collect::<Option<Vec<String>>>()?.join(", "))
}

/// A pointer (RFC 6901) to a member of what `at` points to.
pub(in crate::tools) fn member(at: &str, name: &str) -> String {
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointers(schema: &InputSchema, input: &Value) -> Vec<String> {
        let violations = schema.violations(input).into_iter();
        violations.map(|violation| violation.pointer).collect()
    }

    #[test]
    fn every_violation_is_told_by_its_pointer() {
        let schema = InputSchema::new(json!({
            "type": "object",
            "properties": {"command": {"type": "string"}, "n": {"type": "integer", "minimum": 1}},
            "required": ["command"],
            "additionalProperties": false
        }));
        for (input, expected) in [
            (json!({"command": "df -h"}), &[][..]),
            (json!("df -h"), &[""]),
            (json!({}), &["/command"]),
            (json!({"command": 3}), &["/command"]),
            // Nothing is coerced.
            (json!({"command": "x", "n": "3"}), &["/n"]),
            (
                json!({"command": null, "n": 0, "cmd/x": 1}),
                &["/cmd~1x", "/command", "/n"],
            ),
        ] {
            assert_eq!(pointers(&schema, &input), expected, "{input}");
        }
    }

    #[test]
    fn one_of_several_words_is_told_by_the_words() {
        for schema in [
            json!({"oneOf": [{"const": "w", "description": "x"}, {"const": "a"}]}),
            json!({"anyOf": [{"type": "string", "enum": ["w"]}, {"const": "a"}]}),
        ] {
            let schema = InputSchema::new(json!({"properties": {"mode": schema}}));
            let violations = schema.violations(&json!({"mode": "x"}));
            assert_eq!(
                violations[0].detail,
                "is none of \"w\", \"a\": got a string"
            );
        }
        let either =
            json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
        let violations = InputSchema::new(either).violations(&json!({"a": 1}));
        assert!(violations[0].detail.contains("anyOf"), "{violations:?}");
    }

    /// A tree of kinds, each told by a word: what models are given for filters and formulas.
    #[test]
    fn what_is_wrong_deep_in_alternatives_is_told_soon() {
        let kind = |word: &str| {
            json!({"type": "object", "properties": {"op": {"const": word}, "arg": {"$ref": "#/$defs/tree"}},
                "required": ["op", "arg"], "additionalProperties": false})
        };
        let leaf = json!({"type": "object", "properties": {"field": {"type": "string"}}, "required": ["field"]});
        let node = json!({"properties": {"next": {"$ref": "#/$defs/node"}}});
        let document = |tree: Value| {
            json!({"type": "object", "properties": {"filter": {"$ref": "#/$defs/tree"}},
                "$defs": {"tree": tree, "node": node}})
        };
        let nested = |leaf: Value| (0..60).fold(leaf, |arg, _| json!({"op": "any", "arg": arg}));
        let kinds = [kind("not"), kind("all"), kind("any"), leaf];
        for alternatives in ["oneOf", "anyOf"] {
            let schema = InputSchema::new(document(json!({alternatives: kinds.clone()})));
            let good = json!({"filter": nested(json!({"field": "x"}))});
            assert_eq!(schema.violations(&good), []);
            let bad = json!({"filter": nested(json!({"field": 5}))});
            assert_eq!(pointers(&schema, &bad), ["/filter"], "{alternatives}");
        }
        // Nobody would write it so; it is no reason to stand still.
        let arg = || json!({"arg": {"$ref": "#/$defs/tree"}});
        for twice in [
            json!({"allOf": [{"properties": arg()}, {"properties": arg(), "required": ["op"]}]}),
            json!({"properties": arg(), "patternProperties": {"^a": {"$ref": "#/$defs/tree"}}, "required": ["op"]}),
            json!({"properties": arg(), "if": {}, "then": {"properties": arg()}, "required": ["op"]}),
        ] {
            let schema = InputSchema::new(document(twice.clone()));
            let bad = json!({"filter": nested(json!({"field": 5}))});
            let violations = schema.violations(&bad);
            assert!(
                violations[0].detail.contains("does not fit"),
                "{violations:?}"
            );
            assert_eq!(
                pointers(&schema, &json!({"filter": {}}))[0],
                "/filter/op",
                "{twice}"
            );
        }
        // A list is told to its end.
        let list =
            json!({"properties": {"arg": {"$ref": "#/$defs/tree"}, "field": {"type": "string"}}});
        let schema = InputSchema::new(document(list));
        let bad = json!({"filter": nested(json!({"field": 5}))});
        assert!(pointers(&schema, &bad)[0].ends_with("/arg/arg/field"));
    }

    #[test]
    fn what_all_have_to_fit_is_told_in_full() {
        let schema = InputSchema::new(json!({"allOf": [
            {"required": ["a"]}, {"properties": {"b": {"type": "string"}, "oneOf": {"const": [1]}}},
        ], "properties": {"c": {"anyOf": [{"type": "string"}, {"properties": {"d": {"type": "null"}}}]}}}));
        let input = json!({"b": 1, "oneOf": 2, "c": {"d": 1}});
        assert_eq!(pointers(&schema, &input), ["/a", "/b", "/c", "/oneOf"]);
        let schema = InputSchema::new(
            json!({"anyOf": [{"properties": {"a": true}}], "unevaluatedProperties": false}),
        );
        assert_eq!(schema.violations(&json!({"a": 1})), []);
        let violations = schema.violations(&json!({"b": 1}));
        assert!(violations[0].detail.contains("'b'"), "{violations:?}");
        // A pointer into an alternative.
        let schema = InputSchema::new(json!({"properties": {
            "a": {"anyOf": [{"properties": {"b": {"type": "null"}}}]},
            "c": {"$ref": "#/properties/a/anyOf/0/properties/b"},
        }}));
        assert_eq!(pointers(&schema, &json!({"c": 1})), ["/c"]);
        // As long as none leads to itself, references change nothing.
        let schema = InputSchema::new(
            json!({"allOf": [{"$ref": "#/$defs/base"}, {"required": ["x"]}],
            "$defs": {"base": {"required": ["id"], "properties": {"o": {"$ref": "#/$defs/o"}}}, "o": {"type": "object"}}}),
        );
        assert_eq!(pointers(&schema, &json!({"o": 1})), ["/id", "/o", "/x"]);
    }

    #[test]
    fn what_was_got_is_told() {
        let schema = InputSchema::new(json!({"properties": {
            "s": {"type": "string"}, "n": {"type": "integer", "minimum": 1}, "l": {"type": ["string", "null"]},
        }}));
        for (input, told) in [
            (json!({"s": 3}), "value is not of type \"string\": got 3"),
            (
                json!({"s": null}),
                "value is not of type \"string\": got null",
            ),
            (
                json!({"s": {}}),
                "value is not of type \"string\": got an object",
            ),
            (
                json!({"n": "3"}),
                "value is not of type \"integer\": got a string",
            ),
            (
                json!({"n": -2}),
                "value is less than the minimum of 1: got -2",
            ),
            (
                json!({"l": [1]}),
                "value is not of types \"null\", \"string\": got an array",
            ),
        ] {
            let violations = schema.violations(&input);
            assert_eq!(violations[0].detail, told, "{input}");
        }
    }

    #[test]
    fn texts_are_not_repeated() {
        let schema = InputSchema::new(json!({"properties": {"a": {"type": "integer"}}}));
        let [violation] = &schema.violations(&json!({"a": "hunter2"}))[..] else {
            panic!("one violation");
        };
        assert!(!violation.detail.contains("hunter2"), "{violation:?}");
    }

    #[test]
    fn defaults_are_filled_in_also_in_what_they_fill_in() {
        let schema = InputSchema::new(json!({"properties": {
            "a": {"default": {}, "properties": {"b": {"default": 2}}},
            "c": {"type": "string"},
        }}));
        for (given, filled) in [
            (json!({}), json!({"a": {"b": 2}})),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
            (json!({"a": null, "c": "x"}), json!({"a": null, "c": "x"})),
            (json!([]), json!([])),
        ] {
            let mut input = given.clone();
            schema.fill_in(&mut input);
            assert_eq!(input, filled, "{given}");
        }
    }

    #[test]
    fn a_pattern_takes_no_longer_than_the_text_is_long() {
        let schema = |pattern: &str| json!({"properties": {"a": {"pattern": pattern}}});
        for pattern in ["(?=.*[0-9])(?=.*[a-z])", r"(a)\1", "(?<!x)y"] {
            let violation = InputSchema::compile(schema(pattern)).expect_err(pattern);
            assert_eq!(violation.pointer, "/properties/a/pattern");
            assert!(
                violation.detail.contains("without look-around"),
                "{violation:?}"
            );
        }
        let schema = InputSchema::compile(schema("(a|a)*$")).expect("a schema");
        let text = json!({"a": "a".repeat(1 << 20)});
        assert_eq!(schema.violations(&text), []);
    }

    #[test]
    fn nothing_fits_a_schema_that_does_not_compile() {
        let schema = InputSchema::new(json!({"type": "no such type"}));
        let violations = schema.violations(&json!({}));
        assert!(
            violations[0].detail.contains("schema is none"),
            "{violations:?}"
        );
    }
}
