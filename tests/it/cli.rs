//! The real shellyctl against the real daemon.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::Daemon;

fn shellyctl(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shellyctl"));
    command.env("SHELLY_SOCKET", socket).args(args);
    command
}

fn run(daemon: &Daemon, args: &[&str]) -> Output {
    shellyctl(daemon.socket(), args)
        .output()
        .expect("shellyctl starts")
}

fn code(output: &Output) -> i32 {
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("shellyctl was killed: {output:?}"))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

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
fn status_shows_a_well_daemon() {
    let daemon = Daemon::start();
    let status = run(&daemon, &["status"]);
    assert_eq!(code(&status), 0, "{status:?}");
    assert!(text(&status.stdout).contains("Status: ok"), "{status:?}");
    let json = run(&daemon, &["--json", "status"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["status"], "ok");
}

#[test]
fn tools_are_listed_and_shown() {
    let daemon = Daemon::start();
    let list = run(&daemon, &["tools"]);
    assert!(
        text(&list.stdout)
            .lines()
            .any(|line| line.starts_with("bash ")),
        "{list:?}"
    );
    let json = run(&daemon, &["tools", "--json"]);
    let json: Vec<serde_json::Value> = serde_json::from_slice(&json.stdout).expect("an array");
    assert!(json.iter().any(|tool| tool["name"] == "bash"));
    let shown = run(&daemon, &["tools", "bash"]);
    assert!(text(&shown.stdout).contains("Input schema\n{"), "{shown:?}");
    let unknown = run(&daemon, &["tools", "bsh"]);
    assert_eq!(code(&unknown), 125);
    assert!(text(&unknown.stderr).contains("hint: "), "{unknown:?}");
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
    assert!(
        text(&unknown.stderr).contains("unknown_execution"),
        "{unknown:?}"
    );
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
    assert!(text(&invalid.stderr).contains("/command"), "{invalid:?}");
    assert_eq!(code(&run(&daemon, &["call", "bash", "not JSON"])), 2);
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

#[test]
fn no_daemon_is_told_with_a_hint() {
    let nowhere = Path::new("/nonexistent/executor.sock");
    let status = shellyctl(nowhere, &["status"])
        .output()
        .expect("shellyctl starts");
    assert_eq!(code(&status), 3);
    let tools = shellyctl(nowhere, &["tools"])
        .output()
        .expect("shellyctl starts");
    assert_eq!(code(&tools), 125);
    let told = text(&tools.stderr);
    assert!(
        told.contains("`/nonexistent/executor.sock`") && told.contains("hint: "),
        "{told}"
    );
}

#[test]
fn config_check_is_the_daemons_own() {
    let dir = std::env::temp_dir().join(format!("shellyctl-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("writable");
    let good = dir.join("good.toml");
    std::fs::write(&good, "default_timeout_secs = 5\n").expect("writable");
    let bad = dir.join("bad.toml");
    std::fs::write(&bad, "default_timeout_seconds = 5\n").expect("writable");
    let check = |path: &Path| {
        let args = ["config", "check", path.to_str().expect("UTF-8")];
        shellyctl(Path::new("/nonexistent"), &args)
            .output()
            .expect("shellyctl starts")
    };
    assert_eq!(code(&check(&good)), 0);
    let refused = check(&bad);
    assert_ne!(code(&refused), 0);
    assert!(
        text(&refused.stderr).contains("default_timeout_seconds"),
        "{refused:?}"
    );
    // Valid, but hardly what was meant.
    let tools = "[bsh]\ndescription = \"Run.\"\n";
    std::fs::write(dir.join("tools.toml"), tools).expect("writable");
    std::fs::write(&good, "shell = \"/bin/nosuch\"\n").expect("writable");
    let doubted = check(&good);
    assert_eq!(code(&doubted), 0);
    let told = text(&doubted.stdout);
    assert!(
        told.contains("/bin/nosuch") && told.contains("no tool `bsh`"),
        "{told}"
    );
    std::fs::remove_dir_all(&dir).expect("ours");
}

#[test]
fn completions_are_scripts() {
    for shell in ["bash", "zsh", "fish"] {
        let args = ["completions", shell];
        let script = shellyctl(Path::new("/nonexistent"), &args)
            .output()
            .expect("it starts");
        assert_eq!(code(&script), 0);
        assert!(text(&script.stdout).contains("shellyctl"));
    }
}
