//! How large a request may be, and how many connections there may be.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{blocked, call};
use crate::support::{Daemon, Mode, wait_for};

const LIMIT: &str = "max_request_bytes = 4096";

#[track_caller]
fn assert_too_large(reply: &crate::support::Reply) {
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["code"]),
        (413, &json!("payload_too_large"))
    );
    assert!(
        body["detail"]
            .as_str()
            .is_some_and(|text| text.contains("4096")),
        "{body}"
    );
}

#[test]
fn a_body_that_is_too_large_is_told_however_it_is_sent() {
    let daemon = Daemon::start_with(Mode::Group, LIMIT);
    let padded = |length: usize| {
        let call = call("true").to_string();
        format!("{call}{}", " ".repeat(length - call.len())).into_bytes()
    };
    let post = |body: &[u8]| daemon.connect().request("POST", "/execute", &[], body);
    assert_eq!(post(&padded(4096)).status, 200);
    assert_too_large(&post(&padded(4097)));
    // A client that sends everything before it reads.
    assert_too_large(&post(&padded(16_000)));
    // The connection goes on.
    let mut connection = daemon.connect();
    assert_too_large(&connection.request("POST", "/execute", &[], &padded(5000)));
    assert_eq!(
        connection
            .request("POST", "/execute", &[], &padded(100))
            .status,
        200
    );
    // In chunks, nothing is announced.
    let mut connection = daemon.connect();
    connection.expect_answer("POST", "/execute");
    connection.write(b"POST /execute HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..5 {
        connection.write(format!("3e8\r\n{}\r\n", " ".repeat(1000)).as_bytes());
    }
    connection.write(b"0\r\n\r\n");
    assert_too_large(&connection.reply());
}

/// What it announces is enough to be refused.
#[test]
fn who_announces_too_much_and_does_not_send_it_is_told() {
    let daemon = Daemon::start_with(Mode::Group, LIMIT);
    let mut connection = daemon.connect();
    connection.expect_answer("POST", "/execute");
    connection.write(b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: 4097\r\n\r\n");
    let reply = connection.reply();
    assert_too_large(&reply);
    assert_eq!(reply.header("connection"), Some("close"));
}

#[test]
fn twenty_mebibytes_are_told_under_the_shipped_limit() {
    let daemon = Daemon::start();
    let mut body = call("true").to_string().into_bytes();
    body.resize(20 << 20, b' ');
    let reply = daemon.connect().request("POST", "/execute", &[], &body);
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (413, &json!("payload_too_large"))
    );
    body.truncate(16 << 20);
    assert_eq!(
        daemon
            .connect()
            .request("POST", "/execute", &[], &body)
            .status,
        200
    );
}

#[test]
fn who_asks_before_sending_is_told_before_sending() {
    let daemon = Daemon::start_with(Mode::Group, LIMIT);
    let ask = |length: usize| {
        let mut connection = daemon.connect();
        connection.expect_answer("POST", "/execute");
        let head = format!(
            "POST /execute HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        );
        connection.write(head.as_bytes());
        connection
    };
    // Nothing of the body was sent.
    assert_too_large(&ask(5000).reply());
    let body = call("echo x").to_string();
    let mut connection = ask(body.len());
    assert_eq!(connection.line(), "HTTP/1.1 100 Continue");
    assert_eq!(connection.line(), "");
    connection.write(body.as_bytes());
    assert_eq!(connection.reply().stdout(), "x");
}

#[test]
fn one_connection_too_many_is_told_so() {
    let daemon = Daemon::start_with(Mode::Group, "max_connections = 3");
    // The connection that saw the daemon start may still have a place.
    let take = || {
        let mut connection = daemon.connect();
        let reply = connection.request("GET", "/health", &[], b"");
        (reply.status == 200).then_some(connection)
    };
    let mut held: Vec<_> = (0..3).map(|_| wait_for("a place", take)).collect();
    for (method, path, body) in [
        ("GET", "/health", Value::Null),
        ("POST", "/execute", call("true")),
    ] {
        let mut connection = daemon.connect();
        let reply = connection.request(method, path, &[], body.to_string().as_bytes());
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (503, &json!("too_many_connections"))
        );
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert_eq!(reply.header("connection"), Some("close"));
        assert!(connection.is_closed());
    }
    // Those that have a place keep it, and one that is given up is taken.
    assert_eq!(held[0].request("GET", "/health", &[], b"").status, 200);
    held.pop();
    wait_for("a place again", take);
}

/// Though they all come between two looks of the daemon, more than it tells at a time.
#[test]
fn however_many_are_too_many_each_is_told_so() {
    let daemon = Daemon::start_with(Mode::Group, "max_connections = 1");
    let _held = wait_for("a place", || {
        let mut connection = daemon.connect();
        let reply = connection.request("GET", "/health", &[], b"");
        (reply.status == 200).then_some(connection)
    });
    daemon.signal(Signal::SIGSTOP);
    let refused = (0..300).map(|_| {
        let mut connection = daemon.connect();
        connection.send("GET", "/health", &[], b"");
        connection
    });
    let refused: Vec<_> = refused.collect();
    daemon.signal(Signal::SIGCONT);
    for mut connection in refused {
        assert_eq!(connection.reply().status, 503);
    }
}

/// Whoever has hung up has no place any more, whatever they were waiting for.
#[test]
fn who_hangs_up_while_waiting_gives_up_its_place() {
    let daemon = Daemon::start_with(Mode::Group, "max_connections = 4");
    let (script, _fifo) = blocked(&daemon, "gate");
    let id = daemon.begin(&script, &json!({}));
    let path = format!("/executions/{id}");
    let keyed = call(&script).to_string();
    let requests = [
        ("GET", format!("{path}?wait=60"), ""),
        ("GET", format!("{path}/output?stream=stderr&wait=60"), ""),
        (
            "GET",
            format!("{path}/output?stream=stderr&follow=true"),
            "",
        ),
        ("GET", "/events".to_owned(), ""),
        ("POST", "/execute".to_owned(), keyed.as_str()),
    ];
    let take = || {
        let mut connection = daemon.connect();
        let reply = connection.request("GET", "/health", &[], b"");
        (reply.status == 200).then_some(connection)
    };
    for (method, path, body) in requests {
        // All places but the one that asks.
        for number in 0..3 {
            let mut connection = wait_for("a place", take);
            let key = format!("{path}-{number}").replace(['/', '?'], "-");
            let headers = [("Idempotency-Key", key.as_str())];
            let headers = if body.is_empty() {
                &[][..]
            } else {
                &headers[..]
            };
            connection.send(method, &path, headers, body.as_bytes());
        }
        let all: Vec<_> = (0..3).map(|_| wait_for("a place again", take)).collect();
        drop(all);
    }
}

/// A call with a key goes on without its client, and so does its place in the queue; the connection does not.
#[test]
fn who_hangs_up_in_the_queue_gives_up_its_place() {
    let daemon = Daemon::start_with(
        Mode::Group,
        "max_connections = 4\n[flow]\nmax_running = 1\n",
    );
    let (script, _fifo) = blocked(&daemon, "gate");
    // It takes longer than anything that is waited for here.
    daemon.begin(&script, &json!({"timeout_secs": 600}));
    let take = || {
        let mut connection = daemon.connect();
        let reply = connection.request("GET", "/health", &[], b"");
        (reply.status == 200).then_some(connection)
    };
    for accept in ["application/json", "text/event-stream"] {
        let mut waiting = Vec::new();
        for number in 0..3 {
            let mut connection = wait_for("a place", take);
            let key = format!("{accept}-{number}");
            let headers = [("Idempotency-Key", key.as_str()), ("Accept", accept)];
            let body = call("true").to_string();
            connection.send("POST", "/execute", &headers, body.as_bytes());
            waiting.push(connection);
        }
        drop(waiting);
        let all: Vec<_> = (0..3).map(|_| wait_for("a place again", take)).collect();
        drop(all);
    }
}

/// A client that sends its headers first would get an error instead of the answer, if the connection were
/// closed before its body comes.
#[test]
fn who_is_refused_early_gets_its_answer_whatever_it_still_sends() {
    let daemon = Daemon::start_with(Mode::Group, "max_connections = 2");
    let body = vec![b'x'; 300_000];
    let mut held = Vec::new();
    for (path, status) in [("/nope", 404), ("/tools", 405), ("/execute", 503)] {
        if status == 503 {
            let place = || {
                let mut connection = daemon.connect();
                let reply = connection.request("GET", "/health", &[], b"");
                (reply.status == 200).then_some(connection)
            };
            held = (0..2).map(|_| wait_for("a place", place)).collect();
        }
        for _ in 0..20 {
            let mut connection = daemon.connect();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            connection.expect_answer("POST", path);
            connection.write(head.as_bytes());
            for piece in body.chunks(100_000) {
                connection.write(piece);
            }
            let reply = connection.reply();
            assert_eq!(reply.status, status, "{path}");
            if status != 503 {
                // All of it was read, so the connection goes on.
                assert_eq!(connection.request("GET", "/health", &[], b"").status, 200);
            }
        }
    }
    drop(held);
}

/// As RFC 9113 has them: how long what follows is, of which kind, with which flags, in which stream.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("short");
    let head = [0, 0, length, kind, flags, 0, 0, 0, stream];
    [&head[..], payload].concat()
}

/// Over HTTP/2 it is the stream that would be reset, which curl and others take for the answer (error 92).
#[test]
fn nor_is_a_stream_of_http2_reset_whose_body_is_still_to_come() {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    let daemon = Daemon::start();
    for path in ["/nope", "/tools", "/execute?x=1"] {
        let mut client = UnixStream::connect(daemon.socket()).expect("the daemon listens");
        // `:method: POST`, `:scheme: http` and `:path` (RFC 7541, appendix A).
        let length = u8::try_from(path.len()).expect("short");
        let headers = [&[0x83, 0x86, 0x04, length], path.as_bytes()].concat();
        let begun = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(SETTINGS, 0, 0, b""),
            frame(HEADERS, END_HEADERS, 1, &headers),
        ];
        client.write_all(&begun.concat()).expect("taken");
        let mut kinds = Vec::new();
        let mut seen = |kind: u8, flags: u8, client: &mut UnixStream| {
            loop {
                let mut head = [0; 9];
                client.read_exact(&mut head).expect("a frame");
                let mut payload =
                    vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
                client.read_exact(&mut payload).expect("a whole frame");
                let is_of_request = head[8] == 1;
                if is_of_request {
                    kinds.push(head[3]);
                }
                if head[3] == kind && head[4] & flags != 0 {
                    return kinds.clone();
                }
            }
        };
        seen(DATA, END_STREAM, &mut client);
        // The answer is there; only now comes the body.
        let rest = [
            frame(DATA, 0, 1, b"{"),
            frame(DATA, END_STREAM, 1, b"}"),
            frame(PING, 0, 0, b"the last"),
        ];
        client.write_all(&rest.concat()).expect("taken");
        let kinds = seen(PING, 1, &mut client);
        assert!(!kinds.contains(&RESET), "{path}: {kinds:?}");
    }
}

/// Who waits for `100 Continue` is told no instead, and that there is no more to come.
#[test]
fn who_is_refused_before_it_sends_is_told_that_the_connection_ends() {
    let daemon = Daemon::start();
    let mut connection = daemon.connect();
    connection.expect_answer("POST", "/nope");
    connection.write(
        b"POST /nope HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    );
    let reply = connection.reply();
    assert_eq!(
        (reply.status, reply.header("connection")),
        (404, Some("close"))
    );
    assert!(connection.is_closed());
}
