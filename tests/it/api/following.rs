//! `GET /events`: what happens, taken up again where it broke off.

use serde_json::{Value, json};

use super::{begin, blocked, release};
use crate::support::{Connection, Daemon, Mode};

/// Events as they come in on a stream of their own.
struct Listener {
    connection: Connection,
    text: String,
}

impl Listener {
    fn new(daemon: &Daemon, query: &str, headers: &[(&str, &str)]) -> Self {
        let mut connection = daemon.connect();
        connection.send("GET", &format!("/events?{query}"), headers, b"");
        assert_eq!(connection.reply_head().status, 200);
        Self {
            connection,
            text: String::new(),
        }
    }

    /// The next event's data; `None` at the end.
    fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                let data = data.map(|data| serde_json::from_str(data).expect("JSON"));
                self.text = rest.to_owned();
                match data {
                    Some(data) => return Some(data),
                    // A comment.
                    None => continue,
                }
            }
            let chunk = self.connection.chunk()?;
            self.text
                .push_str(std::str::from_utf8(&chunk).expect("text"));
        }
    }

    /// The types of events until one of this type.
    fn until(&mut self, kind: &str) -> Vec<String> {
        let mut kinds = Vec::new();
        while kinds.last().is_none_or(|last| last != kind) {
            let event = self.next().expect("more events");
            kinds.push(event["type"].as_str().expect("a type").to_owned());
        }
        kinds
    }
}

/// Its ledger was another, which had come further: there is nothing in this one to wait for.
#[test]
fn who_has_heard_of_the_future_hears_what_comes_next() {
    let daemon = Daemon::start();
    let future = [("Last-Event-ID", "1000000000")];
    let mut listener = Listener::new(&daemon, "type=executionStarted", &future);
    daemon.bash("echo now");
    assert_eq!(listener.next().expect("an event")["summary"], "echo now");
}

/// Nothing had been told before the connection broke.
#[test]
fn an_answer_says_where_it_is_to_be_taken_up_again() {
    let daemon = Daemon::start();
    daemon.bash("echo before");
    let (mut connection, mut filtered) = (daemon.connect(), daemon.connect());
    connection.send("GET", "/events", &[], b"");
    let head = connection.reply_head();
    let last = head.header("last-event-id").expect("a number").to_owned();
    drop(connection);
    daemon.bash("echo meanwhile");
    let again = [("Last-Event-ID", last.as_str())];
    let mut listener = Listener::new(&daemon, "", &again);
    assert_eq!(
        listener.next().expect("an event")["summary"],
        "echo meanwhile"
    );

    filtered.send("GET", "/events?after=1&follow=false", &[], b"");
    assert_eq!(filtered.reply_head().header("last-event-id"), Some("1"));
}

#[test]
fn an_execution_is_told_as_it_happens() {
    let daemon = Daemon::start();
    let mut listener = Listener::new(&daemon, "", &[]);
    let (script, fifo) = blocked(&daemon, "go");
    let id = begin(&daemon, &script);
    let mut expected = vec!["executionStarted".to_owned()];
    for _ in 0..4 {
        expected.extend(["stageStarted", "stageCompleted"].map(str::to_owned));
    }
    expected.push("stageStarted".to_owned());
    // It runs, and all that came before is told.
    let mut heard = Vec::new();
    for _ in 0..expected.len() {
        let event = listener.next().expect("an event");
        assert_eq!(
            (&event["execution_id"], &event["caller_uid"]),
            (&json!(id), &json!(0))
        );
        heard.push(event["type"].as_str().expect("a type").to_owned());
    }
    assert_eq!(heard, expected);
    release(&fifo, "on");
    let rest = listener.until("executionCompleted");
    assert_eq!(
        rest,
        [
            "stageCompleted",
            "stageStarted",
            "stageCompleted",
            "executionCompleted"
        ]
    );
}

#[test]
fn a_listener_goes_on_where_it_broke_off() {
    let mut daemon = Daemon::start();
    for n in 0..100 {
        daemon.bash(&format!("echo {n}"));
    }
    let query = "type=executionCompleted,executionFailed";
    let mut listener = Listener::new(&daemon, &format!("{query}&after=0"), &[]);
    let some: Vec<Value> = (0..40)
        .map(|_| listener.next().expect("an event"))
        .collect();
    assert_eq!(some[39]["summary"], "echo 39");
    drop(listener);
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    daemon.wait();
    let daemon = daemon.restart();
    let last = some[39]["number"].to_string();
    let mut listener = Listener::new(&daemon, query, &[("Last-Event-ID", &last)]);
    for n in 40..100 {
        assert_eq!(
            listener.next().expect("an event")["summary"],
            format!("echo {n}")
        );
    }
    // And then with what is new.
    daemon.post(&json!({"name": "none", "input": {}}));
    let failed = listener.next().expect("an event");
    assert_eq!(
        (&failed["type"], &failed["tool"]),
        (&json!("executionFailed"), &json!("none"))
    );
}

#[test]
fn what_is_forgotten_is_said_to_be_missed() {
    let daemon = Daemon::start();
    daemon.bash("true");
    daemon.connect().request("DELETE", "/executions", &[], b"");
    let mut listener = Listener::new(&daemon, "after=0&follow=false", &[]);
    let missed = listener.next().expect("an event");
    assert_eq!(missed, json!({"from": 1, "to": 14}));
    assert_eq!(listener.next(), None);
}

#[test]
fn a_deaf_listener_holds_nobody_up_and_hears_of_everything_later() {
    let daemon = Daemon::start();
    let mut deaf = Listener::new(&daemon, "after=0&type=executionCompleted", &[]);
    // More than a socket and a channel take.
    let long = "x".repeat(150);
    for n in 0..2000 {
        assert_eq!(daemon.bash(&format!(": {n} {long}")).status, 200);
    }
    for n in 0..2000 {
        let summary = format!(": {n} {long}");
        assert_eq!(deaf.next().expect("an event")["summary"], summary);
    }
}

#[test]
fn the_stream_ends_with_the_daemon() {
    let mut daemon = Daemon::start_with(Mode::Group, "shutdown_grace_secs = 0");
    let mut listener = Listener::new(&daemon, "type=executionAborted", &[]);
    let (script, _fifo) = blocked(&daemon, "go");
    begin(&daemon, &script);
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(listener.next().expect("its end")["status"], "cancelled");
    assert_eq!(listener.next(), None);
    daemon.wait();
}

#[test]
fn a_number_that_nothing_will_ever_have_is_waited_for_in_vain() {
    let daemon = Daemon::start();
    daemon.bash("true");
    for number in [u64::MAX, u64::MAX / 2 + 1] {
        let mut listener = Listener::new(&daemon, &format!("follow=false&after={number}"), &[]);
        assert_eq!(listener.next(), None);
    }
}

#[test]
fn what_is_asked_for_wrongly_is_said() {
    let daemon = Daemon::start();
    for (query, header, part) in [
        ("execution_id=x", None, "execution_id"),
        ("colour=red", None, "colour"),
        ("type=", None, "type"),
        (
            "type=stageStarted,executionStarter",
            None,
            "executionStarter",
        ),
        ("", Some("x"), "Last-Event-ID"),
    ] {
        let headers: Vec<_> = header
            .map(|value| ("Last-Event-ID", value))
            .into_iter()
            .collect();
        let path = format!("/events?{query}");
        let reply = daemon.connect().request("GET", &path, &headers, b"");
        assert_eq!(reply.status, 400);
        assert!(reply.content().contains(part), "{}", reply.content());
    }
}
