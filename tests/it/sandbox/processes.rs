//! The rules of running processes (CONTRACT 5), inside.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{assert_clean, bundles, modes, runtimes, start, wait_for_test, waiting, workspace};
use crate::support::{SLEEPS, bash_call, timed, wait_until};

/// What a start may take: 0.2 s on a machine that does nothing else.
const START: Duration = Duration::from_secs(3);

/// What a stop may take beyond limit and grace.
const MARGIN: Duration = Duration::from_millis(300);

#[test]
fn endings_are_told_as_what_they_are() {
    for mode in modes() {
        let daemon = start(mode, "");
        for (command, code, signal, closing) in [
            ("true", json!(0), Value::Null, "[exit_code]\n0"),
            ("exit 137", json!(137), Value::Null, "[exit_code]\n137"),
            (
                "no-such-program",
                json!(127),
                Value::Null,
                "[exit_code]\n127",
            ),
            (
                "kill -KILL $$",
                Value::Null,
                json!("SIGKILL"),
                "[signal]\nSIGKILL",
            ),
            (
                "kill -SEGV $$",
                Value::Null,
                json!("SIGSEGV"),
                "[signal]\nSIGSEGV",
            ),
            // One that few libraries have a name for.
            (
                "kill -34 $$",
                Value::Null,
                json!("SIGRTMIN"),
                "[signal]\nSIGRTMIN",
            ),
            (
                "(kill -KILL $BASHPID); exit $?",
                json!(137),
                Value::Null,
                "[exit_code]\n137",
            ),
        ] {
            let reply = daemon.bash(command);
            let body = reply.json();
            assert_eq!(reply.status, 200, "{mode:?} {command}: {body}");
            assert_eq!(body["exit_code"], code, "{mode:?} {command}: {body}");
            assert_eq!(body["signal"]["name"], signal, "{mode:?} {command}: {body}");
            assert!(
                reply.content().ends_with(closing),
                "{mode:?} {command}: {body}"
            );
            assert_eq!(body["risk_level"], "untrusted");
            assert_eq!(body["sandbox"]["runtime"], "runsc");
        }
        assert_clean(&daemon, "after endings");
    }
}

#[test]
fn what_cannot_be_started_says_why() {
    for mode in modes() {
        let daemon = start(mode, "");
        let reply = daemon.bash_with("true", &json!({"working_dir": "/nowhere"}));
        let body = reply.json();
        assert_eq!(
            (reply.status, &body["code"]),
            (500, &json!("spawn_failed")),
            "{mode:?}: {body}"
        );
        let detail = body["detail"].as_str().expect("text");
        assert!(detail.contains("`/nowhere`: No such file"), "{detail}");
        // The code by which the first process says so is a command's as well.
        let body = daemon.bash("exit 125").json();
        assert_eq!(body["exit_code"], 125, "{mode:?}: {body}");
        assert_clean(&daemon, "after what could not be started");
    }
}

#[test]
fn what_is_left_behind_is_listed_and_dead() {
    for mode in modes() {
        let daemon = start(mode, "");
        for (command, held) in [
            ("sleep 60 & SLEEPS", json!(["stdout", "stderr"])),
            ("sleep 60 >/dev/null & SLEEPS", json!(["stderr"])),
            ("setsid sleep 60 & SLEEPS", json!(["stdout", "stderr"])),
            (
                "( ( setsid sleep 60 & SLEEPS ) & wait )",
                json!(["stdout", "stderr"]),
            ),
            (
                "env -i setsid sleep 60 & SLEEPS",
                json!(["stdout", "stderr"]),
            ),
            (
                "trap '' TERM HUP; nohup sleep 60 & SLEEPS",
                json!(["stdout", "stderr"]),
            ),
        ] {
            let command = format!("{}; echo hi", command.replace("SLEEPS", SLEEPS));
            let (reply, took) = timed(|| daemon.bash(&command));
            let body = reply.json();
            assert!(took.within(START), "{mode:?} {command}: {took:?}");
            assert_eq!(
                body["content"], "[stdout]\nhi\n\n[exit_code]\n0",
                "{mode:?} {command}"
            );
            let listed = body["background"].as_array().expect("a list");
            assert_eq!(listed.len(), 1, "{mode:?} {command}: {body}");
            let words = listed[0]["command"].as_str().expect("text");
            assert!(words.contains("sleep 60"), "{body}");
            assert_eq!(listed[0]["held"], held, "{mode:?} {command}: {body}");
            // The namespace dies with its first process: that is proof in either mode.
            let kill = json!({"by": mode.as_str(), "reason": "background", "signalled": 1, "survivors": 0});
            assert_eq!(body["kill"], kill, "{mode:?} {command}");
            assert_clean(&daemon, &command);
        }
        // Who ends within the drain is waited for, and not listed: in one long enough for any machine.
        let daemon = start(mode, "drain_ms = 20000");
        let body = daemon.bash("(sleep 0.05; echo late) & echo hi").json();
        assert_eq!(
            body["content"], "[stdout]\nhi\nlate\n\n[exit_code]\n0",
            "{mode:?}"
        );
        assert_eq!(body["background"], json!([]), "{mode:?}");
    }
}

#[test]
fn a_stubborn_tree_is_dead_within_limit_and_grace() {
    const STUBBORN: &str =
        r#"echo partial; trap '' TERM; setsid sh -c 'trap "" TERM; sleep 60' & wait"#;
    for mode in modes() {
        let daemon = start(mode, "kill_grace_ms = 2000");
        let (reply, took) = timed(|| daemon.bash_with(STUBBORN, &json!({"timeout_secs": 5})));
        let due = Duration::from_millis(5000 + 2000);
        assert!(
            took.wall >= due && took.within(due + MARGIN),
            "{mode:?}: {took:?}"
        );
        let body = reply.json();
        assert_eq!(
            (reply.status, &body["code"]),
            (504, &json!("timeout")),
            "{body}"
        );
        assert_eq!(body["content"], "[stdout]\npartial\n\n[timeout]\n5s");
        assert_eq!(body["kill"]["reason"], "timeout");
        let signalled = body["kill"]["signalled"].as_u64().expect("a number");
        assert!((2..=3).contains(&signalled), "{body}");
        assert_clean(&daemon, "after a time limit");
    }
}

#[test]
fn a_command_that_minds_sigterm_has_its_last_words() {
    for mode in modes() {
        let daemon = start(mode, "kill_grace_ms = 20000");
        // Who is stopped is let go on for them.
        for rest in ["sleep 60 & wait", "kill -STOP $$; sleep 60"] {
            let command = format!("trap 'echo bye; exit 5' TERM; echo hello; {rest}");
            let (reply, took) = timed(|| daemon.bash_with(&command, &json!({"timeout_secs": 5})));
            assert!(
                took.within(Duration::from_secs(5) + START),
                "{mode:?} {rest}: {took:?}"
            );
            let body = reply.json();
            assert_eq!(
                body["content"], "[stdout]\nhello\nbye\n\n[timeout]\n5s",
                "{mode:?} {rest}: {body}"
            );
            assert_clean(&daemon, "after last words");
        }
    }
}

#[test]
fn who_cancels_or_hangs_up_leaves_nothing() {
    for mode in modes() {
        // None is there before its call, so that all moments of a start are seen.
        let toml = "kill_grace_ms = 200\n[sandbox]\nworkspaces = [\"/tmp\"]\nready = 0";
        let daemon = start(mode, toml);
        let id = daemon.begin("echo up; sleep 60 & wait", &json!({}));
        wait_until("it runs", || daemon.output(&id, "stdout") == b"up\n");
        let path = format!("/executions/{id}");
        let record = daemon.connect().request("DELETE", &path, &[], b"").json();
        assert_eq!(record["status"], "cancelled", "{record}");
        assert_eq!(record["result"]["content"], "[stdout]\nup\n\n[cancelled]");
        assert_clean(&daemon, "after a cancel");

        // At the moments of the start that can be seen, and after it.
        let up = daemon.dir().join("work/up");
        let dir = workspace(&daemon);
        let is_up = || up.exists();
        let has_bundle = || !bundles(&daemon).is_empty();
        let has_runtime = || !runtimes(&daemon).is_empty();
        let moments: [(&str, &dyn Fn() -> bool); 4] = [
            ("at once", &|| true),
            ("a bundle", &has_bundle),
            ("a runtime", &has_runtime),
            ("a command", &is_up),
        ];
        for (what, has_come) in moments {
            let _ = fs::remove_file(&up);
            let mut stream = UnixStream::connect(daemon.socket()).expect("connected");
            let script = format!("touch {}; sleep 60", up.display());
            let body = bash_call(&script, &json!({"workspace": dir})).to_string();
            let head = format!(
                "POST /execute HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).expect("sent");
            stream.write_all(body.as_bytes()).expect("sent");
            wait_until(what, has_come);
            drop(stream);
            wait_until("nothing is left", || {
                !has_bundle() && !has_runtime() && daemon.get("/health").json()["running"] == 0
            });
        }
        // What is hung up at once may have been noticed only now.
        wait_until("nothing runs", || daemon.processes().is_empty());
        assert_clean(&daemon, "after hang-ups");
    }
}

#[test]
fn output_is_cut_and_kept_as_outside() {
    for mode in modes() {
        let daemon = start(mode, "max_output_bytes = 65536\nspool_max_bytes = 1048576");
        let body = daemon.bash("head -c 300000 /dev/zero | tr '\\0' x; echo end >&2; printf 'a\\303'; sleep 0.1; printf '\\266\\377'").json();
        assert_eq!(body["stdout_bytes"], 300_004, "{mode:?}");
        assert_eq!(body["truncated"], true, "{mode:?}");
        assert!(
            body["content"]
                .as_str()
                .expect("text")
                .contains("[stderr]\nend\n")
        );
        let id = body["execution_id"].as_str().expect("an id").to_owned();
        let kept = daemon.output(&id, "stdout");
        assert_eq!(kept.len(), 300_004, "{mode:?}");
        assert!(
            kept.ends_with("aö\u{0}".trim_end_matches('\0').as_bytes())
                || kept.ends_with(b"a\xc3\xb6\xff")
        );

        let before = daemon.reset_peak();
        let body = daemon
            .bash_with("yes & cat /dev/zero", &json!({"timeout_secs": 2}))
            .json();
        assert_eq!(body["code"], "timeout", "{mode:?}");
        assert_eq!(body["truncated"], true);
        let grown = daemon.memory("VmHWM").saturating_sub(before);
        assert!(grown <= 16 << 20, "{mode:?}: grew by {grown} bytes");
        assert_clean(&daemon, "after a flood");
    }
}

#[test]
fn nothing_waits_for_a_human_and_nothing_of_the_daemons_is_there() {
    for mode in modes() {
        let daemon = start(mode, "[env]\nCONFIGURED = \"s3cret\"");
        let reply = daemon.bash("cat; read x; echo $?; exec 3</dev/tty || echo none; tty");
        assert_eq!(
            reply.stdout(),
            "1\nnone\nnot a tty",
            "{mode:?}: {}",
            reply.content()
        );
        let members = json!({"env": {"CALLED": "yes"}, "stdin": "text"});
        let reply = daemon.bash_with("cat; echo; cd /proc/self/fd && echo *", &members);
        assert_eq!(
            reply.stdout(),
            "text\n0 1 2 3",
            "{mode:?}: {}",
            reply.content()
        );
        let reply = daemon.bash_with("tr '\\0' '\\n' </proc/$$/environ", &members);
        let environment = reply.stdout();
        let mut names: Vec<&str> = environment
            .lines()
            .map(|line| line.split('=').next().expect("a name"))
            .collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "CALLED",
                "DEBIAN_FRONTEND",
                "GIT_CONFIG_COUNT",
                "GIT_CONFIG_KEY_0",
                "GIT_CONFIG_VALUE_0",
                "GIT_PAGER",
                "GIT_TERMINAL_PROMPT",
                "HOME",
                "LANG",
                "LOGNAME",
                "MANPAGER",
                "PAGER",
                "PATH",
                "SHELL",
                "SHELLY_EXECUTION_ID",
                "SYSTEMD_PAGER",
                "TERM",
                "USER",
            ],
            "{mode:?}"
        );
        assert!(
            environment.lines().any(|line| line == "HOME=/tmp"),
            "{environment}"
        );
    }
}

#[test]
fn long_scripts_run_and_nothing_is_kept() {
    for mode in modes() {
        let daemon = start(mode, "");
        // What a pipe does not hold, what an argument does not, and more.
        for bytes in [90_000, 131_072, 1 << 20] {
            let script = format!("#{}\necho ran", "x".repeat(bytes));
            let reply = daemon.bash(&script);
            assert_eq!(
                reply.stdout(),
                "ran",
                "{mode:?} {bytes}: {}",
                reply.content()
            );
        }
        let reply = daemon.bash_with("sleep 1", &json!({"background": "keep"}));
        let body = reply.json();
        assert_eq!(
            (reply.status, &body["code"]),
            (422, &json!("invalid_input")),
            "{body}"
        );
        assert!(
            body["detail"].as_str().expect("text").contains("keep"),
            "{body}"
        );
        assert_clean(&daemon, "after scripts");
    }
}

#[test]
fn a_daemon_that_is_killed_leaves_nothing_to_the_next() {
    for mode in modes() {
        let mut daemon = start(mode, "");
        let ids: Vec<String> = (0..3)
            .map(|_| daemon.begin("echo up; setsid sleep 600 & env -i sleep 600", &json!({})))
            .collect();
        for id in &ids {
            wait_until("it runs", || daemon.output(id, "stdout") == b"up\n");
        }
        let told = bundles(&daemon).len() - waiting(&daemon).len();
        assert_eq!(told, 3, "or there is nothing to test");
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        assert!(!runtimes(&daemon).is_empty() || !bundles(&daemon).is_empty());
        let next = daemon.restart();
        wait_for_test(&next, "passed");
        assert_clean(&next, "after a crash");
        for id in &ids {
            assert_eq!(
                next.get(&format!("/executions/{id}")).json()["status"],
                "lost"
            );
        }
        assert_eq!(next.bash("echo hi").stdout(), "hi", "{mode:?}");
    }
}

#[test]
fn a_fork_bomb_reaches_its_limit_and_nobody_else() {
    for mode in modes() {
        let daemon = start(mode, "kill_grace_ms = 100");
        let bomb = daemon.begin(
            "bomb() { bomb | bomb & }; bomb; sleep 60",
            &json!({"timeout_secs": 4}),
        );
        let mut waits = Vec::new();
        while daemon.get(&format!("/executions/{bomb}")).json()["status"] == "running" {
            let (reply, took) = timed(|| daemon.get("/health"));
            assert_eq!(reply.status, 200);
            waits.push(took.wall.saturating_sub(took.lateness));
        }
        // All of them, where a machine does nothing else, is for a machine to say (`make test-arm64`).
        waits.sort();
        let most = waits[waits.len() * 9 / 10];
        assert!(most <= Duration::from_millis(100), "{mode:?}: {waits:?}");
        assert_eq!(daemon.ended(&bomb)["status"], "timeout", "{mode:?}");
        assert_clean(&daemon, "after a fork bomb");
    }
}
