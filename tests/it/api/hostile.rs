//! Clients that are broken or mean harm. None of them ends the daemon, or gets in others' way.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::call;
use crate::support::{Daemon, Mode};

/// The daemon goes on, for everybody else.
#[track_caller]
fn still_there(daemon: &Daemon) {
    assert_eq!(daemon.bash("echo x").stdout(), "x");
}

#[test]
fn garbage_is_refused() {
    let daemon = Daemon::start();
    let huge_header = format!(
        "GET /health HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "x".repeat(1 << 20)
    );
    let huge_line = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(1 << 20));
    let many: String = (0..5000).map(|n| format!("X-{n}: y\r\n")).collect();
    let many = format!("GET /health HTTP/1.1\r\nHost: x\r\n{many}\r\n");
    for bytes in [
        &b"\r\n\r\nhello\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nBad Header: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n",
        b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /execute HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"POST /execute HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        &[0xFF; 4096],
        huge_header.as_bytes(),
        huge_line.as_bytes(),
        many.as_bytes(),
    ] {
        let mut connection = daemon.connect();
        connection.write(bytes);
        connection.half_close();
        let answer = connection.drain();
        // Some are merely closed; none is served.
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).unwrap_or("4");
        assert!(
            status.starts_with('4') || status == "505",
            "{:?}: {answer}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(80)])
        );
        still_there(&daemon);
    }
}

/// By RFC 9112, section 3.2: a proxy could not tell where it is to go.
#[test]
fn a_request_names_one_host() {
    let daemon = Daemon::start();
    let status = |head: &str| {
        let mut connection = daemon.connect();
        connection.expect_answer("GET", "/health");
        connection.write(format!("GET /health {head}\r\n\r\n").as_bytes());
        let reply = connection.reply();
        (reply.status, reply.json()["code"].clone())
    };
    let malformed = (400, json!("malformed_request"));
    assert_eq!(status("HTTP/1.1\r\nAccept: */*"), malformed);
    assert_eq!(status("HTTP/1.1\r\nHost: x\r\nHost: y"), malformed);
    assert_eq!(status("HTTP/1.1\r\nHost:"), (200, Value::Null));
    assert_eq!(status("HTTP/1.0"), (200, Value::Null));
    still_there(&daemon);
}

#[test]
fn a_request_that_never_ends_holds_up_nobody() {
    let daemon = Daemon::start();
    let held: Vec<_> = [
        &b""[..],
        b"P",
        b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Le",
        b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"name\"",
        b"POST /execute HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"na",
    ]
    .iter()
    .map(|part| {
        let mut connection = daemon.connect();
        connection.write(part);
        connection
    })
    .collect();
    still_there(&daemon);
    drop(held);
    still_there(&daemon);
}

#[test]
fn a_body_that_breaks_off_runs_nothing() {
    let daemon = Daemon::start();
    let marker = daemon.dir().join("ran");
    let body = call(&format!("touch {}", marker.display())).to_string();
    // All of the JSON is there; what was announced is not.
    let head = format!(
        "POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len() + 1
    );
    let mut half_closed = daemon.connect();
    half_closed.expect_answer("POST", "/execute");
    half_closed.write(format!("{head}{body}").as_bytes());
    half_closed.half_close();
    let answer = String::from_utf8(half_closed.drain()).expect("text");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let chunked = format!(
        "POST /execute HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n",
        body.len()
    );
    still_there(&daemon);
    let baseline = daemon.baseline();
    for bytes in [format!("{head}{body}"), chunked] {
        let mut gone = daemon.connect();
        gone.write(bytes.as_bytes());
        drop(gone);
    }
    still_there(&daemon);
    // The connections with them, so that they were read.
    daemon.wait_clean(&baseline);
    assert!(!marker.exists());
}

#[test]
fn chunks_are_put_together() {
    let daemon = Daemon::start();
    let body = call("echo x").to_string();
    let mut connection = daemon.connect();
    connection.expect_answer("POST", "/execute");
    connection.write(b"POST /execute HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for byte in body.bytes() {
        connection.write(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
    }
    connection.write(b"0\r\nTrailer: x\r\n\r\n");
    assert_eq!(connection.reply().stdout(), "x");
}

/// It would be read as what it is not.
#[test]
fn a_body_that_is_encoded_is_refused_by_name() {
    let daemon = Daemon::start();
    let body = call("echo x").to_string();
    for (name, value) in [
        ("Content-Encoding", "gzip"),
        ("Content-Encoding", "identity, br"),
    ] {
        let headers = [(name, value)];
        let refused = daemon
            .connect()
            .request("POST", "/execute", &headers, body.as_bytes());
        assert_eq!(
            refused.json()["code"],
            "malformed_request",
            "{name}: {value}"
        );
        let detail = refused.json()["detail"].to_string();
        assert!(
            detail.contains(value) && detail.contains("identity"),
            "{detail}"
        );
    }
    let headers = [("Content-Encoding", "Identity")];
    let taken = daemon
        .connect()
        .request("POST", "/execute", &headers, body.as_bytes());
    assert_eq!(taken.stdout(), "x");
    let mut connection = daemon.connect();
    connection.expect_answer("POST", "/execute");
    connection
        .write(b"POST /execute HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n");
    connection.write(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes());
    let refused = connection.reply().json();
    let detail =
        "transfer-encoding is `gzip, chunked`: expected none or `chunked`; send the JSON as it is";
    assert_eq!(refused["detail"], detail);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let daemon = Daemon::start();
    let mut connection = daemon.connect();
    for number in 0..20 {
        let body = call(&format!("echo {number}")).to_string();
        connection.send("POST", "/execute", &[], body.as_bytes());
        connection.send("GET", "/tools", &[], b"");
    }
    for number in 0..20 {
        assert_eq!(connection.reply().stdout(), number.to_string());
        assert_eq!(connection.reply().status, 200);
    }
}

#[test]
fn old_clients_are_served() {
    let daemon = Daemon::start();
    let body = call("echo x").to_string();
    let mut connection = daemon.connect();
    connection.expect_answer("POST", "/execute");
    connection.write(
        format!(
            "POST /execute HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
    assert_eq!(connection.reply().stdout(), "x");
    assert!(connection.is_closed());
}

#[test]
fn many_clients_that_vanish_leave_nothing() {
    let daemon = Daemon::start();
    let body = call("sleep 1000").to_string();
    let head = format!(
        "POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let request = format!("{head}{body}").into_bytes();
    // At every stage: in the head, in the body, right after.
    for cut in (0..=request.len()).step_by(7).chain([request.len()]) {
        daemon.connect().write(&request[..cut]);
    }
    daemon.wait_until("nothing runs", || {
        daemon.get("/health").json()["running"] == 0 && daemon.processes().is_empty()
    });
    still_there(&daemon);
}

/// A few bytes of JSON can take hundreds when they are read.
#[test]
fn a_body_of_very_many_values_is_refused_before_it_is_read() {
    let daemon = Daemon::start();
    let before = daemon.reset_peak();
    for value in [r#"{"":1}"#, r#"[{"a":[1,2]}]"#, "1"] {
        let count = (4 << 20) / value.len();
        let many = vec![value; count].join(",");
        let body = format!(
            r#"{{"name":"check_condition","input":{{"condition":"1","context":{{"d":[{many}]}}}}}}"#
        );
        let reply = daemon
            .connect()
            .request("POST", "/execute", &[], body.as_bytes());
        assert_eq!(reply.status, 400, "{value}");
        let detail = reply.json()["detail"].to_string();
        assert!(detail.contains("65,000 objects"), "{detail}");
    }
    let grown = daemon.memory("VmHWM").saturating_sub(before);
    assert!(grown < 64 << 20, "grew by {grown} bytes");
    // As many bytes of text are welcome.
    let script = format!("#{}\necho hi", "{,[".repeat(1 << 20));
    assert_eq!(daemon.bash(&script).stdout(), "hi");
}

/// Each member costs the same, however many there are: what takes a minute when each is held against all
/// others is over at once.
#[test]
fn a_call_of_very_many_members_holds_nobody_up() {
    // bash itself takes its time for so many variables, which is not what is measured.
    let daemon = Daemon::start_with(Mode::Group, "shell = \"/bin/sh\"");
    let many = |count: usize| -> Value {
        let members = (0..count).map(|n| (format!("N{n}"), json!("")));
        members.collect::<serde_json::Map<_, _>>().into()
    };
    for (call, status) in [
        (
            json!({"name": "check_condition", "input": {"condition": "True"}, "context": {"scratch": many(40_000)}}),
            200,
        ),
        (
            json!({"name": "bash", "input": {"command": "true"}, "env": many(4_096)}),
            200,
        ),
        // Of an environment there is no need for as many.
        (
            json!({"name": "bash", "input": {"command": "true"}, "env": many(4_097)}),
            400,
        ),
        (
            json!({"name": "bash", "input": {"command": "true"}, "env": many(40_000)}),
            400,
        ),
    ] {
        let begun = Instant::now();
        let reply = daemon.post(&call);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "{took:?}");
        assert_eq!(reply.status, status, "{}", reply.content());
    }
    still_there(&daemon);
}

/// A mistake is told in a few words, however long what it is about; and nothing else waits meanwhile.
#[test]
fn no_mistake_is_told_in_megabytes() {
    let daemon = Daemon::start();
    let long = "x".repeat(4_000_000);
    let input = json!({"command": "true"});
    for (call, status) in [
        (json!({"name": &long, "input": {}}), 400),
        (json!({"name": "bash", "input": &input, "id": &long}), 400),
        (
            json!({"name": "bash", "input": &input, "tool_version": &long}),
            400,
        ),
        (json!({"name": "bash", "input": &input, &*long: 1}), 400),
        (
            json!({"name": "bash", "input": &input, "background": &long}),
            400,
        ),
        (
            json!({"name": "bash", "input": &input, "timeout_secs": &long}),
            400,
        ),
        (
            json!({"name": "bash", "input": &input, "env": {&*long: 1}}),
            400,
        ),
        (
            json!({"name": "bash", "input": &input, "working_dir": format!("/{long}")}),
            400,
        ),
        (
            json!({"name": "bash", "input": {"command": "true", &*long: 1}}),
            422,
        ),
        (
            json!({"name": "read_file", "input": {"file_path": format!("/{long}")}}),
            403,
        ),
        (
            json!({"name": "execute_command", "input": {"command": "true", "cwd": format!("/{long}")}}),
            422,
        ),
    ] {
        let reply = daemon.post(&call);
        let body = reply.content();
        assert_eq!(reply.status, status, "{}", &body[..body.len().min(200)]);
        assert!(body.len() < 40_000, "{} bytes of {status}", body.len());
    }
    let log = daemon.log();
    let longest = log.lines().map(str::len).max();
    assert!(longest < Some(20_000), "{longest:?}");
    still_there(&daemon);
}
