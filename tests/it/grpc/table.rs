//! One table of calls that goes through both protocols, which have to agree in every member.

use serde_json::{Value, json};
use tonic::{Code, Request};

use super::connect;
use crate::support::grpc::{Grpc, json_of, problem_json, request_of};
use crate::support::{Daemon, Mode, SLEEPS, bash_call};

/// A call as HTTP has it, and what gRPC has for its status.
struct Case {
    call: Value,
    http: u16,
    grpc: Code,
}

fn case(call: Value, http: u16, grpc: Code) -> Case {
    Case { call, http, grpc }
}

fn bash(command: &str, members: &Value) -> Value {
    bash_call(command, members)
}

/// Members that differ from run to run: that they are there is all that is compared.
fn without_what_differs(mut body: Value) -> Value {
    let known = body.as_object_mut().expect("an object");
    // What only HTTP has: the form of RFC 9457, around the same members.
    known.remove("type");
    known.remove("title");
    for member in ["execution_id", "duration_ms", "usage"] {
        if known.get(member).is_some_and(|value| !value.is_null()) {
            known.insert(member.to_owned(), json!("there"));
        }
    }
    if let Some(display) = known.get_mut("display") {
        display["duration_ms"] = json!("there");
    }
    // Where in its body; a message has none.
    for member in ["detail", "content"] {
        let text = known.get(member).and_then(Value::as_str);
        let cut = text.and_then(|text| text.split_once(" at line 1 column "));
        if let Some((text, _)) = cut.map(|(text, place)| (text.to_owned(), place)) {
            known.insert(member.to_owned(), text.into());
        }
    }
    let background = known.get_mut("background").and_then(Value::as_array_mut);
    for left in background.into_iter().flatten() {
        left["pid"] = json!("there");
    }
    body
}

#[track_caller]
fn assert_agreed(daemon: &Daemon, grpc: &Grpc, case: &Case) {
    let Case {
        call,
        http,
        grpc: code,
    } = case;
    let reply = daemon.post(call);
    let http_body = reply.json();
    assert_eq!(reply.status, *http, "{call}: {http_body}");
    let (got, grpc_body) = match grpc.execute(request_of(call)) {
        Ok(answer) => (Code::Ok, json_of(&answer)),
        Err(status) => (status.code(), problem_json(&status)),
    };
    assert_eq!(got, *code, "{call}: {grpc_body}");
    assert_eq!(
        without_what_differs(grpc_body.clone()),
        without_what_differs(http_body.clone()),
        "{call}"
    );
    let id = |body: &Value| body["execution_id"].as_str().map(str::to_owned);
    let (Some(grpc_id), Some(http_id)) = (id(&grpc_body), id(&http_body)) else {
        return;
    };
    // What is kept of the two is the same as well.
    let [grpc_record, http_record] = [grpc_id, http_id].map(|id| {
        let mut record = daemon.ended(&id);
        let known = record.as_object_mut().expect("an object");
        for member in [
            "execution_id",
            "created_at",
            "started_at",
            "ended_at",
            "stages",
        ] {
            known.remove(member);
        }
        known["result"] = without_what_differs(known["result"].clone());
        record
    });
    assert_eq!(grpc_record, http_record, "{call}");
}

#[test]
fn calls_are_answered_alike() {
    let files = format!(
        "max_output_bytes = 1024\n[files]\nbase_dirs = [{:?}]",
        std::env::temp_dir()
    );
    let daemon = Daemon::start_with(Mode::Group, &files);
    let grpc = connect(&daemon);
    let file = daemon.dir().join("hello");
    std::fs::write(&file, "hello\n").expect("written");
    let all = json!({
        "id": "toolu_01A", "tool_version": "0.1.0", "risk_level": "trusted", "tenant_id": "acme",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "session_id": "s1", "timeout_secs": 20.5,
        "working_dir": "/tmp", "env": {"A": "1", "B": "zwei"}, "stdin": "in", "background": "kill",
        "context": {"config": {"a": [1]}},
    });
    for case in [
        case(bash("echo hi", &json!({})), 200, Code::Ok),
        case(
            bash("pwd; echo $A $B $SHELLY_TENANT_ID; cat", &all),
            200,
            Code::Ok,
        ),
        case(
            bash("echo out; echo err >&2; exit 3", &json!({})),
            200,
            Code::Ok,
        ),
        case(bash("kill -9 $$", &json!({})), 200, Code::Ok),
        case(bash("seq 10000", &json!({})), 200, Code::Ok),
        case(bash("printf 'a\\xffb\\0'", &json!({})), 200, Code::Ok),
        case(
            bash(&format!("sleep 600 & {SLEEPS}; echo left"), &json!({})),
            200,
            Code::Ok,
        ),
        case(
            json!({"name": "execute_command", "input": {"command": "echo hi"}}),
            200,
            Code::Ok,
        ),
        case(
            json!({"name": "read_file", "input": {"file_path": file}}),
            200,
            Code::Ok,
        ),
        case(
            json!({"name": "read_file", "input": {"file_path": daemon.dir().join("none")}}),
            200,
            Code::Ok,
        ),
        case(
            json!({"name": "bahs", "input": {}, "id": "toolu_01B"}),
            404,
            Code::NotFound,
        ),
        case(
            bash("true", &json!({"tool_version": "9.9.9"})),
            404,
            Code::NotFound,
        ),
        case(json!({"name": "", "input": {}}), 404, Code::NotFound),
        case(
            json!({"name": "bash", "input": {}}),
            422,
            Code::InvalidArgument,
        ),
        case(
            json!({"name": "bash", "input": {"command": 7, "more": 1}}),
            422,
            Code::InvalidArgument,
        ),
        case(
            json!({"name": "bash", "input": [1]}),
            422,
            Code::InvalidArgument,
        ),
        case(bash("a\0b", &json!({})), 422, Code::InvalidArgument),
        case(
            bash("true", &json!({"risk_level": "most", "id": "toolu_01C"})),
            400,
            Code::InvalidArgument,
        ),
        case(
            bash("true", &json!({"tenant_id": ""})),
            400,
            Code::InvalidArgument,
        ),
        case(
            bash("true", &json!({"trace_id": "a\tb"})),
            400,
            Code::InvalidArgument,
        ),
        case(
            bash("true", &json!({"timeout_secs": 0.0})),
            400,
            Code::InvalidArgument,
        ),
        case(
            bash("true", &json!({"timeout_secs": 3601.0})),
            400,
            Code::InvalidArgument,
        ),
        case(
            bash("true", &json!({"working_dir": "tmp"})),
            400,
            Code::InvalidArgument,
        ),
        case(
            bash("true", &json!({"env": {"A=B": "x"}})),
            400,
            Code::InvalidArgument,
        ),
        case(
            bash("true", &json!({"background": "stop"})),
            400,
            Code::InvalidArgument,
        ),
        case(
            bash("true", &json!({"context": {"no_such": {}}})),
            400,
            Code::InvalidArgument,
        ),
        case(
            bash("true", &json!({"context": [{}, {"a": 1}]})),
            400,
            Code::InvalidArgument,
        ),
        case(
            bash("echo so far; sleep 600", &json!({"timeout_secs": 2})),
            504,
            Code::DeadlineExceeded,
        ),
    ] {
        assert_agreed(&daemon, &grpc, &case);
    }
}

#[test]
fn what_is_not_permitted_is_refused_alike() {
    let policy = "default = \"allow\"\ndeny = [\"bash(command:rm *)\"]\n";
    let daemon = Daemon::start_under(policy, "[tools]\ndisabled = [\"write_file\"]");
    let grpc = connect(&daemon);
    for case in [
        case(
            bash("rm -r /tmp/x", &json!({"id": "toolu_01A"})),
            403,
            Code::PermissionDenied,
        ),
        case(
            json!({"name": "write_file", "input": {"path": "/tmp/x", "content": ""}}),
            403,
            Code::PermissionDenied,
        ),
        case(bash("echo rm", &json!({})), 200, Code::Ok),
    ] {
        assert_agreed(&daemon, &grpc, &case);
    }
}

#[test]
fn what_is_too_much_says_when_to_come_back() {
    let rate = "[flow]\ncaller_rate = { calls = 1, per_secs = 1000 }\n";
    let daemon = Daemon::start_with(Mode::Group, rate);
    let grpc = connect(&daemon);
    assert_eq!(daemon.bash("true").status, 200);
    let reply = daemon.bash("true");
    assert_eq!(reply.status, 429);
    let secs: i64 = reply
        .header("retry-after")
        .and_then(|secs| secs.parse().ok())
        .expect("seconds");
    let status = grpc.execute(super::bash_only("true")).expect_err("refused");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let details = crate::support::grpc::details(&status);
    let retry = details
        .iter()
        .find(|(kind, _)| kind == "google.rpc.RetryInfo");
    let (_, retry) = retry.expect("when to come back");
    let retry: tonic_types::pb::RetryInfo =
        prost::Message::decode(retry.as_slice()).expect("as it says");
    let told = retry.retry_delay.expect("a time").seconds;
    assert!((secs - 5..=secs).contains(&told), "{told} and {secs}");
    assert_eq!(problem_json(&status)["code"], reply.json()["code"]);
}

#[test]
fn a_status_says_why_in_the_standards_words() {
    let daemon = Daemon::start();
    let status = connect(&daemon).execute(request_of(&json!({"name": "bash", "input": {}})));
    let status = status.expect_err("no command");
    let details = crate::support::grpc::details(&status);
    let find = |wanted: &str| {
        let found = details.iter().find(|(kind, _)| kind == wanted);
        found.unwrap_or_else(|| panic!("no {wanted}")).1.as_slice()
    };
    let info: tonic_types::pb::ErrorInfo =
        prost::Message::decode(find("google.rpc.ErrorInfo")).expect("as it says");
    assert_eq!(info.reason, "INVALID_INPUT");
    assert_eq!(info.domain, "shelly-executor");
    assert_eq!(info.metadata["stage"], "validation");
    let id = &info.metadata["execution_id"];
    assert_eq!(daemon.ended(id)["status"], "failed");
    let bad: tonic_types::pb::BadRequest =
        prost::Message::decode(find("google.rpc.BadRequest")).expect("as it says");
    let violation = &bad.field_violations[0];
    assert_eq!(violation.field, "input_json/command");
    assert_eq!(violation.description, "is required");
}

#[test]
fn an_idempotency_key_is_metadata() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let call = |command: &str| {
        let mut request = Request::new(super::bash_only(command));
        request
            .metadata_mut()
            .insert("idempotency-key", "k1".parse().expect("ASCII"));
        request
    };
    let count = daemon.dir().join("count");
    let command = format!("echo once >>{}; cat {0}", count.display());
    let first = grpc.execute(call(&command)).expect("an answer");
    let again = grpc.execute(call(&command)).expect("the same answer");
    assert_eq!(first, again);
    assert_eq!(std::fs::read_to_string(&count).expect("written"), "once\n");
    let mut events = grpc.stream(call(&command)).expect("a stream");
    let mut last = None;
    while let Some(event) = events.next().expect("no problem") {
        last = Some(event);
    }
    assert_eq!(
        last,
        Some(shelly_executor::grpc::proto::execute_tool_event::Event::Result(first))
    );
    let other = grpc.execute(call("echo other")).expect_err("another call");
    assert_eq!(other.code(), Code::Aborted);
    assert_eq!(problem_json(&other)["code"], "idempotency_conflict");
}

#[test]
fn a_trace_in_message_and_metadata_is_one_or_refused() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let call = |members: &Value| {
        let mut request = Request::new(super::bash("true", members));
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        request
            .metadata_mut()
            .insert("traceparent", parent.parse().expect("ASCII"));
        grpc.execute(request)
    };
    for members in [json!({}), json!({"trace_id": TRACE})] {
        let answer = call(&members).expect("an answer");
        assert_eq!(daemon.ended(&answer.execution_id)["trace_id"], TRACE);
    }
    let status = call(&json!({"trace_id": "another"})).expect_err("two traces");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("traceparent"), "{status:?}");
}
