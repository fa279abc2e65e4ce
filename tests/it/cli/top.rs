//! `shellyctl top`, by its keys.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::terminal::Terminal;
use super::{code, run, text};
use crate::support::{Daemon, Fifo, wait_for, wait_until};

/// What gives the terminal back: the cursor, and the screen that was there.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

fn send(top: &Terminal, signal: Signal) {
    let pid = i32::try_from(top.child.id()).expect("a pid");
    kill(Pid::from_raw(pid), signal).expect("it is there");
}

/// What stands in for a daemon that accepts connections and does no more by itself.
struct StandIn(UnixListener);

impl StandIn {
    /// In the place of one that is gone.
    fn replace(daemon: &mut Daemon) -> Self {
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        fs::remove_file(daemon.socket()).expect("its socket");
        let listener = UnixListener::bind(daemon.socket()).expect("bound");
        listener.set_nonblocking(true).expect("a socket");
        Self(listener)
    }

    #[track_caller]
    fn connection(&self) -> UnixStream {
        let (stream, _) = wait_for("a connection", || self.0.accept().ok());
        stream.set_nonblocking(false).expect("a socket");
        stream
    }

    /// The next connection, and the first line of what is asked there.
    #[track_caller]
    fn asked(&self) -> (UnixStream, String) {
        let mut stream = BufReader::new(self.connection());
        let mut line = String::new();
        stream.read_line(&mut line).expect("a line");
        (stream.into_inner(), line)
    }
}

#[test]
fn top_shows_what_runs_and_cancels_it() {
    let daemon = Daemon::start();
    let first = Fifo::new(daemon.dir().join("first"));
    let script = |fifo: &Fifo| format!("read _ < {}", fifo.path().display());
    let id = daemon.begin(&script(&first), &json!({}));
    let _held = first.reached();
    let mut top = Terminal::start(&daemon, &["top"]);
    top.expect("1 under way, 0 waiting");
    top.expect(&id);
    assert!(!top.is_sane());
    // What begins while it looks comes in by itself; so does what ends.
    let second = Fifo::new(daemon.dir().join("second"));
    daemon.begin(&script(&second), &json!({}));
    top.expect("2 under way");
    second.reached().say("go");
    top.expect("1 under way");
    top.press("a");
    top.expect("it does not wait for approval");
    top.press("c");
    top.expect(&format!("{id} is cancelled"));
    top.expect("nothing runs");
    assert_eq!(daemon.ended(&id)["status"], "cancelled");
    top.press("q");
    wait_until("the terminal is given back", || top.is_sane());
    let (code, seen) = top.end();
    assert_eq!(code, Some(0));
    assert!(seen.ends_with(LEAVE), "{seen:?}");
}

#[test]
fn top_gives_the_terminal_back_on_every_way_out() {
    let mut daemon = Daemon::start();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        let mut top = Terminal::start(&daemon, &["top"]);
        top.expect("nothing runs");
        send(&top, signal);
        wait_until("the terminal is given back", || top.is_sane());
        let (code, seen) = top.end();
        assert_eq!(code, Some(0), "{signal}");
        assert!(seen.ends_with(LEAVE), "{signal}: {seen:?}");
    }
    let mut top = Terminal::start(&daemon, &["top"]);
    top.expect("nothing runs");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    top.expect("lost the daemon");
    let _daemon = daemon.restart();
    top.expect("the daemon is back");
    top.press("q");
    assert_eq!(top.end().0, Some(0));
}

/// The waits between its tries get longer than the time after which it draws anew.
#[test]
fn top_finds_a_daemon_that_was_away_for_long() {
    let mut daemon = Daemon::start();
    let mut top = Terminal::start(&daemon, &["top"]);
    top.expect("nothing runs");
    let stand_in = StandIn::replace(&mut daemon);
    for _ in 0..5 {
        drop(stand_in.connection());
    }
    drop(stand_in);
    let _daemon = daemon.restart();
    top.expect("the daemon is back");
    top.press("q");
    assert_eq!(top.end().0, Some(0));
}

#[test]
fn top_can_be_left_where_the_daemon_does_not_answer() {
    for leave in [
        |top: &mut Terminal| send(top, Signal::SIGINT),
        |top: &mut Terminal| send(top, Signal::SIGTERM),
        |top: &mut Terminal| send(top, Signal::SIGHUP),
        |top: &mut Terminal| top.press("q"),
    ] {
        let mut daemon = Daemon::start();
        let mut top = Terminal::start(&daemon, &["top"]);
        top.expect("nothing runs");
        let stand_in = StandIn::replace(&mut daemon);
        let (mut feed, line) = stand_in.asked();
        assert!(line.starts_with("GET /events"), "{line}");
        write!(
            feed,
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        )
        .expect("it reads");
        // It asks for everything anew, and has no answer.
        let (_unanswered, line) = stand_in.asked();
        assert!(line.starts_with("GET /executions"), "{line}");
        leave(&mut top);
        wait_until("the terminal is given back", || top.is_sane());
        let (code, seen) = top.end();
        assert_eq!(code, Some(0));
        assert!(seen.ends_with(LEAVE), "{seen:?}");
    }
}

#[test]
fn top_can_be_left_before_the_daemon_has_answered() {
    let mut daemon = Daemon::start();
    let stand_in = StandIn::replace(&mut daemon);
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let top = Terminal::start(&daemon, &["top"]);
        let (_unanswered, line) = stand_in.asked();
        assert!(line.starts_with("GET /events"), "{line}");
        send(&top, signal);
        let (code, seen) = top.end();
        assert_eq!((code, seen.as_str()), (None, ""), "{signal}");
    }
}

#[test]
fn top_wants_a_terminal() {
    let daemon = Daemon::start();
    let output = run(&daemon, &["top"]);
    assert_eq!((code(&output), output.stdout.len()), (2, 0));
    assert!(text(&output.stderr).contains("hint: "), "{output:?}");
}
