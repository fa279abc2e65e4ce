//! Everything that is not an answer: RFC 9457, and a `tool_result` at the same time.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{begin, blocked, call, release};
use crate::support::{Daemon, Mode, Reply, bash_call};

/// Checks what every problem has, and gives its body.
#[track_caller]
fn problem(reply: &Reply, status: u16, code: &str, stage: Option<&str>) -> Value {
    let body = reply.json();
    assert_eq!(reply.status, status, "{body}");
    assert_eq!(
        reply.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(body["type"], "about:blank");
    assert_eq!(body["status"], status);
    assert_eq!(body["code"], code, "{body}");
    assert_eq!(body["stage"], json!(stage), "{body}");
    assert_eq!(body["is_error"], true);
    for member in ["title", "detail", "content"] {
        assert!(
            body[member].as_str().is_some_and(|text| !text.is_empty()),
            "{member}: {body}"
        );
    }
    for member in ["tool_use_id", "execution_id"] {
        assert!(body.get(member).is_some(), "{member}: {body}");
    }
    body
}

/// It may be all of a body of the largest size.
#[test]
fn a_name_that_is_too_long_is_not_handed_back() {
    let daemon = Daemon::start();
    for (length, told) in [(256, true), (257, false), (1_000_000, false)] {
        let id = "x".repeat(length);
        let call = json!({"name": "bash", "input": {}, "no_such": 1, "id": id});
        let body = problem(&daemon.post(&call), 400, "malformed_request", None);
        assert_eq!(body["tool_use_id"], json!(told.then_some(id)), "{length}");
    }
}

#[test]
fn a_malformed_request_is_told_what_is_wrong() {
    let daemon = Daemon::start();
    for (members, part) in [
        (json!({"no_such": 1}), "`no_such`"),
        (json!({"timeout": 5}), "`timeout`"),
        (json!({"type": "text"}), "`tool_use`"),
        (json!({"timeout_secs": 0}), "timeout_secs"),
        (json!({"timeout_secs": -1}), "timeout_secs"),
        // Refused, never clamped.
        (json!({"timeout_secs": 3600.001}), "max_timeout_secs"),
        (json!({"timeout_secs": "5"}), "`timeout_secs`: invalid type"),
        (json!({"working_dir": "tmp"}), "working_dir"),
        (json!({"working_dir": "/a\0b"}), "working_dir"),
        (json!({"env": {"": "x"}}), "env"),
        (json!({"env": {"A=B": "x"}}), "A=B"),
        (json!({"env": {"A": "x\0y"}}), "NUL"),
        (json!({"env": {"A\0": "x"}}), "NUL"),
        (json!({"env": ["A=1"]}), "`env`: invalid type"),
        (json!({"stdin": 7}), "`stdin`: invalid type"),
        (json!({"background": "detach"}), "`kill` or `keep`"),
    ] {
        let mut call = bash_call("true", &members);
        call["id"] = json!("toolu_01A");
        let body = problem(&daemon.post(&call), 400, "malformed_request", None);
        let detail = body["detail"].as_str().expect("a text");
        assert!(detail.contains(part), "{members}: {detail}");
        // Not run, but the brain can still answer its model.
        assert_eq!(body["execution_id"], Value::Null);
        assert_eq!(body["tool_use_id"], "toolu_01A");
        assert_eq!(body["content"], body["detail"]);
    }
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{}",
        "{\"name\": \"bash\"}",
        "\u{feff}{}",
        "{} {}",
    ] {
        let reply = daemon
            .connect()
            .request("POST", "/execute", &[], body.as_bytes());
        problem(&reply, 400, "malformed_request", None);
    }
    let deep = format!(
        r#"{{"name": "bash", "input": {}{}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let reply = daemon
        .connect()
        .request("POST", "/execute", &[], deep.as_bytes());
    problem(&reply, 400, "malformed_request", None);
    // The limit is the operator's.
    let daemon = Daemon::start_with(
        Mode::Group,
        "default_timeout_secs = 1\nmax_timeout_secs = 2",
    );
    let over = daemon.post(&bash_call("true", &json!({"timeout_secs": 2.5})));
    problem(&over, 400, "malformed_request", None);
    let at = daemon.post(&bash_call("true", &json!({"timeout_secs": 2})));
    assert_eq!(at.status, 200);
}

#[test]
fn an_unknown_tool_is_told_its_nearest() {
    let daemon = Daemon::start();
    for (name, hint) in [
        ("bsh", "did you mean `bash`?"),
        ("Bash", "did you mean `bash`?"),
        ("web_search", "GET /tools"),
        ("", "the name of the tool is empty"),
    ] {
        let call = json!({"name": name, "input": {}, "id": "toolu_01A"});
        let body = problem(&daemon.post(&call), 404, "unknown_tool", Some("discovery"));
        let detail = body["detail"].as_str().expect("a text");
        assert!(detail.contains(name) && detail.contains(hint), "{detail}");
        assert_eq!(body["tool_use_id"], "toolu_01A");
        // An execution was opened, and its record says the same.
        let record = daemon.ended(body["execution_id"].as_str().expect("an id"));
        assert_eq!(record["status"], "failed");
        assert_eq!(
            (&record["result"], &record["http_status"]),
            (&body, &json!(404))
        );
        assert_eq!(record["started_at"], Value::Null);
    }
    let shown = daemon.get("/tools/bsh");
    let body = problem(&shown, 404, "unknown_tool", None);
    assert!(
        body["detail"]
            .as_str()
            .is_some_and(|text| text.contains("`bash`"))
    );
}

#[test]
fn an_invalid_input_is_told_by_pointer() {
    let daemon = Daemon::start();
    for (input, pointers) in [
        (json!({}), vec!["/command"]),
        (json!({"command": 3}), vec!["/command"]),
        (json!({"command": "a\0b"}), vec!["/command"]),
        (json!("df -h"), vec![""]),
        (json!(null), vec![""]),
        (
            json!({"a/b": 1, "c~d": 2, "command": null}),
            vec!["/a~1b", "/command", "/c~0d"],
        ),
    ] {
        let reply = daemon.post(&json!({"name": "bash", "input": input}));
        let body = problem(&reply, 422, "invalid_input", Some("validation"));
        let errors = body["errors"].as_array().expect("errors");
        let found: Vec<_> = errors
            .iter()
            .map(|error| error["pointer"].as_str().expect("a pointer"))
            .collect();
        assert_eq!(found, pointers, "{body}");
        assert!(errors.iter().all(|error| error["detail"].is_string()));
        assert!(body.get("exit_code").is_none(), "no process ran: {body}");
    }
}

/// What a problem has once a process ran.
#[track_caller]
fn has_run(body: &Value) {
    for member in [
        "signal",
        "oom_killed",
        "duration_ms",
        "truncated",
        "stdout_bytes",
        "stderr_bytes",
        "background",
        "usage",
    ] {
        assert!(body.get(member).is_some(), "{member}: {body}");
    }
    assert_eq!(body.get("exit_code"), Some(&Value::Null), "{body}");
}

#[test]
fn a_timeout_carries_what_there_was() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let call = bash_call(
            "echo out; echo err >&2; sleep 1000",
            &json!({"timeout_secs": 2.25, "id": "toolu_01A"}),
        );
        let body = problem(&daemon.post(&call), 504, "timeout", Some("execution"));
        has_run(&body);
        assert_eq!(
            body["content"],
            "[stdout]\nout\n\n[stderr]\nerr\n\n[timeout]\n2.25s"
        );
        assert_eq!(body["tool_use_id"], "toolu_01A");
        assert_eq!(body["kill"]["reason"], "timeout");
        assert_eq!(body["kill"]["by"], mode.as_str());
        assert!(body["kill"]["signalled"].as_u64() >= Some(1), "{body}");
        if mode == Mode::Cgroup {
            assert_eq!(body["kill"]["survivors"], 0);
        }
        let record = daemon.ended(body["execution_id"].as_str().expect("an id"));
        assert_eq!(
            (&record["status"], &record["result"]),
            (&json!("timeout"), &body)
        );
    }
    // A whole number of seconds reads as one.
    let daemon = Daemon::start_with(Mode::Group, "default_timeout_secs = 1");
    let body = daemon.bash("sleep 1000").json();
    assert_eq!(body["content"], "[timeout]\n1s");
}

#[test]
fn a_cancelled_call_is_told_to_whoever_waits() {
    let daemon = Daemon::start();
    let (script, _fifo) = blocked(&daemon, "never");
    let id_file = daemon.dir().join("id");
    let mut waiting = daemon.connect();
    let script = format!(
        "echo $SHELLY_EXECUTION_ID > {}; {script}",
        id_file.display()
    );
    waiting.send(
        "POST",
        "/execute",
        &[],
        call(&script).to_string().as_bytes(),
    );
    daemon.wait_until("it runs", || {
        std::fs::read_to_string(&id_file).is_ok_and(|id| id.ends_with('\n'))
    });
    let id = std::fs::read_to_string(&id_file).expect("written");
    let path = format!("/executions/{}", id.trim());
    let cancelled = daemon.connect().request("DELETE", &path, &[], b"");
    assert_eq!(cancelled.status, 200);
    let body = problem(&waiting.reply(), 409, "cancelled", Some("execution"));
    has_run(&body);
    assert!(
        body["content"]
            .as_str()
            .is_some_and(|text| text.ends_with("[cancelled]"))
    );
    assert_eq!(body["kill"]["reason"], "cancelled");
    let record = cancelled.json();
    assert_eq!(
        (&record["status"], &record["http_status"]),
        (&json!("cancelled"), &json!(409))
    );
    assert_eq!(record["result"], body);
}

#[test]
fn what_cannot_be_started_says_why() {
    let daemon = Daemon::start_with(Mode::Group, "shell = \"/nonexistent/shell\"");
    let body = problem(&daemon.bash("true"), 500, "spawn_failed", Some("execution"));
    let detail = body["detail"].as_str().expect("a text");
    assert!(
        detail.contains("/nonexistent/shell") && detail.contains("No such file"),
        "{detail}"
    );
    assert!(body.get("exit_code").is_none(), "no process ran: {body}");
    let daemon = Daemon::start();
    let lost = daemon.post(&bash_call(
        "true",
        &json!({"working_dir": "/nonexistent/dir"}),
    ));
    let body = problem(&lost, 500, "spawn_failed", Some("execution"));
    assert!(
        body["detail"]
            .as_str()
            .is_some_and(|text| text.contains("/nonexistent/dir")),
        "{body}"
    );
}

#[test]
fn what_is_not_there_is_told() {
    let daemon = Daemon::start();
    problem(&daemon.get("/"), 404, "not_found", None);
    problem(&daemon.get("/tools/"), 404, "not_found", None);
    problem(&daemon.get("/execute/"), 404, "not_found", None);
    for id in [
        "0198c0de-0000-7000-8000-000000000000",
        "nonsense",
        "%2e%2e%2fetc",
        "toolu_01A",
    ] {
        let path = format!("/executions/{id}");
        problem(&daemon.get(&path), 404, "unknown_execution", None);
        let output = daemon.get(&format!("{path}/output?stream=stdout"));
        problem(&output, 404, "unknown_execution", None);
        let cancel = daemon.connect().request("DELETE", &path, &[], b"");
        problem(&cancel, 404, "unknown_execution", None);
    }
}

#[test]
fn a_wrong_method_is_told_the_right_ones() {
    let daemon = Daemon::start();
    let id = begin(&daemon, "true");
    for (method, path, allow) in [
        ("GET", "/execute".to_owned(), "POST"),
        ("OPTIONS", "/execute".to_owned(), "POST"),
        ("POST", "/tools".to_owned(), "GET, HEAD"),
        ("DELETE", "/tools/bash".to_owned(), "GET, HEAD"),
        ("PUT", "/health".to_owned(), "GET, HEAD"),
        ("POST", format!("/executions/{id}"), "GET, HEAD, DELETE"),
        ("DELETE", format!("/executions/{id}/output"), "GET, HEAD"),
        ("BREW", "/openapi.json".to_owned(), "GET, HEAD"),
    ] {
        let reply = daemon.connect().request(method, &path, &[], b"");
        problem(&reply, 405, "method_not_allowed", None);
        assert_eq!(reply.header("allow"), Some(allow), "{method} {path}");
    }
    // What Allow says of HEAD is true.
    let head = daemon.connect().request("HEAD", "/health", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn a_path_that_cannot_be_read_is_a_problem_too() {
    let daemon = Daemon::start();
    for path in [
        "/executions/%ff",
        "/executions/%ff/output?stream=stdout",
        "/tools/%ff",
    ] {
        problem(&daemon.get(path), 400, "malformed_request", None);
    }
}

#[test]
fn a_stopping_daemon_says_so() {
    let mut daemon = Daemon::start_with(Mode::Group, "shutdown_grace_secs = 600");
    let (script, fifo) = blocked(&daemon, "go");
    let mut waiting = daemon.connect();
    waiting.send(
        "POST",
        "/execute",
        &[],
        call(&script).to_string().as_bytes(),
    );
    let mut late = daemon.connect();
    daemon.wait_until("it runs", || {
        late.request("GET", "/health", &[], b"").json()["running"] == 1
    });
    daemon.signal(Signal::SIGTERM);
    // The connection is there already; new calls on it are refused, and told when to come again.
    let late_call = bash_call("true", &json!({"id": "toolu_01A"})).to_string();
    let refused = crate::support::wait_for("a refusal", || {
        let reply = late.request("POST", "/execute", &[], late_call.as_bytes());
        (reply.status != 200).then_some(reply)
    });
    let body = problem(&refused, 503, "shutting_down", None);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(body["tool_use_id"], "toolu_01A");
    let health = late.request("GET", "/health", &[], b"").json();
    assert_eq!(health["status"], "degraded");
    assert_eq!(health["problems"][0]["code"], "shutting_down");
    // What runs has its time.
    release(&fifo, "finished");
    assert_eq!(waiting.reply().stdout(), "begun\nfinished");
    assert!(daemon.wait().success());
}
