//! A cgroup that nobody has touched is another execution's afterwards, and what counted for the last counts no
//! more; every other one is removed.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Daemon, Fifo, Mode, skip, wait_for, wait_until};

/// Which cgroup it is in, as the kernel says. It does not open that for it.
const WHERE: &str = "grep ^0:: /proc/self/cgroup";

/// Any execution has one of two leaves while nothing else runs: the other is being seen to.
const TURNS: usize = 4;

fn daemon() -> Option<Daemon> {
    if !Mode::Cgroup.is_available() {
        skip("leaves that are used again, for there is no cgroup v2");
        return None;
    }
    if Mode::has_controller("memory") && !resets_peaks() {
        skip("leaves that are used again, for this kernel cannot reset memory.peak");
        return None;
    }
    Some(Daemon::start_with(Mode::Cgroup, ""))
}

/// Linux 6.12 and later.
fn resets_peaks() -> bool {
    let kernel = nix::sys::utsname::uname().expect("a kernel");
    let release = kernel.release().to_string_lossy().into_owned();
    let numbers: Vec<u32> = release
        .split(['.', '-'])
        .map_while(|number| number.parse().ok())
        .collect();
    numbers >= vec![6, 12]
}

/// In which leaf it runs what follows.
fn leaf_of(daemon: &Daemon, then: &str) -> String {
    leaf_in(&daemon.bash(&format!("{WHERE}; {then}")).json())
}

/// In which leaf what gave this answer has run.
fn leaf_in(body: &Value) -> String {
    let content = body["content"].as_str().expect("text");
    let line = content.lines().nth(1).expect("a line");
    let (_, leaf) = line.rsplit_once('/').expect("a path");
    assert!(leaf.starts_with("execution-"), "{line}");
    leaf.to_owned()
}

/// The directory of its own leaf, for a command.
fn own(daemon: &Daemon) -> String {
    let parent = daemon.cgroup().expect("a cgroup").display();
    format!("{parent}/$(basename $({WHERE}))")
}

fn comes_again(daemon: &Daemon, leaf: &str) -> bool {
    (0..TURNS).any(|_| leaf_of(daemon, "true") == leaf)
}

#[test]
fn what_nobody_has_touched_is_used_again() {
    let Some(daemon) = daemon() else { return };
    let leaves: HashSet<String> = (0..50).map(|_| leaf_of(&daemon, "true")).collect();
    // Each second those go that were not needed.
    assert!(leaves.len() <= 10, "{leaves:?}");
    wait_until("the last of them are gone", || daemon.leaves().is_empty());
}

#[test]
fn what_was_touched_is_not() {
    let Some(daemon) = daemon() else { return };
    let mine = own(&daemon);
    wait_until("what only looks where it is comes again", || {
        let leaf = leaf_of(&daemon, &format!("stat {mine}"));
        comes_again(&daemon, &leaf)
    });
    for touch in [
        "cat {}/cgroup.procs",
        "echo 7 >{}/cgroup.max.depth",
        "mkdir {}/child",
        "mkdir {}/child; rmdir {}/child",
        "chmod 711 {}",
        "chown 7 {}/cgroup.procs",
        "ls {}",
        // Who is killed with it is not the last to have had to do with it.
        "sleep 600 &",
    ] {
        let touched = leaf_of(&daemon, &touch.replace("{}", &mine));
        assert!(!comes_again(&daemon, &touched), "{touch}");
    }
}

#[test]
fn what_the_last_one_used_does_not_count_for_the_next() {
    let Some(daemon) = daemon() else { return };
    let cpu = |reply: &Value| reply["usage"]["cpu_ms"].as_u64().expect("a number");
    let busy = format!("{WHERE}; for ((i = 0; i < 200000; i++)); do :; done");
    let (first, next) = wait_for("the same leaf once more", || {
        let first = daemon.bash(&busy).json();
        let next = (0..TURNS).map(|_| daemon.bash(WHERE).json());
        let next = { next }.find(|next| next["content"] == first["content"])?;
        Some((cpu(&first), cpu(&next)))
    });
    assert!(first > 10 * next, "{first} and {next}");
}

#[test]
fn what_was_removed_is_given_to_nobody() {
    let Some(daemon) = daemon() else { return };
    leaf_of(&daemon, "true");
    let spares = daemon.leaves();
    assert!(!spares.is_empty());
    // Who removes a directory opens nothing in it.
    for spare in spares {
        // The daemon may have been faster.
        let _ = std::fs::remove_dir(&spare);
    }
    for _ in 0..TURNS {
        assert_eq!(daemon.bash("echo hi").stdout(), "hi");
    }
}

/// Who mounts something over one opens nothing in it either.
#[test]
fn what_hides_behind_a_mount_is_found_and_killed() {
    let Some(daemon) = daemon() else { return };
    let mine = own(&daemon);
    let hidden = daemon
        .bash(&format!("{WHERE}; mount -t tmpfs none {mine}"))
        .json();
    if hidden["exit_code"] != 0 {
        skip("a mount over a leaf, for only root can mount");
        return;
    }
    let hidden = leaf_in(&hidden);
    let mounted = Mounted(daemon.cgroup().expect("a cgroup").join(&hidden));
    let mut seen = Vec::new();
    for _ in 0..TURNS {
        let body = daemon.bash(&format!("{WHERE}; setsid sleep 600 &")).json();
        let left = body["background"].as_array().expect("a list");
        assert_eq!(left.len(), 1, "{body}");
        assert_eq!(body["kill"]["survivors"], 0, "{body}");
        seen.push(leaf_in(&body));
    }
    assert!(seen.contains(&hidden), "{hidden} in {seen:?}");
    drop(mounted);
    wait_until("it is gone", || daemon.leaves().is_empty());
}

/// What is mounted there, until this is dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = nix::mount::umount(&self.0);
    }
}

#[test]
fn many_at_once_have_one_each() {
    const MANY: usize = 20;
    let Some(daemon) = daemon() else { return };
    let baseline = daemon.baseline();
    let fifo = Fifo::new(daemon.dir().join("fifo"));
    // Open for both, so that nobody waits for the other end and what is written stays.
    let both = OpenOptions::new().read(true).write(true).open(fifo.path());
    let mut both = both.expect("a named pipe");
    let command = format!("{WHERE}; read _ <{}", fifo.path().display());
    for _ in 0..3 {
        let ids: Vec<String> = (0..MANY)
            .map(|_| daemon.begin(&command, &json!({})))
            .collect();
        wait_until("they all run", || {
            let health = daemon.get("/health").json();
            health["running"] == MANY && daemon.leaves().len() >= MANY
        });
        both.write_all("\n".repeat(MANY).as_bytes()).expect("room");
        let contents = ids
            .iter()
            .map(|id| daemon.ended(id)["result"]["content"].to_string());
        let leaves: HashSet<String> = contents.collect();
        assert_eq!(leaves.len(), MANY, "{leaves:?}");
    }
    daemon.wait_clean(&baseline);
}
