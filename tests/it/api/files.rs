//! The tools of seed 003, by calls alone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::approvals::{approve, during, pending};
use crate::support::{Daemon, Fifo, Mode, Reply};

/// A daemon whose file tools work in a directory of its own.
fn start() -> Daemon {
    start_with("")
}

fn start_with(toml: &str) -> Daemon {
    let dir = crate::support::scratch();
    let base = dir.join("base");
    fs::create_dir_all(&base).expect("created");
    let toml = format!(
        "working_dir = {base:?}\n[cgroup]\nmode = \"group\"\n[files]\nbase_dirs = [{base:?}]\n{toml}"
    );
    fs::write(dir.join("executor.toml"), toml).expect("written");
    Daemon::launch(dir, None, |_| {})
}

fn call(daemon: &Daemon, name: &str, input: Value) -> Reply {
    daemon.post(&json!({"name": name, "input": input}))
}

/// What the tool answers a program, having done its work.
#[track_caller]
fn done(daemon: &Daemon, name: &str, input: Value) -> Value {
    let reply = call(daemon, name, input);
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["is_error"]),
        (200, &json!(false)),
        "{body}"
    );
    body["output"].clone()
}

#[track_caller]
fn holds(daemon: &Daemon, condition: &str, context: &Value) -> bool {
    let output = done(
        daemon,
        "check_condition",
        json!({"condition": condition, "context": context}),
    );
    output["result"].as_bool().expect("true or false")
}

fn base(daemon: &Daemon) -> std::path::PathBuf {
    daemon.dir().join("base")
}

/// The seed's first example: run a script; if it prints 1, have it print 2; run it again.
#[test]
fn a_script_is_changed_when_it_prints_one() {
    let daemon = start();
    fs::write(base(&daemon).join("a.sh"), "#!/bin/sh\necho 1\n").expect("written");
    let run = || {
        let output = done(
            &daemon,
            "execute_command",
            json!({"command": "sh a.sh", "cwd": null}),
        );
        assert_eq!(output["return_code"], 0);
        output["stdout"].clone()
    };
    let script_output = run();
    let context = json!({"script_output": script_output});
    assert!(holds(&daemon, "script_output.strip() == '1'", &context));
    assert!(holds(
        &daemon,
        "condition_result == True",
        &json!({"condition_result": true})
    ));
    let read = done(&daemon, "read_file", json!({"file_path": "a.sh"}));
    assert_eq!(read["content"], "#!/bin/sh\necho 1\n");
    let edit = json!({
        "file_path": "a.sh", "search_pattern": "echo 1", "replacement": "echo 2", "regex": false,
        "expected_digest": read["digest"],
    });
    let edited = call(&daemon, "edit_file", edit).json();
    let diff = edited["content"].as_str().expect("a text");
    assert!(
        diff.contains("-echo 1") && diff.contains("+echo 2"),
        "{diff}"
    );
    assert!(holds(
        &daemon,
        "new_output.strip() == '2'",
        &json!({"new_output": run()})
    ));
}

/// The second: errors of a log are gathered in a file.
#[test]
fn errors_of_a_log_are_gathered() {
    let daemon = start();
    let lines: String = (1..=1000)
        .map(|n| match n % 400 {
            0 => format!("12:00:{n} ERROR no route to {n}\n"),
            _ => format!("12:00:{n} INFO all is well\n"),
        })
        .collect();
    fs::write(base(&daemon).join("app.log"), lines).expect("written");
    let found = done(
        &daemon,
        "search_files",
        json!({"pattern": "ERROR", "dir_path": "app.log"}),
    );
    assert_eq!(found["matches"], 2);
    let errors: Vec<&str> = found["lines"]
        .as_array()
        .expect("lines")
        .iter()
        .filter_map(|line| line["text"].as_str())
        .collect();
    let content = format!("{}\n", errors.join("\n"));
    done(
        &daemon,
        "write_file",
        json!({"file_path": "errors.txt", "content": content, "mode": "w"}),
    );
    done(
        &daemon,
        "write_file",
        json!({"file_path": "errors.txt", "content": "end\n", "mode": "a"}),
    );
    let written = fs::read_to_string(base(&daemon).join("errors.txt")).expect("there");
    assert_eq!(
        written,
        "12:00:400 ERROR no route to 400\n12:00:800 ERROR no route to 800\nend\n"
    );
}

/// The third: a configuration is read, looked at, and changed.
#[test]
fn a_configuration_is_switched() {
    let daemon = start();
    let config = base(&daemon).join("config.json");
    fs::write(&config, "{\n  \"debug\": false,\n  \"port\": 80\n}\n").expect("written");
    let read = done(&daemon, "read_file", json!({"file_path": "config.json"}));
    let text = read["content"].as_str().expect("a text");
    let parsed: Value = serde_json::from_str(text).expect("JSON");
    assert!(holds(
        &daemon,
        "config['debug'] == False",
        &json!({"config": parsed})
    ));
    let edit = json!({
        "file_path": "config.json", "search_pattern": "(\"debug\": )false", "replacement": "${1}true",
        "regex": true,
    });
    done(&daemon, "edit_file", edit);
    let changed = fs::read_to_string(&config).expect("there");
    assert_eq!(changed, "{\n  \"debug\": true,\n  \"port\": 80\n}\n");
}

/// What could not be done is an answer for the model, and what may not be is refused.
#[test]
fn what_cannot_be_done_says_why() {
    let daemon = start();
    let missing = call(&daemon, "read_file", json!({"file_path": "none"}));
    let body = missing.json();
    assert_eq!((missing.status, &body["is_error"]), (200, &json!(true)));
    assert!(body["content"].to_string().contains("none"), "{body}");
    assert!(body.get("output").is_none());
    let record = daemon.ended(body["execution_id"].as_str().expect("an id"));
    assert_eq!(
        (&record["status"], &record["result"]),
        (&json!("error"), &body)
    );
    for path in [
        "/etc/passwd",
        "../executor.toml",
        "/proc/self/environ",
        "~/x",
    ] {
        let denied = call(&daemon, "read_file", json!({"file_path": path}));
        let body = denied.json();
        assert_eq!(
            (denied.status, &body["code"]),
            (403, &json!("permission_denied")),
            "{path}: {body}"
        );
    }
    for (input, pointer) in [
        (json!({}), "/file_path"),
        (json!({"file_path": ""}), "/file_path"),
        (json!({"file_path": "f", "start_line": "1"}), "/start_line"),
    ] {
        let invalid = call(&daemon, "read_file", input);
        assert_eq!(
            (invalid.status, &invalid.json()["errors"][0]["pointer"]),
            (422, &json!(pointer))
        );
    }
    // To JSON Schema these are integers, to us the first is one.
    for (start_line, status) in [(json!(2.0), 200), (json!(1e300), 422), (json!(2.5), 422)] {
        let input = json!({"file_path": "none", "start_line": start_line});
        let reply = call(&daemon, "read_file", input);
        assert_eq!(reply.status, status, "{start_line}: {}", reply.json());
    }
    let no_expression = call(&daemon, "check_condition", json!({"condition": "1 +"}));
    assert_eq!(
        (
            no_expression.status,
            &no_expression.json()["errors"][0]["pointer"]
        ),
        (422, &json!("/condition"))
    );
    let unknown = call(&daemon, "check_condition", json!({"condition": "a == 1"})).json();
    assert_eq!(unknown["is_error"], true);
    assert!(unknown["content"].to_string().contains('a'));
}

/// Nothing a file can be holds the daemon up.
/// Whatever the daemon's umask, which is for files of its own.
#[test]
fn what_is_made_is_for_everybody_to_read() {
    let daemon = start();
    let input =
        json!({"file_path": base(&daemon).join("a/b/f"), "content": "x", "create_dirs": true});
    done(&daemon, "write_file", input);
    for (name, mode) in [("a", 0o755), ("a/b", 0o755), ("a/b/f", 0o644)] {
        let meta = fs::metadata(base(&daemon).join(name)).expect("made");
        assert_eq!(meta.permissions().mode() & 0o7777, mode, "{name}");
    }
}

#[test]
fn a_pipe_does_not_hang() {
    let daemon = start();
    let fifo = Fifo::new(base(&daemon).join("pipe"));
    for (name, input) in [
        ("read_file", json!({"file_path": "pipe"})),
        ("write_file", json!({"file_path": "pipe", "content": "x"})),
        (
            "write_file",
            json!({"file_path": "pipe", "content": "x", "mode": "a"}),
        ),
        (
            "edit_file",
            json!({"file_path": "pipe", "search_pattern": "x", "replacement": "y"}),
        ),
        ("search_files", json!({"pattern": "x"})),
    ] {
        let reply = call(&daemon, name, input);
        assert_eq!(reply.status, 200, "{name}: {}", reply.json());
    }
    assert!(fifo.path().exists());
}

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

/// A pattern that takes long to look for ends with its time.
#[test]
fn a_pattern_that_takes_long_ends_in_time() {
    let daemon = start();
    fs::write(base(&daemon).join("long"), "A".repeat(10 << 20)).expect("written");
    for replace_all in [false, true] {
        let call = json!({
            "name": "edit_file", "timeout_secs": 0.5,
            "input": {
                "file_path": "long", "search_pattern": ".*[^A-Z]|[A-Z]", "replacement": "b",
                "regex": true, "replace_all": replace_all,
            },
        });
        let reply = daemon.post(&call);
        // Either it was stopped or there were too many matches to go on counting.
        assert!(matches!(reply.status, 200 | 504), "{}", reply.json());
    }
    let busy = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).expect("it runs");
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .expect("fields")
            .split(' ')
            .collect();
        fields[12].parse::<u64>().expect("a number")
    };
    daemon.wait_until("no thread is busy any more", || {
        let before = busy();
        std::thread::sleep(std::time::Duration::from_millis(300));
        busy() - before < 10
    });
}

fn streamed(daemon: &Daemon, name: &str, input: &Value) -> Reply {
    let body = json!({"name": name, "input": input}).to_string();
    let headers = [("Accept", "text/event-stream")];
    let mut connection = daemon.connect();
    connection.request("POST", "/execute", &headers, body.as_bytes())
}

/// A stream ends for tools that write nothing, too.
#[test]
fn a_stream_comes_to_its_end() {
    let daemon = start();
    fs::write(base(&daemon).join("f"), "a\n").expect("written");
    for (name, input) in [
        ("read_file", json!({"file_path": "f"})),
        ("read_file", json!({"file_path": "none"})),
        ("list_dir", json!({"dir_path": "."})),
        ("search_files", json!({"dir_path": ".", "pattern": "a"})),
        ("write_file", json!({"file_path": "g", "content": "b"})),
        ("check_condition", json!({"condition": "1 == 1"})),
    ] {
        let reply = streamed(&daemon, name, &input);
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        for part in ["event: started", "event: result", "\"status\":200"] {
            assert!(text.contains(part), "{name} {input}: {text}");
        }
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

/// A secret in a file is masked like one in an output, the digest is that of the file.
#[test]
fn secrets_in_files_are_masked() {
    let daemon = start();
    let token = format!("ghp_{}", "a1B2".repeat(9));
    fs::write(base(&daemon).join("f"), format!("token = {token}\n")).expect("written");
    let body = call(&daemon, "read_file", json!({"file_path": "f"})).json();
    assert!(!body.to_string().contains(&token), "{body}");
    assert!(
        body["output"]["content"].to_string().contains("***"),
        "{body}"
    );
    let found = call(&daemon, "search_files", json!({"pattern": "token"})).json();
    assert!(!found.to_string().contains(&token), "{found}");
    assert!(Path::new(&base(&daemon)).join("f").exists());
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

/// Of those who edit, overwrite and append at once, each that was told so has done it.
#[test]
fn what_was_told_to_be_done_is_in_the_file_however_many_write() {
    const CLIENTS: usize = 8;
    const TIMES: usize = 30;
    let daemon = start();
    let file = base(&daemon).join("f");
    fs::write(&file, "<\n").expect("written");
    let told: Vec<String> = std::thread::scope(|scope| {
        let client = |client: usize| {
            let daemon = &daemon;
            scope.spawn(move || {
                let mark = |n: usize| format!("{client}-{n},");
                let does = |n: &usize| {
                    let appends = n.is_multiple_of(3);
                    let input = match appends {
                        true => json!({"file_path": "f", "content": mark(*n), "mode": "a"}),
                        false => json!({"file_path": "f", "search_pattern": "<", "replacement": format!("<{}", mark(*n))}),
                    };
                    let tool = if appends { "write_file" } else { "edit_file" };
                    let reply = call(daemon, tool, input);
                    reply.status == 200 && reply.json()["is_error"] == false
                };
                (0..TIMES).filter(does).map(mark).collect::<Vec<_>>()
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let told = clients
            .into_iter()
            .flat_map(|one| one.join().expect("no panic"));
        told.collect()
    });
    let text = fs::read_to_string(&file).expect("there");
    let lost: Vec<&String> = told.iter().filter(|mark| !text.contains(*mark)).collect();
    assert!(lost.is_empty(), "of {}: {lost:?}", told.len());
    assert!(told.len() > CLIENTS, "{}", told.len());
    assert_eq!(
        text.matches(',').count(),
        told.len(),
        "nothing else is there"
    );
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
