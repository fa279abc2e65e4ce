//! What the file tools may touch, by the policy and by the configuration.

use std::fs;

use serde_json::{Value, json};

use super::approvals::{approve, during, pending};
use super::files::{base, call, done, start, start_with, streamed};
use crate::support::{Daemon, Mode, scratch};

/// Rules see where a path leads, whatever it is called.
#[test]
fn rules_apply_by_path() {
    let dir = crate::support::scratch();
    let base = dir.join("base");
    fs::create_dir_all(base.join("secret")).expect("created");
    fs::write(base.join("secret/key"), "needle\n").expect("written");
    fs::write(base.join("plain"), "needle\n").expect("written");
    std::os::unix::fs::symlink("secret", base.join("alias")).expect("linked");
    let toml = format!(
        "working_dir = {base:?}\n[cgroup]\nmode = \"group\"\n[files]\nbase_dirs = [{base:?}]\n"
    );
    fs::write(dir.join("executor.toml"), toml).expect("written");
    let secret = base.join("secret");
    let policy = format!(
        "default = \"allow\"\ndeny = [\"read_file(file_path:{0}/**)\", \"write_file(file_path:{0}/**)\"]",
        secret.display()
    );
    fs::write(dir.join("policy.toml"), policy).expect("written");
    let daemon = Daemon::launch(dir, None, |_| {});
    for path in [
        "secret/key",
        "alias/key",
        "./alias/../secret/key",
        "secret//key",
    ] {
        for (name, input) in [
            ("read_file", json!({"file_path": path})),
            ("write_file", json!({"file_path": path, "content": ""})),
        ] {
            let reply = call(&daemon, name, input);
            assert_eq!(reply.status, 403, "{name} {path}: {}", reply.json());
            assert_eq!(reply.json()["judgement"]["verdict"], "deny");
        }
    }
    // A search passes over what may not be read.
    let found = done(&daemon, "search_files", json!({"pattern": "needle"}));
    assert_eq!(found["files"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(found["skipped"]["denied"], 1, "{found}");
    // Not even when it is named itself.
    for path in ["secret/key", "alias/key"] {
        let reply = call(
            &daemon,
            "search_files",
            json!({"pattern": "needle", "dir_path": path}),
        );
        assert_eq!(reply.status, 403, "{path}: {}", reply.json());
    }
}

/// What may not be touched has not been begun with.
#[test]
fn a_refusal_is_no_stream() {
    let daemon = start();
    for (name, input) in [
        ("read_file", json!({"file_path": "/etc/passwd"})),
        ("list_dir", json!({"dir_path": "/etc"})),
        ("search_files", json!({"dir_path": "/etc", "pattern": "a"})),
        ("write_file", json!({"file_path": "/etc/g", "content": "b"})),
    ] {
        let reply = streamed(&daemon, name, &input);
        let problem = reply.json();
        assert_eq!(
            (reply.status, &problem["code"]),
            (403, &json!("permission_denied")),
            "{name}: {problem}"
        );
        let id = problem["execution_id"].as_str().expect("an id");
        assert_eq!(daemon.ended(id)["started_at"], Value::Null);
    }
}

#[test]
fn what_can_only_be_refused_is_not_said_to_run_and_nobody_is_asked_about_it() {
    let toml = "confirm_write = true\n[confirmation]\nself_approval = true\n[access]\ncallers = [\"user:root\"]\napprovers = [\"user:root\"]\n";
    let daemon = start_with(toml);
    std::os::unix::fs::symlink("/etc", base(&daemon).join("out")).expect("made");
    fs::write(base(&daemon).join("f"), "a\n").expect("written");
    let explained = |name: &str, input: &Value| {
        let body = json!({"name": name, "input": input}).to_string();
        let mut connection = daemon.connect();
        let reply = connection.request("POST", "/permissions/explain", &[], body.as_bytes());
        reply.json()["verdict"].clone()
    };
    let outside = [
        ("read_file", json!({"file_path": "/etc/passwd"})),
        ("read_file", json!({"file_path": "out/passwd"})),
        ("list_dir", json!({"dir_path": "../.."})),
        ("search_files", json!({"dir_path": "/etc", "pattern": "x"})),
        (
            "write_file",
            json!({"file_path": "/etc/new", "content": ""}),
        ),
        ("write_file", json!({"file_path": "out/new", "content": ""})),
    ];
    for (name, input) in outside {
        assert_eq!(explained(name, &input), "deny", "{name} {input}");
        // Nobody is there to answer, if somebody is asked.
        let refused = call(&daemon, name, input.clone()).json();
        assert_eq!(refused["code"], "permission_denied", "{name}: {refused}");
    }
    let inside = [
        ("read_file", json!({"file_path": "f"}), "allow"),
        ("read_file", json!({"file_path": "not/there"}), "allow"),
        ("list_dir", json!({"dir_path": "."}), "allow"),
        (
            "write_file",
            json!({"file_path": "new", "content": ""}),
            "ask",
        ),
    ];
    for (name, input, expected) in inside {
        assert_eq!(explained(name, &input), expected, "{name} {input}");
    }
}

#[test]
fn somebody_is_asked_before_a_file_is_written() {
    let daemon = start_with("confirm_write = true\n[access]\napprovers = []\n");
    fs::write(base(&daemon).join("f"), "a\n").expect("written");
    let write = json!({"file_path": "f", "content": "b\n"});
    let refused = call(&daemon, "write_file", write);
    let body = refused.json();
    // With nobody to ask it is refused, and says by what.
    assert_eq!(refused.status, 403, "{body}");
    assert!(
        body["detail"].to_string().contains("confirm_write"),
        "{body}"
    );
    let shown = done(
        &daemon,
        "write_file",
        json!({"file_path": "f", "content": "b\n", "dry_run": true}),
    );
    assert_eq!(shown["dry_run"], true);
    let edit = json!({"file_path": "f", "search_pattern": "a", "replacement": "b"});
    assert_eq!(call(&daemon, "edit_file", edit).status, 403);
    assert_eq!(
        fs::read_to_string(base(&daemon).join("f")).expect("there"),
        "a\n"
    );
}

#[test]
fn without_file_tools_there_are_none() {
    let daemon = Daemon::start_with(Mode::Group, "[files]\nenabled = false");
    let tools = daemon.get("/tools").json();
    let names: Vec<&str> = tools
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["bash", "execute_command", "check_condition"]);
    let refused = call(&daemon, "read_file", json!({"file_path": "/tmp/x"}));
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (403, &json!("tool_disabled"))
    );
}

/// What a rule says of reading a file it says of a search in that file alone, and to whoever asks beforehand.
#[test]
fn one_file_is_searched_as_it_would_be_read() {
    let dir = crate::support::scratch();
    let base = dir.join("base");
    fs::create_dir_all(&base).expect("created");
    let toml = format!(
        "working_dir = {base:?}\n[cgroup]\nmode = \"group\"\n[files]\nbase_dirs = [{base:?}]\n[confirmation]\nself_approval = true\n[access]\napprovers = [\"user:root\"]\n"
    );
    fs::write(dir.join("executor.toml"), toml).expect("written");
    let (denied, asked) = ("denied.txt", "asked.txt");
    let rule = |name: &str| format!("read_file(file_path:{})", base.join(name).display());
    let policy = format!(
        "default = \"allow\"\ndeny = [{:?}]\nask = [{:?}]\n",
        rule(denied),
        rule(asked)
    );
    fs::write(dir.join("policy.toml"), policy).expect("written");
    for name in [denied, asked, "free.txt"] {
        fs::write(base.join(name), "s3cret\n").expect("written");
    }
    std::os::unix::fs::symlink(denied, base.join("link")).expect("made");
    let daemon = Daemon::launch(dir, None, |_| {});
    let search = |path: &str| {
        let input = json!({"pattern": "s3cret", "dir_path": path});
        json!({"name": "search_files", "input": input})
    };
    let explained = |path: &str| {
        let body = search(path).to_string();
        let mut connection = daemon.connect();
        let reply = connection.request("POST", "/permissions/explain", &[], body.as_bytes());
        let judgement = reply.json();
        (judgement["verdict"].clone(), judgement["rule"].clone())
    };
    for path in [denied, "link"] {
        let refused = daemon.post(&search(path));
        let body = refused.json();
        assert_eq!(body["code"], "permission_denied", "{body}");
        assert_eq!(body["stage"], "permission", "{body}");
        assert_eq!(body["judgement"]["rule"], rule(denied), "{body}");
        assert!(refused.content().contains("policy.toml:2"), "{body}");
        let reason = body["judgement"]["reason"].as_str().expect("text");
        assert!(reason.contains("this call of `search_files`"), "{reason}");
        assert_eq!(explained(path), (json!("deny"), json!(rule(denied))));
    }
    assert_eq!(explained(asked), (json!("ask"), json!(rule(asked))));
    let (reply, ()) = during(&daemon, &search(asked), || {
        approve(&daemon, &pending(&daemon));
    });
    assert!(reply.content().contains("s3cret"), "{}", reply.json());
    assert_eq!(explained("free.txt").0, "allow");
    assert!(
        daemon
            .post(&search("free.txt"))
            .content()
            .contains("s3cret")
    );
    // Of a directory they are passed over.
    let all = done(&daemon, "search_files", search(".")["input"].clone());
    assert_eq!(all["files"], json!([base.join("free.txt")]), "{all}");
    assert_eq!(all["skipped"]["denied"], 2, "{all}");
    assert_eq!(explained(".").0, "allow");
}

/// What SQLite has locked is let go of when any other descriptor of it is closed, and then the next who reads the
/// ledger takes what is not in its file yet.
#[test]
fn the_daemon_s_own_state_is_refused_and_stays_locked() {
    let dir = crate::support::scratch();
    let toml = format!("[cgroup]\nmode = \"group\"\n[files]\nbase_dirs = [{dir:?}]\n");
    fs::write(dir.join("executor.toml"), toml).expect("written");
    let daemon = Daemon::launch(dir, None, |_| {});
    let state = daemon.dir().join("state");
    let ledger = state.join("ledger.db");
    fs::hard_link(&ledger, daemon.dir().join("linked")).expect("linked");
    for path in [&ledger, &daemon.dir().join("linked"), &state.join("lock")] {
        let reply = call(&daemon, "read_file", json!({"file_path": path}));
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (403, &json!("permission_denied"))
        );
    }
    let everything = json!({"pattern": "x", "dir_path": daemon.dir(), "show_hidden": true});
    let searched = done(&daemon, "search_files", everything);
    assert_eq!(searched["skipped"]["denied"], 2, "{searched}");

    let somebody = rusqlite::Connection::open(&ledger).expect("a file");
    let count = "SELECT count(*) FROM executions";
    let count: Result<u64, _> = somebody.query_row(count, [], |row| row.get(0));
    count.expect("counted");
    drop(somebody);
    assert!(state.join("ledger.db-wal").exists());
    assert_eq!(daemon.get("/health").json()["problems"], json!([]));
}

/// Whoever writes the policy may do everything.
#[test]
fn what_the_daemon_may_do_is_not_written_by_its_tools() {
    let dir = scratch();
    let toml = format!("[cgroup]\nmode = \"group\"\n[files]\nbase_dirs = [{dir:?}]\n");
    fs::write(dir.join("executor.toml"), &toml).expect("written");
    let policy = "default = \"deny\"\nallow = [\"write_file\", \"edit_file\", \"read_file\"]\n";
    fs::write(dir.join("policy.toml"), policy).expect("written");
    std::os::unix::fs::symlink("policy.toml", dir.join("link")).expect("made");
    let daemon = Daemon::launch(dir, None, |_| {});
    let write = |name: &str| {
        let path = daemon.dir().join(name);
        let input = json!({"file_path": path, "content": "default = \"allow\"\n"});
        call(&daemon, "write_file", input)
    };
    // The last is not there.
    for name in [
        "policy.toml",
        "link",
        "executor.toml",
        "tools.toml",
        "skills",
    ] {
        let reply = write(name);
        assert_eq!(reply.status, 403, "{name}: {}", reply.content());
        assert!(
            reply.content().contains("an operator"),
            "{}",
            reply.content()
        );
    }
    let path = daemon.dir().join("policy.toml");
    let edit = json!({"file_path": path, "search_pattern": "deny", "replacement": "allow"});
    assert_eq!(call(&daemon, "edit_file", edit).status, 403);
    assert_eq!(fs::read_to_string(&path).expect("there"), policy);
    let read = call(&daemon, "read_file", json!({"file_path": path}));
    assert_eq!((read.status, write("other.toml").status), (200, 200));
}
