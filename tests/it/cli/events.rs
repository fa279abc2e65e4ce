//! What is told of the daemon's work: `events` and `audit`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;
use shelly_executor::domain::Digest;

use super::{code, json, run, shellyctl, text};
use crate::support::{Daemon, Mode, wait_for};

/// shellyctl as it goes on printing lines.
pub struct Telling {
    child: Child,
    lines: Receiver<String>,
}

impl Telling {
    pub fn start(daemon: &Daemon, args: &[&str]) -> Self {
        let mut command = shellyctl(daemon.socket(), args);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("shellyctl starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// The next line, which may take a while to come.
    #[track_caller]
    pub fn line(&self) -> String {
        let line = self.lines.recv_timeout(Duration::from_secs(30));
        line.expect("a line")
    }

    /// The next line that has `part`, and those before it.
    #[track_caller]
    pub fn until(&self, part: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            lines.push(self.line());
            if lines.last().is_some_and(|line| line.contains(part)) {
                return lines;
            }
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn events_tell_what_has_happened_and_end() {
    let daemon = Daemon::start();
    let answer = daemon.bash("echo one; exit 3").json();
    let id = answer["execution_id"].as_str().expect("an id");
    daemon.bash("echo two");
    let told = run(&daemon, &["events"]);
    assert_eq!(code(&told), 0, "{told:?}");
    let told = text(&told.stdout);
    let line = |kind: &str| {
        let mut lines = told.lines().filter(|line| line.contains(kind));
        lines.next().expect("a line").to_owned()
    };
    let started = line(" executionStarted ");
    assert!(
        started.ends_with(&format!("bash {id}: echo one; exit 3")),
        "{started}"
    );
    let completed = line(" executionCompleted ");
    assert!(
        completed.contains(&format!("bash {id} error 3 in ")),
        "{completed}"
    );
    assert_eq!(told.matches("stageStarted").count(), 12, "{told}");
    let of_one = run(
        &daemon,
        &[
            "events",
            "--execution",
            id,
            "--type",
            "executionStarted,executionCompleted",
        ],
    );
    assert_eq!(text(&of_one.stdout).lines().count(), 2, "{of_one:?}");
    assert_eq!(run(&daemon, &["events", "--tool", "other"]).stdout, b"");
    let json = run(&daemon, &["events", "--json", "--execution", id]);
    let numbers: Vec<u64> = text(&json.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["number"].as_u64())
        .map(|number| number.expect("a number"))
        .collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let last = numbers.last().expect("an event").to_string();
    let after = run(&daemon, &["events", "--after", &last, "--execution", id]);
    assert_eq!(after.stdout, b"", "{after:?}");
}

#[test]
fn events_can_be_followed_from_now_on() {
    let daemon = Daemon::start();
    daemon.bash("echo before");
    let telling = Telling::start(&daemon, &["events", "-f", "--type", "executionStarted"]);
    // It listens at some time, which nobody is told of.
    let first = wait_for("an event is told", || {
        daemon.bash("echo now");
        telling.lines.try_recv().ok()
    });
    assert!(first.ends_with(": echo now"), "{first}");
}

#[test]
fn followed_events_outlive_the_daemon() {
    let mut daemon = Daemon::start();
    let args = ["events", "--follow", "--after", "0", "--json"];
    let telling = Telling::start(&daemon, &args);
    daemon.bash("echo before");
    let mut lines = telling.until("executionCompleted");
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    daemon.wait();
    let daemon = daemon.restart();
    daemon.bash("echo after");
    lines.extend(telling.until("executionCompleted"));
    let numbers: Vec<u64> = lines
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .map(|event| event["number"].as_u64().expect("a number"))
        .collect();
    let all: Vec<u64> = (1..).take(numbers.len()).collect();
    assert_eq!(numbers, all, "each is told, and once");
}

/// Also of an output that is long, or longer than the answer.
#[test]
fn the_audit_trail_has_the_digests_of_the_whole_outputs() {
    let daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 100000\n");
    for (command, expected) in [
        ("printf abc", b"abc".to_vec()),
        ("head -c 69632 /dev/zero | tr '\\0' a", vec![b'a'; 69_632]),
        ("head -c 300001 /dev/zero | tr '\\0' b", vec![b'b'; 300_001]),
        (
            "head -c 3000000 /dev/zero | tr '\\0' c",
            vec![b'c'; 3_000_000],
        ),
        (
            "head -c 80000 /dev/zero | tr '\\0' d; sleep 0.2; echo e",
            [vec![b'd'; 80_000], b"e\n".to_vec()].concat(),
        ),
    ] {
        let id = daemon.bash(command).json()["execution_id"].clone();
        let export = run(&daemon, &["audit", "export"]);
        let mut lines = text(&export.stdout).lines();
        let ending = lines.find_map(|line| {
            let record: Value = serde_json::from_str(line).expect("JSON");
            (record["execution_id"] == id && record["kind"] == "ending").then_some(record)
        });
        let ending = ending.expect("its ending");
        let digest = Digest::of(&expected).to_string();
        assert_eq!(
            ending["body"]["stdout_sha256"], digest,
            "{command}: {ending}"
        );
    }
}

#[test]
fn what_cannot_be_held_against_the_journal_is_said_to_be_so() {
    let daemon = Daemon::start();
    daemon.bash("echo one");
    let unsaid = run(&daemon, &["audit", "verify"]);
    assert_eq!(code(&unsaid), 0, "{unsaid:?}");
    let noted = text(&unsaid.stderr);
    assert!(
        noted.contains("not held against the journal: ") && noted.contains("--unit"),
        "{noted}"
    );
    let unsaid = json(&daemon, &["audit", "verify"]);
    assert_eq!(unsaid.get("journal_heads"), Some(&Value::Null), "{unsaid}");
    let unknown = run(&daemon, &["audit", "verify", "--unit", "nobody-has-this"]);
    assert_eq!(code(&unknown), 125, "{unknown:?}");
    let both = run(
        &daemon,
        &["audit", "verify", "--unit", "x", "--head", "1:00"],
    );
    assert_eq!(code(&both), 2, "{both:?}");
}

#[test]
fn the_audit_trail_is_checked_and_exported() {
    let daemon = Daemon::start();
    daemon.bash("echo one");
    let intact = run(&daemon, &["audit", "verify"]);
    assert_eq!(code(&intact), 0, "{intact:?}");
    let shown = text(&intact.stdout);
    assert!(shown.contains("the audit trail is intact\n"), "{shown}");
    let (_, head) = shown.trim_end().rsplit_once("Head: ").expect("a head");
    daemon.bash("echo two");
    let since = run(&daemon, &["audit", "verify", "--head", head]);
    assert_eq!(code(&since), 0, "{since:?}");
    let (number, _) = head.split_once(':').expect("a head");
    let forged = format!("{number}:{}", "0".repeat(64));
    let broken = run(&daemon, &["audit", "verify", "--head", &forged]);
    assert_eq!(code(&broken), 1, "{broken:?}");
    assert!(text(&broken.stdout).contains("is broken\n"), "{broken:?}");
    assert_eq!(code(&run(&daemon, &["audit", "verify", "--head", "1"])), 2);
    // More than one request has room for.
    let many = vec![head; 600].join(",");
    let all_known = run(&daemon, &["audit", "verify", "--head", &many]);
    assert_eq!(code(&all_known), 0, "{all_known:?}");
    let many = format!("{many},{forged}");
    let one_forged = run(&daemon, &["audit", "verify", "--head", &many]);
    assert_eq!(code(&one_forged), 1, "{one_forged:?}");

    let records = json(&daemon, &["audit", "verify"])["records"].as_u64();
    let export = |after: &str| {
        let export = run(&daemon, &["audit", "export", "--after", after]);
        let lines = text(&export.stdout).lines();
        let numbers = lines.map(|line| {
            let record: Value = serde_json::from_str(line).expect("JSON");
            record["number"].as_u64().expect("a number")
        });
        numbers.collect::<Vec<_>>()
    };
    let all = export("0");
    assert_eq!(Some(all.len() as u64), records);
    let rest = export(number);
    assert_eq!(all[all.len() - rest.len()..], rest);
    assert_eq!(
        rest[0].to_string().parse(),
        number.parse::<u64>().map(|n| n + 1)
    );
}
