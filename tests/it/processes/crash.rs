//! `kill -9` of the daemon: the next one on the same state directory cleans up, and only there.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Daemon, Mode, Process, wait_for, wait_until};

/// Leaves somebody in every place there is to hide in, with its id in the environment.
const SPREAD: &str = "trap '' TERM HUP; setsid sleep 600 & ( ( setsid sleep 600 & ) & ); nohup sleep 600 & sleep 600";

#[test]
fn the_next_daemon_kills_what_the_last_one_left_and_says_so() {
    for mode in Mode::all() {
        let bystander = Daemon::start_with(mode, "");
        let bystander_id = bystander.begin(SPREAD, &json!({}));
        let mut daemon = Daemon::start_with(mode, "");
        for _ in 0..3 {
            daemon.begin(SPREAD, &json!({}));
        }
        let everybody = |daemon: &Daemon, count| {
            wait_for("everybody is there", || {
                // Forked shells among them that have not become a `sleep` yet.
                let pids = daemon.processes();
                let sleeps = |pid: &&i32| {
                    std::fs::read(format!("/proc/{pid}/cmdline"))
                        .unwrap_or_default()
                        .starts_with(b"sleep\0")
                };
                (pids.iter().filter(sleeps).count() == count).then_some(pids)
            })
        };
        let left = everybody(&daemon, 12);
        let untouched = everybody(&bystander, 4);

        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        assert!(
            left.iter().any(|pid| Process::lives(*pid)),
            "{mode:?}: or there is nothing to test"
        );
        let next = daemon.restart();
        // Before it answers anybody, they are gone.
        let alive: Vec<&i32> = left.iter().filter(|pid| Process::lives(**pid)).collect();
        assert!(alive.is_empty(), "{mode:?}: {alive:?}");
        let log = next.log();
        assert!(
            log.contains("killed what the last daemon on this state directory left running"),
            "{mode:?}: {log}"
        );
        assert_eq!(bystander.processes(), untouched, "{mode:?}");
        assert_eq!(
            bystander.get(&format!("/executions/{bystander_id}")).json()["status"],
            "running"
        );

        // It works like any other.
        for _ in 0..10 {
            assert_eq!(next.bash("echo hi").stdout(), "hi", "{mode:?}");
        }
        let baseline = next.baseline();
        next.wait_clean(&baseline);
    }
}

#[test]
fn a_start_with_nothing_left_says_nothing() {
    for mode in Mode::all() {
        let mut daemon = Daemon::start_with(mode, "");
        assert_eq!(daemon.bash("echo hi").stdout(), "hi");
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        let next = daemon.restart();
        assert!(
            !next.log().contains("left running"),
            "{mode:?}: {}",
            next.log()
        );
    }
}

/// What a command has hidden the mark from: its session and its children tell.
#[test]
fn who_has_lost_its_mark_is_found_by_its_company() {
    for mode in Mode::all() {
        let mut daemon = Daemon::start_with(mode, "");
        let file = daemon.dir().join("pids");
        let command = format!(
            "env -i sleep 600 & echo $! >{0}.new; env -i setsid bash -c 'sleep 600; :' & echo $! >>{0}.new; \
             mv {0}.new {0}; wait",
            file.display()
        );
        daemon.begin(&command, &json!({}));
        let pids = wait_for("two without a mark", || std::fs::read_to_string(&file).ok());
        let pids: Vec<i32> = pids
            .lines()
            .map(|pid| pid.parse().expect("a pid"))
            .collect();
        wait_until("they have lost it", || {
            daemon.processes().iter().all(|pid| !pids.contains(pid))
        });
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        let _next = daemon.restart();
        let alive: Vec<&i32> = pids.iter().filter(|pid| Process::lives(**pid)).collect();
        assert!(alive.is_empty(), "{mode:?}: {alive:?}");
    }
}
