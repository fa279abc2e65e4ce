//! What is sent, read by messages that nobody here has compiled: Python's opentelemetry-proto.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{end, id_of};
use crate::support::collector::Collector;
use crate::support::{Daemon, Mode, python_with, skip};

#[test]
fn pythons_messages_read_what_is_sent() {
    let Some(python) = python_with("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    else {
        return skip(
            "spans read by messages from elsewhere, for Python has no opentelemetry-proto (tests/run installs it where it can)",
        );
    };
    let collector = Collector::start();
    let mut daemon = Daemon::start_with(Mode::Group, &collector.toml());
    let id = id_of(&daemon.bash("exit 3").json());
    end(&mut daemon);
    let body = collector.wait_for(1).remove(0).body;
    let mut reader = Command::new(python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/api/tracing/read.py"
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python is there");
    let mut stdin = reader.stdin.take().expect("a pipe");
    stdin.write_all(&body).expect("it reads");
    drop(stdin);
    let output = reader.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let read: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(read["resource"]["service.name"], "shelly-executord");
    assert_eq!(read["scope"], "shelly-executor");
    let spans = read["spans"].as_array().expect("a list");
    assert_eq!(spans.len(), 7);
    let (digits, span) = (id.replace('-', ""), &spans[0]);
    assert_eq!(span["trace_id"], digits);
    assert_eq!(span["span_id"], digits[16..]);
    assert_eq!(span["parent_span_id"], "");
    // Internal, and an error.
    assert_eq!((&span["kind"], &span["status"]), (&json!(1), &json!(2)));
    assert_eq!(span["attributes"]["process.exit.code"], 3);
    assert_eq!(span["attributes"]["shelly.execution.id"], id);
    for stage in &spans[1..] {
        assert_eq!(stage["parent_span_id"], span["span_id"]);
        assert!(stage["nanos"].as_u64() <= span["nanos"].as_u64());
    }
}
