//! `POST /execute`'s body: bytes in, a call or a refusal out.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::object::{Shape, optional_word};
use crate::config::ExecutorConfig;
use crate::domain::{
    Background, Call, CallOptions, RiskLevel, Scope, ScopedValues, TOO_HEAVY, is_too_heavy, unique,
};

/// A tool call in the shape a model emits it, with what a caller may ask for besides.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a tool call")]
#[schema(as = Call)]
pub(super) struct CallBody {
    /// The tool's name.
    #[serde(alias = "tool", alias = "tool_name")]
    #[schema(example = "bash", max_length = 256)]
    name: String,
    /// The tool's input.
    #[serde(deserialize_with = "unique::value")]
    #[schema(value_type = Object, example = json!({"command": "df -h"}))]
    input: Value,
    /// The id of the model's call, handed back with the answer.
    #[schema(max_length = 256)]
    id: Option<String>,
    /// `tool_use`, when a recorded block is sent as it is.
    #[serde(rename = "type", default, deserialize_with = "optional_word")]
    kind: Option<BlockKind>,
    /// Accepted and ignored.
    // Read all the same: what serde skips it does not check to be JSON.
    #[serde(rename = "caller")]
    #[schema(value_type = Value, required = false)]
    _caller: Option<Value>,
    /// Accepted and ignored.
    #[serde(rename = "cache_control")]
    #[schema(value_type = Value, required = false)]
    _cache_control: Option<Value>,
    /// The version of the tool; absent, its default.
    #[schema(max_length = 256)]
    tool_version: Option<String>,
    /// The time limit in seconds, above 0 and at most `max_timeout_secs`.
    #[schema(value_type = Option<f64>, exclusive_minimum = 0.0)]
    timeout_secs: Option<Seconds>,
    /// The absolute directory to run in.
    #[schema(value_type = Option<String>, pattern = "^/")]
    working_dir: Option<String>,
    /// Variables added to the environment.
    #[serde(default, deserialize_with = "unique::optional_members")]
    env: Option<BTreeMap<String, String>>,
    /// Text for standard input.
    stdin: Option<String>,
    /// What becomes of processes that outlive the command.
    #[serde(default, deserialize_with = "optional_word")]
    background: Option<BackgroundWord>,
    /// `untrusted` has it run in the sandbox; `trusted` lowers nothing.
    #[serde(default, deserialize_with = "optional_word")]
    risk_level: Option<RiskLevel>,
    /// A directory that it may write to in the sandbox, at or below one that the configuration allows. It
    /// does not put the call there, and has no effect on one that runs outside.
    #[schema(value_type = Option<String>, pattern = "^/")]
    workspace: Option<String>,
    /// The session the call belongs to: what skills keep for it, later calls of it find. At most 256 bytes.
    #[schema(min_length = 1, max_length = 256)]
    session_id: Option<String>,
    /// On whose behalf the caller calls. At most 256 bytes.
    #[schema(min_length = 1, max_length = 256)]
    tenant_id: Option<String>,
    /// The trace the call belongs to: 32 hexadecimal digits are a W3C trace id, anything else is a name that is kept as it
    /// is, of at most 256 bytes. What `traceparent` says has to be the same.
    #[schema(min_length = 1, max_length = 256)]
    trace_id: Option<String>,
    /// Values for skills, by scope and name.
    #[serde(default, deserialize_with = "context")]
    context: Option<ContextBody>,
}

/// What a call brings along for the skills it leads to.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Context)]
struct ContextBody {
    /// What the caller remembers.
    #[serde(default, deserialize_with = "unique::object")]
    memory: Map<String, Value>,
    /// How it is set up.
    #[serde(default, deserialize_with = "unique::object")]
    config: Map<String, Value>,
    /// What belongs to its session.
    #[serde(default, deserialize_with = "unique::object")]
    session: Map<String, Value>,
    /// What skills leave for one another.
    #[serde(default, deserialize_with = "unique::object")]
    scratch: Map<String, Value>,
}

impl From<ContextBody> for ScopedValues {
    fn from(body: ContextBody) -> Self {
        let all = [
            (Scope::Memory, body.memory),
            (Scope::Config, body.config),
            (Scope::Session, body.session),
            (Scope::Scratch, body.scratch),
        ];
        all.into_iter()
            .filter(|(_, values)| !values.is_empty())
            .collect()
    }
}

/// Reads a context. Serde would take the scopes in their order from an array, too.
fn context<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ContextBody>, D::Error> {
    struct Given(ContextBody);

    impl<'de> Deserialize<'de> for Given {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Object).map(Self)
        }
    }

    struct Object;

    impl<'de> Visitor<'de> for Object {
        type Value = ContextBody;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object such as {\"scratch\": {\"ticket\": 4711}}")
        }

        fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<ContextBody, A::Error> {
            ContextBody::deserialize(MapAccessDeserializer::new(members))
        }
    }

    let given = Option::<Given>::deserialize(deserializer)?;
    Ok(given.map(|Given(body)| body))
}

/// A number of seconds, whole or not.
struct Seconds(f64);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Seconds;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number of seconds")
            }

            fn visit_f64<E>(self, value: f64) -> Result<Seconds, E> {
                Ok(Seconds(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Seconds, E> {
                Ok(Seconds(value as f64))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Seconds, E> {
                Ok(Seconds(value as f64))
            }
        }

        deserializer.deserialize_any(Number)
    }
}

/// The type of the block that a recorded call is.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum BlockKind {
    ToolUse,
}

/// Whether processes that outlive the command are killed, which is the rule, or kept.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = BackgroundPolicy)]
enum BackgroundWord {
    Kill,
    Keep,
}

/// Reads a call. The error says what is wrong and, where that is known, where.
///
/// # Errors
/// What is no JSON (or nests deeper than 128 levels), has unknown or missing members, or values
/// out of range.
pub fn parse_call(body: &[u8], config: &ExecutorConfig) -> Result<Call, String> {
    let body = read(body)?;
    let mut options = CallOptions {
        tool_version: body.tool_version,
        ..CallOptions::default()
    };
    if let Some(Seconds(secs)) = body.timeout_secs {
        options
            .set_timeout_secs(secs, config.max_timeout)
            .map_err(|error| error.to_string())?;
    }
    if let Some(dir) = body.working_dir {
        options
            .set_working_dir(PathBuf::from(dir))
            .map_err(|error| error.to_string())?;
    }
    if let Some(dir) = body.workspace {
        options
            .set_workspace(PathBuf::from(dir))
            .map_err(|error| error.to_string())?;
    }
    options.risk_level = body.risk_level.unwrap_or_default();
    for (name, value) in body.env.unwrap_or_default() {
        options
            .add_env(name, value)
            .map_err(|error| error.to_string())?;
    }
    if let Some(id) = body.session_id {
        options
            .set_session_id(id)
            .map_err(|error| error.to_string())?;
    }
    if let Some(id) = body.tenant_id {
        options
            .set_tenant_id(id)
            .map_err(|error| error.to_string())?;
    }
    if let Some(id) = body.trace_id {
        options
            .set_trace_id(&id)
            .map_err(|error| error.to_string())?;
    }
    options.values = body.context.map(ScopedValues::from).unwrap_or_default();
    options.stdin = body.stdin;
    options.background = match body.background {
        None | Some(BackgroundWord::Kill) => Background::Kill,
        Some(BackgroundWord::Keep) => Background::Keep,
    };
    // Read only to be checked: a block of another type is no call.
    let (None | Some(BlockKind::ToolUse)) = body.kind;
    let call = Call {
        tool: body.name,
        input: body.input,
        tool_use_id: body.id,
        options,
    };
    call.check_names().map_err(|error| error.to_string())?;
    Ok(call)
}

/// The id of a call that could not be read otherwise, so that its refusal can name it.
pub(super) fn tool_use_id(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Id {
        id: Option<String>,
    }
    serde_json::from_slice::<Id>(body).ok()?.id
}

/// What a body should look like.
const CALL: Shape = Shape {
    name: "tool call",
    expected: "expected a tool call such as {\"name\": \"bash\", \"input\": {\"command\": \"df -h\"}}",
};

fn read(body: &[u8]) -> Result<CallBody, String> {
    if is_too_heavy(body) {
        return Err(format!(
            "the body holds {TOO_HEAVY}: send such data as one text, or in a file"
        ));
    }
    CALL.read(body).map_err(|mut why| {
        // The member at fault may have one of its other names.
        if why.contains(": duplicate field `name`") {
            why.push_str(" (`name`, `tool` and `tool_name` are the same)");
        }
        why
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn parse(body: &str) -> Result<Call, String> {
        parse_call(body.as_bytes(), &ExecutorConfig::default())
    }

    #[test]
    fn the_three_forms_of_the_name_are_one() {
        for name in ["name", "tool", "tool_name"] {
            let call = parse(&format!(
                r#"{{"{name}":"bash","input":{{"command":"df -h"}}}}"#
            ));
            assert_eq!(call.expect("a call").tool, "bash");
        }
        let twice = parse(r#"{"name":"bash","tool":"bash","input":{}}"#);
        let twice = twice.expect_err("ambiguous");
        assert!(
            twice.contains("duplicate field") && twice.contains("`tool`"),
            "{twice}"
        );
    }

    #[test]
    fn a_recorded_block_goes_in_unchanged() {
        let call = parse(
            r#"{"type":"tool_use","id":"toolu_01A","name":"bash","input":{"command":"x"},
               "caller":{"type":"direct"},"cache_control":{"type":"ephemeral"}}"#,
        );
        assert_eq!(
            call.expect("a call").tool_use_id.as_deref(),
            Some("toolu_01A")
        );
    }

    /// Found by fuzzing.
    #[test]
    fn what_is_ignored_has_to_be_json_too() {
        let call = |caller: &[u8]| {
            let body = [br#"{"name":"bash","input":{},"caller":"#, caller, br#"}"#].concat();
            parse_call(&body, &ExecutorConfig::default())
        };
        assert!(call(br#""x""#).is_ok());
        for caller in [&b"\"\xB6\""[..], br#""\ud800""#] {
            let refusal = call(caller).expect_err("no JSON");
            assert!(refusal.contains("no valid JSON"), "{refusal}");
        }
    }

    #[test]
    fn a_refused_call_is_still_named() {
        for (body, id) in [
            (
                r#"{"id":"toolu_01A","name":3,"no_such":[]}"#,
                Some("toolu_01A"),
            ),
            (r#"{"id":7}"#, None),
            (r#"{"id":"toolu_01A","name""#, None),
            ("[]", None),
        ] {
            assert_eq!(tool_use_id(body.as_bytes()).as_deref(), id, "{body}");
        }
    }

    #[test]
    fn options_are_read() {
        let call = parse(
            r#"{"name":"bash","input":{},"timeout_secs":0.5,"working_dir":"/tmp","env":{"A":"1"},
               "stdin":"x","background":"keep"}"#,
        )
        .expect("a call");
        assert_eq!(call.options.timeout, Some(Duration::from_millis(500)));
        assert_eq!(call.options.working_dir, Some(PathBuf::from("/tmp")));
        assert_eq!(call.options.env["A"], "1");
        assert_eq!(call.options.stdin.as_deref(), Some("x"));
        assert_eq!(call.options.background, Background::Keep);
    }

    /// A call in which that member is too long.
    fn long_name(member: &str) -> String {
        let mut call = json!({"name": "bash", "input": {}});
        call[member] = "x".repeat(300).into();
        call.to_string()
    }

    #[test]
    fn refusals_name_the_member_and_what_was_expected() {
        for (body, part) in [
            ("", "the body is empty"),
            ("{", "EOF"),
            (
                "[]",
                "the body is no JSON object: expected a tool call such as",
            ),
            (
                r#"["bash",{},null,null,null,null,null,null,null,null,null,null,null,null]"#,
                "no JSON object",
            ),
            ("not json", "no JSON object"),
            (
                r#"{"name":"bash","input":{}} x"#,
                "no valid JSON: trailing characters",
            ),
            (r#"{"name":"bash"}"#, "missing field `input`"),
            (
                r#"{"name":"bash","input":{},"no_such":1}"#,
                "unknown field `no_such`, expected one of `name`",
            ),
            (
                r#"{"name":"bash","input":{},"timeout":1}"#,
                "unknown field `timeout` (did you mean `timeout_secs`?), expected one of `name`",
            ),
            (
                r#"{"name":"bash","input":{},"context":{"session":{},"memry":{}}}"#,
                "(did you mean `memory`?)",
            ),
            (
                r#"{"name":"bash","input":{},"context":5}"#,
                "`context`: invalid type: integer `5`, expected an object such as {\"scratch\"",
            ),
            (
                r#"{"name":"bash","input":{},"type":"text"}"#,
                "expected `tool_use`",
            ),
            (
                r#"{"name":"bash","input":{},"timeout_secs":0}"#,
                "`timeout_secs`: 0 is out of range",
            ),
            (
                r#"{"name":"bash","input":{},"timeout_secs":3601}"#,
                "at most 3600",
            ),
            (
                r#"{"name":"bash","input":{},"timeout_secs":"9"}"#,
                "`timeout_secs`: invalid type: string \"9\", expected a number of seconds",
            ),
            (
                &long_name("name"),
                "`name`: has 300 bytes: expected at most 256",
            ),
            (&long_name("tool_version"), "`tool_version`: has 300 bytes"),
            (&long_name("id"), "`id`: has 300 bytes"),
            (
                r#"{"name":"bash","input":{},"trace_id":"a\tb"}"#,
                "`trace_id`: \"a\\tb\" has control characters",
            ),
            (
                r#"{"name":"bash","input":{},"tenant_id":""}"#,
                "`tenant_id`: has 0 bytes",
            ),
            (
                r#"{"name":"bash","input":{},"working_dir":"tmp"}"#,
                "`working_dir`",
            ),
            (
                r#"{"name":"bash","input":{},"working_dir":5}"#,
                "`working_dir`: invalid type: integer `5`, expected a string",
            ),
            (
                r#"{"name":"bash","input":{},"env":{"":"x"}}"#,
                "needs a name",
            ),
            (r#"{"name":"bash","input":{},"env":{"A=B":"x"}}"#, "A=B"),
            (
                r#"{"name":"bash","input":{"command":"ls","command":"id"}}"#,
                "`input`: duplicate field `command`",
            ),
            (
                r#"{"name":"bash","input":{"a":[{"b":1,"b":1}]}}"#,
                "duplicate field `b`",
            ),
            (
                r#"{"name":"bash","input":{},"env":{"A":"x","A":"y"}}"#,
                "`env`: duplicate field `A`",
            ),
            (
                r#"{"name":"bash","input":{},"context":{"scratch":{"a":1,"a":2}}}"#,
                "duplicate field `a`",
            ),
            (r#"{"name":"bash","input":{},"env":{"A":"\u0000"}}"#, "NUL"),
            (
                r#"{"name":"bash","input":{},"env":{"A":1}}"#,
                "`env.A`: invalid type: integer `1`, expected a string",
            ),
            (
                r#"{"name":"bash","input":{},"background":"stop"}"#,
                "expected `kill` or `keep`",
            ),
            (
                r#"{"name":"bash","input":{},"risk_level":5}"#,
                "`risk_level`: invalid type: integer `5`, expected `trusted` or `untrusted`",
            ),
            (
                r#"{"name":"bash","input":{},"risk_level":{"untrusted":null}}"#,
                "`risk_level`: invalid type: map, expected `trusted` or `untrusted`",
            ),
            (
                r#"{"name":"bash","input":{},"background":{"keep":null}}"#,
                "`background`: invalid type: map, expected `kill` or `keep`",
            ),
            (
                r#"{"name":"bash","input":{},"type":{"tool_use":null}}"#,
                "`type`: invalid type: map, expected `tool_use`",
            ),
            (
                r#"{"name":"bash","input":{},"context":[{},{"a":1}]}"#,
                "`context`: invalid type: sequence, expected an object such as {\"scratch\"",
            ),
            (
                &format!(
                    r#"{{"name":"bash","input":{}1{}}}"#,
                    "[".repeat(200),
                    "]".repeat(200)
                ),
                "recursion limit",
            ),
        ] {
            let refusal = parse(body).expect_err(body);
            assert!(
                refusal.contains(part),
                "{body} gave {refusal:?}, which lacks {part:?}"
            );
        }
    }
}
