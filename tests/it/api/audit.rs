//! The audit trail over the socket.

use std::fs;

use serde_json::json;
use shelly_executor::ledger::{AuditEntry, Durability, Ledger};

use crate::support::{Daemon, scratch};

/// How many records there are, each of a KiB: more than a socket and what waits for it hold.
const RECORDS: u64 = 2000;

/// How many read them at once.
const READERS: u64 = 20;

#[test]
fn whoever_reads_the_trail_slowly_keeps_no_thread() {
    let dir = scratch();
    fs::create_dir_all(dir.join("state")).expect("ours");
    fs::write(dir.join("executor.toml"), "[cgroup]\nmode = \"group\"\n").expect("ours");
    let opened = Ledger::open(&dir.join("state/ledger.db"), Durability::Process).expect("a ledger");
    for number in 0..RECORDS {
        let entry = AuditEntry {
            kind: "test".to_owned(),
            execution_id: None,
            time: std::time::SystemTime::now(),
            body: json!({"number": number, "text": "x".repeat(1024)}),
        };
        drop(opened.ledger.audit(entry));
    }
    opened.ledger.close_file();
    drop(opened);
    let daemon = Daemon::launch(dir, None, |_| {});
    let before = daemon.status("Threads");
    let slow: Vec<_> = (0..READERS)
        .map(|_| {
            let mut connection = daemon.connect();
            connection.send("GET", "/audit", &[], b"");
            assert_eq!(connection.reply_head().status, 200);
            connection
        })
        .collect();
    // Each has been sent all that there is room for.
    assert_eq!(daemon.get("/audit/verify").json()["intact"], true);
    let more = daemon.status("Threads") - before;
    assert!(more < READERS / 2, "{more} threads more");
    drop(slow);
    let trail = String::from_utf8(daemon.get("/audit?after=10").body).expect("text");
    assert_eq!(trail.lines().count() as u64, RECORDS - 10);
    let numbers = trail.lines().map(|line| {
        serde_json::from_str::<serde_json::Value>(line).expect("JSON")["number"].as_u64()
    });
    assert!(numbers.eq((11..=RECORDS).map(Some)));
}
