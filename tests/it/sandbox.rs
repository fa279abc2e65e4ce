//! What is not trusted, in a real gVisor: inside, a command is what it is outside, and nothing of it
//! gets out.

mod egress;
mod escapes;
mod kata;
mod processes;
mod ready;
mod risk;
mod runtime;

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Daemon, Mode, skip, wait_to_equal, wait_until};

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

/// That of those which wait for a call: their first process has not been told anything.
fn waiting(daemon: &Daemon) -> HashSet<PathBuf> {
    let is_told = |dir: &PathBuf| {
        let report = fs::metadata(dir.join("in/report"));
        report.is_ok_and(|report| report.len() > 0)
    };
    let bundles = bundles(daemon).into_iter();
    bundles.filter(|dir| !is_told(dir)).collect()
}

/// The living processes that have to do with a daemon's sandboxes: the runtime's own say so in their
/// arguments.
fn runtimes(daemon: &Daemon) -> Vec<i32> {
    let mark = daemon.dir().join("state/sandbox");
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| names(*pid, &mark)).collect()
}

/// Whether a process has a path in its arguments.
fn names(pid: i32, path: &Path) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let path = path.as_os_str().as_bytes();
    words.windows(path.len()).any(|part| part == path)
}

/// Whether a process is one of the runtime of a bundle.
fn is_of(pid: i32, bundle: &Path) -> bool {
    names(pid, bundle) || parent(pid).is_some_and(|parent| is_of(parent, bundle))
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(") ")?.1;
    let parent = after_name.split(' ').nth(1)?.parse().ok()?;
    (parent > 1).then_some(parent)
}

/// Nothing is left, neither process nor bundle nor mount, but for sandboxes that wait for a call.
#[track_caller]
fn assert_clean(daemon: &Daemon, what: &str) {
    let mark = daemon.dir().join("state/sandbox").display().to_string();
    // One that is not wanted any more ends while calls go on, and the next one waits only once it has been made.
    wait_to_equal(what, (Vec::new(), Vec::new()), || left(daemon));
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(&mark), "{what}: {mounts}");
}

/// The processes, in words, and the bundles of those that do not wait for a call.
fn left(daemon: &Daemon) -> (Vec<String>, Vec<PathBuf>) {
    // Before and after, for one may come or go meanwhile.
    let mut foreseen = waiting(daemon);
    let mut alive = daemon.processes();
    alive.extend(runtimes(daemon));
    alive.sort_unstable();
    alive.dedup();
    foreseen.extend(waiting(daemon));
    alive.retain(|pid| !foreseen.iter().any(|bundle| is_of(*pid, bundle)));
    // Of one that has ended meanwhile, nothing tells whose it was.
    let commands = alive.iter().filter_map(|pid| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some(format!("{pid} {}", String::from_utf8_lossy(&command)))
    });
    let mut left = bundles(daemon);
    left.retain(|bundle| !foreseen.contains(bundle) && !waiting(daemon).contains(bundle));
    (commands.collect(), left)
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
