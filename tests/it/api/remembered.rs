//! What operators approved for good: files in the state directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::call;
use crate::support::{Daemon, scratch, wait_until};

const POLICY: &str = "default = \"allow\"\nask = [\"bash(command:make *)\"]\n";

fn file(rule: &str, uid: u32) -> String {
    let uid = format!("uid = {uid}\napproval = \"01980000-0000-7000-8000-000000000000\"");
    format!(
        "[[remembered]]\n{uid}\napproved_by = 0\nat = \"2026-11-22T09:00:00Z\"\nrule = \"{rule}\"\n"
    )
}

fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// The directory of a daemon that is yet to start, with these files of approvals.
fn prepared(files: &[(&str, String)]) -> PathBuf {
    let dir = scratch();
    let remembered = dir.join("state/policy.d");
    fs::create_dir_all(&remembered).expect("a directory");
    fs::write(dir.join("executor.toml"), "[cgroup]\nmode = \"group\"\n").expect("written");
    fs::write(dir.join("policy.toml"), POLICY).expect("written");
    for (name, text) in files {
        fs::write(remembered.join(name), text).expect("written");
    }
    dir
}

fn explain(daemon: &Daemon, script: &str) -> Value {
    let body = call(script).to_string();
    let mut connection = daemon.connect();
    let reply = connection.request("POST", "/permissions/explain", &[], body.as_bytes());
    reply.json()
}

fn check(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_shelly-executord"))
        .args(["--config", "executor.toml", "--state", "state"])
        .args(arguments)
        .current_dir(dir)
        .output()
        .expect("it starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into())
}

#[test]
fn what_is_written_down_is_remembered_until_it_is_removed() {
    let dir = prepared(&[
        ("b.toml", file("bash(command:make x)", own_uid())),
        ("c.toml", file("bash(command:make y)", own_uid() + 1)),
        ("README", "not one of them".to_owned()),
    ]);
    let daemon = Daemon::launch(dir, None, |_| {});
    let verdict = |script: &str| explain(&daemon, script)["verdict"].clone();
    let judgement = explain(&daemon, "true && make x");
    assert_eq!(judgement["verdict"], "allow", "{judgement}");
    assert_eq!(judgement["source"]["line"], 6, "{judgement}");
    let reason = judgement["reason"].as_str().expect("a text");
    assert!(reason.contains("policy.d/b.toml:6"), "{reason}");
    assert_eq!(verdict("make y"), "ask", "another's");
    let remembered = daemon.dir().join("state/policy.d");
    fs::write(
        remembered.join("d.toml"),
        file("bash(command:make z)", own_uid()),
    )
    .expect("written");
    fs::remove_file(remembered.join("b.toml")).expect("removed");
    daemon.signal(Signal::SIGHUP);
    wait_until("it is reloaded", || verdict("make z") == "allow");
    assert_eq!(verdict("make x"), "ask");
}

#[test]
fn a_broken_one_is_told_with_its_line_and_changes_nothing() {
    let dir = prepared(&[("a.toml", file("bash(command:make x)", own_uid()))]);
    let daemon = Daemon::launch(dir, None, |_| {});
    let problems = || daemon.get("/health").json()["problems"].clone();
    let path = daemon.dir().join("state/policy.d/b.toml");
    for (text, part) in [
        (file("bash(command:sudo *)", 0), "b.toml:6: `rule`"),
        (file("bash", 0), "b.toml:6: `rule`"),
        ("\nrules = 1\n".to_owned(), "b.toml:2: `rules`"),
        (String::new(), "b.toml:1: "),
    ] {
        fs::write(&path, text).expect("written");
        daemon.signal(Signal::SIGHUP);
        wait_until("/health tells", || {
            let detail = problems()[0]["detail"].clone();
            detail.as_str().is_some_and(|text| text.contains(part))
        });
        let problem = &problems()[0];
        assert_eq!(problem["code"], "policy_invalid");
        assert!(
            problem["source"]
                .as_str()
                .is_some_and(|source| source.ends_with("b.toml"))
        );
        assert_eq!(explain(&daemon, "make x")["verdict"], "allow");
    }
    fs::remove_file(&path).expect("removed");
    daemon.signal(Signal::SIGHUP);
    wait_until("it is well again", || problems() == json!([]));
}

#[test]
fn a_check_reads_them_and_a_broken_one_does_not_start() {
    let dir = prepared(&[("a.toml", file("bash(command:make x)", 4711))]);
    let (code, said) = check(&dir, &["--check-policy"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("a.toml:6: `bash(command:make x)` for uid 4711"),
        "{said}"
    );
    fs::write(dir.join("state/policy.d/a.toml"), "x = 1\n").expect("written");
    for arguments in [
        &["--check-policy"][..],
        &["--check-config"],
        &["--socket", "socket"],
    ] {
        let (code, said) = check(&dir, arguments);
        assert_eq!(code, Some(78), "{said}");
        assert!(said.contains("a.toml:1: `x`"), "{said}");
    }
    // A file that is named stands for itself.
    let (code, said) = check(&dir, &["--check-policy", "policy.toml"]);
    assert_eq!(code, Some(0), "{said}");
    fs::remove_dir_all(dir).expect("ours");
}
