//! A stop drains, then kills, and everybody who waits gets an answer.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{
    Connection, Daemon, Fifo, Mode, Process, Reply, bash_call, scratch, skip, timed, wait_until,
};

/// A daemon with a command in it that waits at a named pipe, and whoever waits for its answer.
struct Busy {
    daemon: Daemon,
    caller: Connection,
    fifo: Fifo,
}

impl Busy {
    fn start(toml: &str) -> Self {
        let daemon = Daemon::start_with(Mode::Group, toml);
        let fifo = Fifo::new(daemon.dir().join("fifo"));
        let mut caller = daemon.connect();
        let command = format!("echo begun; read _ < {}; echo ended", fifo.path().display());
        let body = bash_call(&command, &json!({"id": "toolu_01"})).to_string();
        caller.send("POST", "/execute", &[], body.as_bytes());
        Self {
            daemon,
            caller,
            fifo,
        }
    }

    /// Waits until the stop has begun: new calls are refused.
    fn wait_for_drain(&self) -> Reply {
        let mut refusal = None;
        wait_until("a new call is refused", || {
            let reply = self.daemon.bash("true");
            let refused = reply.status == 503;
            refusal = refused.then_some(reply);
            refused
        });
        refusal.expect("just seen")
    }
}

#[test]
fn what_ends_in_time_gets_its_answer() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut busy = Busy::start("shutdown_grace_secs = 3600\n");
        let gate = busy.fifo.reached();
        busy.daemon.signal(signal);

        let refusal = busy.wait_for_drain();
        let problem = refusal.json();
        assert_eq!(problem["code"], "shutting_down");
        assert_eq!(problem["is_error"], true);
        assert!(
            problem["content"]
                .as_str()
                .is_some_and(|text| text.contains("shutting down"))
        );
        assert!(refusal.header("retry-after").is_some());
        // Reading goes on.
        assert_eq!(busy.daemon.get("/health").json()["running"], 1);

        drop(gate);
        let reply = busy.caller.reply();
        assert_eq!(reply.status, 200);
        assert_eq!(reply.stdout(), "begun\nended");
        assert_eq!(busy.daemon.wait().code(), Some(0));
        assert!(
            !busy.daemon.socket().exists(),
            "it takes its socket with it"
        );
    }
}

#[test]
fn what_does_not_end_in_time_is_killed_and_told() {
    let mut busy = Busy::start("shutdown_grace_secs = 1\nkill_grace_ms = 10000\n");
    let _gate = busy.fifo.reached();
    let running = busy.daemon.processes();
    let (reply, took) = timed(|| {
        busy.daemon.signal(Signal::SIGTERM);
        busy.caller.reply()
    });
    assert!(took.wall.as_secs_f64() >= 1.0, "it had its grace: {took:?}");
    let problem = reply.json();
    assert_eq!(
        (reply.status, &problem["code"]),
        (503, &json!("shutting_down"))
    );
    // It has begun: another try would not be the same.
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(problem["tool_use_id"], "toolu_01");
    assert_eq!(problem["kill"]["reason"], "shutdown");
    assert_eq!(reply.content(), "[stdout]\nbegun\n\n[cancelled]");
    assert_eq!(busy.daemon.wait().code(), Some(0));
    assert!(!running.iter().any(|pid| Process::lives(*pid)));
    assert!(
        busy.daemon.log().contains("STATUS=\"cancelled\""),
        "it has its record"
    );
}

#[test]
fn a_second_signal_means_now() {
    let mut busy = Busy::start("shutdown_grace_secs = 3600\n");
    let _gate = busy.fifo.reached();
    busy.daemon.signal(Signal::SIGTERM);
    busy.wait_for_drain();
    busy.daemon.signal(Signal::SIGTERM);
    assert_eq!(busy.caller.reply().json()["code"], "shutting_down");
    assert_eq!(busy.daemon.wait().code(), Some(0));
}

#[test]
fn what_was_kept_ends_with_the_daemon() {
    let mut daemon = Daemon::start();
    let reply = daemon.bash_with("sleep 1000 & echo $!", &json!({"background": "keep"}));
    let pid = reply.stdout().parse().expect("a pid");
    assert!(Process::lives(pid));
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!Process::lives(pid));
}

#[test]
fn idle_connections_do_not_hold_up_the_stop() {
    let mut daemon = Daemon::start_with(Mode::Group, "shutdown_grace_secs = 3600\n");
    let mut idle = daemon.connect();
    assert_eq!(idle.request("GET", "/health", &[], b"").status, 200);
    let silent = daemon.connect();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait().code(), Some(0));
    drop((idle, silent));
}

/// Whenever the stop falls between two requests on a connection: who was too late has not been able to send.
#[test]
fn a_request_that_was_sent_whole_is_answered() {
    const REQUEST: &[u8] = b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n";
    for _ in 0..5 {
        let mut daemon = Daemon::start_with(Mode::Group, "");
        let answered = Arc::new(AtomicUsize::new(0));
        let clients = [(); 16].map(|()| {
            let answered = Arc::clone(&answered);
            let mut stream = UnixStream::connect(daemon.socket()).expect("served");
            thread::spawn(move || {
                while stream.write_all(REQUEST).is_ok() {
                    let mut answer = Vec::new();
                    while !answer.ends_with(b"\r\n\r\n") {
                        let mut piece = [0; 1024];
                        let length = stream.read(&mut piece).expect("an answer");
                        assert!(length > 0, "closed without an answer");
                        answer.extend_from_slice(&piece[..length]);
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        wait_until("they are at it", || answered.load(Ordering::Relaxed) > 500);
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.wait().code(), Some(0));
        for client in clients {
            client.join().expect("each was answered");
        }
    }
}

#[test]
fn a_stop_that_comes_during_the_start_is_a_stop() {
    if Command::new("strace").arg("--version").output().is_err() {
        skip("a signal in the midst of the start, which takes strace");
        return;
    }
    for call in ["flock", "epoll_create1", "bind", "listen"] {
        let dir = scratch();
        let daemon = Command::new("timeout")
            .args(["30", "strace", "-f", "-o", "trace", "-e"])
            .arg(format!("trace={call}"))
            .arg("-e")
            .arg(format!("inject={call}:signal=SIGTERM:when=1"))
            .arg(env!("CARGO_BIN_EXE_shelly-executord"))
            .args(["--socket", "executor.sock", "--state", "state"])
            .current_dir(&dir)
            .output()
            .expect("strace starts");
        assert_eq!(daemon.status.code(), Some(0), "{call}: {daemon:?}");
        let trace = std::fs::read_to_string(dir.join("trace")).expect("a trace");
        assert!(
            trace.contains("SIGTERM"),
            "{call} was never called: {trace}"
        );
        assert!(
            !dir.join("executor.sock").exists(),
            "{call}: it took no socket with it"
        );
        std::fs::remove_dir_all(dir).expect("removable");
    }
}

/// What waits for an approval outlasts the daemon, and who waits for that is told how it stands.
#[test]
fn who_waits_for_what_goes_on_later_is_answered() {
    let mut daemon = Daemon::start_under("default = \"ask\"\n", "shutdown_grace_secs = 3600\n");
    let id = daemon.begin("true", &json!({}));
    let path = format!("/executions/{id}");
    daemon.wait_until("it waits", || {
        daemon.get(&path).json()["status"] == "waiting"
    });
    let approvals = daemon.get("/approvals").json();
    let approval = approvals["approvals"][0]["id"].as_str().expect("asked");
    let mut waiting = daemon.connect();
    waiting.send("GET", &format!("{path}?wait=60"), &[], b"");
    waiting.send("GET", &path, &[], b"");
    let half_sent = [
        "/execute".to_owned(),
        format!("{path}/replay"),
        format!("/approvals/{approval}"),
    ];
    let half_sent = half_sent.map(|path| {
        let mut sending = daemon.connect();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{{");
        sending.expect_answer("POST", &path);
        sending.write(head.as_bytes());
        sending
    });
    // Both are read by then: requests are, in the order in which they come.
    daemon.get("/health");
    daemon.signal(Signal::SIGTERM);
    // So is what it has sent behind that.
    for _ in 0..2 {
        let reply = waiting.reply();
        assert_eq!(
            (reply.status, &reply.json()["status"]),
            (200, &json!("waiting"))
        );
    }
    for mut sending in half_sent {
        let reply = sending.reply();
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (503, &json!("shutting_down"))
        );
    }
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!daemon.log().contains("did not read"), "{}", daemon.log());
}

/// Nothing runs yet that could come to its end within the grace.
#[test]
fn who_waits_for_an_approval_does_not_hold_up_the_stop() {
    let mut daemon = Daemon::start_under("default = \"ask\"\n", "shutdown_grace_secs = 3600\n");
    let mut caller = daemon.connect();
    let body = bash_call("true", &json!({})).to_string();
    let key = [("Idempotency-Key", "once")];
    caller.send("POST", "/execute", &key, body.as_bytes());
    let is_asked = |daemon: &Daemon| {
        let pending = daemon.get("/approvals").json()["approvals"].clone();
        pending.as_array().is_some_and(|pending| pending.len() == 1)
    };
    daemon.wait_until("it waits", || is_asked(&daemon));
    daemon.signal(Signal::SIGTERM);
    let reply = caller.reply();
    let code = &reply.json()["code"];
    assert_eq!((reply.status, code), (503, &json!("shutting_down")));
    assert_eq!(daemon.wait().code(), Some(0));
    let daemon = daemon.restart();
    let approvals = daemon.get("/approvals?all=true").json();
    assert_eq!(
        approvals["approvals"][0]["status"], "withdrawn",
        "{approvals}"
    );
    let executions = daemon.get("/executions").json();
    assert_eq!(
        executions["executions"][0]["status"], "cancelled",
        "{executions}"
    );
    // Nothing ran: with its key it is another try.
    let mut caller = daemon.connect();
    caller.send("POST", "/execute", &key, body.as_bytes());
    daemon.wait_until("it waits again", || is_asked(&daemon));
}

/// Nobody asks about it any more, and it is not left to the next daemon either.
#[test]
fn what_waits_for_the_next_daemon_can_still_be_cancelled() {
    let mut busy =
        Busy::start("shutdown_grace_secs = 3600\n[confirmation]\nself_approval = true\n");
    let gate = busy.fifo.reached();
    let policy = "default = \"ask\"\n";
    std::fs::write(busy.daemon.dir().join("policy.toml"), policy).expect("written");
    busy.daemon.wait_until("it is asked", || {
        busy.daemon.get("/health").json()["policy"]["file"].is_string()
    });
    let id = busy.daemon.begin("true", &json!({}));
    let path = format!("/executions/{id}");
    busy.daemon.wait_until("it waits", || {
        busy.daemon.get(&path).json()["status"] == "waiting"
    });
    busy.daemon.signal(Signal::SIGTERM);
    busy.wait_for_drain();
    let reply = busy.daemon.connect().request("DELETE", &path, &[], b"");
    assert_eq!(
        (reply.status, &reply.json()["status"]),
        (200, &json!("cancelled"))
    );
    let approvals = busy.daemon.get("/approvals?all=true").json();
    assert_eq!(
        approvals["approvals"][0]["status"], "withdrawn",
        "{approvals}"
    );
    drop(gate);
    assert_eq!(busy.caller.reply().status, 200);
    assert_eq!(busy.daemon.wait().code(), Some(0));
}
