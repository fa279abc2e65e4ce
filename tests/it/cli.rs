//! The real shellyctl against the real daemon.

mod approvals;
mod calls;
mod events;
mod history;
mod policy;
mod terminal;
mod tools;
mod top;

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use nix::sys::signal::{self, SigHandler, Signal};

use crate::support::Daemon;

fn shellyctl(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shellyctl"));
    command.env("SHELLY_SOCKET", socket).args(args);
    // SAFETY: signal(2) is async-signal-safe.
    unsafe { command.pre_exec(default_signals) };
    command
}

/// Whoever runs the tests in the background may have them ignored.
fn default_signals() -> io::Result<()> {
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        // SAFETY: no handler is set.
        unsafe { signal::signal(signal, SigHandler::SigDfl) }?;
    }
    Ok(())
}

pub fn run(daemon: &Daemon, args: &[&str]) -> Output {
    shellyctl(daemon.socket(), args)
        .output()
        .expect("shellyctl starts")
}

pub fn code(output: &Output) -> i32 {
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("shellyctl was killed: {output:?}"))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// What shellyctl prints with `--json`.
fn json(daemon: &Daemon, args: &[&str]) -> serde_json::Value {
    let output = run(daemon, &[&["--json"], args].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
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
fn an_empty_variable_is_as_good_as_none() {
    let args = ["completions", "bash"];
    let script = shellyctl(Path::new(""), &args).output();
    assert_eq!(code(&script.expect("shellyctl starts")), 0);
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/executor.toml");
    let mut check = Command::new(env!("CARGO_BIN_EXE_shelly-executord"));
    check.env("SHELLY_SOCKET", "");
    check.args(["--check-config", "--config"]).arg(shipped);
    assert_eq!(code(&check.output().expect("the daemon starts")), 0);
}

#[test]
fn the_usage_names_only_what_is_missing() {
    let usage = shellyctl(Path::new("/nonexistent"), &["exec"]).output();
    let usage = usage.expect("shellyctl starts");
    assert_eq!(code(&usage), 2);
    assert!(!text(&usage.stderr).contains("--socket"), "{usage:?}");
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
    let description = text(&list.stdout).lines().nth(1).expect("a tool");
    assert_eq!(description.matches(". ").count(), 0, "{description}");
    let shown = run(&daemon, &["tools", "bash"]);
    assert!(text(&shown.stdout).contains("Input schema\n{"), "{shown:?}");
    let unknown = run(&daemon, &["tools", "bsh"]);
    assert_eq!(code(&unknown), 125);
    assert!(text(&unknown.stderr).contains("hint: "), "{unknown:?}");
}

#[test]
fn no_daemon_is_told_with_a_hint() {
    let nowhere = Path::new("/nonexistent/executor.sock");
    let status = shellyctl(nowhere, &["status"])
        .output()
        .expect("shellyctl starts");
    assert_eq!(code(&status), 3);
    let json = shellyctl(nowhere, &["status", "--json"])
        .output()
        .expect("shellyctl starts");
    assert_eq!(code(&json), 3);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["status"], "unreachable");
    let detail = json["detail"].as_str().expect("text");
    assert!(detail.contains("`/nonexistent/executor.sock`"), "{detail}");
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
    let shellyctl = |args: &[&str], path: &Path| {
        let mut command = shellyctl(Path::new("/nonexistent"), args);
        command.arg(path).output().expect("shellyctl starts")
    };
    let check = |path: &Path| shellyctl(&["config", "check"], path);
    assert_eq!(code(&check(&good)), 0);
    let refused = check(&bad);
    assert_ne!(code(&refused), 0);
    assert!(
        text(&refused.stderr).contains("default_timeout_seconds"),
        "{refused:?}"
    );
    let check = |path: &Path| {
        let output = shellyctl(&["config", "check", "--json"], path);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (code(&output), json)
    };
    let (status, found) = check(&good);
    assert_eq!((status, &found["valid"]), (0, &true.into()), "{found}");
    assert_eq!(found["path"], good.to_str().expect("UTF-8"));
    let (status, found) = check(&bad);
    assert_eq!((status, &found["valid"]), (78, &false.into()), "{found}");
    let error = found["error"].as_str().expect("text");
    assert!(error.contains("default_timeout_seconds"), "{error}");
    // Valid, but hardly what was meant.
    let tools = "[bsh]\ndescription = \"Run.\"\n";
    std::fs::write(dir.join("tools.toml"), tools).expect("writable");
    std::fs::write(&good, "shell = \"/bin/nosuch\"\n").expect("writable");
    let (status, found) = check(&good);
    assert_eq!(status, 0, "{found}");
    let warnings = found["warnings"].to_string();
    assert!(
        warnings.contains("/bin/nosuch") && warnings.contains("no tool `bsh`"),
        "{warnings}"
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
