//! How the socket comes to be, in the order in which the kernel is asked.

use std::process::Command;

use nix::sys::signal::Signal;

use crate::support::{Daemon, can_trace, scratch};

/// The system calls of the daemon's start that `names` lists, in order, those on our socket only.
fn traced(names: &str) -> Option<Vec<String>> {
    if !can_trace("the order of system calls at the start") {
        return None;
    }
    let dir = scratch();
    let mut command = Command::new("strace");
    // Seccomp keeps everything else at full speed; `-D` leaves the daemon our own child.
    command
        .args(["-D", "-f", "-y", "-o", "trace", "-e"])
        .arg(format!("trace={names}"))
        .arg(env!("CARGO_BIN_EXE_shelly-executord"))
        .args(["--socket", "executor.sock", "--state", "state"]);
    let socket = dir.join("executor.sock");
    let mut daemon = Daemon::spawn(dir.clone(), None, socket, command);
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success(), "{}", daemon.log());
    let trace = crate::support::wait_for("the trace is complete", || {
        let trace = std::fs::read_to_string(dir.join("trace")).ok()?;
        trace.contains("+++ exited with 0 +++").then_some(trace)
    });
    let calls = trace.lines().filter_map(|line| {
        let (_, call) = line.split_once(' ')?;
        Some(call.trim().to_owned())
    });
    Some(calls.collect())
}

#[test]
fn who_may_connect_is_settled_before_anybody_can() {
    let Some(calls) = traced(
        "bind,open,openat,chmod,fchmod,fchmodat,?fchmodat2,chown,fchown,fchownat,listen,umask,unlink,unlinkat",
    ) else {
        return;
    };
    let position = |name: &str, on: &str| {
        let found = calls
            .iter()
            .position(|call| call.starts_with(name) && call.contains(on));
        found.unwrap_or_else(|| panic!("no {name} of {on}: {calls:#?}"))
    };
    let bound = position("bind(", "executor.sock");
    // By a descriptor of the socket itself, whatever is at its path by then.
    let held = position("open", "\"executor.sock\"");
    assert!(calls[held].contains("O_NOFOLLOW") && calls[held].contains("O_PATH"));
    let settled = position("chmod(", "/proc/self/fd/");
    let listened = position("listen(", "");
    assert!(calls[settled].contains("0660"), "{calls:#?}");
    assert!(
        bound < held && held < settled && settled < listened,
        "{calls:#?}"
    );
    // Between the two it is nobody's but ours: what is made is made for its owner alone.
    assert!(position("umask(077)", "") < bound, "{calls:#?}");
    // Nothing touches who may connect once they can, and at the end it is removed.
    let later = &calls[listened..];
    assert!(
        !later
            .iter()
            .any(|call| call.starts_with("ch") || call.starts_with("fch")),
        "{later:#?}"
    );
    assert!(
        later
            .iter()
            .any(|call| call.starts_with("unlink") && call.contains("executor.sock")),
        "{later:#?}"
    );
}
