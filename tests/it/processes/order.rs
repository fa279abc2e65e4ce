//! Observe, kill, reap: what the daemon does to processes, as the kernel saw it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Daemon, Fifo, Mode, skip, wait_until};

/// A system call that gave a process its id, sent it a signal, or took its id away.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Born(i32),
    Signalled(i32),
    /// By its group, by the kernel's own list, or by a descriptor, of whom the id is not used.
    Reaped(i32),
}

/// The daemon under strace(1), with what it did written to a file. `None` where that cannot be.
fn traced(mode: Mode) -> Option<(Daemon, PathBuf)> {
    let probe = Command::new("strace")
        .args(["-D", "-f", "-o", "/dev/null", "true"])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let trace = std::env::temp_dir().join(format!(
        "shelly-it-trace-{}-{}",
        std::process::id(),
        mode.as_str()
    ));
    let daemon = Daemon::start_adjusted(mode, "kill_grace_ms = 100\ndrain_ms = 50", |command| {
        // The tracer is a grandchild (-D), so the child is the daemon itself.
        let mut strace = Command::new("strace");
        let calls = "trace=clone3,kill,tgkill,tkill,pidfd_open,pidfd_send_signal,waitid,wait4";
        strace
            .args(["-D", "-f", "-q", "-e", "signal=none", "-e", calls, "-o"])
            .arg(&trace);
        strace.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            strace.env(name, value.unwrap_or_default());
        }
        *command = strace;
    });
    Some((daemon, trace))
}

/// Drives the daemon through every way in which a tree comes to its end.
fn go_through_all_endings(daemon: &Daemon) {
    assert_eq!(daemon.bash("exit 3").status, 200);
    assert_eq!(daemon.bash("kill -KILL $$").status, 200);
    assert_eq!(daemon.bash("sleep 60 & echo hi").status, 200);
    assert_eq!(daemon.bash("( setsid sleep 60 & ); echo hi").status, 200);
    let stubborn = "trap '' TERM; setsid sleep 60 & sleep 60";
    assert_eq!(
        daemon
            .bash_with(stubborn, &json!({"timeout_secs": 0.1}))
            .status,
        504
    );
    let kept = daemon.bash_with("sleep 0.2 & echo hi", &json!({"background": "keep"}));
    assert_eq!(kept.status, 200);
    let gate = Fifo::new(daemon.dir().join("gate"));
    let id = daemon.begin(&format!("read _ <{}", gate.path().display()), &json!({}));
    let _gate = gate.reached();
    daemon
        .connect()
        .request("DELETE", &format!("/executions/{id}"), &[], b"");
    // More than a program can be given.
    let much = (0..60).map(|n| (format!("LONG{n}"), json!("x".repeat(100_000))));
    let much: serde_json::Map<String, serde_json::Value> = much.collect();
    assert_eq!(
        daemon.bash_with("echo hi", &json!({"env": much})).status,
        500
    );
    wait_until("what was kept has ended", || daemon.children().is_empty());
}

/// The events that `daemon` (by any of its threads) is behind, in order.
fn events(trace: &Path, daemon: i32) -> Vec<Event> {
    let text = std::fs::read_to_string(trace).expect("a trace");
    let mut threads = HashSet::from([daemon]);
    let mut unfinished = std::collections::HashMap::new();
    let mut events = Vec::new();
    for line in text.lines() {
        let Some((pid, call)) = line.split_once(' ') else {
            continue;
        };
        let pid: i32 = pid.parse().expect("a pid");
        let call = call.trim_start();
        // A call that another one came between is told in two parts.
        let call = if let Some(begun) = call.strip_suffix(" <unfinished ...>") {
            unfinished.insert(pid, begun.to_owned());
            continue;
        } else if call.starts_with("<... ") {
            let rest = call.split_once(" resumed>").expect("resumed").1;
            unfinished.remove(&pid).unwrap_or_default() + rest
        } else {
            call.to_owned()
        };
        if call.contains("CLONE_THREAD") {
            threads.extend(result(&call));
        } else if threads.contains(&pid) {
            events.extend(event(&call));
        }
    }
    events
}

fn event(call: &str) -> Option<Event> {
    let result = result(call)?;
    let argument = |number: usize| {
        let arguments = call.split_once('(')?.1;
        arguments
            .split([',', ')'])
            .nth(number)?
            .trim()
            .parse::<i32>()
            .ok()
    };
    match call.split('(').next()? {
        "clone3" if result > 0 => Some(Event::Born(result)),
        // The minus sign of a group is of no matter: its id is its leader's.
        "kill" | "tkill" => Some(Event::Signalled(argument(0)?.abs())),
        "tgkill" => Some(Event::Signalled(argument(0)?)),
        "waitid" if !call.contains("WNOWAIT") => {
            let pid = call.split_once("si_pid=")?.1.split([',', '}']).next()?;
            Some(Event::Reaped(pid.parse().ok()?))
        }
        "wait4" if result > 0 => Some(Event::Reaped(result)),
        _ => None,
    }
}

/// What stands after the last `= `, if it is no error.
fn result(call: &str) -> Option<i32> {
    let text = call.rsplit_once("= ")?.1;
    text.split_whitespace()
        .next()?
        .parse()
        .ok()
        .filter(|result| *result >= 0)
}

#[test]
fn no_signal_is_sent_to_an_id_that_was_reaped() {
    for mode in Mode::all() {
        let Some((mut daemon, trace)) = traced(mode) else {
            skip("the order of system calls, for strace cannot be used");
            return;
        };
        let pid = daemon.pid().as_raw();
        go_through_all_endings(&daemon);
        daemon.signal(Signal::SIGTERM);
        daemon.wait();
        // Short ids are padded.
        let is_last = |line: &str| {
            line.split_once(' ').is_some_and(|(first, rest)| {
                first == pid.to_string() && rest.trim() == "+++ exited with 0 +++"
            })
        };
        wait_until("the tracer has written all", || {
            std::fs::read_to_string(&trace).is_ok_and(|text| text.lines().any(is_last))
        });
        let events = events(&trace, pid);
        std::fs::remove_file(&trace).expect("a trace");

        let mut reaped = HashSet::new();
        let (mut born, mut signalled) = (0, 0);
        for event in &events {
            match event {
                Event::Born(pid) => {
                    born += 1;
                    reaped.remove(pid);
                }
                Event::Signalled(pid) => {
                    signalled += 1;
                    assert!(
                        !reaped.contains(pid),
                        "{mode:?}: {pid} was reaped before: {events:#?}"
                    );
                }
                Event::Reaped(pid) => {
                    assert!(
                        reaped.insert(*pid),
                        "{mode:?}: {pid} was reaped twice: {events:#?}"
                    );
                }
            }
        }
        // Each leader was born, the groups of three were signalled, and all were reaped.
        assert!(born >= 8, "{mode:?}: {events:#?}");
        assert!(signalled >= 2, "{mode:?}: {events:#?}");
        assert!(reaped.len() >= 8, "{mode:?}: {events:#?}");
    }
}

/// The test's own seam: it must see what it is there to see.
#[test]
fn a_trace_is_read_as_it_is_written() {
    let dir = std::env::temp_dir().join(format!("shelly-it-trace-{}", std::process::id()));
    let text = "7 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 8\n\
        7 clone3({flags=CLONE_VM|CLONE_PIDFD, stack_size=0x4000} => {pidfd=[9]}, 88) = 20\n\
        20    kill(1, SIGTERM) = 0\n\
        7 kill(-20, SIGTERM) = 0\n\
        8 waitid(P_PIDFD, 9,  <unfinished ...>\n\
        7 kill(-21, SIGKILL) = -1 ESRCH (No such process)\n\
        8 <... waitid resumed>{si_signo=SIGCHLD, si_code=CLD_KILLED, si_pid=20, si_uid=0}, WEXITED|WNOWAIT, NULL) = 0\n\
        7 waitid(P_PIDFD, 9, {si_signo=SIGCHLD, si_pid=20, si_uid=0}, WEXITED, NULL) = 0\n\
        7 +++ exited with 0 +++\n";
    std::fs::write(&dir, text).expect("written");
    let found = events(&dir, 7);
    std::fs::remove_file(&dir).expect("removed");
    assert_eq!(
        found,
        [Event::Born(20), Event::Signalled(20), Event::Reaped(20)]
    );
}
