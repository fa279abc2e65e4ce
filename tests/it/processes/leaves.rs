//! A cgroup that nobody has touched is another execution's afterwards, and what counted for the last counts no
//! more; every other one is removed.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;

use serde_json::{Value, json};

use crate::support::{Daemon, Fifo, Mode, skip, wait_until};

/// Which cgroup it is in, as the kernel says. It does not open that for it.
const WHERE: &str = "grep ^0:: /proc/self/cgroup";

/// Any execution has one of two leaves while nothing else runs: the other is being seen to.
const TURNS: usize = 4;

fn daemon() -> Option<Daemon> {
    if Mode::Cgroup.is_available() {
        return Some(Daemon::start_with(Mode::Cgroup, ""));
    }
    skip("leaves that are used again, for there is no cgroup v2");
    None
}

/// In which leaf it runs what follows.
fn leaf_of(daemon: &Daemon, then: &str) -> String {
    let stdout = daemon.bash(&format!("{WHERE}; {then}")).stdout();
    let line = stdout.lines().next().expect("a line");
    let (_, leaf) = line.rsplit_once('/').expect("a path");
    assert!(leaf.starts_with("execution-"), "{line}");
    leaf.to_owned()
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
    let parent = daemon.cgroup().expect("a cgroup").display().to_string();
    let mine = format!("{parent}/$(basename $({WHERE}))");
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
        for _ in 0..TURNS {
            assert_ne!(leaf_of(&daemon, "true"), touched, "{touch}");
        }
    }
}

#[test]
fn what_the_last_one_used_does_not_count_for_the_next() {
    let Some(daemon) = daemon() else { return };
    let cpu = |reply: &Value| reply["usage"]["cpu_ms"].as_u64().expect("a number");
    let busy = format!("{WHERE}; for ((i = 0; i < 200000; i++)); do :; done");
    let first = daemon.bash(&busy).json();
    let modest = (0..TURNS).find_map(|_| {
        let next = daemon.bash(WHERE).json();
        (first["content"] == next["content"]).then(|| cpu(&next))
    });
    let modest = modest.expect("the same leaf once more");
    assert!(cpu(&first) > 10 * modest, "{} and {modest}", cpu(&first));
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
