//! A configuration that a link leads to, or whose directory is another one: what is watched is what is there now.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use nix::libc;
use nix::sys::signal::Signal;

use super::reload::{
    configuration, replace, start, wait_for_health, wait_for_problem, wait_for_word, word,
};
use crate::support::{Daemon, can_trace, scratch, wait_until};

#[test]
fn a_file_that_a_link_leads_to_is_taken_up() {
    let daemon = start();
    let elsewhere = daemon.dir().join("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    let target = elsewhere.join("configuration.toml");
    fs::write(&target, configuration("second")).expect("written");
    let link = daemon.dir().join("link");
    symlink(&target, &link).expect("linked");
    fs::rename(link, daemon.dir().join("executor.toml")).expect("renamed");
    wait_for_word(&daemon, "second");
    fs::write(&target, configuration("third")).expect("written");
    wait_for_word(&daemon, "third");
    for next in ["fourth", "fifth"] {
        replace(
            &daemon,
            "elsewhere/configuration.toml",
            &configuration(next),
        );
        wait_for_word(&daemon, next);
    }
    // Away for a while.
    fs::remove_file(&target).expect("removed");
    wait_for_problem(&daemon, "config_invalid");
    fs::write(&target, configuration("sixth")).expect("written");
    wait_for_word(&daemon, "sixth");
}

#[test]
fn a_link_on_the_way_that_leads_elsewhere_is_followed() {
    let daemon = start_below("etc");
    let dir = daemon.dir();
    for name in ["one", "two"] {
        write_below(&dir.join(name), name);
    }
    let lead = |name, to| lead(dir, name, to);
    // To a file below a link, and of the directory itself.
    lead("current", "one");
    lead("etc/executor.toml", "../current/executor.toml");
    wait_for_word(&daemon, "one");
    lead("current", "two");
    wait_for_word(&daemon, "two");
    fs::rename(dir.join("etc"), dir.join("before")).expect("renamed");
    lead("etc", "one");
    wait_for_word(&daemon, "one");
    lead("etc", "two");
    wait_for_word(&daemon, "two");
}

/// What leads elsewhere is looked at behind the watch, which does not see it.
#[test]
fn a_link_that_comes_just_before_the_watch_is_followed() {
    if !can_trace("a link that comes before the watch") {
        return;
    }
    // The one that is traced stays the child.
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "-o", "/dev/null", "-e", "trace=inotify_init1"]);
    strace.args(["-e", "inject=inotify_init1:delay_enter=300000"]);
    strace.arg(env!("CARGO_BIN_EXE_shelly-executord"));
    let daemon = start_below_by(strace, "etc");
    let tasks = format!("/proc/{}/task", daemon.pid());
    let begins = format!("{} ", libc::SYS_inotify_init1);
    wait_until("it is about to watch", || {
        let tasks = fs::read_dir(&tasks).expect("tasks").flatten();
        let mut calls = tasks.map(|task| fs::read_to_string(task.path().join("syscall")));
        calls.any(|call| call.is_ok_and(|call| call.starts_with(&begins)))
    });
    let dir = daemon.dir();
    for name in ["one", "two"] {
        write_below(&dir.join(name), name);
    }
    lead(dir, "current", "one");
    lead(dir, "etc/executor.toml", "../current/executor.toml");
    wait_for_word(&daemon, "one");
    lead(dir, "current", "two");
    wait_for_word(&daemon, "two");
}

/// Puts a link in the place of what has this name.
fn lead(dir: &Path, name: &str, to: &str) {
    symlink(to, dir.join("new")).expect("linked");
    fs::rename(dir.join("new"), dir.join(name)).expect("renamed");
}

/// One whose configuration is in a directory of that name, below its own.
fn start_below(name: &str) -> Daemon {
    let program = Command::new(env!("CARGO_BIN_EXE_shelly-executord"));
    start_below_by(program, name)
}

/// The same by a command that becomes it.
fn start_below_by(mut command: Command, name: &str) -> Daemon {
    let dir = scratch();
    write_below(&dir.join(name), "first");
    command
        .args(["--socket", "executor.sock", "--state", "state", "--config"])
        .arg(Path::new(name).join("executor.toml"));
    let socket = dir.join("executor.sock");
    Daemon::spawn(dir, None, socket, command)
}

fn write_below(dir: &Path, word: &str) {
    fs::create_dir_all(dir).expect("made");
    fs::write(dir.join("executor.toml"), configuration(word)).expect("written");
}

#[test]
fn a_directory_that_is_replaced_is_taken_up() {
    let daemon = start_below("etc");
    let dir = daemon.dir().join("etc");
    for next in ["second", "third"] {
        fs::rename(&dir, daemon.dir().join(format!("before-{next}"))).expect("renamed");
        write_below(&dir, next);
        wait_for_word(&daemon, next);
    }
    // It is not there for longer than anybody waits for one that is quiet.
    fs::rename(&dir, daemon.dir().join("gone")).expect("renamed");
    wait_for_problem(&daemon, "config_invalid");
    assert_eq!(word(&daemon), "third");
    write_below(&dir, "fourth");
    wait_for_word(&daemon, "fourth");
    fs::write(dir.join("executor.toml"), configuration("fifth")).expect("written");
    wait_for_word(&daemon, "fifth");
    wait_for_health(&daemon);
}

#[test]
fn a_signal_has_a_file_read_that_nobody_watches() {
    let daemon = start_below("above/etc");
    let above = daemon.dir().join("above");
    // The directory that is watched has not moved by itself.
    fs::rename(&above, daemon.dir().join("before")).expect("renamed");
    write_below(&above.join("etc"), "second");
    daemon.signal(Signal::SIGHUP);
    wait_for_word(&daemon, "second");
    // From now on it is this one that is watched.
    write_below(&above.join("etc"), "third");
    wait_for_word(&daemon, "third");
}
