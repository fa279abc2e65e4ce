//! What the daemon tells a service manager, and takes from it (sd_notify(3), sd_listen_fds(3)).

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;
use sd_notify::NotifyState;
use serde_json::json;

use crate::support::{Connection, Daemon, Fifo, Mode, scratch, wait_for};

/// A service manager's end of the notification socket.
struct Manager {
    dir: PathBuf,
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    /// A daemon that reports to a manager, started with further variables.
    fn start(toml: &str, variables: &[(&str, &str)]) -> (Daemon, Self) {
        let dir = scratch();
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        socket.set_nonblocking(true).expect("a socket");
        let daemon = Daemon::start_adjusted(Mode::Group, toml, |command| {
            command.env("NOTIFY_SOCKET", &path);
            command.envs(variables.iter().copied());
        });
        // The daemon's connection is made anew for each message, so the path has to stay.
        let manager = Self {
            dir,
            socket,
            heard: Vec::new(),
        };
        (daemon, manager)
    }

    /// Takes in what has arrived so far.
    fn listen(&mut self) -> &[String] {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            self.heard
                .push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        &self.heard
    }

    /// Waits for the first message from `heard[from..]` that has `line`, and returns its place.
    #[track_caller]
    fn wait_for(&mut self, from: usize, line: impl Fn(&str) -> bool) -> usize {
        wait_for("a message to the service manager", || {
            let new = self.listen().get(from..).unwrap_or_default();
            let at = new.iter().position(|message| message.lines().any(&line));
            at.map(|at| from + at)
        })
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn monotonic_micros() -> i128 {
    match NotifyState::monotonic_usec_now() {
        Ok(NotifyState::MonotonicUsec(now)) => now,
        other => panic!("no clock: {other:?}"),
    }
}

/// Or systemd would kill what it waits for, and with it the record of that.
#[test]
fn it_asks_for_the_time_that_the_kills_behind_its_grace_may_take() {
    let toml =
        "shutdown_grace_secs = 100\nkill_grace_ms = 60000\nkill_wait_ms = 10000\ndrain_ms = 1000\n";
    let (mut daemon, mut manager) = Manager::start(toml, &[]);
    let ready = manager.wait_for(0, |line| line == "READY=1");
    daemon.signal(Signal::SIGTERM);
    let asked = |line: &str| {
        line.strip_prefix("EXTEND_TIMEOUT_USEC=")?
            .parse::<u64>()
            .ok()
    };
    let at = manager.wait_for(ready, |line| asked(line).is_some());
    let micros = manager.heard[at].lines().find_map(asked);
    assert!(micros >= Some(211_000_000), "{micros:?}");
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn it_is_ready_when_it_answers_and_says_what_it_does() {
    let (mut daemon, mut manager) = Manager::start("shutdown_grace_secs = 3600\n", &[]);
    manager.wait_for(0, |line| line == "READY=1");
    // At once: whoever was told that it is ready gets an answer.
    assert_eq!(daemon.get("/health").status, 200);
    let mut at = manager.wait_for(0, |line| line == "STATUS=running 0");

    let fifo = Fifo::new(daemon.dir().join("fifo"));
    let id = daemon.begin(&format!("read _ < {}", fifo.path().display()), &json!({}));
    at = manager.wait_for(at, |line| line == "STATUS=running 1");

    // A reload: begun with the time it began at, and over with the next READY.
    fs::write(daemon.dir().join("executor.toml"), "no_such_key = 1\n").expect("written");
    let before = monotonic_micros();
    daemon.signal(Signal::SIGHUP);
    let reloading = manager.wait_for(at, |line| line == "RELOADING=1");
    let since = manager.heard[reloading]
        .lines()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="))
        .expect("in the same message, as Type=notify-reload wants it");
    let since: i128 = since.parse().expect("a number");
    assert!((before..=monotonic_micros()).contains(&since), "{since}");
    let ready = manager.wait_for(reloading, |line| line == "READY=1");
    let degraded = manager.wait_for(at, |line| {
        line.starts_with("STATUS=running 1; degraded: ") && line.contains("no_such_key")
    });
    assert!(
        degraded < ready,
        "who asked for the reload can read what came of it"
    );

    daemon.signal(Signal::SIGTERM);
    let stopping = manager.wait_for(ready, |line| line == "STOPPING=1");
    // What may be longer than the unit's TimeoutStopSec= is asked for.
    manager.wait_for(ready, |line| line.starts_with("EXTEND_TIMEOUT_USEC="));
    manager.wait_for(stopping, |line| {
        line.starts_with("STATUS=running 1; stopping")
    });
    let gate = fifo.reached();
    assert_eq!(
        daemon.get(&format!("/executions/{id}")).json()["status"],
        "running"
    );
    drop(gate);
    assert_eq!(daemon.wait().code(), Some(0));
    let heard = manager.listen();
    let count = |line: &str| {
        heard
            .iter()
            .filter(|m| m.lines().any(|l| l == line))
            .count()
    };
    assert_eq!(
        (count("READY=1"), count("RELOADING=1"), count("STOPPING=1")),
        (2, 1, 1)
    );
    assert!(
        !heard[stopping..].iter().any(|m| m.contains("READY=1")),
        "{heard:?}"
    );
    assert_eq!(count("WATCHDOG=1"), 0, "nobody asked for a watchdog");
}

#[test]
fn the_watchdog_is_fed_only_with_proof() {
    let (daemon, mut manager) = Manager::start("", &[("WATCHDOG_USEC", "100000")]);
    let fed = |line: &str| line == "WATCHDOG=1";
    let first = manager.wait_for(0, fed);
    manager.wait_for(first + 1, fed);

    // Another listens in its place and hangs up on it: the daemon is as well as before, but its
    // probes get no answer.
    let away = daemon.dir().join("away");
    fs::rename(daemon.socket(), &away).expect("renamed");
    let imposter = UnixListener::bind(daemon.socket()).expect("bound");
    let hang_up_on_probe = || {
        let (mut probe, _) = imposter.accept().expect("a probe");
        let mut request = [0; 1024];
        let length = probe.read(&mut request).expect("a request");
        assert!(request[..length].starts_with(b"GET /health "));
    };
    // A probe that was under way may still have fed it before the first of these.
    hang_up_on_probe();
    let before = manager.listen().len();
    hang_up_on_probe();
    hang_up_on_probe();
    let heard = &manager.listen()[before..];
    assert!(
        !heard.iter().any(|message| message.contains("WATCHDOG=1")),
        "{heard:?}"
    );
    daemon.wait_until("it is logged", || {
        daemon.log().contains("the watchdog is not fed")
    });

    // Back in its place it is believed again.
    fs::remove_file(daemon.socket()).expect("there");
    drop(imposter);
    fs::rename(&away, daemon.socket()).expect("renamed");
    let after = manager.listen().len();
    manager.wait_for(after, fed);
}

/// There is a place for the probe among connections, and it has to get as far as that.
#[test]
fn who_fills_the_backlog_does_not_starve_the_watchdog() {
    let (daemon, mut manager) = Manager::start("", &[("WATCHDOG_USEC", "2000000")]);
    let fed = |line: &str| line == "WATCHDOG=1";
    let first = manager.wait_for(0, fed);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(UnixStream::connect(daemon.socket()));
                }
            });
        }
        let _ends = Flag(&is_over);
        let mut last = first;
        for _ in 0..3 {
            last = manager.wait_for(last + 1, fed);
        }
    });
    let log = daemon.log();
    assert!(!log.contains("the watchdog is not fed"), "{log}");
}

/// Set when it goes, be it by a panic.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn commands_cannot_speak_for_the_daemon() {
    let (daemon, mut manager) = Manager::start("", &[("WATCHDOG_USEC", "3600000000")]);
    manager.wait_for(0, |line| line == "READY=1");
    let environment = daemon.bash("env").stdout();
    for leaked in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_", "RUST_LOG"] {
        assert!(!environment.contains(leaked), "{environment}");
    }
}

/// A daemon that is handed `listener` as systemd would: descriptor 3, and two variables.
fn activated(dir: &std::path::Path, listener: &UnixListener) -> Daemon {
    let descriptor: OwnedFd = listener.try_clone().expect("a descriptor").into();
    let mut shell = Command::new("/bin/sh");
    shell
        .arg("-c")
        .arg("exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" --config executor.toml --state state")
        .arg(env!("CARGO_BIN_EXE_shelly-executord"))
        .stdin(descriptor);
    Daemon::spawn(dir.to_owned(), None, dir.join("activated.sock"), shell)
}

#[test]
fn a_socket_of_systemds_is_used_and_left_to_systemd() {
    let dir = scratch();
    fs::write(dir.join("executor.toml"), "[cgroup]\nmode = \"group\"\n").expect("written");
    let path = dir.join("activated.sock");
    let listener = UnixListener::bind(&path).expect("bound");

    let mut first = activated(&dir, &listener);
    assert_eq!(
        first.bash("echo one; env").stdout().lines().next(),
        Some("one")
    );
    assert!(
        !first
            .bash("env; ls -l /proc/self/fd")
            .stdout()
            .contains("LISTEN_")
    );
    first.signal(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(0));
    assert!(path.exists(), "the socket is systemd's");

    // Who calls between two daemons waits in the queue instead of being refused.
    let mut caller = Connection::open(&path);
    caller.send(
        "POST",
        "/execute",
        &[],
        br#"{"name": "bash", "input": {"command": "echo two"}}"#,
    );
    let second = first.restart_with(|| activated(&dir, &listener));
    assert_eq!(caller.reply().stdout(), "two");
    drop(second);
}
