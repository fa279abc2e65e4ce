//! What waits for a person's word: `approvals`, `approve`, `deny`, and those who wait.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::events::Telling;
use super::terminal::Terminal;
use super::{code, json, run, shellyctl, text};
use crate::support::{Daemon, scratch, wait_until};

/// A daemon that asks about everything, and lets whoever asked decide.
fn start() -> Daemon {
    start_with("[confirmation]\nself_approval = true\n")
}

fn start_with(toml: &str) -> Daemon {
    let dir = scratch();
    let toml = format!("[cgroup]\nmode = \"group\"\n{toml}");
    fs::write(dir.join("executor.toml"), toml).expect("written");
    fs::write(dir.join("policy.toml"), "default = \"ask\"\n").expect("written");
    Daemon::launch(dir, None, |_| {})
}

/// `shellyctl exec` that waits for approval.
struct Waiting {
    child: Child,
    stderr: BufReader<ChildStderr>,
    approval: String,
}

impl Waiting {
    fn start(daemon: &Daemon, command: &str) -> Self {
        let mut exec = shellyctl(daemon.socket(), &["exec", command]);
        exec.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = exec.spawn().expect("shellyctl starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (mut note, mut hint) = (String::new(), String::new());
        stderr.read_line(&mut note).expect("a line");
        stderr.read_line(&mut hint).expect("a line");
        let rest = note.strip_prefix("shellyctl: waiting for approval ");
        let (approval, summary) = rest.and_then(|rest| rest.split_once(": ")).expect(&note);
        assert_eq!(summary.trim_end(), command);
        assert!(
            hint.contains(&format!("shellyctl approve {approval}"))
                && hint.contains(", who called, may only where `self_approval` is set")
                && hint.contains("`self_approval`"),
            "{hint}"
        );
        Self {
            child,
            approval: approval.to_owned(),
            stderr,
        }
    }

    /// The exit code, what it printed, and what else it told.
    fn end(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        let mut stdout = self.child.stdout.take().expect("piped");
        stdout.read_to_string(&mut out).expect("UTF-8");
        self.stderr.read_to_string(&mut err).expect("UTF-8");
        (self.child.wait().expect("it ends").code(), out, err)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many are pending.
fn pending(daemon: &Daemon) -> usize {
    let list = json(daemon, &["approvals"]);
    list["approvals"].as_array().expect("a list").len()
}

/// A socket in front of the daemon's, on which the first request that begins so is answered as by a
/// daemon that stops.
fn stops_at_first(daemon: &Daemon, asked: &'static str) -> PathBuf {
    let socket = daemon.dir().join("front.sock");
    let listener = UnixListener::bind(&socket).expect("bound");
    let behind = daemon.socket().to_owned();
    std::thread::spawn(move || {
        let stopped = AtomicBool::new(false);
        let stops = |line: &str| line.starts_with(asked) && !stopped.swap(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for client in listener.incoming() {
                let client = client.expect("a client");
                scope.spawn(|| answer(client, &behind, stops));
            }
        });
    });
    socket
}

/// Answers one request, here or by whoever listens on `behind`.
fn answer(mut client: UnixStream, behind: &Path, stops: impl FnOnce(&str) -> bool) {
    const STOPPING: &str =
        r#"{"title": "the daemon stops", "status": 503, "code": "shutting_down"}"#;
    let mut asked = BufReader::new(client.try_clone().expect("a descriptor"));
    let mut line = String::new();
    asked.read_line(&mut line).expect("a line");
    if stops(&line) {
        let _ = write!(
            client,
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{STOPPING}",
            STOPPING.len()
        );
        let _ = io::copy(&mut asked, &mut io::sink());
        return;
    }
    let mut daemon = UnixStream::connect(behind).expect("the daemon listens");
    // Each request comes by a connection of its own, or its first line would not be seen.
    let _ = write!(daemon, "{line}Connection: close\r\n");
    let mut answers = daemon.try_clone().expect("a descriptor");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut answers, &mut client);
            let _ = client.shutdown(Shutdown::Both);
        });
        let _ = io::copy(&mut asked, &mut daemon);
        let _ = daemon.shutdown(Shutdown::Both);
    });
}

#[test]
fn what_is_approved_runs_and_what_is_denied_does_not() {
    let daemon = start();
    let waiting = Waiting::start(&daemon, "echo hello; exit 3");
    let table = run(&daemon, &["approvals"]);
    let row = text(&table.stdout).lines().nth(1).expect("a row");
    assert!(
        row.starts_with(&waiting.approval) && row.ends_with(" echo hello; exit 3"),
        "{table:?}"
    );
    let approved = run(&daemon, &["approve", &waiting.approval, "--reason", "fine"]);
    assert_eq!(code(&approved), 0, "{approved:?}");
    let said = text(&approved.stdout);
    assert!(
        said.starts_with("approved by ") && said.contains(&waiting.approval),
        "{said}"
    );
    let again = run(&daemon, &["deny", &waiting.approval]);
    assert_eq!(code(&again), 125, "{again:?}");
    assert!(
        text(&again.stderr).contains("approval_decided"),
        "{again:?}"
    );
    let (code_of, out, _) = waiting.end();
    assert_eq!((code_of, out.as_str()), (Some(3), "hello\n"));

    let waiting = Waiting::start(&daemon, "echo never");
    let denied = run(
        &daemon,
        &["deny", &waiting.approval, "--reason", "not today"],
    );
    assert!(text(&denied.stdout).starts_with("denied by "), "{denied:?}");
    let (code_of, out, err) = waiting.end();
    assert_eq!((code_of, out.as_str()), (Some(125), ""));
    assert!(
        err.contains("user_rejected") && err.contains("not today"),
        "{err}"
    );
    assert_eq!(pending(&daemon), 0);
    let all = run(&daemon, &["approvals", "--all"]);
    assert!(text(&all.stdout).contains(" denied "), "{all:?}");
}

#[test]
fn a_piece_of_an_id_will_do_where_it_is_nobody_elses() {
    let daemon = start();
    let (one, other) = (
        Waiting::start(&daemon, "echo 1"),
        Waiting::start(&daemon, "echo 2"),
    );
    let both = run(&daemon, &["approve", &one.approval[..2]]);
    assert_eq!(code(&both), 2, "{both:?}");
    let told = text(&both.stderr);
    assert!(
        told.contains(&one.approval) && told.contains(&other.approval),
        "{told}"
    );
    let end = |id: &str| id[id.len() - 12..].to_owned();
    let approved = run(&daemon, &["approve", &end(&other.approval)]);
    assert_eq!(code(&approved), 0, "{approved:?}");
    assert_eq!(other.end().1, "2\n");
    // The only one that is left begins with it.
    let approved = run(&daemon, &["approve", &one.approval[..2]]);
    assert_eq!(code(&approved), 0, "{approved:?}");
    assert_eq!(one.end().1, "1\n");
    let unknown = run(&daemon, &["approve", "nosuch"]);
    assert_eq!(code(&unknown), 125);
    let told = text(&unknown.stderr);
    assert!(
        told.contains("no approval `nosuch`") && told.contains("hint: `shellyctl approvals`"),
        "{told}"
    );
}

#[test]
fn what_is_remembered_is_not_asked_about_again() {
    let daemon = start();
    let waiting = Waiting::start(&daemon, "echo hello");
    let always = ["approve", &waiting.approval, "--remember", "always"];
    let approved = run(&daemon, &always);
    let said = text(&approved.stdout);
    assert!(
        said.contains("\nremembered always: bash(command:echo hello)\n"),
        "{said}"
    );
    assert_eq!(waiting.end().0, Some(0));
    let again = run(&daemon, &["exec", "echo hello"]);
    assert_eq!(
        (code(&again), text(&again.stdout), again.stderr),
        (0, "hello\n", vec![])
    );
}

#[test]
fn who_asked_does_not_decide_unless_that_is_configured() {
    let daemon = start_with("");
    let waiting = Waiting::start(&daemon, "echo hello");
    let refused = run(&daemon, &["approve", &waiting.approval]);
    assert_eq!(code(&refused), 125, "{refused:?}");
    let told = text(&refused.stderr);
    assert!(told.contains("self_approval"), "{told}");
    let mut watch = Terminal::start(&daemon, &["approvals", "--watch"]);
    watch.expect("[s]kip? ");
    watch.press("a\n");
    watch.expect("self_approval");
    watch.press("\u{4}");
    assert_eq!(watch.end().0, Some(0));
    assert_eq!(pending(&daemon), 1);
}

#[test]
fn who_waits_can_be_interrupted() {
    let daemon = start();
    let waiting = Waiting::start(&daemon, "echo hello");
    let pid = i32::try_from(waiting.child.id()).expect("a pid");
    kill(Pid::from_raw(pid), Signal::SIGINT).expect("it is there");
    assert_eq!(waiting.end().0, Some(130));
    wait_until("nobody is asked any more", || pending(&daemon) == 0);
}

#[test]
fn a_person_is_asked_about_each_as_it_comes() {
    let daemon = start();
    let first = Waiting::start(&daemon, "echo first");
    let mut watch = Terminal::start(&daemon, &["approvals", "--watch"]);
    watch.expect(&first.approval);
    watch.expect("    echo first\r\n");
    watch.expect("[s]kip? ");
    watch.press("what?\n");
    watch.expect("[s]kip? ");
    watch.press("a\n");
    watch.expect("approved by ");
    assert_eq!(first.end().1, "first\n");

    let second = Waiting::start(&daemon, "echo second");
    watch.expect("    echo second\r\n");
    watch.expect("[s]kip? ");
    watch.press("d\n");
    watch.expect("denied by ");
    assert_eq!(second.end().0, Some(125));

    // What somebody else decides is told, and the question goes away.
    let third = Waiting::start(&daemon, "echo third");
    watch.expect("    echo third\r\n");
    watch.expect("[s]kip? ");
    run(&daemon, &["approve", &third.approval]);
    watch.expect("approved by ");
    assert_eq!(third.end().0, Some(0));

    let skipped = Waiting::start(&daemon, "echo fourth");
    watch.expect("    echo fourth\r\n");
    watch.expect("[s]kip? ");
    watch.press("s\n");
    let fifth = Waiting::start(&daemon, "echo fifth");
    watch.expect("    echo fifth\r\n");
    watch.expect("[s]kip? ");
    assert_eq!(pending(&daemon), 2);
    watch.press("A\n");
    watch.expect("remembered always: ");
    assert_eq!(fifth.end().1, "fifth\n");
    run(&daemon, &["deny", &skipped.approval]);
    watch.expect("denied by ");
    watch.press("\u{4}");
    assert_eq!(watch.end().0, Some(0));
}

#[test]
fn an_answer_that_a_daemon_did_not_take_as_it_stops_is_asked_for_again() {
    let daemon = start();
    let waiting = Waiting::start(&daemon, "echo hello");
    let socket = stops_at_first(&daemon, "POST /approvals/");
    let socket = socket.to_str().expect("UTF-8");
    let watch = ["--socket", socket, "approvals", "--watch"];
    let mut watch = Terminal::start(&daemon, &watch);
    watch.expect("[s]kip? ");
    watch.press("a\n");
    watch.expect("shutting_down");
    watch.expect("    echo hello\r\n");
    watch.expect("[s]kip? ");
    watch.press("a\n");
    watch.expect("approved by ");
    assert_eq!(waiting.end().1, "hello\n");
}

#[test]
fn what_a_daemon_did_not_show_as_it_stops_is_shown_later() {
    let daemon = start();
    let _first = Waiting::start(&daemon, "echo first");
    let socket = stops_at_first(&daemon, "GET /approvals/");
    let socket = socket.to_str().expect("UTF-8");
    let watch = ["--socket", socket, "approvals", "--watch"];
    let mut watch = Terminal::start(&daemon, &watch);
    watch.expect("[s]kip? ");
    watch.press("s\n");
    let _second = Waiting::start(&daemon, "echo second");
    watch.expect("shutting_down");
    watch.expect("    echo second\r\n");
    watch.expect("[s]kip? ");
}

#[test]
fn programs_are_told_of_each_change() {
    let daemon = start();
    let waiting = Waiting::start(&daemon, "echo hello");
    let telling = Telling::start(&daemon, &["approvals", "--watch", "--json"]);
    let line = || serde_json::from_str::<Value>(&telling.line()).expect("JSON");
    let asked = line();
    assert_eq!(
        (&asked["id"], &asked["status"]),
        (&waiting.approval.as_str().into(), &"pending".into())
    );
    run(&daemon, &["deny", &waiting.approval]);
    let denied = line();
    assert_eq!(
        (&denied["id"], &denied["status"]),
        (&asked["id"], &"denied".into())
    );
}

#[test]
fn top_decides_too() {
    let daemon = start();
    let mut top = Terminal::start(&daemon, &["top"]);
    top.expect("nothing runs");
    let first = Waiting::start(&daemon, "echo first");
    top.expect("    echo first");
    top.press("a");
    top.expect("approved by ");
    assert_eq!(first.end().1, "first\n");
    let second = Waiting::start(&daemon, "echo second");
    top.expect("    echo second");
    top.press("d");
    top.expect("denied by ");
    assert_eq!(second.end().0, Some(125));
    top.press("q");
    assert_eq!(top.end().0, Some(0));
}

/// Whatever the list is like: the operator has the id from elsewhere.
#[test]
fn a_whole_id_is_decided_without_the_list() {
    const ID: &str = "01a21f9b-986d-70b2-b12a-367b974d3352";
    let dir = scratch();
    let socket = dir.join("executor.sock");
    let listener = UnixListener::bind(&socket).expect("bound");
    let asked = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("a line");
        line
    });
    let denied = shellyctl(&socket, &["deny", ID]).output();
    assert_ne!(code(&denied.expect("shellyctl starts")), 0);
    let asked = asked.join().expect("asked");
    assert_eq!(asked, format!("POST /approvals/{ID} HTTP/1.1\r\n"));
    fs::remove_dir_all(dir).expect("ours");
}
