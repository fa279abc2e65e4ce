//! `kill -9` of the daemon: the next one on the same state directory cleans up, and only there.

use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Daemon, Mode, Process, can_trace, scratch, wait_for, wait_until};

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

/// To try a backup beside the daemon that it is of.
#[test]
fn a_daemon_on_a_copy_leaves_those_of_the_original_alone() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let id = daemon.begin("exec sleep 600", &json!({}));
        // Before it executes its program nothing says whose it is.
        let running = wait_for("it is marked", || {
            Some(daemon.processes()).filter(|pids| !pids.is_empty())
        });
        let dir = scratch();
        let copied = Command::new("cp")
            .arg("-a")
            .arg(daemon.dir().join("state"))
            .arg(&dir)
            .status();
        assert!(copied.expect("started").success());
        let other = Daemon::start_in(dir, mode, "", |_| {});
        assert_ne!(other.instance(), daemon.instance());
        assert_eq!(daemon.processes(), running, "{mode:?}");
        let status =
            |daemon: &Daemon| daemon.get(&format!("/executions/{id}")).json()["status"].take();
        assert_eq!(
            (status(&daemon), status(&other)),
            (json!("running"), json!("lost"))
        );
    }
}

/// A job of at(1)'s, a container: what has the environment of a command, and was nobody's when the daemon stopped.
#[test]
fn what_has_found_another_place_outlives_a_stop_and_a_start() {
    for mode in Mode::all() {
        let mut daemon = Daemon::start_with(mode, "");
        assert_eq!(daemon.bash("echo hi").stdout(), "hi");
        let mut job = Command::new("sleep");
        job.arg("600")
            .env("SHELLY_INSTANCE_ID", daemon.instance())
            .stdin(Stdio::null());
        let mut job = job.spawn().expect("started");
        daemon.signal(Signal::SIGTERM);
        daemon.wait();
        let next = daemon.restart();
        let ended = job.try_wait().expect("ours");
        assert!(ended.is_none(), "{mode:?}: {ended:?}: {}", next.log());
        job.kill().and_then(|()| job.wait()).expect("ours");
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

/// Until it executes its program it has the environment of the daemon, which does not say whose it is.
#[test]
fn who_was_just_being_started_is_waited_for() {
    if !can_trace("a command that is just being started when the daemon is killed") {
        return;
    }
    let mut daemon = Daemon::start();
    assert_eq!(daemon.bash("echo hi").stdout(), "hi");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", "-e", "trace=chdir"]);
    // A directory that is slow to be entered.
    strace.args(["-e", "inject=chdir:delay_enter=4000000", "-p"]);
    strace.arg(daemon.pid().to_string()).stderr(Stdio::null());
    let mut strace = strace.spawn().expect("strace");
    wait_until("it is traced", || daemon.status("TracerPid") != 0);
    let members = json!({"working_dir": "/tmp"});
    daemon.begin("exec sleep 600", &members);
    let is_daemon = |pid: i32| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        program.is_ok_and(|program| program.ends_with("shelly-executord"))
    };
    let born =
        || (daemon.children().iter()).find_map(|child| is_daemon(child.pid).then_some(child.pid));
    let child = wait_for("a child that has not executed its program", born);
    daemon.signal(Signal::SIGKILL);
    daemon.wait();

    let mut next = Command::new("timeout");
    next.args([
        "3",
        env!("CARGO_BIN_EXE_shelly-executord"),
        "--config",
        "executor.toml",
    ]);
    next.args(["--socket", "executor.sock", "--state", "state"]);
    let refused = next.current_dir(daemon.dir()).output().expect("started");
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("another daemon is using it"), "{refused}");
    wait_until("it executes its program", || !is_daemon(child));
    let _next = daemon.restart();
    assert!(!Process::lives(child));
    strace.wait().expect("all that it traced has ended");
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
