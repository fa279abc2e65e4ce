//! `shellyctl policy`: what would become of a call, and whether a policy file is what it should be.

use std::fs;

use super::{code, run, text};
use crate::support::{Daemon, scratch};

const POLICY: &str = "\
default = \"ask\"
deny = [{ rule = \"bash(command:rm *)\", reason = \"Nothing is removed here.\", match = [\"rm -rf /\"], not_match = [\"echo rm\"] }]
allow = [\"bash(command:git status)\"]
";

fn start() -> Daemon {
    let dir = scratch();
    fs::write(dir.join("executor.toml"), "[cgroup]\nmode = \"group\"\n").expect("written");
    fs::write(dir.join("policy.toml"), POLICY).expect("written");
    Daemon::launch(dir, None, |_| {})
}

#[test]
fn explain_says_the_verdict_and_what_decided() {
    let daemon = start();
    let explain = |script: &str| run(&daemon, &["policy", "explain", "--", script]);
    let denied = explain("git status && rm -rf /");
    assert_eq!(code(&denied), 1, "{denied:?}");
    let said = text(&denied.stdout);
    for part in [
        "deny: Nothing is removed here.",
        "bash(command:rm *)",
        "policy.toml:2",
        "rm -rf /",
        "To change: ",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let asked = explain("git push");
    assert_eq!(code(&asked), 1, "{asked:?}");
    assert!(
        text(&asked.stdout).contains("To allow: bash(command:git push)"),
        "{asked:?}"
    );
    let allowed = explain("git status");
    assert_eq!(code(&allowed), 0, "{allowed:?}");
    assert!(text(&allowed.stdout).starts_with("allow: "), "{allowed:?}");
    let json = run(&daemon, &["--json", "policy", "explain", "rm", "-rf", "/"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["segment"], "rm -rf /");
    let input = r#"{"command": "git status"}"#;
    let by_tool = run(&daemon, &["policy", "explain", "--tool", "bash", input]);
    assert_eq!(code(&by_tool), 0, "{by_tool:?}");
    let confined = ["policy", "explain", "--untrusted", "--", "git status"];
    let confined = run(&daemon, &confined);
    let said = text(&confined.stdout);
    assert!(
        said.contains("Runs: in the sandbox (untrusted)\n"),
        "{said}"
    );
    assert!(!text(&allowed.stdout).contains("sandbox"), "{allowed:?}");
}

#[test]
fn test_holds_every_example_against_its_rule() {
    let daemon = start();
    let path = daemon.dir().join("policy.toml");
    let path = path.to_str().expect("UTF-8");
    let tested = run(&daemon, &["policy", "test", path]);
    assert_eq!(code(&tested), 0, "{tested:?}");
    let said = text(&tested.stdout);
    assert!(said.contains("matches \"rm -rf /\""), "{said}");
    assert!(said.contains("does not match \"echo rm\""), "{said}");
    assert!(said.contains("2 rules, 2 examples hold"), "{said}");
    fs::write(path, POLICY.replace("echo rm", "rm x")).expect("written");
    let failed = run(&daemon, &["policy", "test", path]);
    assert_eq!(code(&failed), 78, "{failed:?}");
    assert!(
        text(&failed.stderr).contains("policy.toml:2: "),
        "{failed:?}"
    );
}

/// Nobody is to think that a running daemon was asked, or that it was another program.
#[test]
fn a_check_says_whose_files_it_is_about_in_the_name_of_shellyctl() {
    let daemon = start();
    let note = format!(
        "shellyctl: the daemon on `{}` is not asked",
        daemon.socket().display()
    );
    let path = daemon.dir().join("broken.toml");
    fs::write(&path, "deny = 1\n").expect("written");
    let path = path.to_str().expect("UTF-8");
    for command in [["policy", "test"], ["config", "check"]] {
        let told = run(&daemon, &command);
        assert!(text(&told.stderr).contains(&note), "{told:?}");
        assert!(
            [&told.stdout, &told.stderr]
                .iter()
                .any(|said| text(said).contains("/etc/shelly-executor/")),
            "{told:?}"
        );
        let told = run(&daemon, &[&command[..], &[path]].concat());
        let said = text(&told.stderr);
        assert_eq!(code(&told), 78, "{told:?}");
        assert!(
            said.starts_with(&format!("shellyctl: {path}:1: ")),
            "{said}"
        );
        assert!(!said.contains("not asked"), "{said}");
    }
}

#[test]
fn explain_of_what_is_no_input_says_what_to_do() {
    let daemon = start();
    let explain = |tool: &str| run(&daemon, &["policy", "explain", "--tool", tool, "--", "ls"]);
    let told = explain("bsh");
    let said = text(&told.stderr);
    assert!(said.contains("did you mean `bash`?"), "{said}");
    assert!(!said.contains("JSON"), "{said}");
    let told = explain("read_file");
    assert_eq!(code(&told), 2, "{told:?}");
    let said = text(&told.stderr);
    for part in [
        "that is not JSON",
        "policy explain --tool",
        "`shellyctl tools",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn status_says_which_policy_is_in_force_or_that_there_is_none() {
    let daemon = start();
    let path = daemon.dir().join("policy.toml");
    let line = format!("    Policy: {}, 2 rules\n", path.display());
    let status = run(&daemon, &["status"]);
    assert!(text(&status.stdout).contains(&line), "{status:?}");
    let status = run(&Daemon::start(), &["status"]);
    let line = "    Policy: none: there is no policy.toml, so that everything is allowed\n";
    assert!(text(&status.stdout).contains(line), "{status:?}");
    assert_eq!(code(&status), 0, "{status:?}");
}

/// What does not exist holds no rules that could be in force.
#[test]
fn a_policy_that_is_not_there_is_said_not_to_be() {
    let dir = scratch();
    let tested = std::process::Command::new(env!("CARGO_BIN_EXE_shelly-executord"))
        .args(["--check-policy", "--config"])
        .arg(dir.join("executor.toml"))
        .output()
        .expect("it runs");
    let said = text(&tested.stdout);
    assert!(
        said.contains("policy.toml: not there; the built-in policy"),
        "{said}"
    );
    assert_eq!(code(&tested), 0, "{tested:?}");
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn the_ready_made_policies_are_valid() {
    let daemon = Daemon::start();
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/config");
    for name in [
        "policy.toml",
        "policies/open.toml",
        "policies/observe.toml",
        "policies/guarded.toml",
    ] {
        let tested = run(&daemon, &["policy", "test", &format!("{config}/{name}")]);
        assert_eq!(code(&tested), 0, "{name}: {tested:?}");
    }
}
