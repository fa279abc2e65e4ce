//! What is not trusted, in a real gVisor: inside, a command is what it is outside, and nothing of it
//! gets out.

mod egress;
mod escapes;
mod processes;
mod risk;
mod runtime;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Daemon, Mode, skip, wait_until};

/// Whether there is a sandbox here; says so when not.
fn is_there() -> bool {
    let version = Command::new("runsc")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_root = nix::unistd::geteuid().is_root();
    let there = is_root && version.is_ok_and(|status| status.success());
    if !there {
        skip("the sandbox, for there is no runsc (gVisor), or you are not root");
    }
    there
}

/// The modes in which it can be tried.
fn modes() -> Vec<Mode> {
    if is_there() { Mode::all() } else { Vec::new() }
}

/// A daemon that trusts no command.
fn start(mode: Mode, toml: &str) -> Daemon {
    let toml = format!("{toml}\n[tools]\nuntrusted = [\"bash\"]\n");
    let daemon = Daemon::start_with(mode, &toml);
    wait_for_test(&daemon, "passed");
    daemon
}

/// The daemon tries the sandbox by itself when something is to run in it.
#[track_caller]
fn wait_for_test(daemon: &Daemon, result: &str) {
    wait_until("the self-test is over", || {
        daemon.get("/health").json()["sandbox"]["self_test"] == result
    });
}

/// What there is of sandboxes on disk.
fn bundles(daemon: &Daemon) -> Vec<PathBuf> {
    let entries = fs::read_dir(daemon.dir().join("state/sandbox"));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The living processes that have to do with a daemon's sandboxes: the runtime's own say so in their
/// arguments.
fn runtimes(daemon: &Daemon) -> Vec<i32> {
    let mark = daemon.dir().join("state/sandbox").display().to_string();
    let mark = mark.into_bytes();
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.windows(mark.len()).any(|part| part == mark)
    })
    .collect()
}

/// Nothing is left: no process, bundle or mount.
#[track_caller]
fn assert_clean(daemon: &Daemon, what: &str) {
    let mark = daemon.dir().join("state/sandbox").display().to_string();
    assert_eq!(daemon.processes(), Vec::<i32>::new(), "{what}");
    assert_eq!(runtimes(daemon), Vec::<i32>::new(), "{what}");
    assert_eq!(bundles(daemon), Vec::<PathBuf>::new(), "{what}");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(&mark), "{what}: {mounts}");
}

/// A directory that whoever is inside may write to.
fn workspace(daemon: &Daemon) -> PathBuf {
    let dir = daemon.dir().join("work");
    fs::create_dir_all(&dir).expect("a directory");
    give_to_nobody(&dir);
    dir
}

fn give_to_nobody(path: &Path) {
    std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).expect("root gives it away");
}
