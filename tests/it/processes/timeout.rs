//! The time limit, cancelling, and the proof that nothing survives either.

use std::time::Duration;

use serde_json::json;

use super::NOBODY;
use crate::support::{Daemon, Fifo, Mode, can_trace, skip, timed, wait_for, wait_until};

/// What a stop may take beyond limit and grace.
const MARGIN: Duration = Duration::from_millis(300);

/// Who ignores SIGTERM, in two sessions.
const STUBBORN: &str =
    r#"echo partial; trap '' TERM; setsid sh -c 'trap "" TERM; sleep 60' & wait"#;

#[test]
fn a_stubborn_tree_is_dead_within_limit_and_grace() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 700");
        let (reply, took) = timed(|| daemon.bash_with(STUBBORN, &json!({"timeout_secs": 2})));
        let left = daemon.processes();
        assert!(left.is_empty(), "{mode:?}: {left:?}");
        let due = Duration::from_millis(2000 + 700);
        assert!(
            took.wall >= due && took.within(due + MARGIN),
            "{mode:?}: {took:?}"
        );
        let body = reply.json();
        assert_eq!(reply.status, 504, "{body}");
        assert_eq!(
            reply.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(body["code"], "timeout");
        assert_eq!(body["content"], "[stdout]\npartial\n\n[timeout]\n2s");
        assert_eq!(body["exit_code"], json!(null));
        assert_eq!(body["signal"], json!({"number": 9, "name": "SIGKILL"}));
        // bash, sh and sleep; sh may have become its sleep.
        let signalled = body["kill"]["signalled"].as_u64().expect("a number");
        assert!((2..=3).contains(&signalled), "{body}");
        let kill = json!({"by": mode.as_str(), "reason": "timeout", "signalled": signalled, "survivors": 0});
        assert_eq!(body["kill"], kill);
    }
}

#[test]
fn a_command_that_minds_sigterm_has_its_last_words_and_no_more() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 20000");
        let command = "trap 'echo bye; exit 5' TERM; echo hello; sleep 60 & wait";
        let (reply, took) = timed(|| daemon.bash_with(command, &json!({"timeout_secs": 2})));
        assert!(
            took.within(Duration::from_secs(2) + MARGIN),
            "{mode:?}: {took:?}"
        );
        let body = reply.json();
        assert_eq!(reply.status, 504, "{body}");
        assert_eq!(body["content"], "[stdout]\nhello\nbye\n\n[timeout]\n2s");
        // What it made of SIGTERM is no exit code of its own.
        assert_eq!(
            (&body["exit_code"], &body["signal"]),
            (&json!(null), &json!(null))
        );
        assert_eq!(body["kill"]["survivors"], 0);
        assert_eq!(daemon.processes(), NOBODY, "{mode:?}");
    }
}

/// As systemd's stop does (systemd.kill(5)).
#[test]
fn who_is_stopped_hears_of_the_time_limit() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 20000");
        let script = "trap 'echo heard; exit' TERM; kill -STOP $$; sleep 600";
        let reply = daemon.bash_with(script, &json!({"timeout_secs": 0.5}));
        assert_eq!(reply.status, 504, "{mode:?}");
        assert!(
            reply.content().contains("heard"),
            "{mode:?}: {}",
            reply.content()
        );
    }
}

/// The leader minds SIGTERM, what it left does not: that has the rest of the grace, no more.
#[test]
fn what_outlives_its_leader_in_the_grace_is_killed_at_its_end() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 700");
        let command = "(trap '' TERM; sleep 60) >/dev/null 2>&1 & trap 'exit 0' TERM; wait";
        let (reply, took) = timed(|| daemon.bash_with(command, &json!({"timeout_secs": 2})));
        let due = Duration::from_millis(2000 + 700);
        assert!(
            took.wall >= due && took.within(due + MARGIN),
            "{mode:?}: {took:?}"
        );
        assert_eq!(reply.json()["kill"]["survivors"], 0, "{mode:?}");
        assert_eq!(daemon.processes(), NOBODY, "{mode:?}");
    }
}

#[test]
fn a_cancelled_tree_is_dead_when_delete_answers() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 200");
        let gate = Fifo::new(daemon.dir().join("gate"));
        let command = format!("{STUBBORN} & read _ <{}", gate.path().display());
        let id = daemon.begin(&command, &json!({}));
        let _gate = gate.reached();
        wait_until("something to lose", || {
            daemon.output(&id, "stdout") == b"partial\n"
        });
        let reply = daemon
            .connect()
            .request("DELETE", &format!("/executions/{id}"), &[], b"");
        assert_eq!(daemon.processes(), NOBODY, "{mode:?}");
        let record = reply.json();
        assert_eq!(
            (reply.status, &record["status"]),
            (200, &json!("cancelled")),
            "{record}"
        );
        assert_eq!(record["http_status"], 409);
        let result = &record["result"];
        assert_eq!(result["code"], "cancelled");
        assert_eq!(result["content"], "[stdout]\npartial\n\n[cancelled]");
        assert_eq!(result["kill"]["reason"], "cancelled");
        assert_eq!(result["kill"]["survivors"], 0);
        // Again: the same record, nothing done.
        let again = daemon
            .connect()
            .request("DELETE", &format!("/executions/{id}"), &[], b"");
        assert_eq!(again.json(), record);
    }
}

/// Without session, environment and parents nothing tells whose a process is, except a cgroup.
#[test]
fn what_hides_between_two_executions_is_told_or_not_vouched_for() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 100");
        let gate = Fifo::new(daemon.dir().join("gate"));
        let other = daemon.begin(&format!("read _ <{}", gate.path().display()), &json!({}));
        let held = gate.reached();
        let file = daemon.dir().join("pid");
        let command = format!(
            "(env -i setsid bash -c 'echo $$ >{0}.new; mv {0}.new {0}; exec sleep 600' >/dev/null 2>&1 &); sleep 60",
            file.display()
        );
        let id = daemon.begin(&command, &json!({}));
        let pid = wait_for("somebody hides", || std::fs::read_to_string(&file).ok());
        let pid: i32 = pid.trim().parse().expect("a pid");
        let reply = daemon
            .connect()
            .request("DELETE", &format!("/executions/{id}"), &[], b"");
        let kill = &reply.json()["result"]["kill"];
        match mode {
            Mode::Group => assert_eq!(kill["survivors"], json!(null), "{kill}"),
            Mode::Cgroup => {
                assert_eq!(kill["survivors"], 0, "{kill}");
                assert!(!crate::support::Process::lives(pid));
            }
        }
        // The other is none the worse for it, and with it gone nobody can hide any more.
        drop(held);
        assert_eq!(daemon.ended(&other)["result"]["exit_code"], 1);
        wait_until("it is found", || !crate::support::Process::lives(pid));
    }
}

/// Group mode cannot prove that nobody hides, and says so where somebody may; of those who were there before
/// it knows that they are not its own.
#[test]
fn what_hides_is_not_vouched_for_and_not_taken_for_a_later_command_s() {
    let daemon = Daemon::start();
    let gate = |name: &str| Fifo::new(daemon.dir().join(name));
    let begin =
        |gate: &Fifo| daemon.begin(&format!("read _ <{}", gate.path().display()), &json!({}));
    let (first_gate, later_gate) = (gate("first"), gate("later"));
    let first = begin(&first_gate);
    let first_held = first_gate.reached();
    let file = daemon.dir().join("pid");
    let command = format!(
        "(env -i setsid bash -c 'echo $$ >{0}.new; mv {0}.new {0}; exec sleep 600' >/dev/null 2>&1 &); \
         until [ -s {0} ]; do sleep 0.01; done",
        file.display()
    );
    let kill = json!({"by": "group", "reason": "background", "signalled": 0, "survivors": null});
    assert_eq!(daemon.bash(&command).json()["kill"], kill);
    let pid = std::fs::read_to_string(&file).expect("written");
    let pid: i32 = pid.trim().parse().expect("a pid");

    let later = begin(&later_gate);
    let later_held = later_gate.reached();
    drop(first_held);
    assert_eq!(
        daemon.ended(&first)["result"]["kill"],
        kill,
        "it may be its own"
    );
    drop(later_held);
    let later = &daemon.ended(&later)["result"];
    assert_eq!(
        (later.get("kill"), &later["background"]),
        (None, &json!([]))
    );
    wait_until("it is found", || !crate::support::Process::lives(pid));
}

#[test]
fn what_hides_alone_is_found() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 100");
        let file = daemon.dir().join("pid");
        let command = format!(
            "(env -i setsid bash -c 'echo $$ >{0}.new; mv {0}.new {0}; exec sleep 600' >/dev/null 2>&1 &); \
             while ! [ -e {0} ]; do sleep 0.01; done; cat {0}",
            file.display()
        );
        let reply = daemon.bash(&command);
        let pid: i32 = reply.stdout().parse().expect("a pid");
        assert!(!crate::support::Process::lives(pid), "{mode:?}");
        let body = reply.json();
        assert_eq!(body["background"][0]["pid"], pid, "{mode:?}: {body}");
        assert_eq!(body["kill"]["survivors"], 0, "{mode:?}");
    }
}

/// A process is called what it likes (`PR_SET_NAME` of prctl(2)), and /proc/PID/stat has it as it is.
#[test]
fn a_name_that_is_no_text_hides_nobody() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 100");
        let file = daemon.dir().join("pid");
        let command = format!(
            "setsid bash -c 'printf \"\\377) S\" >/proc/$$/comm; echo $$ >{0}.new; mv {0}.new {0}; while :; do sleep 600; done' >/dev/null 2>&1 & \
             while ! [ -e {0} ]; do sleep 0.01; done; cat {0}",
            file.display()
        );
        let reply = daemon.bash(&command);
        let pid: i32 = reply.stdout().parse().expect("a pid");
        let body = reply.json();
        assert!(!crate::support::Process::lives(pid), "{mode:?}: {body}");
        let left = body["background"].as_array().expect("a list");
        assert!(
            left.iter().any(|left| left["pid"] == pid),
            "{mode:?}: {body}"
        );
        assert_eq!(body["kill"]["survivors"], 0, "{mode:?}: {body}");
        assert_eq!(daemon.processes(), Vec::<i32>::new(), "{mode:?}");
    }
}

/// A command that goes to another cgroup, as `systemd-run --scope` would have it go, is killed all
/// the same; and whatever it does, the daemon answers.
#[test]
fn a_leader_that_leaves_its_cgroup_is_killed() {
    let Some(mode) = Mode::all().into_iter().find(|mode| *mode == Mode::Cgroup) else {
        return;
    };
    let daemon = Daemon::start_with(mode, "kill_grace_ms = 100");
    let elsewhere = daemon.cgroup().expect("a cgroup").join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a cgroup");
    let command = format!(
        "echo $$ >{}/cgroup.procs; trap '' TERM; echo $$; exec sleep 600",
        elsewhere.display()
    );
    for members in [
        json!({"timeout_secs": 2}),
        json!({"timeout_secs": 2, "background": "keep"}),
    ] {
        let reply = daemon.bash_with(&command, &members);
        let pid: i32 = reply.stdout().parse().expect("a pid");
        let body = reply.json();
        assert_eq!(body["code"], "timeout", "{body}");
        assert_eq!(body["kill"]["survivors"], 0, "{body}");
        assert!(!crate::support::Process::lives(pid));
        assert_eq!(daemon.get("/health").json()["running"], 0);
    }
}

/// A tracer keeps an ended process from being reaped: that costs its own execution, and nobody else.
#[test]
fn a_tracer_holds_up_nobody_else() {
    if !can_trace("what a tracer holds") {
        return;
    }
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 100\nkill_wait_ms = 200");
        let id = daemon.begin("echo $$; exec sleep 600", &json!({}));
        let pid = wait_for("its pid", || {
            let output = daemon.output(&id, "stdout");
            let text = String::from_utf8(output).ok()?;
            text.trim().parse::<i32>().ok()
        });
        let mut strace = std::process::Command::new("strace");
        strace.args(["-o", "/dev/null", "-p", &pid.to_string()]);
        let mut strace = strace
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("strace");
        let status = format!("/proc/{pid}/status");
        wait_until("it is traced", || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            status.contains(&format!("TracerPid:\t{}", strace.id()))
        });
        let tracer = nix::unistd::Pid::from_raw(strace.id() as i32);
        nix::sys::signal::kill(tracer, nix::sys::signal::Signal::SIGSTOP).expect("stopped");
        let path = format!("/executions/{id}");
        let reply = daemon.connect().request("DELETE", &path, &[], b"");
        assert_eq!(reply.status, 200, "{mode:?}");
        let record = reply.json();
        assert_eq!(record["status"], "cancelled", "{mode:?}: {record}");
        assert_eq!(daemon.bash("echo well").stdout(), "well", "{mode:?}");
        nix::sys::signal::kill(tracer, nix::sys::signal::Signal::SIGKILL).expect("killed");
        strace.wait().expect("reaped");
        wait_until("it is gone", || !crate::support::Process::lives(pid));
    }
}

/// It cannot be reaped then, but it tells how it ended all the same; nothing of what it wrote is lost.
#[test]
fn what_a_tracer_holds_has_ended_as_it_did() {
    if !can_trace("how what a tracer holds has ended") {
        return;
    }
    let tracer = "import ctypes, sys
seize = 0x4206
held = ctypes.CDLL(None, use_errno=True).ptrace(seize, int(sys.argv[1]), None, None)
print('held' if held == 0 else ctypes.get_errno(), flush=True)
sys.stdin.read()";
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_wait_ms = 200");
        if daemon.bash("python3 -c 'import ctypes'").json()["exit_code"] != 0 {
            skip("how what a tracer holds has ended, for want of python3");
            return;
        }
        let gate = Fifo::new(daemon.dir().join("gate"));
        let command = format!("echo $$; read _ <{}; exit 3", gate.path().display());
        for (timeout, status, exit) in [(60.0, "error", json!(3)), (1.5, "timeout", json!(null))] {
            let id = daemon.begin(&command, &json!({"timeout_secs": timeout}));
            let held = gate.reached();
            let pid = String::from_utf8(daemon.output(&id, "stdout")).expect("text");
            let mut tracer = std::process::Command::new("python3")
                .args(["-c", tracer, pid.trim()])
                // Until this is closed.
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("python3");
            let mut told = [0; 5];
            let stdout = tracer.stdout.as_mut().expect("a pipe");
            std::io::Read::read_exact(stdout, &mut told).expect("told");
            assert_eq!(&told, b"held\n", "{mode:?}");
            // It goes on, or is held until its time is over.
            let held = (status == "timeout").then_some(held);
            let record = daemon.ended(&id);
            drop(held);
            tracer.kill().expect("killed");
            tracer.wait().expect("reaped");
            assert_eq!(record["status"], status, "{mode:?}: {record}");
            let result = &record["result"];
            assert_eq!(result["exit_code"], exit, "{mode:?}: {record}");
            let content = result["content"].as_str().expect("text");
            assert!(content.contains(pid.trim()), "{mode:?}: {content}");
        }
    }
}

/// One that was only just born has no group yet.
#[test]
fn a_command_can_be_stopped_from_its_first_moment() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 60000");
        for _ in 0..50 {
            let id = daemon.begin("exec sleep 600", &json!({}));
            let path = format!("/executions/{id}");
            let (reply, took) = timed(|| daemon.connect().request("DELETE", &path, &[], b""));
            assert_eq!(reply.json()["status"], "cancelled", "{mode:?}");
            assert!(took.within(Duration::from_secs(30)), "{mode:?}: {took:?}");
        }
    }
}

/// Agents save their environment in one call and load it in the next.
#[test]
fn an_id_of_nobody_hides_nobody() {
    let daemon = Daemon::start_with(Mode::Group, "kill_grace_ms = 100");
    for id in ["garbage", "01890000-0000-7000-8000-000000000000"] {
        let command = format!(
            "(SHELLY_EXECUTION_ID={id} setsid sh -c 'echo $$; exec sleep 600 >/dev/null 2>&1' &) | cat"
        );
        let reply = daemon.bash(&command);
        let pid: i32 = reply.stdout().parse().expect("a pid");
        let body = reply.json();
        assert_eq!(body["background"][0]["pid"], pid, "{id}: {body}");
        assert!(!crate::support::Process::lives(pid), "{id}");
    }
}

/// With others about it cannot be told whose such a process is; but it is not theirs who came later.
#[test]
fn what_hid_between_others_goes_when_they_have() {
    let daemon = Daemon::start_with(Mode::Group, "");
    let early = daemon.begin("exec sleep 600", &json!({}));
    let hidden = "(env -i setsid sh -c 'echo $$; exec sleep 600 >/dev/null 2>&1' &) | cat";
    let pid: i32 = daemon.bash(hidden).stdout().parse().expect("a pid");
    // Seen, and not killed: it may be the early one's.
    daemon.wait_until("it is seen", || daemon.log().contains("whose it is"));
    let _late = daemon.begin("exec sleep 600", &json!({}));
    assert!(crate::support::Process::lives(pid));
    let path = format!("/executions/{early}");
    daemon.connect().request("DELETE", &path, &[], b"");
    wait_until("it is killed", || !crate::support::Process::lives(pid));
    assert_eq!(daemon.get("/health").json()["running"], 1);
}

/// SIGKILL does nothing to a process that a v1 freezer holds, until that lets go.
#[test]
fn who_cannot_be_killed_is_counted_and_not_waited_for() {
    let Some(freezer) = Freezer::make() else {
        skip("uninterruptible sleep, for want of a cgroup v1 freezer to make it with");
        return;
    };
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 300\nkill_wait_ms = 400");
        let baseline = daemon.baseline();
        let command = format!(
            "echo $$ >{}; echo here; sleep 60",
            freezer.0.join("cgroup.procs").display()
        );
        let id = daemon.begin(&command, &json!({}));
        wait_until("it is in the freezer", || {
            daemon.output(&id, "stdout") == b"here\n"
        });
        freezer.set("FROZEN");
        let path = format!("/executions/{id}");
        let (reply, took) = timed(|| daemon.connect().request("DELETE", &path, &[], b""));
        // Grace, then once kill_wait for the tree and once for the leader.
        let due = Duration::from_millis(300 + 400 + 400);
        assert!(took.within(due + MARGIN), "{mode:?}: {took:?}");
        let result = &reply.json()["result"];
        let survivors = result["kill"]["survivors"].as_u64().expect("a number");
        assert!((1..=2).contains(&survivors), "{mode:?}: {result}");
        assert_eq!(
            (&result["exit_code"], &result["signal"]),
            (&json!(null), &json!(null))
        );
        assert_eq!(result["content"], "[stdout]\nhere\n\n[cancelled]");
        // The daemon goes on meanwhile, and nothing is left once it can die.
        assert_eq!(daemon.bash("echo hi").stdout(), "hi");
        freezer.set("THAWED");
        daemon.wait_clean(&baseline);
    }
}

/// A cgroup v1 freezer, thawed and removed when dropped.
struct Freezer(std::path::PathBuf);

impl Freezer {
    fn make() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let mount = mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let is_freezer = fields[2] == "cgroup" && fields[3].split(',').any(|o| o == "freezer");
            is_freezer.then(|| fields[1].to_owned())
        })?;
        let name = format!("shelly-it-freezer-{}", std::process::id());
        let dir = std::path::Path::new(&mount).join(name);
        std::fs::create_dir(&dir).ok().map(|()| Self(dir))
    }

    /// Asks for a state and waits for it.
    fn set(&self, state: &str) {
        let file = self.0.join("freezer.state");
        std::fs::write(&file, state).expect("a freezer");
        wait_until(state, || {
            std::fs::read_to_string(&file).expect("a freezer").trim() == state
        });
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
        wait_until("the freezer is empty", || {
            std::fs::remove_dir(&self.0).is_ok()
        });
    }
}

/// More than are looked at on the event loop, each in a session of its own.
#[test]
fn of_many_processes_none_is_left() {
    const MANY: usize = 300;
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 100\nkill_wait_ms = 10000");
        let start = format!("for i in $(seq {MANY}); do setsid sleep 600 >/dev/null 2>&1 & done");
        let body = daemon.bash(&format!("{start}; echo hi")).json();
        let left = body["background"].as_array().expect("a list").len();
        assert_eq!(
            (left, &body["kill"]["survivors"]),
            (MANY, &json!(0)),
            "{mode:?}"
        );
        assert_eq!(daemon.processes(), NOBODY, "{mode:?}");

        let ready = Fifo::new(daemon.dir().join("ready"));
        let path = ready.path().display();
        let id = daemon.begin(&format!("{start}; read _ <{path}"), &json!({}));
        let _ready = ready.reached();
        let path = format!("/executions/{id}");
        let record = daemon.connect().request("DELETE", &path, &[], b"").json();
        let kill = &record["result"]["kill"];
        assert_eq!(kill["survivors"], 0, "{mode:?}: {record}");
        // Of those that are just executing a program it is not told yet whose they are.
        assert!(
            kill["signalled"].as_u64() > Some(MANY as u64 / 2),
            "{mode:?}: {record}"
        );
        assert_eq!(daemon.processes(), NOBODY, "{mode:?}");
    }
}
