//! What a brain once exchanged with the daemon, field by field through both protocols.
//! `"*"` stands for what differs from run to run: it has to be there.

use serde_json::{Map, Value, json};
use shelly_executor::grpc::proto::{GetToolRequest, Problem, ToolSpec};
use tonic::Request;

use super::connect;
use crate::support::Daemon;
use crate::support::grpc::{Grpc, json_of, problem_of, request_of};

/// What was exchanged; `client.py` replays it as well.
pub const EXCHANGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/grpc/exchange.json");

fn exchanges() -> Vec<Value> {
    let text = std::fs::read_to_string(EXCHANGE).expect("recorded");
    serde_json::from_str(&text).expect("JSON")
}

/// The request as HTTP has it.
fn call_of(request: &Value) -> Value {
    let mut call = request.as_object().expect("an object").clone();
    let input = call.remove("input_json").expect("always there");
    let input: Value = serde_json::from_str(input.as_str().expect("text")).expect("JSON");
    call.insert("input".to_owned(), input);
    if let Some(id) = call.remove("tool_use_id") {
        call.insert("id".to_owned(), id);
    }
    call.into()
}

/// The names of gRPC for what is JSON itself over HTTP.
fn named(mut body: Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    for name in names {
        let value = body.remove(*name).filter(|value| !value.is_null());
        let text = value.map_or(Value::Null, |value| value.to_string().into());
        body.insert(format!("{name}_json"), text);
    }
    body
}

#[track_caller]
fn assert_as_recorded(recorded: &Value, got: &Value, at: &str) {
    match (recorded, got) {
        (Value::String(any), got) if any == "*" => assert!(!got.is_null(), "{at} is not there"),
        (Value::Object(recorded), Value::Object(got)) => {
            let names = |object: &Map<String, Value>| object.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(recorded), names(got), "{at}");
            for (name, recorded) in recorded {
                assert_as_recorded(recorded, &got[name], &format!("{at}.{name}"));
            }
        }
        (recorded, got) => assert_eq!(recorded, got, "{at}"),
    }
}

fn over_grpc(grpc: &Grpc, request: &Value) -> Result<Value, (String, Value)> {
    let message = request_of(&json!({
        "name": request["tool_name"], "input": null, "id": request["tool_use_id"],
        "tool_version": request["tool_version"], "risk_level": request["risk_level"],
        "tenant_id": request["tenant_id"], "trace_id": request["trace_id"],
    }));
    let message = shelly_executor::grpc::proto::ExecuteToolRequest {
        input_json: request["input_json"].as_str().expect("text").to_owned(),
        ..message
    };
    match grpc.execute(message) {
        Ok(answer) => {
            let body = json_of(&answer).as_object().expect("an object").clone();
            let mut body = named(body, &["output"]);
            body.entry("kill").or_insert(Value::Null);
            Ok(body.into())
        }
        Err(status) => {
            let Problem {
                code,
                http_status,
                detail,
                stage,
                tool_use_id,
                execution_id,
                errors,
                judgement_json,
                partial,
            } = problem_of(&status);
            let errors = errors
                .iter()
                .map(|error| json!({"pointer": error.pointer, "detail": error.detail}));
            let problem = json!({
                "code": code, "http_status": http_status, "detail": detail, "stage": stage,
                "tool_use_id": tool_use_id, "execution_id": execution_id,
                "errors": errors.collect::<Vec<_>>(), "judgement_json": judgement_json,
                "partial": partial.as_ref().map(json_of),
            });
            // As `NotFound` is written everywhere but in Rust.
            let mut word = String::new();
            for letter in format!("{:?}", status.code()).chars() {
                if letter.is_uppercase() && !word.is_empty() {
                    word.push('_');
                }
                word.extend(letter.to_uppercase());
            }
            Err((word, problem))
        }
    }
}

fn over_http(daemon: &Daemon, request: &Value) -> Result<Value, Value> {
    let reply = daemon.post(&call_of(request));
    let body = reply.json().as_object().expect("an object").clone();
    if reply.status == 200 {
        let mut body = named(body, &["output"]);
        body.entry("kill").or_insert(Value::Null);
        return Ok(body.into());
    }
    let mut body = named(body, &["judgement"]);
    for other in ["type", "title", "content", "is_error"] {
        body.remove(other);
    }
    let status = body.remove("status").expect("always there");
    body.insert("http_status".to_owned(), status);
    body.entry("errors").or_insert(json!([]));
    body.entry("partial").or_insert(Value::Null);
    Err(body.into())
}

#[test]
fn a_recorded_exchange_is_answered_as_it_was_through_both() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    for exchange in exchanges() {
        let (request, expected) = (&exchange["request"], &exchange["answer"]);
        if exchange["method"] == "GetTool" {
            assert_tool(&daemon, &grpc, request, expected);
            continue;
        }
        let (over_grpc, over_http) = (over_grpc(&grpc, request), over_http(&daemon, request));
        let answers = match (over_grpc, over_http) {
            (Ok(grpc), Ok(http)) => [("gRPC", grpc), ("HTTP", http)].map(|(name, answer)| {
                assert_as_recorded(expected, &answer, name);
                answer
            }),
            (Err((code, grpc)), Err(http)) => {
                assert_eq!(exchange["status"], code, "{grpc}");
                [("gRPC", grpc), ("HTTP", http)].map(|(name, problem)| {
                    assert_as_recorded(&exchange["problem"], &problem, name);
                    problem
                })
            }
            other => panic!("{request}: {other:?}"),
        };
        for answer in answers {
            let Some(id) = answer["execution_id"].as_str() else {
                continue;
            };
            let record = daemon.ended(id);
            for (name, value) in exchange["record"].as_object().expect("recorded") {
                assert_eq!(&record[name], value, "{name} of {record}");
            }
        }
    }
}

fn assert_tool(daemon: &Daemon, grpc: &Grpc, request: &Value, expected: &Value) {
    let name = request["tool_name"].as_str().expect("text").to_owned();
    let version = request["tool_version"].as_str().expect("text").to_owned();
    let body = daemon
        .get(&format!("/tools/{name}?version={version}"))
        .json();
    let body = body.as_object().expect("an object").clone();
    let http = Value::from(named(body, &["input_schema", "output_schema"]));
    let asked = GetToolRequest {
        tool_name: name,
        tool_version: Some(version),
    };
    let path = "/shelly.executor.v1.ToolExecutor/GetTool";
    let spec: ToolSpec = grpc.unary(path, Request::new(asked)).expect("a tool");
    let grpc = json!({
        "name": spec.name, "description": spec.description, "input_schema_json": spec.input_schema_json,
        "version": spec.version, "versions": spec.versions, "risk_level": spec.risk_level,
        "category": spec.category, "timeout_secs": spec.timeout_secs,
        "output_schema_json": spec.output_schema_json, "source": spec.source,
    });
    assert_as_recorded(expected, &http, "HTTP");
    assert_as_recorded(expected, &grpc, "gRPC");
    let schema = |tool: &Value| -> Value {
        serde_json::from_str(tool["input_schema_json"].as_str().expect("text")).expect("JSON")
    };
    assert_eq!(schema(&http), schema(&grpc));
    assert_eq!(http["description"], grpc["description"]);
}

#[test]
fn the_list_is_the_same_as_over_http() {
    use shelly_executor::grpc::proto::{ListToolsRequest, ListToolsResponse};
    let daemon = Daemon::start();
    let path = "/shelly.executor.v1.ToolExecutor/ListTools";
    let list: ListToolsResponse = connect(&daemon)
        .unary(path, Request::new(ListToolsRequest {}))
        .expect("tools");
    let over_grpc = list.tools.iter().map(|tool| {
        let schema: Value = serde_json::from_str(&tool.input_schema_json).expect("JSON");
        json!({"name": tool.name, "description": tool.description, "input_schema": schema})
    });
    assert_eq!(Value::from_iter(over_grpc), daemon.get("/tools").json());
    for tool in &list.tools {
        let shown = daemon.get(&format!("/tools/{}", tool.name)).json();
        assert_eq!(json!(tool.versions), shown["versions"]);
        assert_eq!(json!(tool.source), shown["source"]);
        let output = tool.output_schema_json.as_deref();
        let output = output.map_or(Value::Null, |text| {
            serde_json::from_str(text).expect("JSON")
        });
        assert_eq!(output, shown["output_schema"]);
    }
}
