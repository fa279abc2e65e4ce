//! The file tools, by calls alone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Daemon, Fifo, Reply, can_trace};

/// A daemon whose file tools work in a directory of its own.
pub(super) fn start() -> Daemon {
    start_with("")
}

pub(super) fn start_with(toml: &str) -> Daemon {
    let dir = crate::support::scratch();
    let base = dir.join("base");
    fs::create_dir_all(&base).expect("created");
    let toml = format!(
        "working_dir = {base:?}\n[cgroup]\nmode = \"group\"\n[files]\nbase_dirs = [{base:?}]\n{toml}"
    );
    fs::write(dir.join("executor.toml"), toml).expect("written");
    Daemon::launch(dir, None, |_| {})
}

pub(super) fn call(daemon: &Daemon, name: &str, input: Value) -> Reply {
    daemon.post(&json!({"name": name, "input": input}))
}

/// What the tool answers a program, having done its work.
#[track_caller]
pub(super) fn done(daemon: &Daemon, name: &str, input: Value) -> Value {
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
pub(super) fn holds(daemon: &Daemon, condition: &str, context: &Value) -> bool {
    let output = done(
        daemon,
        "check_condition",
        json!({"condition": condition, "context": context}),
    );
    output["result"].as_bool().expect("true or false")
}

pub(super) fn base(daemon: &Daemon) -> std::path::PathBuf {
    daemon.dir().join("base")
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
    let huge = 1.8446744073709552e19;
    for (input, pointer) in [
        (json!({}), "/file_path"),
        (json!({"file_path": ""}), "/file_path"),
        (json!({"file_path": "f", "start_line": "1"}), "/start_line"),
        (json!({"file_path": "f", "start_line": huge}), "/start_line"),
        (json!({"file_path": "f", "end_line": huge}), "/end_line"),
        (json!({"file_path": "f", "offset": huge}), "/offset"),
        (json!({"file_path": "f", "length": huge}), "/length"),
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

/// Nothing a file can be holds the daemon up.
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

/// A file system that does not answer, as one of another machine's, holds a thread and nobody else.
#[test]
fn a_path_that_nobody_answers_for_ends_with_the_call() {
    if !can_trace("a file system that does not answer") {
        return;
    }
    let mut daemon = start();
    let path = base(&daemon).join("lost");
    fs::write(&path, "x").expect("written");
    daemon.bash("true");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", "-P"]).arg(&path);
    strace.args([
        "-e",
        "trace=%file",
        "-e",
        "inject=%file:delay_enter=600000000",
        "-p",
    ]);
    strace.arg(daemon.pid().to_string()).stderr(Stdio::null());
    let mut strace = strace.spawn().expect("strace");
    daemon.wait_until("it is traced", || daemon.status("TracerPid") != 0);
    let read = |timeout: f64| {
        let input = json!({"file_path": path});
        daemon.post(&json!({"name": "read_file", "input": input, "timeout_secs": timeout}))
    };
    let reply = read(0.2);
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["code"]),
        (504, &json!("timeout")),
        "{body}"
    );
    assert_eq!(daemon.bash("echo others").stdout(), "others");
    // Nor does it keep the daemon from stopping.
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(600.0));
        daemon.wait_until("it runs", || daemon.get("/health").json()["running"] == 1);
        daemon.signal(Signal::SIGTERM);
        let body = reading.join().expect("answered").json();
        assert_eq!(body["code"], "shutting_down", "{body}");
    });
    let stat = format!("/proc/{}/stat", daemon.pid());
    daemon.wait_until("it has ended", || {
        let stat = fs::read_to_string(&stat).expect("nobody has waited for it");
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" Z"))
    });
    // It sees to what it held up for as long as it meant to.
    strace.kill().and_then(|()| strace.wait()).expect("ours");
    daemon.wait();
}

pub(super) fn streamed(daemon: &Daemon, name: &str, input: &Value) -> Reply {
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
