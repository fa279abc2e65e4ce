//! A request into the JSON words that HTTP's body has for it, so that both are read by one reader.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::proto::ExecuteToolRequest;
use crate::api::{Code, Refusal};

/// See `CallBody` in `api`; what is absent is left out.
#[derive(Serialize)]
struct Words<'a> {
    name: &'a str,
    input: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_secs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_dir: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    background: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    risk_level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a RawValue>,
}

/// The body that HTTP would have got. The same request makes the same bytes, which an
/// `idempotency-key` is held against.
pub(super) fn body(request: &ExecuteToolRequest) -> Result<Bytes, Refusal> {
    let refused = |refusal: Refusal| refusal.of_call(request.tool_use_id.clone());
    let input = json("input_json", &request.input_json).map_err(refused)?;
    let context = request.context_json.as_deref();
    let context = context.map(|text| json("context_json", text)).transpose();
    if let Some(secs) = request.timeout_secs.filter(|secs| !secs.is_finite()) {
        // JSON has no word for it.
        let detail =
            format!("`timeout_secs`: {secs} is out of range: expected a number of seconds");
        return Err(refused(Refusal::new(Code::MalformedRequest, detail)));
    }
    let words = Words {
        name: &request.tool_name,
        input,
        id: request.tool_use_id.as_deref(),
        tool_version: request.tool_version.as_deref(),
        timeout_secs: request.timeout_secs,
        working_dir: request.working_dir.as_deref(),
        env: request
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect(),
        stdin: request.stdin.as_deref(),
        background: request.background.as_deref(),
        risk_level: request.risk_level.as_deref(),
        workspace: request.workspace.as_deref(),
        session_id: request.session_id.as_deref(),
        tenant_id: request.tenant_id.as_deref(),
        trace_id: request.trace_id.as_deref(),
        context: context.map_err(refused)?,
    };
    match serde_json::to_vec(&words) {
        Ok(body) => Ok(body.into()),
        Err(error) => Err(refused(Refusal::new(Code::Internal, error.to_string()))),
    }
}

/// A refusal without the place in the body that it is about, of which the client knows nothing.
pub(super) fn without_place(mut refusal: Refusal) -> Refusal {
    let is_place = |text: &str| {
        let rest = text.strip_prefix(" at line ");
        let numbers = rest.and_then(|rest| rest.split_once(" column "));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        numbers.is_some_and(|(line, column)| is_number(line) && is_number(column))
    };
    let detail = &mut refusal.detail;
    if let Some(at) = detail
        .rfind(" at line ")
        .filter(|at| is_place(&detail[*at..]))
    {
        detail.truncate(at);
    }
    refusal
}

/// A text that has to be JSON by itself: put into a body as it is, it must not say more than its member.
fn json<'a>(member: &str, text: &'a str) -> Result<&'a RawValue, Refusal> {
    if text.is_empty() {
        let detail = format!(
            "`{member}` is empty: expected a JSON object such as {{\"command\": \"df -h\"}}"
        );
        return Err(Refusal::new(Code::MalformedRequest, detail));
    }
    serde_json::from_str(text).map_err(|error| {
        let detail = format!("`{member}` is no valid JSON: {error}");
        Refusal::new(Code::MalformedRequest, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(input_json: &str) -> ExecuteToolRequest {
        ExecuteToolRequest {
            tool_name: "bash".to_owned(),
            input_json: input_json.to_owned(),
            ..ExecuteToolRequest::default()
        }
    }

    #[test]
    fn what_is_absent_is_left_out() {
        let body = body(&request(r#"{"command": "df -h"}"#)).expect("a body");
        assert_eq!(body, r#"{"name":"bash","input":{"command": "df -h"}}"#);
    }

    #[test]
    fn an_input_says_nothing_beside_itself() {
        for input in [
            r#"{}, "timeout_secs": 1"#,
            r#"{}} {"#,
            "{",
            "",
            " ",
            "{\"a\": \"\t\"}",
        ] {
            let refusal = body(&request(input)).expect_err(input);
            assert_eq!(refusal.code, Code::MalformedRequest, "{input}");
            assert!(refusal.detail.starts_with("`input_json`"), "{refusal:?}");
        }
    }

    #[test]
    fn a_place_is_left_out_and_nothing_else() {
        for (detail, expected) in [
            ("no `x` at line 1 column 20", "no `x`"),
            ("no ` at line 1 column x`", "no ` at line 1 column x`"),
            ("nothing", "nothing"),
        ] {
            let refusal = without_place(Refusal::new(Code::MalformedRequest, detail));
            assert_eq!(refusal.detail, expected);
        }
    }

    #[test]
    fn no_number_is_lost_on_the_way() {
        for secs in [f64::NAN, f64::INFINITY] {
            let request = ExecuteToolRequest {
                timeout_secs: Some(secs),
                ..request("{}")
            };
            let refusal = body(&request).expect_err("no number");
            assert!(refusal.detail.contains("out of range"), "{refusal:?}");
        }
    }
}
