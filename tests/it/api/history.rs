//! What the ledger keeps, over the real socket: listed, repeated, cleared away, proved.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{begin, blocked, call, release};
use crate::support::{Daemon, Mode, Reply};

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

pub(super) fn id(reply: &Reply) -> String {
    let body = reply.json();
    body["execution_id"].as_str().expect("an id").to_owned()
}

/// A daemon that was killed without a word, started anew.
pub(super) fn killed(daemon: &mut Daemon) -> Daemon {
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    daemon.restart()
}

/// The names of what is in the spool, in order.
pub(super) fn spooled(daemon: &Daemon) -> Vec<String> {
    let files = fs::read_dir(daemon.dir().join("state/spool")).expect("a spool");
    let names = files.map(|file| file.expect("a file").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.into_string().expect("text"))
        .collect();
    names.sort();
    names
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
        ("tool=", "`tool`: is empty"),
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
fn outputs_that_have_given_way_to_newer_ones_cost_no_history() {
    let toml = "max_output_bytes = 1000\nspool_max_bytes = 1000000\nspool_total_bytes = 4000000\n\
                [ledger]\nmax_total_bytes = 16777216\nmax_history_size = 25";
    let daemon = Daemon::start_with(Mode::Group, toml);
    for _ in 0..30 {
        assert_eq!(daemon.bash("yes | head -c 1000000").status, 200);
    }
    daemon.wait_until("the oldest are forgotten", || {
        summaries(&list(&daemon, "")).len() <= 25
    });
    assert!(spooled(&daemon).len() <= 8);
    assert_eq!(summaries(&list(&daemon, "")).len(), 25);
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
    // By itself the trail looks sound, which is what the log is for. What is kept lacks what was cut off.
    let by_itself = daemon.get("/audit/verify").json();
    assert!(by_itself["head"].is_object(), "{by_itself}");
    let problem = by_itself["problem"].as_str().expect("text");
    assert!(problem.contains("no ending"), "{problem}");
    for (head, part) in [("5", "NUMBER:HASH"), ("x:00", "NUMBER:HASH")] {
        let reply = daemon.get(&format!("/audit/verify?head={head}"));
        assert_eq!(reply.status, 400);
        assert!(reply.content().contains(part));
    }
}

#[test]
fn what_the_history_says_is_held_against_the_trail() {
    let mut daemon = Daemon::start();
    let short = id(&daemon.bash("echo short"));
    // Longer than an answer, so that it lies in the spool.
    let long = id(&daemon.bash("seq 300000"));
    let read = json!({"file_path": "/etc/passwd"});
    let answer = id(&daemon.post(&json!({"name": "read_file", "input": read})));
    let refused = daemon.post(&json!({"name": "none", "input": {}}));
    assert_eq!(refused.status, 404);
    let verify = |daemon: &Daemon| daemon.get("/audit/verify").json();
    let whole = verify(&daemon);
    assert_eq!(
        (&whole["intact"], &whole["executions"]),
        (&json!(true), &json!(4)),
        "{whole}"
    );
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let state = daemon.dir().join("state");
    let ledger = rusqlite::Connection::open(state.join("ledger.db")).expect("a ledger");
    let text = |id: &str| {
        let hex = id.replace('-', "");
        format!("content = replace(content, 'o', '0') WHERE hex(id) = upper('{hex}')")
    };
    let set = |id: &str| ledger.execute_batch(&format!("UPDATE executions SET {}", text(id)));
    set(&short).expect("changed");
    set(&answer).expect("changed");
    let spooled = fs::read_dir(state.join("spool"))
        .expect("a spool")
        .flatten();
    let spooled = spooled.map(|entry| entry.path()).find(|path| {
        path.to_string_lossy().contains(&long) && path.to_string_lossy().contains("stdout")
    });
    let spooled = spooled.expect("its output");
    let output = fs::read_to_string(&spooled).expect("text");
    fs::write(&spooled, output.replace("299999", "299998")).expect("changed");
    drop(ledger);
    let daemon = daemon.restart();
    let found = verify(&daemon);
    assert_eq!(
        (&found["intact"], &found["executions"]),
        (&json!(false), &json!(1)),
        "{found}"
    );
    let problem = found["problem"].as_str().expect("text");
    assert!(
        problem.contains(&short) && problem.contains("2 others"),
        "{problem}"
    );
    assert!(found["head"]["hash"].is_string(), "{found}");
    // What is forgotten is not missed.
    daemon.connect().request("DELETE", "/executions", &[], b"");
    let found = verify(&daemon);
    assert_eq!(
        (&found["intact"], &found["executions"]),
        (&json!(true), &json!(0))
    );
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
