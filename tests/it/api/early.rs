//! Long answers begin before the end that they tell of is on record, and nobody has one without that.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::signal::Signal;
use rusqlite::Connection;
use shelly_executor::domain::ExecutionId;
use shelly_executor::ledger::{Digest, Durability, Ended, ExecutionRecord, LateDigests, Ledger};

use super::*;
use crate::support::Mode;

/// What keeps the daemon from writing its ledger, until it is dropped. SQLite waits for it.
pub(super) fn locked(daemon: &Daemon) -> Connection {
    let file = Connection::open(daemon.dir().join("state/ledger.db")).expect("a ledger");
    file.execute_batch("BEGIN IMMEDIATE")
        .expect("nobody else writes");
    file
}

/// An answer as far as it has come.
struct Coming {
    stream: UnixStream,
    length: usize,
    body: Vec<u8>,
}

impl Coming {
    /// Asks, and reads all of the answer but its last byte.
    fn of(daemon: &Daemon, head: &str, body: &[u8]) -> Self {
        let mut stream = UnixStream::connect(daemon.socket()).expect("the daemon listens");
        let length = body.len();
        write!(
            stream,
            "{head} HTTP/1.1\r\nHost: shelly\r\nContent-Length: {length}\r\n\r\n"
        )
        .and_then(|()| stream.write_all(body))
        .expect("sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head");
            head.extend(byte);
        }
        let head = String::from_utf8(head).expect("text");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|length| length.parse::<usize>().ok())
            .expect("a length");
        let mut body = vec![0; length - 1];
        stream.read_exact(&mut body).expect("nearly all of it");
        Self {
            stream,
            length,
            body,
        }
    }

    fn has_more(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let mut stream = &self.stream;
        let read = stream.read(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket");
        match read {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    }

    fn rest(mut self) -> Vec<u8> {
        let mut last = [0];
        self.stream.read_exact(&mut last).expect("the last byte");
        self.body.extend(last);
        assert_eq!(self.body.len(), self.length);
        self.body
    }
}

fn status(daemon: &Daemon, id: &str) -> Value {
    daemon.get(&format!("/executions/{id}")).json()["status"].clone()
}

/// Says `0` so often.
fn long(length: usize) -> String {
    format!("printf '%0{length}d' 0")
}

#[test]
fn a_long_answer_lacks_its_last_byte_until_it_is_on_record() {
    let daemon = Daemon::start_with(Mode::Group, "[ledger]\ndurability = \"fsync\"");
    daemon.bash("true");
    let lock = locked(&daemon);
    let call = call(&long(300_000)).to_string();
    let answer = Coming::of(&daemon, "POST /execute", call.as_bytes());
    let mut whole = answer.body.clone();
    whole.push(b'}');
    let result: Value = serde_json::from_slice(&whole).expect("nothing but its end is missing");
    let id = result["execution_id"].as_str().expect("an id").to_owned();
    assert!(!answer.has_more(), "it is not on record");
    drop(lock);
    assert_eq!(answer.rest(), whole);
    assert_eq!(status(&daemon, &id), "success");
}

/// An execution, what keeps its end from the ledger, and its raw output as far as that has come.
fn raw_and_withheld(daemon: &Daemon) -> (String, Connection, Coming) {
    let (script, fifo) = blocked(daemon, "go");
    let id = begin(daemon, &format!("{script}; {}", long(300_000)));
    let gate = fifo.reached();
    // Its beginning has been written.
    daemon.bash("true");
    let lock = locked(daemon);
    gate.say("on");
    let path = format!("GET /executions/{id}/output?stream=stdout&wait=60");
    let answer = Coming::of(daemon, &path, b"");
    (id, lock, answer)
}

#[test]
fn so_do_the_raw_bytes_for_whoever_waits_for_the_end() {
    let daemon = Daemon::start_with(Mode::Group, "[ledger]\ndurability = \"fsync\"");
    let (id, lock, answer) = raw_and_withheld(&daemon);
    assert!(!answer.has_more(), "it is not on record");
    drop(lock);
    let expected = format!("begun\non\n{}", "0".repeat(300_000));
    assert!(answer.rest() == expected.as_bytes());
    assert_eq!(status(&daemon, &id), "success");
}

#[test]
fn who_has_nearly_all_of_it_when_the_daemon_is_killed_has_no_answer() {
    let mut daemon = Daemon::start_with(Mode::Group, "[ledger]\ndurability = \"fsync\"");
    let (id, lock, mut answer) = raw_and_withheld(&daemon);
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    let read = answer.stream.read(&mut [0]);
    assert!(
        matches!(read, Ok(0) | Err(_)),
        "the last byte came: {read:?}"
    );
    drop(lock);
    let daemon = daemon.restart();
    assert_eq!(status(&daemon, &id), "lost");
}

/// As shipped a call that nobody waits for is in the log, whatever keeps the file.
#[test]
fn what_nobody_waits_for_does_not_wait_for_the_file() {
    let daemon = Daemon::start();
    daemon.bash("true");
    let lock = locked(&daemon);
    let id = begin(&daemon, "echo hi");
    let record = daemon.get(&format!("/executions/{id}?wait=60")).json();
    assert_eq!(record["status"], "success", "{record}");
    drop(lock);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("copied");
        }
    }
}

#[test]
fn the_digest_of_a_long_answer_is_not_lost_with_the_daemon() {
    let mut daemon = Daemon::start();
    let answer = daemon.bash(&long(300_000)).json();
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let state = daemon.dir().join("state");
    let file = state.join("ledger.db");
    let digest = {
        let ledger = Ledger::open(&file, Durability::Process)
            .expect("it opens")
            .ledger;
        let id = answer["execution_id"]
            .as_str()
            .and_then(|id| id.parse().ok());
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let record = runtime
            .expect("a runtime")
            .block_on(ledger.get(id.expect("an id")));
        let ExecutionRecord {
            mut open, close, ..
        } = record.expect("read").expect("there");
        let mut close = close.expect("an end");
        let spooled = |id| state.join(format!("spool/{id}.content"));
        let again = ExecutionId::new();
        fs::copy(spooled(open.id), spooled(again)).expect("kept");
        (open.id, close.id) = (again, again);
        let digest = close.stdout.digest.take();
        // One that the daemon had answered when it died, while it still computed the digest.
        assert!(ledger.begin_execution(open, None).is_none());
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let late: LateDigests = Box::new(move || {
            let _ = blocked.recv();
            [None, None]
        });
        let told = ledger.end_execution(close, Some(late), None, drop);
        assert!(matches!(told, Ended::Logged));
        copy(&state, &daemon.dir().join("crashed"));
        drop(release);
        digest.expect("a digest")
    };
    fs::remove_dir_all(&state).expect("removed");
    fs::rename(daemon.dir().join("crashed"), &state).expect("renamed");
    let daemon = daemon.restart();
    let trail = String::from_utf8(daemon.get("/audit").body).expect("text");
    let endings: Vec<Value> = trail
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|record| record["kind"] == "ending")
        .map(|record| record["body"]["stdout_sha256"].clone())
        .collect();
    assert_eq!(digest, Digest::of("0".repeat(300_000).as_bytes()));
    assert_eq!(endings, [json!(digest), json!(digest)]);
    assert_eq!(daemon.get("/audit/verify").json()["intact"], true);
}
