//! Scripts of any length, and what keeps a process from being started.

use serde_json::{Value, json};

use crate::support::{Daemon, Mode};

/// A script of exactly this length that writes `$0` and how long the longest of it is.
fn script(length: usize) -> String {
    let head = "v='";
    let tail = "'; printf '%s %s' ${#v} $0";
    let filling = length - head.len() - tail.len();
    format!("{head}{}{tail}", "x".repeat(filling))
}

#[test]
fn a_script_may_be_longer_than_an_argument() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let baseline = daemon.baseline();
        // The longest argument is 32 pages with its NUL, so 131,071 bytes where a page has 4 KiB.
        for length in [1000, 131_070, 131_071, 131_072, 10 << 20] {
            let text = script(length);
            let reply = daemon.bash(&text);
            assert_eq!(reply.status, 200, "{mode:?} {length}: {}", reply.content());
            let stdout = reply.stdout();
            let (filling, name) = stdout.split_once(' ').expect("two words");
            let expected = length - "v=''; printf '%s %s' ${#v} $0".len();
            assert_eq!(filling, expected.to_string(), "{mode:?} {length}");
            // `$0` is what differs: a private file, gone when the command has ended.
            if name != "/bin/bash" {
                assert!(
                    length > 131_071 && name.contains("state/spool/"),
                    "{mode:?} {length}: {name}"
                );
            }
            assert_eq!(
                length > 131_071,
                name != "/bin/bash",
                "{mode:?} {length}: {name}"
            );
            daemon.wait_until("no script is left", || {
                let spool = std::fs::read_dir(daemon.dir().join("state/spool"));
                let mut files = spool.expect("the spool").flatten();
                !files.any(|file| file.path().extension().is_some_and(|e| e == "script"))
            });
        }
        let text = format!("{}\nstat -c '%a %u' \"$0\"; exit 7", script(200_000));
        let body = daemon.bash(&text).json();
        assert_eq!(body["exit_code"], 7, "{mode:?}");
        let uid = nix::unistd::geteuid();
        assert!(
            body["content"]
                .as_str()
                .expect("text")
                .contains(&format!("600 {uid}\n")),
            "{mode:?}"
        );

        let reply = daemon.bash(&"x".repeat(20 << 20));
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (413, &json!("payload_too_large"))
        );
        daemon.wait_clean(&baseline);
    }
}

#[test]
fn what_keeps_a_process_from_starting_is_named() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let baseline = daemon.baseline();
        let file = daemon.dir().join("file");
        std::fs::write(&file, "").expect("written");
        // Each of a length that is possible, and together more than is.
        let much = (0..60).map(|n| (format!("LONG{n}"), json!("x".repeat(100_000))));
        let much: serde_json::Map<String, serde_json::Value> = much.collect();
        for (members, step, reason) in [
            (
                json!({"working_dir": "/no/such"}),
                "working directory `/no/such`",
                "No such file",
            ),
            (
                json!({"working_dir": file}),
                "working directory `",
                "Not a directory",
            ),
            (
                json!({"env": much}),
                "execute `/bin/bash`",
                "Argument list too long",
            ),
        ] {
            let reply = daemon.bash_with("echo hi", &members);
            assert_problem(&reply.json(), step, reason);
            assert_eq!(reply.status, 500, "{mode:?}");
        }
        daemon.wait_clean(&baseline);
        assert_eq!(daemon.bash("echo hi").stdout(), "hi", "{mode:?}");
    }
}

#[test]
fn a_command_that_looks_like_an_option_is_none() {
    let daemon = Daemon::start();
    for command in ["--version", "+x", "-c"] {
        let body = daemon.bash(command).json();
        assert_eq!(body["exit_code"], 127, "{command}: {body}");
    }
}

#[test]
fn a_shell_that_cannot_be_executed_is_named() {
    for mode in Mode::all() {
        for (shell, reason) in [
            ("/no/such/shell", "No such file"),
            ("/etc/passwd", "Permission denied"),
        ] {
            let daemon = Daemon::start_with(mode, &format!("shell = {shell:?}"));
            let reply = daemon.bash("echo hi");
            assert_eq!(reply.status, 500, "{mode:?}");
            assert_problem(&reply.json(), &format!("execute `{shell}`"), reason);
            // A record of it there is all the same.
            let body = reply.json();
            let record = daemon.ended(body["execution_id"].as_str().expect("an id"));
            assert_eq!(record["status"], "failed", "{mode:?}");
            assert_eq!(record["result"], body, "{mode:?}");
        }
    }
}

fn assert_problem(body: &Value, step: &str, reason: &str) {
    assert_eq!(body["code"], "spawn_failed", "{body}");
    assert_eq!(body["stage"], "execution", "{body}");
    let text =
        body["detail"].as_str().expect("text").to_owned() + body["content"].as_str().expect("text");
    assert!(text.contains(step) && text.contains(reason), "{body}");
    assert_eq!(body.get("exit_code"), None, "no process ran: {body}");
}

/// Beyond its descriptors the daemon refuses, by name, and is well again when some are back.
#[test]
fn out_of_descriptors_costs_the_calls_that_have_none() {
    use std::os::unix::process::CommandExt;
    for mode in Mode::all() {
        let daemon = Daemon::start_adjusted(mode, "", |command| {
            let limit = || {
                let limit = libc::rlimit {
                    rlim_cur: 64,
                    rlim_max: 64,
                };
                // SAFETY: one system call on a local.
                match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            };
            // SAFETY: nothing but a system call.
            unsafe { command.pre_exec(limit) };
        });
        let baseline = daemon.baseline();
        let ids: Vec<String> = (0..40)
            .map(|_| daemon.begin("sleep 60", &json!({})))
            .collect();
        let mut refused = 0;
        for id in &ids {
            let path = format!("/executions/{id}");
            let record = daemon.connect().request("DELETE", &path, &[], b"").json();
            if record["status"] == "failed" {
                refused += 1;
                let detail = record["result"]["detail"]
                    .as_str()
                    .expect("text")
                    .to_owned();
                assert!(detail.contains("Too many open files"), "{mode:?}: {detail}");
            } else {
                assert_eq!(record["status"], "cancelled", "{mode:?}: {record}");
            }
        }
        assert!(
            (1..40).contains(&refused),
            "{mode:?}: {refused} of 40 were refused"
        );
        daemon.wait_clean(&baseline);
        assert_eq!(daemon.bash("echo hi").stdout(), "hi", "{mode:?}");
    }
}
