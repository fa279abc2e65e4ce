//! Every ending is reported as what it is.

use serde_json::{Value, json};

use crate::support::{Daemon, Fifo, Mode, skip};

/// Its end is that of the process, whatever has become of its streams.
#[test]
fn who_closes_its_streams_has_not_ended() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let fifo = Fifo::new(daemon.dir().join("gate"));
        let command = format!(
            "echo said; exec >&- 2>&-; read -r line < {}; exit 3",
            fifo.path().display()
        );
        let id = daemon.begin(&command, &json!({}));
        fifo.reached().say("on");
        let path = format!("/executions/{id}?wait=60");
        let record = daemon.connect().request("GET", &path, &[], b"").json();
        assert_eq!(record["result"]["exit_code"], 3, "{mode:?}: {record}");
        let content = &record["result"]["content"];
        assert_eq!(content, "[stdout]\nsaid\n\n[exit_code]\n3", "{mode:?}");
    }
}

#[test]
fn codes_are_codes_and_signals_are_signals() {
    let signal = |number: i32, name: &str| json!({"number": number, "name": name});
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        for (command, code, by, closing) in [
            ("true", json!(0), Value::Null, "[exit_code]\n0"),
            ("exit 137", json!(137), Value::Null, "[exit_code]\n137"),
            ("exit 255", json!(255), Value::Null, "[exit_code]\n255"),
            (
                "no-such-program",
                json!(127),
                Value::Null,
                "[exit_code]\n127",
            ),
            (
                "kill -KILL $$",
                Value::Null,
                signal(9, "SIGKILL"),
                "[signal]\nSIGKILL",
            ),
            (
                "kill -SEGV $$",
                Value::Null,
                signal(11, "SIGSEGV"),
                "[signal]\nSIGSEGV",
            ),
            (
                "kill -TERM $$",
                Value::Null,
                signal(15, "SIGTERM"),
                "[signal]\nSIGTERM",
            ),
            (
                "kill -s RTMIN+3 $$",
                Value::Null,
                signal(37, "SIGRTMIN+3"),
                "[signal]\nSIGRTMIN+3",
            ),
            // Of a child the shell says it its own way, and that is an exit code.
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
            assert_eq!(body["exit_code"], code, "{mode:?} {command}");
            assert_eq!(body["signal"], by, "{mode:?} {command}");
            assert_eq!(body["is_error"], code != json!(0), "{mode:?} {command}");
            assert_eq!(body["oom_killed"], false, "{mode:?} {command}");
            assert_eq!(body.get("kill"), None, "{mode:?} {command}");
            assert!(
                reply.content().ends_with(closing),
                "{mode:?} {command}: {body}"
            );
        }
    }
}

#[test]
fn out_of_memory_is_told_apart_from_a_kill() {
    if !Mode::Cgroup.is_available() || !Mode::has_controller("memory") {
        skip("out of memory, for want of the memory controller in a cgroup v2");
        return;
    }
    let daemon = Daemon::start_with(Mode::Cgroup, "[limits]\nmemory_max = 33554432");
    // The leader itself: `tail` keeps what has no end of line.
    let body = daemon.bash("exec tail /dev/zero").json();
    assert_eq!(body["oom_killed"], true, "{body}");
    assert_eq!(
        body["signal"],
        json!({"number": 9, "name": "SIGKILL"}),
        "{body}"
    );
    assert_eq!(body["exit_code"], Value::Null, "{body}");
    let peak = body["usage"]["memory_peak_bytes"]
        .as_u64()
        .expect("a number");
    assert!((16 << 20..=32 << 20).contains(&peak), "{body}");
    // A child of it: the leader lives on and says its own.
    let body = daemon.bash("tail /dev/zero; echo $?; exit 3").json();
    assert_eq!(body["oom_killed"], true, "{body}");
    assert_eq!(body["exit_code"], 3, "{body}");
    assert!(
        body["content"].as_str().expect("text").contains("137"),
        "{body}"
    );
    // And nobody else pays for it.
    let body = daemon.bash("kill -KILL $$").json();
    assert_eq!(body["oom_killed"], false, "{body}");
    assert_eq!(body["signal"]["number"], 9, "{body}");
}
