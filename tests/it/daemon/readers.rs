//! Scripts that the policy has read are read in processes of their own: what goes wrong there costs the daemon nothing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::{Daemon, Process, bash_call, wait_to_equal, wait_until};

const POLICY: &str = "default = \"allow\"\ndeny = [\"bash(command:marker*)\"]\n";

fn judged(daemon: &Daemon, script: &str) -> Value {
    let body = bash_call(script, &json!({})).to_string();
    let mut connection = daemon.connect();
    let reply = connection.request("POST", "/permissions/explain", &[], body.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.json());
    reply.json()
}

fn denies(daemon: &Daemon) {
    let judged = judged(daemon, "for f in *; do marker \"$f\"; done");
    assert_eq!(judged["verdict"], "deny", "{judged}");
}

/// The processes that read scripts for a daemon.
fn readers(daemon: &Daemon) -> Vec<i32> {
    let children = daemon.children().into_iter().map(|child| child.pid);
    let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm"));
    children
        .filter(|pid| name(pid).is_ok_and(|name| name == "script-reader\n"))
        .collect()
}

fn the_reader(daemon: &Daemon) -> i32 {
    match readers(daemon)[..] {
        [one] => one,
        ref others => panic!("one is enough for one script after another: {others:?}"),
    }
}

#[test]
fn one_process_reads_one_script_after_another_within_bounds() {
    let daemon = Daemon::start_under(POLICY, "");
    assert_eq!(judged(&daemon, "git status; ls -l")["verdict"], "allow");
    assert!(readers(&daemon).is_empty(), "the simplest form needs none");
    denies(&daemon);
    let reader = the_reader(&daemon);
    let limits = fs::read_to_string(format!("/proc/{reader}/limits")).expect("it lives");
    let limited = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|line| line.split_whitespace().next());
        value.and_then(|value| value.parse::<u64>().ok())
    };
    assert_eq!(limited("Max data size"), Some(256 << 20), "{limits}");
    assert_eq!(limited("Max core file size"), Some(0), "{limits}");
    let score = fs::read_to_string(format!("/proc/{reader}/oom_score_adj")).expect("it lives");
    assert_eq!(score, "1000\n");
    let environment = fs::read(format!("/proc/{reader}/environ")).expect("it lives");
    assert!(environment.is_empty(), "{environment:?}");

    // The daemon kills what its commands leave behind; this is none of them.
    for _ in 0..5 {
        let reply = daemon.bash("(setsid sleep 1000 &); for i in 1; do echo done; done");
        assert_eq!(reply.stdout(), "done");
        denies(&daemon);
    }
    assert_eq!(the_reader(&daemon), reader);
}

#[test]
fn a_reader_that_is_killed_is_replaced() {
    let daemon = Daemon::start_under(POLICY, "");
    for _ in 0..3 {
        denies(&daemon);
        let reader = the_reader(&daemon);
        kill(Pid::from_raw(reader), Signal::SIGKILL).expect("killed");
        wait_until("it is dead", || !Process::lives(reader));
    }
    denies(&daemon);
}

#[test]
fn scripts_that_take_too_long_keep_nobody_else_waiting() {
    let daemon = Daemon::start_under(POLICY, "");
    // As much as may be read: it takes 700 ms where nothing is optimised, and may take 50.
    let long = "(a $b)\n".repeat(390) + &"a $b c $d\n".repeat(6000);
    // More than there may be readers.
    for _ in 0..20 {
        let judged = judged(&daemon, &long);
        assert_eq!(judged["verdict"], "ask", "{judged}");
        let reason = judged["reason"].as_str().unwrap_or_default();
        assert!(reason.ends_with("it takes too long to read"), "{reason}");
    }
    denies(&daemon);
    // Nobody goes on reading what nobody waits for.
    the_reader(&daemon);
    assert_eq!(
        daemon.bash("for i in 1; do echo done; done").stdout(),
        "done"
    );
}

#[test]
fn readers_end_with_their_daemon() {
    let mut daemon = Daemon::start_under(POLICY, "");
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        denies(&daemon);
        let reader = the_reader(&daemon);
        daemon.signal(signal);
        daemon.wait();
        wait_until("its reader has ended", || !Process::lives(reader));
        daemon = daemon.restart();
    }
    denies(&daemon);
    wait_to_equal("readers", 1, || readers(&daemon).len());
}

/// Of these texts the parser never sees the end, while it takes ever more memory.
#[test]
fn a_text_without_end_takes_no_more_memory_than_a_reader_may() {
    const ENDLESS: [&str; 2] = ["x=$(cat <<  E) ", "cat <<$[  1] "];
    for text in ENDLESS {
        let (mut stream, theirs) = UnixStream::pair().expect("a pair");
        let mut reader = Command::new(env!("CARGO_BIN_EXE_shelly-executord"))
            .arg("--read-scripts")
            .stdin(OwnedFd::from(theirs))
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let mut hello = [1; 4];
        stream.read_exact(&mut hello).expect("it has started");
        assert_eq!(hello, [0; 4]);
        let script = json!({"text": text, "shell": "Bash", "input": null, "variables": {}});
        let script = script.to_string();
        let length = u32::try_from(script.len()).expect("short").to_le_bytes();
        stream.write_all(&length).expect("sent");
        stream.write_all(script.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        // What it had not read is lost with it.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{text}: {answer:?}");
        let status = reader.wait().expect("it was started");
        assert_eq!(
            status.signal(),
            Some(Signal::SIGABRT as i32),
            "{text}: {status}"
        );
    }
    let daemon = Daemon::start_under(POLICY, "");
    for text in ENDLESS {
        assert_eq!(judged(&daemon, text)["verdict"], "ask", "{text}");
    }
    denies(&daemon);
    wait_to_equal("readers", 1, || readers(&daemon).len());
}
