//! What a command leaves behind when it ends: killed at once and listed.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::NOBODY;
use crate::support::{Daemon, Fifo, Mode, Process, SLEEPS, bash_call, skip, timed, wait_until};

/// Under what names `background` lists what was left, sorted.
fn commands(body: &Value) -> Vec<String> {
    let left = body["background"].as_array().expect("a list");
    let mut commands: Vec<String> = left
        .iter()
        .map(|left| left["command"].as_str().expect("text").to_owned())
        .collect();
    commands.sort();
    commands
}

#[test]
fn a_sleeper_does_not_hold_up_the_answer() {
    let both = json!(["stdout", "stderr"]);
    let only_stderr = json!(["stderr"]);
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        for (command, held) in [
            ("sleep 60 & SLEEPS", &both),
            ("sleep 60 >/dev/null & SLEEPS", &only_stderr),
            ("setsid sleep 60 & SLEEPS", &both),
            ("( setsid sleep 60 & SLEEPS )", &both),
            ("( ( sleep 60 & SLEEPS ) & wait )", &both),
            ("trap '' TERM HUP; nohup sleep 60 & SLEEPS", &both),
            ("sleep 60 & kill -STOP $!", &both),
        ] {
            let command = format!("{}; echo hi", command.replace("SLEEPS", SLEEPS));
            let (reply, took) = timed(|| daemon.bash(&command));
            let left = daemon.processes();
            assert!(
                took.within(Duration::from_secs(1)),
                "{mode:?} {command}: {took:?}"
            );
            assert!(left.is_empty(), "{mode:?} {command}: {left:?}");
            assert_eq!(reply.status, 200, "{mode:?} {command}");
            let body = reply.json();
            assert_eq!(
                body["content"], "[stdout]\nhi\n\n[exit_code]\n0",
                "{mode:?} {command}"
            );
            let listed = body["background"].as_array().expect("a list");
            assert_eq!(listed.len(), 1, "{mode:?} {command}: {body}");
            let sleeper = &listed[0];
            assert!(
                sleeper["command"]
                    .as_str()
                    .expect("text")
                    .contains("sleep 60"),
                "{body}"
            );
            assert_eq!(sleeper["killed"], true, "{mode:?} {command}");
            assert_eq!(&sleeper["held"], held, "{mode:?} {command}");
            let kill = json!({"by": mode.as_str(), "reason": "background", "signalled": 1, "survivors": 0});
            assert_eq!(body["kill"], kill, "{mode:?} {command}");
        }
    }
}

#[test]
fn a_tee_that_is_held_open_is_left_behind_with_its_holder() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let file = daemon.dir().join("tee");
        let command = format!(
            "exec > >(tee {file}); sleep 60 & {SLEEPS}; echo hi; until [ -s {file} ]; do :; done",
            file = file.display()
        );
        let (reply, took) = timed(|| daemon.bash(&command));
        let body = reply.json();
        assert!(took.within(Duration::from_secs(1)), "{mode:?} {took:?}");
        assert_eq!(reply.stdout(), "hi", "{mode:?}");
        assert_eq!(std::fs::read(&file).expect("written"), b"hi\n");
        let expected = ["sleep 60".to_owned(), format!("tee {}", file.display())];
        assert_eq!(commands(&body), expected, "{mode:?}: {body}");
        assert_eq!(daemon.processes(), NOBODY, "{mode:?}");
    }
}

/// A process that ends with the command is not left behind, however close the race.
#[test]
fn a_tee_that_ends_by_itself_is_waited_for_and_not_listed() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "drain_ms = 10000");
        let file = daemon.dir().join("tee");
        let command = format!("echo hi > >(tee {})", file.display());
        for _ in 0..50 {
            let reply = daemon.bash(&command);
            assert_eq!(reply.stdout(), "hi", "{mode:?}");
            assert_eq!(std::fs::read(&file).expect("written"), b"hi\n");
            let body = reply.json();
            assert_eq!(body["background"], json!([]), "{mode:?}");
            assert_eq!(body.get("kill"), None, "{mode:?}: {body}");
        }
    }
}

/// What was asked to end ends, though the command has already, and what it left behind is waited for.
#[test]
fn a_stop_ends_the_wait_for_what_was_left_behind_and_that_as_well() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "drain_ms = 60000");
        let pid = daemon.dir().join("pid");
        let command = format!("sleep 600 & echo $$ >{}.new; mv {0}.new {0}", pid.display());
        for (keep, cancel) in [(true, true), (false, true), (true, false)] {
            let background = if keep { "keep" } else { "kill" };
            let body = bash_call(&command, &json!({"background": background})).to_string();
            let mut caller = daemon.connect();
            let headers: &[(&str, &str)] = if cancel {
                &[("Prefer", "respond-async")]
            } else {
                &[]
            };
            caller.send("POST", "/execute", headers, body.as_bytes());
            wait_until("the leader has ended", || {
                let leader = std::fs::read_to_string(&pid).unwrap_or_default();
                let stat = std::fs::read_to_string(format!("/proc/{}/stat", leader.trim()));
                stat.is_ok_and(|stat| stat.contains(") Z "))
            });
            std::fs::remove_file(&pid).expect("written");
            let list = daemon.get("/executions?limit=1").json();
            let id = list["executions"][0]["execution_id"]
                .as_str()
                .expect("an id")
                .to_owned();
            let path = format!("/executions/{id}");
            let (record, took) = timed(|| match cancel {
                true => daemon.connect().request("DELETE", &path, &[], b"").json(),
                false => {
                    drop(caller);
                    daemon.ended(&id)
                }
            });
            assert!(took.within(Duration::from_secs(20)), "{mode:?}: {took:?}");
            // The command had ended as it did.
            assert_eq!(record["status"], "success", "{mode:?}: {record}");
            let result = &record["result"];
            let reason = if cancel { "cancelled" } else { "disconnect" };
            assert_eq!(result["kill"]["reason"], reason, "{mode:?}: {record}");
            assert_eq!(
                result["background"][0]["killed"], true,
                "{mode:?}: {record}"
            );
            assert_eq!(daemon.processes(), NOBODY, "{mode:?}");
        }
    }
}

/// Each has two readers of its own for as long as it lives.
#[test]
fn any_number_that_is_kept_takes_nothing_from_the_others() {
    let mut daemon = Daemon::start_with(Mode::Group, "");
    for _ in 0..300 {
        let reply = daemon.bash_with("sleep 600 & echo x", &json!({"background": "keep"}));
        assert_eq!(reply.stdout(), "x");
    }
    let id = daemon.begin("head -c 3000000 /dev/zero; sleep 600", &json!({}));
    wait_until("all of it is read", || {
        daemon.output(&id, "stdout").len() == 3_000_000
    });
    let path = format!("/executions/{id}");
    let (reply, took) = timed(|| daemon.connect().request("DELETE", &path, &[], b""));
    assert_eq!(reply.json()["result"]["stdout_bytes"], 3_000_000);
    assert!(took.within(Duration::from_secs(5)), "{took:?}");
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert_eq!(daemon.processes(), NOBODY);
}

#[test]
fn who_holds_no_pipe_is_not_waited_for() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "drain_ms = 10000");
        let (reply, took) = timed(|| daemon.bash("sleep 60 </dev/null >/dev/null 2>&1 & echo hi"));
        assert!(took.within(Duration::from_secs(5)), "{mode:?} {took:?}");
        let body = reply.json();
        assert_eq!(body["background"][0]["held"], json!([]), "{mode:?}");
        assert_eq!(body["kill"]["survivors"], 0, "{mode:?}");
        assert_eq!(daemon.processes(), NOBODY, "{mode:?}");
    }
}

#[test]
fn a_chatty_holder_does_not_hold_up_the_answer_either() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let (reply, took) = timed(|| {
            daemon.bash("yes & echo hi >&2; until grep -q ^yes /proc/$!/comm; do :; done")
        });
        // It would never end by itself; a loaded machine is let take its time.
        assert!(took.within(Duration::from_secs(5)), "{mode:?} {took:?}");
        let body = reply.json();
        assert_eq!(commands(&body), ["yes"], "{mode:?}");
        assert_eq!(body["exit_code"], 0, "{mode:?}");
        assert!(reply.content().contains("[stderr]\nhi\n"), "{mode:?}");
        assert_eq!(daemon.processes(), NOBODY, "{mode:?}");
    }
}

#[test]
fn what_is_killed_is_accounted_for() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        // In a session of its own, and in the leader's group, which is killed before anybody looks.
        for (number, beginning) in ["setsid", ""].into_iter().enumerate() {
            let ready = daemon.dir().join(format!("ready{number}"));
            let command = format!(
                "mkfifo {0}; {beginning} python3 -c \"import time\nwhile time.process_time() < 0.3: pass\nopen('{0}', 'w').close()\ntime.sleep(600)\" >/dev/null 2>&1 & read _ <{0}; true",
                ready.display()
            );
            let body = daemon.bash(&command).json();
            assert_eq!(body["background"][0]["killed"], true, "{mode:?}: {body}");
            assert!(
                // The kernel counts in ticks.
                body["usage"]["cpu_ms"].as_u64() >= Some(250),
                "{mode:?} {beginning:?}: {body}"
            );
        }
    }
}

/// Nobody waits for it but the daemon: its parent ends of the same signal.
#[test]
fn what_ends_at_the_time_limit_is_accounted_for() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        for beginning in ["setsid", ""] {
            let command = format!("{beginning} python3 -c 'while True: pass'; true");
            let reply = daemon.bash_with(&command, &json!({"timeout_secs": 2}));
            let body = reply.json();
            assert_eq!(reply.status, 504, "{mode:?}: {body}");
            let cpu = body["usage"]["cpu_ms"].as_u64();
            assert!(cpu >= Some(250), "{mode:?} {beginning:?}: {body}");
        }
    }
}

/// A shell that is killed may wait for its child yet, of which it then has the time.
#[test]
fn nothing_that_is_killed_is_accounted_for_twice() {
    const BUSY: &str = r#"trap '' TERM; bash -c "trap '' TERM; bash -c 'trap \"\" TERM; while :; do :; done'; true"; true"#;
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 20");
        for _ in 0..20 {
            let body = daemon.bash_with(BUSY, &json!({"timeout_secs": 0.3})).json();
            let number = |value: &serde_json::Value| value.as_u64().expect("a number");
            let (cpu, wall) = (
                number(&body["usage"]["cpu_ms"]),
                number(&body["duration_ms"]),
            );
            // One of them runs at a time, but for their starts.
            assert!(cpu < wall + wall / 2, "{mode:?}: {body}");
        }
    }
}

/// The leader has ended, so the time limit has nothing more to say; the drain has.
#[test]
fn a_time_limit_inside_the_drain_does_not_make_a_timeout() {
    let (limit, drain) = (Duration::from_millis(1500), Duration::from_millis(3000));
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "drain_ms = 3000");
        let members = json!({"timeout_secs": limit.as_secs_f64()});
        let (reply, took) = timed(|| daemon.bash_with("sleep 60 & echo hi", &members));
        let body = reply.json();
        assert_eq!(reply.status, 200, "{mode:?}: {body}");
        assert_eq!(body["exit_code"], 0, "{mode:?}");
        assert_eq!(body["kill"]["reason"], "background", "{mode:?}");
        assert!(
            took.wall >= drain && took.within(drain + Duration::from_millis(300)),
            "{took:?}"
        );
        assert_eq!(daemon.processes(), NOBODY, "{mode:?}");
    }
}

/// Its main thread gone, a process looks like a zombie and has no command line, and still lives.
#[test]
fn a_process_without_its_main_thread_is_killed_like_any_other() {
    let python = "import ctypes, threading, time, sys
threading.Thread(target=time.sleep, args=(60,)).start()
open(sys.argv[1], 'w').close()
ctypes.CDLL(None).pthread_exit(None)";
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        if daemon.bash("python3 -c 'import ctypes'").json()["exit_code"] != 0 {
            skip("a process without its main thread, for want of python3");
            return;
        }
        let (script, ready) = (daemon.dir().join("thread.py"), daemon.dir().join("ready"));
        std::fs::write(&script, python).expect("written");
        let command = format!(
            "setsid python3 {} {ready} 2>/dev/null & pid=$!; \
             while ! [ -e {ready} ] || ! grep -q '^State:.Z' /proc/$pid/status; do sleep 0.01; done; echo $pid",
            script.display(),
            ready = ready.display(),
        );
        let reply = daemon.bash(&command);
        let pid: i32 = reply.stdout().parse().expect("a pid");
        let body = reply.json();
        assert_eq!(body["background"][0]["pid"], pid, "{mode:?}: {body}");
        assert_eq!(body["background"][0]["held"], json!(["stdout"]), "{body}");
        assert_eq!(body["kill"]["survivors"], 0, "{mode:?}");
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        assert!(threads <= 1, "{mode:?}: {threads} threads of {pid} live on");
    }
}

/// What forks on faster than it is looked at may get away without cgroups, but never unsaid.
#[test]
fn what_cannot_be_caught_up_with_is_told() {
    let python = "import os, sys, time
end = time.time() + 1.5
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.closerange(0, 3)
        while time.time() < end:
            if os.fork():
                os._exit(0)
            os.setsid()
        open(sys.argv[1], 'w').close()
        os._exit(0)";
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        if daemon.bash("python3 -c ''").json()["exit_code"] != 0 {
            skip("what forks on faster than it is looked at, for want of python3");
            return;
        }
        let (script, marker) = (daemon.dir().join("storm.py"), daemon.dir().join("marker"));
        std::fs::write(&script, python).expect("written");
        let command = format!("python3 {} {}", script.display(), marker.display());
        let body = daemon.bash(&command).json();
        wait_until("all of it has ended", || daemon.processes() == NOBODY);
        let is_said = body["kill"]["reason"] == "background" && body["kill"]["survivors"] != 0;
        assert!(!marker.exists() || is_said, "{mode:?}: {body}");
    }
}

#[test]
fn what_is_kept_goes_on_writing_into_the_spool_and_ends_with_the_daemon() {
    for mode in Mode::all() {
        let mut daemon = Daemon::start_with(mode, "");
        let command = "while echo tick $EPOCHREALTIME; do sleep 0.05; done & echo $!";
        let members = json!({"background": "keep", "timeout_secs": 2});
        let begun = Instant::now();
        let reply = daemon.bash_with(command, &members);
        let body = reply.json();
        let stdout = reply.stdout();
        let pid: i32 = stdout
            .lines()
            .find_map(|line| line.parse().ok())
            .expect("a pid");
        assert_eq!(body["exit_code"], 0, "{mode:?}");
        assert_eq!(body["background"][0]["pid"], pid, "{mode:?}: {body}");
        assert_eq!(body["background"][0]["killed"], false, "{mode:?}");
        assert_eq!(body.get("kill"), None, "{mode:?}");

        let id = body["execution_id"].as_str().expect("an id").to_owned();
        let ticks = |text: &[u8]| text.split(|byte| *byte == b'\n').count();
        let at_answer = ticks(stdout.as_bytes());
        // Seconds after the answer, and well beyond the time limit, it is there and writes.
        wait_until("it writes beyond its time limit", || {
            let kept = ticks(&daemon.output(&id, "stdout"));
            begun.elapsed() > Duration::from_secs(4) && kept > at_answer + 10
        });
        assert!(Process::lives(pid), "{mode:?}");
        let kept = daemon.output(&id, "stdout");
        assert!(kept.starts_with(stdout.as_bytes()), "{mode:?}");
        let before = kept.len();
        wait_until("it still writes", || {
            daemon.output(&id, "stdout").len() > before
        });
        // The answer's record does not grow with it.
        assert_eq!(daemon.ended(&id)["result"], body, "{mode:?}");

        daemon.signal(nix::sys::signal::Signal::SIGTERM);
        assert!(daemon.wait().success(), "{mode:?}");
        assert!(!Process::lives(pid), "{mode:?}");
    }
}

/// While there is no descriptor to look with, nobody can be seen, which is not to say that nobody is there.
#[test]
fn what_is_kept_outlives_a_want_of_descriptors() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let command =
            "setsid sleep 600 >/dev/null 2>&1 & echo $!; sleep 600 >/dev/null 2>&1 & echo $!";
        let reply = daemon.bash_with(command, &json!({"background": "keep"}));
        let pids: Vec<i32> = (reply.stdout().lines())
            .map(|line| line.parse().expect("a pid"))
            .collect();
        let limit = |soft: &str| {
            let pid = daemon.pid().to_string();
            let limit = format!("--nofile={soft}:");
            let done = Command::new("prlimit")
                .args(["--pid", &pid, &limit])
                .status();
            assert!(done.expect("util-linux").success());
        };
        limit("3");
        // What is kept is looked at once a second, as all that is done now and then.
        let woken = || daemon.status("voluntary_ctxt_switches");
        let before = woken();
        wait_until("it has looked", || woken() > before + 12);
        limit("1024");
        assert_eq!(daemon.bash("echo hi").stdout(), "hi", "{mode:?}");
        for pid in pids {
            assert!(Process::lives(pid), "{mode:?}: {pid}");
        }
    }
}

/// Whatever the stream's length was when the command ended: in memory, beyond what a record
/// holds there, or being read by a thread already.
#[test]
fn of_what_is_kept_the_spool_has_all_from_the_first_byte() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        for length in [10, 5_000, 100_000, 1_000_000] {
            let gate = Fifo::new(daemon.dir().join(format!("gate-{length}")));
            let command = format!(
                "head -c {length} /dev/zero | tr '\\0' x; {{ read _ <{}; echo end; }} & :",
                gate.path().display()
            );
            let body = daemon
                .bash_with(&command, &json!({"background": "keep"}))
                .json();
            let id = body["execution_id"].as_str().expect("an id");
            assert_eq!(body["stdout_bytes"], length, "{mode:?}");
            assert_eq!(daemon.output(id, "stdout").len(), length, "{mode:?}");
            drop(gate.reached());
            let mut expected = vec![b'x'; length];
            expected.extend(b"end\n");
            wait_until("the end is there", || {
                daemon.output(id, "stdout") == expected
            });
        }
        wait_until("all have ended", || daemon.processes().is_empty());
        let health = daemon.get("/health").json();
        assert_eq!(health["status"], "ok", "{mode:?}: {health}");
    }
}

/// A leader may make its children the daemon's (`CLONE_PARENT`, clone(2)): nobody else reaps those.
#[test]
fn what_becomes_a_child_of_the_daemon_is_reaped() {
    let python = "import ctypes, os
clone = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
CLONE_PARENT = 0x8000
child = ctypes.CDLL(None).syscall(clone, CLONE_PARENT, 0, 0, 0, 0)
os.write(1, b'' if child == 0 else str(child).encode())
os._exit(0)";
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        if daemon.bash("python3 -c 'import ctypes'").json()["exit_code"] != 0 {
            skip("children that are made the daemon's, for want of python3");
            return;
        }
        let script = daemon.dir().join("parent.py");
        std::fs::write(&script, python).expect("written");
        let reply = daemon.bash(&format!("exec python3 {}", script.display()));
        let child: i32 = reply.stdout().parse().expect("a pid");
        assert!(child > 0, "{mode:?}: {child}");
        wait_until("it is reaped", || daemon.children().is_empty());
    }
}

/// Whoever looks at the tree meanwhile, between a fork and the end of the one that forked nobody
/// gets lost.
#[test]
fn a_chain_of_forks_is_followed_to_its_end() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "drain_ms = 0");
        for round in 0..150 {
            let command = match round % 3 {
                0 => "( ( sleep 60 & ) & ); echo hi",
                1 => "( setsid sleep 60 & ); echo hi",
                _ => "( setsid sh -c 'setsid sleep 60 &' & ); echo hi",
            };
            let reply = daemon.bash(command);
            let left = daemon.processes();
            assert!(
                left.is_empty(),
                "{mode:?} {command}: {left:?}, {}",
                reply.json()
            );
        }
    }
}

/// What git does behind a commit to keep the repository small ends with the commit.
#[test]
fn git_leaves_nothing_behind() {
    const REPOSITORY: &str = "set -e
git init -q r && cd r && git config gc.auto 1
git config user.name x && git config user.email x@example.org
for file in $(seq 600); do echo $file > $file; done
git add . && git commit -q -m all
git count-objects -v";
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        if daemon.bash("command -v git").json()["exit_code"] != 0 {
            skip("there is no git");
            return;
        }
        let reply = daemon.bash(REPOSITORY);
        let body = reply.json();
        assert_eq!(body["exit_code"], 0, "{body}");
        assert_eq!(
            (&body["background"], &body["kill"]),
            (&json!([]), &Value::Null),
            "{mode:?}"
        );
        assert!(reply.content().contains("packs: 1"), "{}", reply.content());
        assert!(reply.content().contains("count: 0"), "{}", reply.content());
    }
}
