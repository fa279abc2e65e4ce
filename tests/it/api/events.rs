//! A call as a stream of server-sent events.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{blocked, call, release};
use crate::support::openapi::check_schema;
use crate::support::{Daemon, Events, Mode, bash_call, timed, wait_for};

/// What one stream's events come to, each checked to begin where the last ended (in raw bytes,
/// which for valid text are those of the text).
#[track_caller]
fn joined(events: &[crate::support::Event], name: &str) -> String {
    let mut text = String::new();
    for event in events.iter().filter(|event| event.name == name) {
        check_schema("#/components/schemas/OutputEvent", &event.data);
        assert_eq!(event.data["offset"], text.len(), "{event:?}");
        text.push_str(event.data["text"].as_str().expect("a text"));
    }
    text
}

#[test]
fn a_stream_tells_a_call_from_start_to_end() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let call = bash_call(
            "echo out; echo err >&2; echo öut; exit 3",
            &json!({"id": "toolu_01A"}),
        );
        let (head, events) = Events::open(&daemon, &call);
        assert_eq!(head.status, 200);
        let events = events.rest();
        // Counted from one, so that a client sees that it missed nothing.
        let ids: Vec<u64> = events.iter().map(|event| event.id).collect();
        assert_eq!(ids, (1..=events.len() as u64).collect::<Vec<_>>());
        assert_eq!(events[0].name, "started");
        check_schema("#/components/schemas/StartedEvent", &events[0].data);
        assert_eq!(joined(&events, "stdout"), "out\nöut\n");
        assert_eq!(joined(&events, "stderr"), "err\n");
        let last = events.last().expect("a result");
        assert_eq!(last.name, "result");
        assert_eq!(
            events.iter().filter(|event| event.name == "result").count(),
            1
        );
        // The final body plus `status`.
        let mut result = last.data.clone();
        assert_eq!(
            result.as_object_mut().and_then(|r| r.remove("status")),
            Some(json!(200))
        );
        assert_eq!(
            (&result["exit_code"], &result["tool_use_id"]),
            (&json!(3), &json!("toolu_01A"))
        );
        let id = result["execution_id"].as_str().expect("an id");
        assert_eq!(events[0].data["execution_id"], id);
        assert_eq!(daemon.ended(id)["result"], result);
    }
}

#[test]
fn what_is_written_is_sent_while_the_command_runs() {
    let daemon = Daemon::start();
    let (script, fifo) = blocked(&daemon, "go");
    let (_, mut events) = Events::open(&daemon, &call(&script));
    assert_eq!(events.next().expect("started").name, "started");
    assert_eq!(
        events.next().expect("a piece").data,
        json!({"text": "begun\n", "offset": 0})
    );
    release(&fifo, "on");
    assert_eq!(
        events.next().expect("a piece").data,
        json!({"text": "on\n", "offset": 6})
    );
    assert_eq!(events.next().expect("the end").name, "result");
    assert!(events.next().is_none());
}

/// Takes as long as the contract says a stream may be silent: 15 s.
#[test]
fn a_silent_stream_shows_that_it_lives() {
    let daemon = Daemon::start();
    let (script, fifo) = blocked(&daemon, "go");
    let before = Instant::now();
    let (_, mut events) = Events::open(&daemon, &bash_call(&script, &json!({"timeout_secs": 100})));
    assert_eq!(events.next().expect("started").name, "started");
    assert_eq!(events.next().expect("a piece").name, "stdout");
    let (_, silence) = timed(|| events.comment());
    assert!(before.elapsed() >= Duration::from_secs(15), "{silence:?}");
    assert!(silence.within(Duration::from_secs(16)), "{silence:?}");
    release(&fifo, "on");
    // A comment is no event, and not counted.
    assert_eq!(events.next().expect("a piece").id, 3);
    assert_eq!(events.next().expect("the end").name, "result");
}

#[test]
fn a_character_is_sent_whole() {
    let daemon = Daemon::start();
    let (script, fifo) = blocked(&daemon, "go");
    // The euro sign in two parts, with a stop between them.
    let script = script
        .replace("echo begun", "printf 'a\\342\\202'")
        .replace("echo $word", "printf '\\254b\\377'");
    let (_, mut events) = Events::open(&daemon, &call(&script));
    events.next();
    assert_eq!(
        events.next().expect("a piece").data,
        json!({"text": "a", "offset": 0})
    );
    release(&fifo, "on");
    let rest: Vec<Value> = events
        .filter(|event| event.name == "stdout")
        .map(|event| event.data)
        .collect();
    assert_eq!(rest, [json!({"text": "€b\u{FFFD}", "offset": 1})]);
    // One that never ends is sent as what it is, at the end.
    let (_, events) = Events::open(&daemon, &call("printf 'a\\342\\202'"));
    let events = events.rest();
    let pieces: Vec<&Value> = events
        .iter()
        .filter(|event| event.name == "stdout")
        .map(|event| &event.data)
        .collect();
    assert_eq!(
        pieces,
        [
            &json!({"text": "a", "offset": 0}),
            &json!({"text": "\u{FFFD}", "offset": 1})
        ]
    );
}

#[test]
fn a_stream_goes_up_to_the_cap() {
    let daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 10");
    let (_, events) = Events::open(&daemon, &call("yes € | head -c 400000"));
    let events = events.rest();
    // Ten bytes are two lines and two thirds of a character.
    assert_eq!(joined(&events, "stdout"), "€\n€\n");
    let result = &events.last().expect("a result").data;
    assert_eq!(
        (&result["truncated"], &result["stdout_bytes"]),
        (&json!(true), &json!(400_000))
    );
}

#[test]
fn a_problem_after_the_start_is_a_result_with_its_status() {
    let daemon = Daemon::start();
    let (_, events) = Events::open(
        &daemon,
        &bash_call("echo out; sleep 1000", &json!({"timeout_secs": 2})),
    );
    let events = events.rest();
    assert_eq!(joined(&events, "stdout"), "out\n");
    let result = &events.last().expect("a result").data;
    check_schema("#/components/schemas/RunProblem", result);
    assert_eq!(
        (&result["status"], &result["code"]),
        (&json!(504), &json!("timeout"))
    );
    assert_eq!(result["content"], "[stdout]\nout\n\n[timeout]\n2s");
}

#[test]
fn what_is_refused_before_the_start_is_no_stream() {
    let daemon = Daemon::start();
    for (body, status) in [
        (json!({"name": "bsh", "input": {}}), 404),
        (json!({"name": "bash", "input": {}}), 422),
        (bash_call("true", &json!({"no_such": 1})), 400),
    ] {
        let reply = daemon.connect().request(
            "POST",
            "/execute",
            &[("Accept", "text/event-stream")],
            body.to_string().as_bytes(),
        );
        assert_eq!(reply.status, status, "{body}");
        assert_eq!(
            reply.header("content-type"),
            Some("application/problem+json")
        );
    }
}

#[test]
fn a_program_that_cannot_be_executed_ends_the_stream() {
    let daemon = Daemon::start();
    let lost = bash_call("true", &json!({"working_dir": "/nonexistent"}));
    let headers = [("Accept", "text/event-stream")];
    let body = lost.to_string();
    let reply = daemon
        .connect()
        .request("POST", "/execute", &headers, body.as_bytes());
    // Whether that is seen before or after the process began is a race that nobody waits for.
    let problem = match reply.status {
        200 => {
            let text = String::from_utf8(reply.body).expect("UTF-8");
            let (_, last) = text.trim_end().rsplit_once("data: ").expect("a result");
            serde_json::from_str(last).expect("JSON")
        }
        _ => reply.json(),
    };
    check_schema("#/components/schemas/Problem", &problem);
    assert_eq!(
        (&problem["status"], &problem["code"]),
        (&json!(500), &json!("spawn_failed"))
    );
    let record = daemon.ended(problem["execution_id"].as_str().expect("an id"));
    assert_eq!(
        (&record["status"], &record["started_at"]),
        (&json!("failed"), &Value::Null)
    );
}

#[test]
fn only_who_asks_for_a_stream_gets_one() {
    let daemon = Daemon::start();
    let body = call("true").to_string();
    for (accept, kind) in [
        ("text/event-stream", "text/event-stream"),
        (
            "application/json;q=0.5, Text/Event-Stream;q=0.9",
            "text/event-stream",
        ),
        ("text/event-stream;q=0", "application/json"),
        ("application/json, text/event-stream", "text/event-stream"),
        (
            "application/json, text/event-stream;q=0.1",
            "application/json",
        ),
        ("*/*", "application/json"),
        ("text/event-stream;q=0.5, */*", "application/json"),
        ("text/event-stream, */*", "text/event-stream"),
        (
            "text/event-stream;q=0.5, */*, application/json;q=0.1",
            "text/event-stream",
        ),
        ("text/*", "application/json"),
        ("application/json", "application/json"),
    ] {
        let reply =
            daemon
                .connect()
                .request("POST", "/execute", &[("Accept", accept)], body.as_bytes());
        assert_eq!(reply.header("content-type"), Some(kind), "{accept}");
    }
}

#[test]
fn a_reader_that_hangs_up_ends_the_command() {
    let daemon = Daemon::start();
    // One that says nothing more, and one that never stops.
    for script in ["echo $$; exec sleep 1000", "echo $$; exec yes"] {
        let (_, mut events) = Events::open(&daemon, &call(script));
        let started = events.next().expect("started");
        let first = events.next().expect("a piece");
        let pid = first.data["text"]
            .as_str()
            .and_then(|text| text.lines().next());
        let process = Path::new("/proc").join(pid.expect("a pid"));
        assert!(process.exists());
        drop(events);
        let record = daemon.ended(started.data["execution_id"].as_str().expect("an id"));
        assert_eq!(record["result"]["kill"]["reason"], "disconnect", "{script}");
        assert!(!process.exists());
    }
}

/// Room for far more than the socket's buffers take, which are some 4 MiB where root has set them.
const AMPLE: &str = "max_output_bytes = 16777216\n";

#[test]
fn a_slow_reader_does_not_hold_up_the_command() {
    let daemon = Daemon::start_with(Mode::Group, AMPLE);
    let done = daemon.dir().join("done");
    let script = format!(
        "head -c 10000000 /dev/zero | tr '\\0' x; touch {}",
        done.display()
    );
    let (_, events) = Events::open(&daemon, &call(&script));
    wait_for("the command ends unread", || done.exists().then_some(()));
    let events = events.rest();
    assert_eq!(joined(&events, "stdout").len(), 10_000_000);
}

/// Tries what fails so many times more.
fn retrying(max: u32) -> Daemon {
    let retries = format!("retries = {{ max = {max}, delay_ms = 1, exit_codes = true }}");
    let toml = format!("{AMPLE}[flow.tools.bash]\nidempotent = true\n{retries}\n");
    Daemon::start_with(Mode::Group, &toml)
}

/// It is still being told of the first try when the second has long ended.
#[test]
fn a_slow_reader_is_told_of_each_try() {
    let daemon = retrying(1);
    let mark = daemon.dir().join("mark");
    let script = format!(
        "[ -e {mark} ] && {{ head -c 300000 /dev/zero | tr '\\0' y; exit; }}; touch {mark}; head -c 10000000 /dev/zero | tr '\\0' x; exit 1",
        mark = mark.display()
    );
    let (_, mut events) = Events::open(&daemon, &call(&script));
    let started = events.next().expect("it has started");
    let record = daemon.ended(started.data["execution_id"].as_str().expect("an id"));
    assert_eq!(record["result"]["stdout_bytes"], 300_000, "{record}");
    let events = events.rest();
    let again = events.iter().position(|event| event.name == "started");
    let (first, second) = events.split_at(again.expect("it has started again"));
    assert_eq!(joined(first, "stdout").len(), 10_000_000);
    assert_eq!(joined(second, "stdout").len(), 300_000);
}

/// Or one that stands still would have all of them kept in memory.
#[test]
fn a_slow_reader_misses_what_is_neither_the_first_try_nor_the_last() {
    let daemon = retrying(2);
    let mark = daemon.dir().join("mark");
    let script = format!(
        "echo >> {mark}; case $(wc -l < {mark}) in 1) n=10000000;; *) n=300000;; esac; \
         head -c $n /dev/zero | tr '\\0' x; [ $(wc -l < {mark}) -gt 2 ]",
        mark = mark.display()
    );
    let (_, mut events) = Events::open(&daemon, &call(&script));
    let started = events.next().expect("it has started");
    daemon.ended(started.data["execution_id"].as_str().expect("an id"));
    let events = events.rest();
    let tries = events.split(|event| event.name == "started");
    let written: Vec<usize> = tries.map(|of| joined(of, "stdout").len()).collect();
    assert_eq!(written, [10_000_000, 0, 300_000]);
}
