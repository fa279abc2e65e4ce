//! `Prefer: respond-async`, the record of an execution, and its cancelling.

use serde_json::{Value, json};

use super::{begin, blocked, call, release};
use crate::support::{Daemon, Mode, Process, bash_call, wait_for};

/// RFC 3339, UTC, milliseconds.
fn is_timestamp(value: &Value) -> bool {
    let shape: Option<String> = value.as_str().map(|text| {
        let digit = |c: char| if c.is_ascii_digit() { '0' } else { c };
        text.chars().map(digit).collect()
    });
    shape.as_deref() == Some("0000-00-00T00:00:00.000Z")
}

#[test]
fn what_a_preference_quotes_is_none_of_its_own() {
    let daemon = Daemon::start();
    let body = bash_call("echo x", &json!({})).to_string();
    for prefer in [
        r#"foo="a, respond-async; b""#,
        r#"foo="\", respond-async, \"""#,
    ] {
        let headers = [("Prefer", prefer)];
        let reply = daemon
            .connect()
            .request("POST", "/execute", &headers, body.as_bytes());
        assert_eq!(
            (reply.status, reply.stdout().as_str()),
            (200, "x"),
            "{prefer}"
        );
    }
}

#[test]
fn options_of_a_call_do_not_stand_in_the_query() {
    let daemon = Daemon::start();
    let body = bash_call("echo x", &json!({})).to_string();
    for (method, path) in [("POST", "/execute?timeout_secs=1"), ("GET", "/tools?x=1")] {
        let reply = daemon.connect().request(method, path, &[], body.as_bytes());
        assert_eq!(reply.status, 400, "{path}");
        assert!(
            reply.content().contains("the query cannot be read"),
            "{}",
            reply.content()
        );
    }
}

#[test]
fn a_call_may_be_answered_at_once() {
    let daemon = Daemon::start();
    let (script, fifo) = blocked(&daemon, "go");
    let body = bash_call(&script, &json!({"id": "toolu_01A"})).to_string();
    let headers = [("Prefer", "wait=5, Respond-Async; x=1")];
    let reply = daemon
        .connect()
        .request("POST", "/execute", &headers, body.as_bytes());
    assert_eq!(reply.status, 202);
    assert_eq!(reply.header("preference-applied"), Some("respond-async"));
    let record = reply.json();
    let id = record["execution_id"].as_str().expect("an id");
    let location = format!("/executions/{id}");
    assert_eq!(reply.header("location"), Some(location.as_str()));
    assert_eq!(record["status"], "running");
    assert_eq!(
        (&record["tool"], &record["caller_uid"]),
        (&json!("bash"), &json!(nix::unistd::geteuid().as_raw()))
    );
    for member in ["ended_at", "http_status", "result"] {
        assert_eq!(record[member], Value::Null, "{member}");
    }
    let running = wait_for("it starts", || {
        let record = daemon.get(&location).json();
        record["started_at"].is_string().then_some(record)
    });
    assert_eq!(
        (&running["status"], &running["result"]),
        (&json!("running"), &Value::Null)
    );
    let stages = running["stages"].as_array().expect("stages");
    let last = stages.last().expect("one it is in");
    assert_eq!(
        (&last["name"], last.get("ended_at")),
        (&json!("execution"), Some(&Value::Null))
    );
    release(&fifo, "on");
    let record = daemon.ended(id);
    assert_eq!(
        (&record["status"], &record["http_status"]),
        (&json!("success"), &json!(200))
    );
    assert_eq!(
        record["result"]["content"],
        "[stdout]\nbegun\non\n\n[exit_code]\n0"
    );
    assert_eq!(record["result"]["tool_use_id"], "toolu_01A");
    for member in ["created_at", "started_at", "ended_at"] {
        assert!(is_timestamp(&record[member]), "{member}: {record}");
    }
    // As texts of one form they sort by time.
    let times: Vec<_> = ["created_at", "started_at", "ended_at"]
        .map(|m| record[m].to_string())
        .into();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn a_record_holds_exactly_what_the_call_was_answered() {
    let daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 20000");
    for (script, status, code) in [
        ("echo hello", "success", 200),
        ("echo oops >&2; exit 3", "error", 200),
        ("kill -9 $$", "error", 200),
        ("printf 'a\\377b\\0c'", "success", 200),
        // Long enough to be kept on disk, and cut.
        ("seq 1 20000", "success", 200),
        ("seq 1 1500; sleep 1000", "timeout", 504),
    ] {
        let limit = if code == 504 { 1 } else { 30 };
        let reply = daemon.post(&bash_call(script, &json!({"timeout_secs": limit})));
        assert_eq!(reply.status, code, "{script}");
        let id = reply.json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        // The text may move to disk between the two readings.
        for _ in 0..2 {
            let record = daemon.get(&format!("/executions/{id}"));
            assert_eq!(record.json()["status"], status, "{script}");
            assert_eq!(record.json()["http_status"], code);
            let result = [b"\"result\":", reply.body.as_slice(), b"}"].concat();
            assert!(
                record.body.ends_with(&result),
                "{script}: {} does not end in {}",
                String::from_utf8_lossy(&record.body),
                String::from_utf8_lossy(&result)
            );
        }
    }
}

#[test]
fn waiting_is_bounded_and_its_bounds_are_told() {
    let daemon = Daemon::start();
    let (script, fifo) = blocked(&daemon, "go");
    let id = begin(&daemon, &script);
    for wait in ["0", "0.01"] {
        let record = daemon.get(&format!("/executions/{id}?wait={wait}")).json();
        assert_eq!(record["status"], "running", "{wait}");
    }
    for (query, part) in [
        (
            "wait=61",
            "`wait`: 61 is out of range: expected seconds from 0 to 60",
        ),
        ("wait=-1", "`wait`: -1 "),
        ("wait=NaN", "`wait`: NaN "),
        (
            "wait=soon",
            "`wait`: \"soon\" is no number: expected seconds",
        ),
        ("wait=", "`wait`: \"\" is no number"),
        ("hold=1", "`hold`"),
        ("wait=1&wait=2", "duplicate field `wait`"),
    ] {
        let reply = daemon.get(&format!("/executions/{id}?{query}"));
        assert_eq!(reply.status, 400, "{query}: {}", reply.json());
        assert_eq!(reply.json()["code"], "malformed_request");
        let detail = reply.content();
        assert!(detail.contains(part), "{query}: {detail}");
    }
    // Whoever waits is answered at the end, not after the wait.
    let mut waiting = daemon.connect();
    waiting.send("GET", &format!("/executions/{id}?wait=60"), &[], b"");
    release(&fifo, "on");
    let begun = std::time::Instant::now();
    assert_eq!(waiting.reply().json()["status"], "success");
    assert!(begun.elapsed().as_secs() < 30);
}

#[test]
fn cancelling_answers_when_the_tree_is_dead() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 100");
        // It ignores the polite request, and so does its child.
        let id = begin(
            &daemon,
            "trap '' TERM; sleep 1000 & echo $$ $!; wait; sleep 1000",
        );
        let output = format!("/executions/{id}/output?stream=stdout");
        let pids = wait_for("both run", || {
            let text = String::from_utf8(daemon.get(&output).body).expect("digits");
            text.ends_with('\n').then_some(text)
        });
        let path = format!("/executions/{id}");
        let cancelled = daemon.connect().request("DELETE", &path, &[], b"");
        for pid in pids.split_whitespace() {
            assert!(!Process::lives(pid.parse().expect("a pid")), "{pid}");
        }
        let record = cancelled.json();
        assert_eq!(record["status"], "cancelled", "{record}");
        assert!(record["ended_at"].is_string());
        assert_eq!(record["result"]["signal"]["name"], "SIGKILL");
        assert!(
            record["result"]["kill"]["signalled"].as_u64() >= Some(2),
            "{record}"
        );
        // Ended already: the same record, nothing done.
        let again = daemon.connect().request("DELETE", &path, &[], b"");
        assert_eq!(again.json(), record);
        assert_eq!(daemon.get(&path).json(), record);
        let id = begin(&daemon, "exit 3");
        let record = daemon.ended(&id);
        let late = daemon
            .connect()
            .request("DELETE", &format!("/executions/{id}"), &[], b"");
        assert_eq!((late.status, late.json()), (200, record));
    }
}

#[test]
fn a_client_that_hangs_up_cancels_and_leaves_a_record() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let id_file = daemon.dir().join("id");
        let script = format!(
            "echo $SHELLY_EXECUTION_ID > {}; sleep 1000",
            id_file.display()
        );
        let mut client = daemon.connect();
        client.send(
            "POST",
            "/execute",
            &[],
            call(&script).to_string().as_bytes(),
        );
        let id = wait_for("it runs", || {
            std::fs::read_to_string(&id_file)
                .ok()
                .filter(|id| id.ends_with('\n'))
        });
        drop(client);
        let record = daemon.ended(id.trim());
        assert_eq!(record["status"], "cancelled");
        assert_eq!(record["result"]["kill"]["reason"], "disconnect");
    }
}

#[test]
fn an_asynchronous_call_outlives_its_client() {
    let daemon = Daemon::start();
    let (script, fifo) = blocked(&daemon, "go");
    // `begin` drops its connection.
    let id = begin(&daemon, &script);
    // The hang-up is seen before anything that comes later on this one thread.
    assert_eq!(daemon.bash("true").status, 200);
    release(&fifo, "on");
    assert_eq!(daemon.ended(&id)["status"], "success");
}

#[test]
fn a_half_close_is_no_hang_up() {
    let daemon = Daemon::start();
    let (script, fifo) = blocked(&daemon, "go");
    let mut client = daemon.connect();
    client.send(
        "POST",
        "/execute",
        &[],
        call(&script).to_string().as_bytes(),
    );
    client.half_close();
    daemon.wait_until("it runs", || !daemon.processes().is_empty());
    assert_eq!(daemon.bash("true").status, 200);
    release(&fifo, "on");
    assert_eq!(client.reply().stdout(), "begun\non");
}

#[test]
fn the_last_thousand_are_remembered() {
    let daemon = Daemon::start_with(Mode::Group, "[ledger]\nmax_history_size = 1000");
    let mut connection = daemon.connect();
    let mut run = |command: &str| {
        let reply = connection.request(
            "POST",
            "/execute",
            &[],
            call(command).to_string().as_bytes(),
        );
        reply.json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned()
    };
    let (script, fifo) = blocked(&daemon, "go");
    // However slow the machine, it is still there at the end.
    let running = daemon.begin(&script, &json!({"timeout_secs": 600}));
    let forgotten = run("true");
    let oldest = run("true");
    // An unknown tool is an execution too, and no process.
    let body = json!({"name": "none", "input": {}}).to_string();
    let mut many = daemon.connect();
    for _ in 0..999 {
        assert_eq!(
            many.request("POST", "/execute", &[], body.as_bytes())
                .status,
            404
        );
    }
    let status = |id: &str| daemon.get(&format!("/executions/{id}")).status;
    daemon.wait_until("the oldest is forgotten", || status(&forgotten) == 404);
    assert_eq!(status(&oldest), 200);
    // Only what has finished is counted and forgotten.
    assert_eq!(status(&running), 200);
    release(&fifo, "on");
    // It is the oldest, and yet there is time to ask for its end.
    assert_eq!(daemon.ended(&running)["status"], "success");
    daemon.wait_until("another is forgotten", || {
        run("true");
        status(&oldest) == 404
    });
}
