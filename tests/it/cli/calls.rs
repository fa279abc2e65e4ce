//! What runs something: `exec`, `call` and `cancel`.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::events::Telling;
use super::{code, json, run, shellyctl, text};
use crate::support::{Daemon, Fifo, Mode};

/// shellyctl with its first line of output read, so that the command is known to run.
struct Running {
    child: Child,
    first_line: String,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(daemon: &Daemon, args: &[&str]) -> Self {
        let mut command = shellyctl(daemon.socket(), args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("shellyctl starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut first_line = String::new();
        stdout.read_line(&mut first_line).expect("a line");
        Self {
            child,
            first_line: first_line.trim_end().to_owned(),
            stdout,
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        kill(pid, signal).expect("shellyctl is there");
    }

    /// The exit code, the rest of standard output, and standard error.
    fn end(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).expect("UTF-8");
        self.child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut err)
            .expect("UTF-8");
        (self.child.wait().expect("it ends").code(), out, err)
    }
}

#[test]
fn exec_keeps_the_streams_apart_and_ends_as_the_command_did() {
    let daemon = Daemon::start();
    let ended = run(&daemon, &["exec", "--", "echo out; echo err >&2; exit 7"]);
    assert_eq!(code(&ended), 7);
    assert_eq!(
        (text(&ended.stdout), text(&ended.stderr)),
        ("out\n", "err\n")
    );
    assert_eq!(code(&run(&daemon, &["exec", "kill -SEGV $$"])), 128 + 11);
}

#[test]
fn exec_passes_arguments_directory_environment_and_input() {
    let daemon = Daemon::start();
    let words = run(
        &daemon,
        &[
            "exec", "--", "printf", "%s\\n", "a b", "it's", "$HOME", "--json",
        ],
    );
    assert_eq!(text(&words.stdout), "a b\nit's\n$HOME\n--json\n");
    let args = [
        "exec",
        "--cwd",
        "/usr",
        "--env",
        "A=b=c",
        "--stdin",
        "pwd; echo $A; cat",
    ];
    let mut command = shellyctl(daemon.socket(), &args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("shellyctl starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all("hällo".as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stdout), "/usr\nb=c\nhällo");
}

#[test]
fn exec_streams_live() {
    let daemon = Daemon::start();
    let fifo = daemon.dir().join("go");
    let script = format!(
        "mkfifo {0}; echo begin; read word < {0}; echo $word",
        fifo.display()
    );
    let running = Running::start(&daemon, &["exec", &script]);
    assert_eq!(running.first_line, "begin");
    std::fs::write(&fifo, "end\n").expect("the command reads it");
    assert_eq!(running.end(), (Some(0), "end\n".to_owned(), String::new()));
}

/// What goes beyond the cap of one stream does not wait until the other has nothing to say.
#[test]
fn exec_streams_live_beyond_the_cap() {
    let daemon = Daemon::start();
    let go = daemon.dir().join("go");
    let script = format!(
        "seq 200000; echo beyond; until [ -e {} ]; do echo busy >&2; sleep 0.05; done; echo end",
        go.display()
    );
    let telling = Telling::start(&daemon, &["exec", &script]);
    telling.until("beyond");
    std::fs::write(&go, "").expect("written");
    assert_eq!(telling.line(), "end");
}

/// `shellyctl exec … > file && …` must not go on with a part of it.
#[test]
fn exec_does_not_end_well_where_the_daemon_did_not_keep_everything() {
    let daemon = Daemon::start_with(
        Mode::Group,
        "spool_max_bytes = 2000\nmax_output_bytes = 1000\n",
    );
    for (script, status) in [
        ("printf %02000d 0", 0),
        ("printf %05000d 0", 125),
        ("printf %05000d 0 >&2", 125),
        ("printf %05000d 0; exit 3", 3),
        ("printf %05000d 0; kill $$", 128 + 15),
    ] {
        let output = run(&daemon, &["exec", script]);
        assert_eq!(code(&output), status, "{script}: {output:?}");
        let told = text(&output.stderr).contains("3000 of the 5000 bytes of std");
        assert_eq!(told, status != 0, "{script}: {output:?}");
        let list = json(&daemon, &["history", "-n", "1"]);
        let id = list["executions"][0]["execution_id"].as_str().expect("one");
        assert_eq!(code(&run(&daemon, &["replay", id])), status, "{script}");
    }
    // Programs get the answer, which says itself what of the output it has.
    let answer = run(&daemon, &["exec", "--json", "printf %05000d 0"]);
    assert_eq!(code(&answer), 0, "{answer:?}");
}

#[test]
fn exec_is_right_to_the_byte_beyond_text_and_beyond_the_cap() {
    let daemon = Daemon::start();
    let file = daemon.dir().join("bytes");
    let bytes: Vec<u8> = (0..3_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(&file, &bytes).expect("writable");
    let output = run(
        &daemon,
        &["exec", "--", "cat", file.to_str().expect("UTF-8")],
    );
    assert_eq!(code(&output), 0);
    assert!(
        output.stdout == bytes,
        "{} bytes came out of {}",
        output.stdout.len(),
        bytes.len()
    );
}

#[test]
fn exec_tells_time_limits_and_refusals_apart() {
    let daemon = Daemon::start();
    let late = run(&daemon, &["exec", "--timeout", "2", "echo begun; sleep 60"]);
    assert_eq!((code(&late), text(&late.stdout)), (124, "begun\n"));
    let refused = run(&daemon, &["exec", "--timeout", "1000000", "true"]);
    assert_eq!(code(&refused), 125);
    assert!(
        text(&refused.stderr).contains("malformed_request"),
        "{refused:?}"
    );
    for limit in ["0", "-1", "soon"] {
        let wrong = run(&daemon, &["exec", "--timeout", limit, "true"]);
        assert_eq!(code(&wrong), 2);
        let told = text(&wrong.stderr);
        assert!(told.contains("a number of seconds above 0"), "{told}");
    }
}

#[test]
fn a_workspace_that_was_not_used_is_told() {
    let daemon = Daemon::start();
    let input = r#"{"command": "true"}"#;
    for args in [
        &["exec", "--workspace", "/tmp", "--", "true"][..],
        &["call", "--workspace", "/tmp", "bash", input],
    ] {
        let outside = run(&daemon, args);
        assert_eq!(code(&outside), 0, "{outside:?}");
        let told = text(&outside.stderr);
        assert!(
            told.contains("--workspace /tmp was not used") && told.contains("--untrusted"),
            "{told}"
        );
    }
    // What never ran was not outside either.
    let refused = run(
        &daemon,
        &["exec", "--workspace", "/tmp", "--untrusted", "true"],
    );
    assert!(!text(&refused.stderr).contains("not used"), "{refused:?}");
}

#[test]
fn both_give_programs_the_same_answer() {
    let daemon = Daemon::start();
    let members = |args: &[&str]| {
        let output = run(&daemon, args);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let members = json.as_object().expect("an object").keys().cloned();
        members.collect::<Vec<_>>()
    };
    let call = members(&["call", "--json", "bash", r#"{"command": "true"}"#]);
    assert_eq!(members(&["exec", "--json", "true"]), call);
    assert!(!call.contains(&"status".to_owned()), "{call:?}");
}

#[test]
fn a_signal_cancels_a_call_too() {
    let daemon = Daemon::start();
    let fifo = Fifo::new(daemon.dir().join("go"));
    let pid_file = daemon.dir().join("pid");
    let (at, pid) = (fifo.path().display(), pid_file.display());
    let script = format!("echo begun; echo $$ > {pid}; read _ < {at}");
    let input = serde_json::json!({ "command": script }).to_string();
    let mut command = shellyctl(daemon.socket(), &["call", "bash", &input]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("shellyctl starts");
    let _held = fifo.reached();
    let pid = std::fs::read_to_string(&pid_file).expect("written");
    let process = PathBuf::from("/proc").join(pid.trim());
    assert!(process.exists());
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    kill(pid, Signal::SIGINT).expect("shellyctl is there");
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(code(&ended), 130, "{ended:?}");
    assert_eq!(text(&ended.stdout), "[stdout]\nbegun\n\n[cancelled]\n");
    assert!(text(&ended.stderr).contains("(cancelled)"), "{ended:?}");
    assert!(!process.exists());
}

#[test]
fn signals_cancel_and_leave_nothing_running() {
    let daemon = Daemon::start();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let running = Running::start(&daemon, &["exec", "echo $$; exec sleep 60"]);
        let process = PathBuf::from("/proc").join(&running.first_line);
        assert!(process.exists());
        running.signal(signal);
        let (code, _, err) = running.end();
        assert_eq!(code, Some(130), "{signal}: {err}");
        // The daemon had killed and reaped it before shellyctl ended.
        assert!(!process.exists(), "{signal}");
    }
}

/// Of whoever wants it to go on without the terminal.
#[test]
fn a_signal_that_is_ignored_stays_so() {
    let daemon = Daemon::start();
    let fifo = Fifo::new(daemon.dir().join("go"));
    let script = format!("read _ < {}; echo on", fifo.path().display());
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_shellyctl"));
    command
        .args(["exec", &script])
        .env("SHELLY_SOCKET", daemon.socket());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("nohup starts");
    let held = fifo.reached();
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    kill(pid, Signal::SIGHUP).expect("shellyctl is there");
    drop(held);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(
        (code(&ended), text(&ended.stdout)),
        (0, "on\n"),
        "{ended:?}"
    );
}

#[test]
fn a_second_signal_does_not_wait() {
    let daemon = Daemon::start();
    let running = Running::start(&daemon, &["exec", "trap '' TERM; echo begin; sleep 60"]);
    daemon.signal(Signal::SIGSTOP);
    running.signal(Signal::SIGINT);
    // Two of one kind may merge into one; two kinds do not.
    running.signal(Signal::SIGTERM);
    let ended = running.end();
    daemon.signal(Signal::SIGCONT);
    assert_eq!(ended.0, Some(130), "{ended:?}");
}

#[test]
fn a_daemon_that_goes_away_is_told() {
    let daemon = Daemon::start();
    let running = Running::start(&daemon, &["exec", "echo begin; exec sleep 60"]);
    daemon.signal(Signal::SIGKILL);
    let (code, _, err) = running.end();
    assert_eq!(code, Some(125));
    assert!(err.contains("the daemon went away"), "{err}");
}

#[test]
fn an_execution_can_be_cancelled_by_its_id() {
    let daemon = Daemon::start();
    let running = Running::start(
        &daemon,
        &["exec", "echo $SHELLY_EXECUTION_ID; exec sleep 60"],
    );
    let cancelled = run(&daemon, &["cancel", &running.first_line]);
    assert_eq!(
        text(&cancelled.stdout),
        format!("{} is cancelled\n", running.first_line)
    );
    let again = run(&daemon, &["cancel", &running.first_line]);
    assert_eq!((code(&again), &again.stdout), (0, &cancelled.stdout));
    assert_eq!(running.end().0, Some(130));
    let unknown = run(&daemon, &["cancel", "0198c0de-0000-7000-8000-000000000000"]);
    assert_eq!(code(&unknown), 125);
    let told = text(&unknown.stderr);
    assert!(told.contains("unknown_execution"), "{told}");
    assert_eq!(told.matches("kept").count(), 1, "{told}");
}

#[test]
fn call_prints_what_a_model_would_get() {
    let daemon = Daemon::start();
    let hello = run(&daemon, &["call", "bash", r#"{"command": "echo hello"}"#]);
    assert_eq!(
        (code(&hello), text(&hello.stdout)),
        (0, "[stdout]\nhello\n\n[exit_code]\n0\n")
    );
    let failed = run(
        &daemon,
        &["call", "bash", r#"{"command": "exit 3"}"#, "--json"],
    );
    assert_eq!(code(&failed), 1);
    let json: serde_json::Value = serde_json::from_slice(&failed.stdout).expect("JSON");
    assert_eq!(json["exit_code"], 3);
    let invalid = run(&daemon, &["call", "bash", r#"{"command": 1}"#]);
    assert_eq!((code(&invalid), invalid.stdout.len()), (125, 0));
    let told = text(&invalid.stderr);
    assert_eq!(told.matches("/command").count(), 1, "{told}");
    assert_eq!(code(&run(&daemon, &["call", "bash", "not JSON"])), 2);
}

#[test]
fn call_passes_time_limit_directory_and_environment() {
    let daemon = Daemon::start();
    let input = r#"{"command": "pwd; echo $A"}"#;
    let args = ["call", "--cwd", "/usr", "--env", "A=b=c", "bash", input];
    let told = run(&daemon, &args);
    assert_eq!(
        text(&told.stdout),
        "[stdout]\n/usr\nb=c\n\n[exit_code]\n0\n"
    );
    let input = r#"{"command": "exec sleep 60"}"#;
    let late = run(&daemon, &["call", "--timeout", "0.2", "bash", input]);
    assert_eq!(code(&late), 124, "{late:?}");
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let daemon = Daemon::start();
    let mut running = Running::start(&daemon, &["exec", "echo $$; exec yes"]);
    let process = PathBuf::from("/proc").join(&running.first_line);
    drop(running.stdout);
    let mut err = String::new();
    running
        .child
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut err)
        .expect("UTF-8");
    assert_eq!(
        (running.child.wait().expect("it ends").code(), err.as_str()),
        (Some(141), "")
    );
    // The hang-up cancels; the daemon gets there on its own time.
    daemon.wait_until("the command is gone", || !process.exists());
}

/// Whoever did not hear the verdict is not told that it was good.
#[test]
fn a_verdict_that_nobody_reads_is_no_success() {
    let daemon = Daemon::start();
    for arguments in [
        &["exec", "--json", "exit 3"][..],
        &["call", "bash", r#"{"command": "exit 3"}"#],
        &["status"],
        &["audit", "verify", "--json"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = shellyctl(daemon.socket(), arguments);
        command.stdout(writer).stderr(Stdio::piped());
        let ended = command
            .spawn()
            .expect("shellyctl starts")
            .wait_with_output();
        let ended = ended.expect("waited for");
        let err = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(141), "{arguments:?}: {err}");
    }
}

/// What the last try writes begins at its own beginning, and is not taken for what came before.
#[test]
fn each_try_is_passed_on_whole() {
    let retries = "idempotent = true\nretries = { max = 1, delay_ms = 1, exit_codes = true }";
    let daemon = Daemon::start_with(Mode::Group, &format!("[flow.tools.bash]\n{retries}\n"));
    let mark = daemon.dir().join("mark");
    let script = format!(
        "[ -e {mark} ] && {{ echo second; exit; }}; touch {mark}; echo the first; exit 1",
        mark = mark.display()
    );
    let output = run(&daemon, &["exec", "--", &script]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert_eq!(text(&output.stdout), "the first\nsecond\n", "{output:?}");
}
