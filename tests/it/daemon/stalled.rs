//! A file system that does not answer keeps who asks it, and nobody else.

use std::fs;
use std::io::PipeWriter;
use std::os::unix::fs::symlink;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Daemon, scratch, skip, wait_for, wait_until};

/// A daemon that has a file system at `mute` in its directory which answers nothing until the other value is
/// dropped. It has a mount namespace of its own: whoever looks at all mounts, as df(1) does, would be kept.
fn start(toml: &str) -> Option<(Daemon, PipeWriter)> {
    let dir = scratch();
    fs::create_dir(dir.join("mute")).expect("a directory");
    let mounted = Command::new("unshare")
        .args(["--mount", "sh", "-c", &format!("{MUTE} true")])
        .current_dir(&dir)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        skip("a file system that does not answer, which takes root and /dev/fuse");
        let _ = fs::remove_dir_all(dir);
        return None;
    }
    let text = toml.replace("MUTE", &dir.join("mute").display().to_string());
    fs::write(
        dir.join("executor.toml"),
        format!("{text}\n[cgroup]\nmode = \"group\"\n"),
    )
    .expect("written");
    let (held, holds) = std::io::pipe().expect("a pipe");
    let script = format!(
        "{MUTE} {{ (cat >&2 <&4 &) ; exec 3>&- 4<&-; exec {} --config executor.toml --socket executor.sock --state state </dev/null; }}",
        env!("CARGO_BIN_EXE_shelly-executord")
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &script])
        .env("RUST_LOG", "debug")
        .stdin(held);
    let socket = dir.join("executor.sock");
    Some((Daemon::spawn(dir, None, socket, command), holds))
}

/// For a shell: mounts it and goes on. Its other end is descriptor 3, what it lasts for 4.
const MUTE: &str = "exec 3<>/dev/fuse 4<&0 && mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 mute mute &&";

fn problem(daemon: &Daemon, code: &str) -> Option<Value> {
    let health = daemon.get("/health").json();
    let problems = health["problems"].as_array().expect("a list").clone();
    problems.into_iter().find(|problem| problem["code"] == code)
}

#[test]
fn who_needs_it_is_kept_and_nobody_else() {
    let Some((daemon, mute)) = start("working_dir = \"MUTE\"") else {
        return;
    };
    let found = wait_for("it is told", || problem(&daemon, "file_system_stalled"));
    let place = daemon.dir().join("mute").display().to_string();
    assert_eq!(found["source"], place.as_str(), "{found}");
    assert!(found["detail"].to_string().contains(&place), "{found}");

    let elsewhere = daemon.bash_with("pwd", &json!({"working_dir": "/"}));
    assert_eq!(elsewhere.stdout(), "/");
    // Its time limit is all that ends it.
    let there = daemon.bash_with("pwd", &json!({"timeout_secs": 1})).json();
    assert_eq!(there["code"], "timeout", "{there}");

    drop(mute);
    // It is over, and gone.
    wait_until("it is told that it is gone", || {
        problem(&daemon, "file_system_stalled").is_none()
            && problem(&daemon, "commands_fail").is_some()
    });
}

#[test]
fn a_stop_does_not_wait_for_a_configuration_that_lies_there() {
    let Some((mut daemon, _mute)) = start("") else {
        return;
    };
    let path = daemon.dir().join("executor.toml");
    fs::remove_file(&path).expect("there");
    symlink("mute/executor.toml", &path).expect("linked");
    daemon.signal(Signal::SIGHUP);
    let found = wait_for("it is told", || problem(&daemon, "config_stalled"));
    assert_eq!(found["source"], path.display().to_string(), "{found}");
    assert_eq!(daemon.bash("echo on").stdout(), "on");
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
}
