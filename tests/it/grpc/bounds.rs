//! What a client may not do, and what it may do besides.

use serde_json::{Value, json};
use shelly_executor::grpc::proto::{ExecuteToolEvent, ExecuteToolResponse};
use tonic::Code;

use super::{bash, bash_only, connect};
use crate::support::grpc::{EXECUTE, STREAM, problem_of, request_of};
use crate::support::{Daemon, Mode, bash_call};

#[test]
fn a_message_that_is_too_large_is_refused() {
    let daemon = Daemon::start_with(Mode::Group, "max_request_bytes = 65536");
    let grpc = connect(&daemon);
    let status = grpc.execute(bash("cat", &json!({"stdin": "x".repeat(70_000)})));
    let status = status.expect_err("too large");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let problem = problem_of(&status);
    assert_eq!(
        (problem.code.as_str(), problem.http_status),
        ("payload_too_large", 413)
    );
    assert!(problem.detail.contains("65536"), "{problem:?}");
    let answer = grpc.execute(bash("wc -c", &json!({"stdin": "x".repeat(60_000)})));
    assert!(answer.expect("an answer").content.contains("60000"));
}

#[test]
fn a_long_message_and_a_long_answer_get_through() {
    let daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 6_000_000");
    let grpc = connect(&daemon);
    let text = "0123456789abcde\n".repeat(300_000);
    let answer = grpc.execute(bash("cat", &json!({"stdin": text})));
    assert_eq!(answer.expect("an answer").stdout_bytes, text.len() as u64);
}

#[test]
fn input_that_is_no_json_is_refused() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    for input in ["", "{", "{}, \"timeout_secs\": 1", "nothing"] {
        let mut request = request_of(&bash_call("true", &json!({})));
        request.input_json = input.to_owned();
        let status = grpc.execute(request).expect_err(input);
        assert_eq!(status.code(), Code::InvalidArgument, "{input}");
        let problem = problem_of(&status);
        assert_eq!(problem.code, "malformed_request");
        assert!(problem.detail.contains("`input_json`"), "{problem:?}");
    }
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let mut request = request_of(&bash_call("true", &json!({})));
    request.input_json = format!("{{\"command\": {deep}}}");
    assert_eq!(
        grpc.execute(request).expect_err("deep").code(),
        Code::InvalidArgument
    );
}

#[test]
fn what_is_no_message_is_refused_like_any_other() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let env = (0..70_000).map(|n| (format!("N{n}"), String::new()));
    let mut request = request_of(&bash_call("true", &json!({})));
    request.env = env.collect();
    let status = grpc.execute(request).expect_err("too many");
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let problem = problem_of(&status);
    assert_eq!(problem.code, "malformed_request");
    assert!(problem.detail.contains("members"), "{problem:?}");
    assert!(grpc.execute(bash_only("true")).is_ok());
}

#[test]
fn http_is_spoken_on_the_same_socket_in_both_versions() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    // While a connection speaks the one, another speaks the other.
    assert!(grpc.execute(bash_only("true")).is_ok());
    assert_eq!(daemon.bash("echo x").stdout(), "x");
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", version, "--unix-socket"])
            .arg(daemon.socket())
            .args(["-w", "\n%{http_version}", "http://shelly/execute", "-d"])
            .arg(bash_call("echo x", &json!({})).to_string());
        let output = curl.output().expect("curl is there");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let (body, spoken) = text.rsplit_once('\n').expect("two lines");
        let body: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(body["content"], "[stdout]\nx\n\n[exit_code]\n0");
        assert!(version.contains(&spoken[..1]), "{spoken} for {version}");
    }
    assert!(grpc.execute(bash_only("true")).is_ok());
}

#[test]
fn grpc_over_the_other_version_says_what_it_takes() {
    let daemon = Daemon::start();
    let kind = [("Content-Type", "application/grpc")];
    let reply = daemon.connect().request("POST", "/execute", &kind, b"{}");
    assert_eq!(reply.status, 400);
    assert!(reply.content().contains("HTTP/2"));
    // What only begins like it is something else.
    let kind = [("Content-Type", "application/grpc-web")];
    let body = bash_call("true", &json!({})).to_string();
    let reply = daemon
        .connect()
        .request("POST", "/execute", &kind, body.as_bytes());
    assert_eq!(reply.status, 200);
}

#[test]
fn a_client_may_begin_slowly() {
    let daemon = Daemon::start();
    // A method that begins as HTTP/2 does.
    let mut connection = daemon.connect();
    for piece in [
        &b"P"[..],
        b"R",
        b"OPFIND / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    ] {
        connection.write(piece);
    }
    assert_eq!(connection.reply_head().status, 404);
    // One that begins so and says no more.
    let mut connection = daemon.connect();
    connection.write(b"PR");
    connection.half_close();
    let _ = connection.drain();
    // And one that goes on as neither.
    let mut connection = daemon.connect();
    connection.write(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\nno frames at all");
    let _ = connection.drain();
    assert_eq!(daemon.bash("echo x").stdout(), "x");
}

#[test]
fn headers_without_end_are_not_kept() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let mut request = tonic::Request::new(bash_only("true"));
    let long = "x".repeat(200_000);
    request
        .metadata_mut()
        .insert("x-long", long.parse().expect("ASCII"));
    assert!(grpc.execute(request).is_err());
    assert!(connect(&daemon).execute(bash_only("true")).is_ok());
}

#[test]
fn who_sends_a_second_message_where_one_is_taken_is_told_so() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let twice = || vec![bash_only("true"), bash_only("true")];
    let executed = grpc.all_at_once::<_, ExecuteToolResponse>(EXECUTE, twice());
    let streamed = grpc.all_at_once::<_, ExecuteToolEvent>(STREAM, twice());
    for status in [executed.err(), streamed.err()] {
        let status = status.expect("a status");
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
        assert!(status.message().contains("second message"), "{status}");
    }
    // None of them has run.
    let history = daemon.get("/executions").json();
    assert_eq!(history["executions"], json!([]), "{history}");
    assert!(grpc.execute(bash_only("true")).is_ok());
}
