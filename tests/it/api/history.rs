//! What the ledger keeps, over the real socket: across restarts and crashes, listed, repeated,
//! cleared away, proved.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::{begin, blocked, call, release};
use crate::support::{Daemon, Fifo, Mode, Reply, scratch, wait_to_equal};

pub(super) fn list(daemon: &Daemon, query: &str) -> Value {
    let reply = daemon.get(&format!("/executions?{query}"));
    assert_eq!(reply.status, 200, "{query}: {}", reply.content());
    reply.json()
}

pub(super) fn summaries(page: &Value) -> Vec<String> {
    let entries = page["executions"].as_array().expect("entries");
    let summary = |entry: &Value| entry["summary"].as_str().expect("text").to_owned();
    entries.iter().map(summary).collect()
}

fn id(reply: &Reply) -> String {
    let body = reply.json();
    body["execution_id"].as_str().expect("an id").to_owned()
}

/// A daemon that was killed without a word, started anew.
pub(super) fn killed(daemon: &mut Daemon) -> Daemon {
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    daemon.restart()
}

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

/// The names of what is in the spool, in order.
fn spooled(daemon: &Daemon) -> Vec<String> {
    let files = fs::read_dir(daemon.dir().join("state/spool")).expect("a spool");
    let names = files.map(|file| file.expect("a file").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.into_string().expect("text"))
        .collect();
    names.sort();
    names
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
    }
}

#[test]
fn history_is_filtered_and_paged() {
    let daemon = Daemon::start();
    for n in 0..25 {
        daemon.bash(&format!("echo fish{n} | cat; exit {}", n % 2));
    }
    daemon.post(&json!({"name": "none", "input": {}}));
    let (script, fifo) = blocked(&daemon, "go");
    let running = begin(&daemon, &script);

    let mut seen = Vec::new();
    let mut query = "limit=10".to_owned();
    loop {
        let page = list(&daemon, &query);
        seen.extend(summaries(&page));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        query = format!("limit=10&cursor={next}");
        // What comes in meanwhile is newer than all that is still to come.
        daemon.bash("echo meanwhile");
    }
    assert_eq!((seen.len(), seen[0].as_str()), (27, script.as_str()));
    assert_eq!(seen[26], "echo fish0 | cat; exit 0");

    let count = |query: &str| summaries(&list(&daemon, query)).len();
    assert_eq!(count("status=error"), 12);
    assert_eq!(count("status=running"), 1);
    assert_eq!(
        list(&daemon, "status=running")["executions"][0]["execution_id"],
        running.as_str()
    );
    assert_eq!((count("tool=none"), count("tool=bsh")), (1, 0));
    assert_eq!(count("text=fish7"), 1);
    assert_eq!(count("text=fish1*&status=error"), 6);
    assert_eq!(count("caller=0&limit=1000"), 29);
    assert_eq!(count("caller=1"), 0);
    assert_eq!(count("until=2020-01-01T00:00:00Z"), 0);
    for early in [
        "2020-01-01T00:00:00Z",
        "2020-01-01t00:00:00z",
        "2020-01-01T00:00:00%2B02:00",
    ] {
        assert_eq!(count(&format!("since={early}&limit=1000")), 29, "{early}");
    }
    release(&fifo, "on");
    daemon.ended(&running);

    for (query, part) in [
        ("limit=0", "`limit`"),
        ("limit=1001", "1000"),
        ("limit=abc", "`limit`: \"abc\" is no number"),
        (
            "caller=root",
            "`caller`: \"root\" is no number in range: expected a whole one from 0 to 4294967295",
        ),
        ("status=fine", "success"),
        ("since=yesterday", "`since`"),
        ("until=2020-01-01T00:00:00+02:00", "(`+` as %2B)"),
        ("cursor=x", "`cursor`"),
        ("text=%26%26", "text"),
        ("trace_id=", "`trace_id`"),
        ("colour=red", "colour"),
    ] {
        let reply = daemon.get(&format!("/executions?{query}"));
        assert_eq!(reply.status, 400, "{query}");
        let detail = reply.content();
        assert!(detail.contains(part), "{query}: {detail}");
    }
}

#[test]
fn history_is_bounded_and_what_goes_takes_its_output_along() {
    let daemon = Daemon::start_with(Mode::Group, "[ledger]\nmax_history_size = 5");
    let first = id(&daemon.bash("seq 4000"));
    for _ in 0..5 {
        daemon.bash("seq 4000");
    }
    daemon.wait_until("the oldest is forgotten", || {
        daemon.get(&format!("/executions/{first}")).status == 404
    });
    assert_eq!(summaries(&list(&daemon, "")).len(), 5);
    daemon.wait_until("its output is gone", || spooled(&daemon).len() == 5);
}

#[test]
fn other_limits_hold_before_anything_else_is_recorded() {
    let daemon = Daemon::start_with(Mode::Group, "[ledger]\nmax_history_size = 100");
    for n in 1..=5 {
        daemon.bash(&format!("echo {n}"));
    }
    let path = daemon.dir().join("executor.toml");
    let toml = fs::read_to_string(&path).expect("there");
    fs::write(&path, toml.replace("= 100", "= 2")).expect("written");
    daemon.wait_until("the newest are left", || {
        summaries(&list(&daemon, "")) == ["echo 5", "echo 4"]
    });
}

#[test]
fn history_is_cleared_and_the_audit_trail_is_not() {
    let daemon = Daemon::start();
    for _ in 0..3 {
        daemon.bash("seq 4000");
    }
    let (script, fifo) = blocked(&daemon, "go");
    let running = begin(&daemon, &script);
    let delete = |path: &str| daemon.connect().request("DELETE", path, &[], b"");
    // What reads like a part of it is not taken for all.
    for query in ["?status=error", "?until=2020-01-01T00:00:00Z", "?x"] {
        let refused = delete(&format!("/executions{query}"));
        assert_eq!(refused.status, 400, "{query}");
        assert_eq!(refused.json()["code"], "malformed_request", "{query}");
    }
    let filter = daemon
        .connect()
        .request("DELETE", "/executions", &[], br#"{"tool": "x"}"#);
    let detail =
        "the body cannot be heeded: to clear takes none, for it forgets all that has ended";
    assert_eq!(
        (filter.status, &filter.json()["detail"]),
        (400, &json!(detail))
    );
    assert_eq!(summaries(&list(&daemon, "")).len(), 4);
    let cleared = delete("/executions");
    assert_eq!(
        (cleared.status, cleared.json()),
        (200, json!({"deleted": 3}))
    );
    // What runs stays.
    assert_eq!(summaries(&list(&daemon, "")), [script]);
    release(&fifo, "on");
    assert_eq!(daemon.ended(&running)["status"], "success");
    let trail = String::from_utf8(daemon.get("/audit").body).expect("text");
    let kinds: Vec<Value> = trail
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["kind"].take())
        .collect();
    assert_eq!(kinds.len(), 9, "{trail}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "ending").count(), 4);
    assert!(kinds.contains(&json!("history_cleared")));
}

#[test]
fn the_audit_trail_is_proved_and_a_change_is_found() {
    let mut daemon = Daemon::start();
    for n in 0..10 {
        daemon.bash(&format!("echo {n}"));
    }
    let found = daemon.get("/audit/verify").json();
    assert_eq!(
        (&found["intact"], &found["records"]),
        (&json!(true), &json!(20))
    );
    let head = format!(
        "{}:{}",
        found["head"]["number"],
        found["head"]["hash"].as_str().expect("text")
    );
    let verify =
        |daemon: &Daemon, head: &str| daemon.get(&format!("/audit/verify?head={head}")).json();
    assert_eq!(verify(&daemon, &head)["intact"], true);

    // The end that the log has is the one that the next daemon finds.
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    assert!(
        daemon.log().contains(&format!("AUDIT_HEAD=\"{head}\"")),
        "{}",
        daemon.log()
    );
    let change = |sql: &str| {
        let file = daemon.dir().join("state/ledger.db");
        let file = rusqlite::Connection::open(file).expect("a ledger");
        file.execute_batch(sql).expect("changed");
    };
    change("DELETE FROM audit WHERE number > 15");
    let daemon = daemon.restart();
    let cut = verify(&daemon, &head);
    assert_eq!(cut["intact"], false, "{cut}");
    assert!(
        cut["problem"].as_str().expect("text").contains("16"),
        "{cut}"
    );
    // By itself it looks sound: that is what the log is for.
    assert_eq!(daemon.get("/audit/verify").json()["intact"], true);
    for (head, part) in [("5", "NUMBER:HASH"), ("x:00", "NUMBER:HASH")] {
        let reply = daemon.get(&format!("/audit/verify?head={head}"));
        assert_eq!(reply.status, 400);
        assert!(reply.content().contains(part));
    }
}

#[test]
fn a_call_is_repeated_from_its_record() {
    let mut daemon = Daemon::start();
    let members = json!({"env": {"WORD": "moon"}, "stdin": "sun", "working_dir": "/usr"});
    let first = daemon.bash_with("pwd; echo $WORD; cat", &members);
    assert_eq!(first.stdout(), "/usr\nmoon\nsun");
    let daemon = killed(&mut daemon);
    let path = format!("/executions/{}/replay", id(&first));
    let again = daemon.connect().request("POST", &path, &[], b"");
    assert_eq!(again.stdout(), "/usr\nmoon\nsun");
    assert_ne!(id(&again), id(&first));
    let record = daemon.get(&format!("/executions/{}", id(&again))).json();
    assert_eq!(record["replay_of"], id(&first));
    assert_eq!(record["env_names"], json!(["WORD"]));

    let asynchronous = [("Prefer", "respond-async")];
    let begun = daemon.connect().request("POST", &path, &asynchronous, b"");
    assert_eq!(begun.status, 202);
    assert_eq!(daemon.ended(&id(&begun))["status"], "success");

    // Under a key it is repeated once, and under that of something else not at all.
    let file = daemon.dir().join("again");
    let writes = daemon.bash(&format!("echo x >> {}", file.display()));
    let path = format!("/executions/{}/replay", id(&writes));
    let keyed = |key: &str| {
        let key = [("Idempotency-Key", key)];
        daemon.connect().request("POST", &path, &key, b"")
    };
    let (once, twice) = (keyed("k"), keyed("k"));
    assert_eq!((once.status, id(&once)), (200, id(&twice)));
    assert_eq!(fs::read_to_string(&file).expect("written"), "x\nx\n");
    let other = [("Idempotency-Key", "k")];
    let body = call("true").to_string();
    let other = daemon
        .connect()
        .request("POST", "/execute", &other, body.as_bytes());
    assert_eq!(other.status, 409);

    // It is repeated as it was: whoever sends something with it means something else.
    let path = format!("/executions/{}/replay", id(&first));
    let with = |body: &str| {
        let json = [("Content-Type", "application/json")];
        let mut connection = daemon.connect();
        connection.request("POST", &path, &json, body.as_bytes())
    };
    let long = format!("{{\"stdin\": \"{}\"}}", "x".repeat(100_000));
    for body in ["{\"timeout_secs\": 1}", "garbage", "null", "[]", &long] {
        let refused = with(body);
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (400, &json!("malformed_request")),
            "{body:.30}"
        );
        assert!(refused.content().contains("takes none"), "{body:.30}");
    }
    let coded = [("Content-Encoding", "gzip")];
    let coded = daemon.connect().request("POST", &path, &coded, b"{}");
    assert_eq!(coded.status, 400);
    assert!(coded.content().contains("content-encoding is `gzip`"));
    for body in ["{}", " {}\n"] {
        assert_eq!(with(body).stdout(), "/usr\nmoon\nsun", "{body:?}");
    }

    // What is masked in the record is not the call.
    let secret = daemon.bash("echo ghp_abcdefghijklmnopqrstuvwxyz0123456789");
    let path = format!("/executions/{}/replay", id(&secret));
    let refused = daemon.connect().request("POST", &path, &[], b"");
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (409, &json!("not_replayable"))
    );
    let unknown = "/executions/0198c0de-0000-7000-8000-000000000000/replay";
    assert_eq!(
        daemon.connect().request("POST", unknown, &[], b"").status,
        404
    );
}

#[test]
fn nothing_on_disk_has_a_secret_that_was_recognised() {
    let daemon = Daemon::start();
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let members = json!({
        "env": {"PGPASSWORD": "hunter2hunter2", "WORD": token},
        "stdin": format!("password: {token}\n"),
    });
    let script = format!("cat; echo $WORD {token}; seq 3000");
    assert_eq!(daemon.bash_with(&script, &members).status, 200);
    let state = daemon.dir().join("state");
    for dir in [state.clone(), state.join("spool")] {
        for entry in fs::read_dir(dir).expect("ours").flatten() {
            let bytes = fs::read(entry.path()).unwrap_or_default();
            for secret in [token, "hunter2hunter2"] {
                let found = bytes
                    .windows(secret.len())
                    .any(|at| at == secret.as_bytes());
                assert!(!found, "{secret} is in {}", entry.path().display());
            }
        }
    }
    assert!(!daemon.log().contains(token) && !daemon.log().contains("hunter2hunter2"));
}

/// Of a long call a list has a line.
#[test]
fn what_is_long_in_a_call_is_not_held_for_a_list() {
    const LONG: usize = 12 << 20;
    const CALLS: usize = 5;
    let daemon = Daemon::start();
    let stdin = "x".repeat(LONG);
    for n in 0..CALLS {
        let reply = daemon.bash_with(&format!("true {n}"), &json!({"stdin": stdin}));
        assert_eq!(reply.status, 200, "{}", reply.content());
    }
    // None is remembered any more.
    let mut daemon = daemon;
    let daemon = killed(&mut daemon);
    let before = daemon.reset_peak();
    let page = list(&daemon, "");
    let grown = daemon.memory("VmHWM").saturating_sub(before);
    assert_eq!(
        summaries(&page),
        ["true 4", "true 3", "true 2", "true 1", "true 0"]
    );
    assert_eq!(
        (&page["executions"][0]["exit"], &page["next"]),
        (&json!("0"), &Value::Null)
    );
    // Some copies of one at a time, and all of them at no time.
    assert!(grown < 4 * LONG as u64, "grew by {grown} bytes");
}
