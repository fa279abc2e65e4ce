//! What the ledger and the spool keep when the daemon dies, and what there is where the ledger is taken away.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::history::{id, killed, spooled};
use super::keys::keyed;
use super::{begin, blocked, call, release};
use crate::support::{Daemon, Fifo, Mode, Reply, scratch, wait_to_equal};

#[test]
fn what_was_answered_is_there_after_a_crash_to_the_byte() {
    for mode in Mode::all() {
        let mut daemon = Daemon::start_with(mode, "max_output_bytes = 100000");
        let answers = [
            "echo hello; echo err >&2; exit 3",
            // Too long for its record, for its answer, and none at all.
            "seq 4000",
            "seq 100000; seq 4000 >&2",
            "true",
            "kill -9 $$",
        ]
        .map(|command| daemon.bash(command));
        let refused = [
            daemon.post(&json!({"name": "bsh", "input": {}, "id": "toolu_1"})),
            daemon.bash_with("sleep 60", &json!({"timeout_secs": 0.1})),
        ];
        let replies: Vec<&Reply> = answers.iter().chain(&refused).collect();
        let streams = ["stdout", "stderr"];
        let outputs: Vec<Vec<u8>> = answers
            .iter()
            .flat_map(|reply| streams.map(|stream| daemon.output(&id(reply), stream)))
            .collect();
        let records: Vec<Value> = replies
            .iter()
            .map(|reply| daemon.get(&format!("/executions/{}", id(reply))).json())
            .collect();

        let daemon = killed(&mut daemon);
        for (reply, before) in replies.iter().zip(&records) {
            let record = daemon.get(&format!("/executions/{}", id(reply))).json();
            assert_eq!(record["result"], reply.json(), "{mode:?}");
            assert_eq!(record["http_status"], reply.status, "{mode:?}");
            assert_eq!(&record, before, "{mode:?}");
        }
        let after = answers
            .iter()
            .flat_map(|reply| streams.map(|stream| daemon.output(&id(reply), stream)));
        assert!(after.eq(outputs), "{mode:?}");
    }
}

#[test]
fn what_was_under_way_is_lost_and_what_it_wrote_is_not() {
    let cut = "max_output_bytes = 1000\ntruncate = \"middle\"\n";
    let mut daemon = Daemon::start_with(Mode::Group, cut);
    let (script, _fifo) = blocked(&daemon, "go");
    let many = begin(&daemon, &format!("yes | head -c 3000000; {script}"));
    daemon.wait_until("it has written", || {
        daemon.output(&many, "stdout").len() == 3_000_006
    });
    let file = daemon.dir().join("state/ledger.db");
    daemon.wait_until("its start is on file", || {
        let ledger = Connection::open(&file).expect("opened");
        let started = ledger.query_row("SELECT started_at FROM executions", [], |row| row.get(0));
        started.is_ok_and(|started: Option<i64>| started.is_some())
    });
    let before = daemon.get(&format!("/executions/{many}")).json();
    let daemon = killed(&mut daemon);
    let record = daemon.get(&format!("/executions/{many}")).json();
    assert_eq!(record["status"], "lost");
    for known in ["started_at", "stages"] {
        assert_eq!(record[known], before[known], "{known}");
    }
    assert_eq!(record["stages"].as_array().map(Vec::len), Some(5));
    assert_eq!(
        (&record["http_status"], &record["result"]["code"]),
        (&json!(500), &json!("lost"))
    );
    assert_eq!(record["result"]["stage"], "execution");
    let output = String::from_utf8(daemon.output(&many, "stdout")).expect("text");
    assert_eq!(output.len(), 3_000_006);
    let (head, tail) = (&output[..500], output[output.len() - 500..].trim_end());
    let end = "[lost]\nthe daemon died while this was under way: what became of it is not known";
    assert_eq!(
        record["result"]["content"],
        format!("[stdout]\n{head}\n...(truncated)\n{tail}\n\n{end}")
    );
    assert!(daemon.log().contains("lost=1"), "{}", daemon.log());
    let trail = daemon.get("/audit").body;
    let trail = String::from_utf8(trail).expect("text");
    let lost = trail.lines().find(|line| line.contains("\"lost\""));
    let lost = lost.expect("on the audit trail, where it stays");
    assert!(lost.contains(r#""summary":"yes | head"#), "{lost}");
    let events = daemon.get(&format!("/events?follow=false&execution_id={many}"));
    let events = String::from_utf8(events.body).expect("text");
    let last = events.trim_end().rsplit("\n\n").next().expect("one");
    for part in [
        "event: executionAborted",
        r#""status":"lost""#,
        r#""summary":"yes | head"#,
        r#""detail":"the daemon died"#,
    ] {
        assert!(last.contains(part), "{last:?} lacks {part:?}");
    }
}

/// What was written beyond the spool's limit is nowhere, which the text says; where the command had got to
/// nobody knows, so that what is kept is a beginning, whatever `truncate` says.
#[test]
fn what_is_lost_and_was_not_kept_whole_says_so() {
    for truncate in ["tail", "middle"] {
        let spool = format!("spool_max_bytes = 100000\ntruncate = \"{truncate}\"\n");
        let mut daemon = Daemon::start_with(Mode::Group, &spool);
        let (script, _fifo) = blocked(&daemon, "go");
        let many = begin(&daemon, &format!("yes | head -c 3000000; {script}"));
        let file = daemon.dir().join(format!("state/spool/{many}.stdout"));
        daemon.wait_until("all that fits is kept", || {
            fs::metadata(&file).is_ok_and(|file| file.len() == 100_000)
        });
        let daemon = killed(&mut daemon);
        let record = daemon.get(&format!("/executions/{many}")).json();
        assert_eq!(record["status"], "lost");
        let content = record["result"]["content"].as_str().expect("text");
        let kept = "y\n".repeat(50_000);
        let cut = format!("[stdout]\n{kept}\n...(truncated)\n\n[lost]\n");
        let end = &content[content.len() - 200..];
        assert!(content.starts_with(&cut), "{truncate}: {end}");
    }
}

#[test]
fn what_was_lost_at_work_is_answered_with_every_member() {
    let mut daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 5000");
    let late = daemon.bash_with("sleep 60", &json!({"timeout_secs": 0.1}));
    let mut late = late.json();
    let members = late.as_object_mut().expect("members");
    // No signal was sent that anybody knows of.
    members.remove("kill");
    let (script, fifo) = blocked(&daemon, "go");
    let short = begin(&daemon, &script);
    let _gate = fifo.reached();
    let (script, _fifo) = blocked(&daemon, "never");
    let cut = begin(&daemon, &format!("yes | head -c 3000000; {script}"));
    daemon.wait_until("it has written", || {
        daemon.output(&cut, "stdout").len() == 3_000_006
    });
    let daemon = killed(&mut daemon);
    for (id, truncated) in [(short, json!(null)), (cut, json!(true))] {
        let record = daemon.get(&format!("/executions/{id}")).json();
        let lost = record["result"].as_object().expect("members");
        assert_eq!(lost["code"], "lost");
        assert!(lost.keys().eq(members.keys()), "{record}");
        for unknown in [
            "exit_code",
            "signal",
            "duration_ms",
            "stdout_bytes",
            "background",
        ] {
            assert_eq!(lost[unknown], Value::Null, "{unknown}");
        }
        assert_eq!(lost["truncated"], truncated);
    }
}

/// What a daemon that was killed had begun, or had still to remove, is not there for good.
#[test]
fn what_nobody_can_ask_for_is_removed_from_the_spool() {
    let mut daemon = Daemon::start();
    let kept = id(&daemon.bash("seq 4000"));
    let (script, fifo) = blocked(&daemon, "go");
    let lost = begin(&daemon, &script);
    let _gate = fifo.reached();
    let text = format!("{lost}.content");
    let spool = daemon.dir().join("state/spool");
    // As if it had been killed between that and the record.
    fs::write(spool.join(&text), "text").expect("written");
    let forgotten = "01940000-0000-7000-8000-000000000000.stdout";
    fs::write(spool.join(forgotten), "old").expect("written");
    let daemon = killed(&mut daemon);
    assert_eq!(daemon.ended(&lost)["status"], "lost");
    daemon.wait_until("it is gone", || {
        let names = spooled(&daemon);
        !names.contains(&text) && !names.iter().any(|name| name == forgotten)
    });
    assert_eq!(daemon.output(&kept, "stdout").len(), 18_893);
}

/// The old one may come back.
#[test]
fn another_ledger_leaves_the_spool_of_the_last_one_alone() {
    let mut daemon = Daemon::start();
    daemon.bash("seq 4000");
    let before = spooled(&daemon);
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    let state = daemon.dir().join("state");
    for entry in fs::read_dir(&state).expect("there") {
        let path = entry.expect("an entry").path();
        if path.to_string_lossy().contains("ledger.db") {
            fs::remove_file(path).expect("removable");
        }
    }
    let daemon = daemon.restart();
    daemon.wait_until("it says so", || {
        daemon.log().contains("they are left alone")
    });
    assert_eq!(spooled(&daemon), before);
}

/// Although it is neither long nor over.
#[test]
fn what_has_been_said_for_a_while_outlives_the_daemon() {
    let mut daemon = Daemon::start();
    let (first, gate) = blocked(&daemon, "first");
    let (second, _gate) = blocked(&daemon, "second");
    let script = format!("echo warning >&2; echo one; {first}; {second}");
    let id = begin(&daemon, &script);
    let both = [format!("{id}.stderr-draft"), format!("{id}.stdout-draft")];
    wait_to_equal("what is on disk", both.to_vec(), || spooled(&daemon));
    // What comes later is appended.
    release(&gate, "on");
    let draft = daemon.dir().join("state/spool").join(&both[1]);
    let said = "one\nbegun\non\nbegun\n";
    wait_to_equal("the draft", said.to_owned(), || {
        fs::read_to_string(&draft).expect("there")
    });
    let daemon = killed(&mut daemon);
    assert_eq!(daemon.ended(&id)["status"], "lost");
    assert_eq!(daemon.output(&id, "stdout"), said.as_bytes());
    assert_eq!(daemon.output(&id, "stderr"), b"warning\n");
}

/// Hooks that are asked behind it may take their time.
#[test]
fn what_has_ended_outlives_the_daemon_before_its_record_does() {
    let dir = scratch();
    let pipe = Fifo::new(dir.join("hook"));
    let toml = format!(
        "[cgroup]\nmode = \"group\"\n[[hooks]]\nname = \"slow\"\nafter = \"execution\"\ntimeout_secs = 300\n\
         command = [\"/bin/sh\", \"-c\", \"read _ <{}\"]\n",
        pipe.path().display()
    );
    fs::write(dir.join("executor.toml"), toml).expect("written");
    let mut daemon = Daemon::launch(dir, None, |_| {});
    let id = begin(&daemon, "echo first; echo warning >&2");
    let _gate = pipe.reached();
    let both = [format!("{id}.stderr-draft"), format!("{id}.stdout-draft")];
    wait_to_equal("what is on disk", both.to_vec(), || spooled(&daemon));
    let daemon = killed(&mut daemon);
    let record = daemon.ended(&id);
    assert_eq!(record["status"], "lost");
    assert_eq!(daemon.output(&id, "stdout"), b"first\n");
    let content = record["result"]["content"].as_str().expect("text");
    assert!(
        content.contains("first") && content.contains("warning"),
        "{content}"
    );
}

#[test]
fn a_draft_goes_when_the_execution_has_ended() {
    let daemon = Daemon::start();
    for (bytes, after) in [(10, 0), (10_000, 1), (2_000_000, 2)] {
        let (script, fifo) = blocked(&daemon, &format!("go{bytes}"));
        let id = begin(&daemon, &format!("{script}; yes | head -c {bytes}"));
        let own = || {
            let mut names = spooled(&daemon);
            names.retain(|name| name.starts_with(&id));
            names
        };
        wait_to_equal("drafts", vec![format!("{id}.stdout-draft")], own);
        release(&fifo, "on");
        assert_eq!(daemon.ended(&id)["status"], "success");
        wait_to_equal("files", after, || own().len());
        assert_eq!(
            daemon.output(&id, "stdout").len(),
            "begun\non\n".len() + bytes
        );
        assert!(!own().iter().any(|name| name.ends_with("-draft")));
    }
}

#[test]
fn a_ledger_that_is_taken_away_is_missed() {
    for (audit, status) in [("required", 503), ("best_effort", 200)] {
        let toml = format!("[ledger]\naudit = \"{audit}\"\n");
        let daemon = Daemon::start_with(Mode::Group, &toml);
        let away = daemon.dir().join("away");
        let problems = || daemon.get("/health").json()["problems"].clone();
        let is_missed = |file: &Path| {
            wait_to_equal("its code", json!("ledger_failed"), || {
                problems()[0]["code"].clone()
            });
            let detail = problems()[0]["detail"].to_string();
            let name = file.display().to_string();
            assert!(
                detail.contains(&name) && detail.contains("removed or replaced"),
                "{detail}"
            );
        };
        let state = daemon.dir().join("state");
        for file in ["", "-log-1", "-log-2", "-wal", "-shm"] {
            let file = state.join(format!("ledger.db{file}"));
            fs::rename(&file, &away).expect("ours");
            is_missed(&file);
            assert_eq!(daemon.bash("true").status, status);
            fs::rename(&away, &file).expect("ours");
            wait_to_equal("what is wrong", json!([]), problems);
            assert_eq!(daemon.bash("true").status, 200);
        }
        // As SQLite does for who takes himself for the last to read it.
        let wal = state.join("ledger.db-wal");
        fs::remove_file(&wal).expect("ours");
        is_missed(&wal);
        assert_eq!(daemon.bash("true").status, status);
        // The next daemon would not know of it.
        let once = keyed(&daemon, "k", &call("true"));
        assert_eq!(once.json()["code"], "audit_unavailable", "{audit}");
    }
}
