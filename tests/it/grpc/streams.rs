//! An execution as it goes.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shelly_executor::grpc::proto::ExecuteToolRequest;
use shelly_executor::grpc::proto::execute_tool_event::Event;
use tonic::Code;

use super::{bash, bash_only, connect};
use crate::support::grpc::{Grpc, json_of, problem_of};
use crate::support::{Daemon, Fifo, Mode};

#[test]
fn output_comes_as_it_is_written_and_the_answer_last() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let fifo = Fifo::new(daemon.dir().join("gate"));
    let script = format!(
        "printf 'a\\xff'; read word < {}; echo $word; echo err >&2; exit 3",
        fifo.path().display()
    );
    let mut events = grpc.stream(bash_only(&script)).expect("a stream");
    let Some(Event::Started(started)) = events.next().expect("no problem") else {
        panic!("the start is first")
    };
    // Before the command goes on.
    let Some(Event::Output(first)) = events.next().expect("no problem") else {
        panic!("output is next")
    };
    assert_eq!(
        (first.stream.as_str(), first.offset, first.data.as_slice()),
        ("stdout", 0, &b"a\xff"[..])
    );
    fifo.reached().say("on");
    let mut streams = BTreeMap::from([("stdout".to_owned(), first.data)]);
    let answer = loop {
        match events.next().expect("no problem").expect("a result") {
            Event::Output(piece) => {
                let stream = streams.entry(piece.stream).or_default();
                assert_eq!(piece.offset, stream.len() as u64);
                stream.extend(piece.data);
            }
            Event::Result(answer) => break answer,
            other @ (Event::Started(_) | Event::ConfirmationRequired(_)) => panic!("{other:?}"),
        }
    };
    assert!(events.next().expect("no problem").is_none());
    assert_eq!(streams["stdout"], b"a\xffon\n");
    assert_eq!(streams["stderr"], b"err\n");
    assert_eq!(answer.execution_id, started.execution_id);
    assert_eq!(answer.exit_code, Some(3));
    assert_eq!(
        json_of(&answer),
        daemon.ended(&started.execution_id)["result"]
    );
}

#[test]
fn a_long_output_ends_at_the_cap() {
    let daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 200_000");
    let grpc = connect(&daemon);
    let mut events = grpc.stream(bash_only("seq 1000000")).expect("a stream");
    let mut streamed = 0;
    while let Some(event) = events.next().expect("no problem") {
        match event {
            Event::Output(piece) => streamed += piece.data.len(),
            Event::Result(answer) => assert!(answer.truncated),
            Event::Started(_) => {}
            Event::ConfirmationRequired(question) => panic!("{question:?}"),
        }
    }
    assert_eq!(streamed, 200_000);
}

/// What is told of a call with a key: the streams, and the answer or the status at the end.
fn keyed(grpc: &Grpc, key: &str, call: ExecuteToolRequest) -> (BTreeMap<String, Vec<u8>>, String) {
    let mut request = tonic::Request::new(call);
    let key = key.parse().expect("ASCII");
    request.metadata_mut().insert("idempotency-key", key);
    let mut events = grpc.stream(request).expect("a stream");
    let mut streams = BTreeMap::<String, Vec<u8>>::new();
    assert!(matches!(events.next(), Ok(Some(Event::Started(_)))));
    loop {
        match events.next() {
            Ok(Some(Event::Output(piece))) => {
                let stream = streams.entry(piece.stream).or_default();
                assert_eq!(piece.offset, stream.len() as u64);
                stream.extend(piece.data);
            }
            Ok(Some(Event::Result(answer))) => return (streams, json_of(&answer).to_string()),
            Ok(other) => panic!("{other:?}"),
            Err(status) => return (streams, status.message().to_owned()),
        }
    }
}

#[test]
fn a_stream_is_repeated_with_what_is_kept_of_its_output() {
    let daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 200_000");
    let grpc = connect(&daemon);
    let late = bash("echo so far; sleep 600", &json!({"timeout_secs": 1}));
    for (key, call, bytes) in [
        (
            "long",
            bash_only("seq 1000000; printf 'a\\xff' >&2"),
            200_000,
        ),
        ("late", late, 7),
    ] {
        let first = keyed(&grpc, key, call.clone());
        assert_eq!(first.0["stdout"].len(), bytes);
        assert!(keyed(&grpc, key, call) == first, "{key}");
    }
}

#[test]
fn what_is_refused_before_the_start_is_a_status_and_no_stream() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let refused = grpc.stream(bash("true", &json!({"tool_version": "9.9.9"})));
    let status = refused.err().expect("a status");
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(problem_of(&status).code, "unknown_tool");
}

#[test]
fn what_ends_at_its_limit_ends_its_stream_with_a_status() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let call = bash("echo so far; sleep 600", &json!({"timeout_secs": 2}));
    let mut events = grpc.stream(call).expect("a stream");
    let mut output = Vec::new();
    let status = loop {
        match events.next() {
            Ok(Some(Event::Output(piece))) => output.extend(piece.data),
            Ok(Some(Event::Started(_))) => {}
            Ok(other) => panic!("{other:?}"),
            Err(status) => break status,
        }
    };
    assert_eq!(output, b"so far\n");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let partial = problem_of(&status).partial.expect("it ran");
    assert_eq!(partial.content, "[stdout]\nso far\n\n[timeout]\n2s");
    assert_eq!(partial.kill.expect("it was killed").reason, "timeout");
}

#[test]
fn a_tool_without_a_process_streams_its_answer() {
    let files = format!("[files]\nbase_dirs = [{:?}]", std::env::temp_dir());
    let daemon = Daemon::start_with(Mode::Group, &files);
    let grpc = connect(&daemon);
    let call = crate::support::grpc::request_of(
        &json!({"name": "list_dir", "input": {"dir_path": daemon.dir()}}),
    );
    let mut events = grpc.stream(call).expect("a stream");
    let mut last = None;
    while let Some(event) = events.next().expect("no problem") {
        last = Some(event);
    }
    let Some(Event::Result(answer)) = last else {
        panic!("{last:?}")
    };
    assert!(!answer.is_error && answer.output_json.is_some());
}

#[test]
fn a_question_is_asked_before_the_start() {
    let policy = "default = \"allow\"\nask = [\"bash(command:marker *)\"]\n";
    let daemon = Daemon::start_under(
        policy,
        "[confirmation]\nself_approval = true\n[access]\napprovers = [\"user:0\"]",
    );
    let grpc = connect(&daemon);
    let mut events = grpc.stream(bash_only("marker x")).expect("a stream");
    let Some(Event::ConfirmationRequired(asked)) = events.next().expect("no problem") else {
        panic!("the question is first")
    };
    let approval: Value = serde_json::from_str(&asked.approval_json).expect("JSON");
    assert_eq!(approval["id"], asked.approval_id);
    assert_eq!(
        approval,
        daemon
            .get(&format!("/approvals/{}", asked.approval_id))
            .json()
    );
    let decision = json!({"decision": "deny", "reason": "not today"}).to_string();
    let path = format!("/approvals/{}", asked.approval_id);
    let decided = daemon
        .connect()
        .request("POST", &path, &[], decision.as_bytes());
    assert_eq!(
        decided.status,
        200,
        "{}",
        String::from_utf8_lossy(&decided.body)
    );
    let status = events.next().expect_err("it was refused");
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(problem_of(&status).code, "user_rejected");
}

#[test]
fn many_at_once_on_one_connection() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let fifo = Fifo::new(daemon.dir().join("gate"));
    // More than are served at once: the others wait with the client.
    let mut calls: Vec<_> = (0..150)
        .map(|number| {
            grpc.begin_execute(bash_only(&format!(
                "echo {number}; {}",
                match number {
                    0 => format!("read _ < {}", fifo.path().display()),
                    _ => "true".to_owned(),
                }
            )))
        })
        .collect();
    let mut first = calls.remove(0);
    for (call, number) in calls.iter_mut().zip(1..) {
        let answer = grpc.end(call).expect("an answer");
        assert_eq!(
            answer.content,
            format!("[stdout]\n{number}\n\n[exit_code]\n0")
        );
    }
    fifo.reached().say("on");
    assert_eq!(grpc.end(&mut first).expect("an answer").exit_code, Some(0));
}
