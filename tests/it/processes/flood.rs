//! Output without bounds: memory stays bounded, the time limit fires, nothing kept is lost.

use std::time::Duration;

use serde_json::{Value, json};
use shelly_executor::ledger::Digest;

use crate::support::{Daemon, Mode, timed};

const MIB: u64 = 1 << 20;

/// How much of the output goes into an answer here.
const CAP: u64 = MIB;

/// What the daemon may grow by beyond the cap, whatever a command writes.
const GROWTH: u64 = 8 * MIB;

/// How much of a stream the spool keeps here.
const SPOOL: u64 = 16 * MIB;

/// What a daemon had resident at some moment.
struct Memory<'a> {
    daemon: &'a Daemon,
    all: u64,
    file: u64,
}

impl<'a> Memory<'a> {
    fn of(daemon: &'a Daemon) -> Self {
        let (all, file) = (daemon.reset_peak(), daemon.memory("RssFile"));
        Self { daemon, all, file }
    }

    /// At its peak since then it has grown by no more than it may. Pages of the program itself,
    /// which is executed for the first time here and there, are nothing a command has written.
    #[track_caller]
    fn assert_bounded(&self, what: &str) {
        let program = self.daemon.memory("RssFile").saturating_sub(self.file);
        let grown = self
            .daemon
            .memory("VmHWM")
            .saturating_sub(self.all + program);
        assert!(grown <= CAP + GROWTH, "{what}: grew by {grown} bytes");
    }
}

fn daemon(mode: Mode) -> Daemon {
    let daemon = Daemon::start_with(
        mode,
        &format!("max_output_bytes = {CAP}\nspool_max_bytes = {SPOOL}"),
    );
    assert_eq!(daemon.bash("echo warm").status, 200);
    daemon
}

#[test]
fn memory_stays_bounded_and_the_time_limit_fires_whatever_is_written() {
    let limit = Duration::from_millis(1500);
    for mode in Mode::all() {
        for command in ["yes", "cat /dev/urandom", "yes & yes >&2"] {
            let daemon = daemon(mode);
            let memory = Memory::of(&daemon);
            let members = json!({"timeout_secs": limit.as_secs_f64()});
            let (reply, took) = timed(|| daemon.bash_with(command, &members));
            memory.assert_bounded(&format!("{mode:?} {command}"));
            assert_eq!(reply.status, 504, "{mode:?} {command}");
            let body = reply.json();
            // They end on SIGTERM, so no grace is used up.
            let ended = Duration::from_millis(body["duration_ms"].as_u64().expect("a number"));
            let due = limit + Duration::from_millis(300) + took.lateness;
            assert!(
                ended >= limit && ended <= due,
                "{mode:?} {command}: {ended:?}, {took:?}"
            );
            assert_eq!(body["truncated"], true, "{mode:?} {command}");
            let written = body["stdout_bytes"].as_u64().expect("a number");
            assert!(written > CAP, "{mode:?} {command}: only {written} bytes");
            let id = body["execution_id"].as_str().expect("an id");
            let kept = daemon.output(id, "stdout").len() as u64;
            assert_eq!(kept, written.min(SPOOL), "{mode:?} {command}");
        }
    }
}

#[test]
fn one_line_of_a_gibibyte_is_taken_in_stride() {
    for mode in Mode::all() {
        let daemon = daemon(mode);
        let memory = Memory::of(&daemon);
        let length = 1u64 << 30;
        let command = format!("head -c {length} /dev/zero | tr '\\0' x");
        let reply = daemon.bash_with(&command, &json!({"timeout_secs": 120}));
        memory.assert_bounded(&format!("{mode:?}"));
        let body = reply.json();
        assert_eq!(body["stdout_bytes"], length, "{mode:?}");
        let expected = format!(
            "[stdout]\n{}\n...(truncated)\n\n[exit_code]\n0",
            "x".repeat(CAP as usize)
        );
        assert!(
            reply.content() == expected,
            "{mode:?}: {} bytes",
            reply.content().len()
        );
        let id = body["execution_id"].as_str().expect("an id");
        assert!(
            daemon.output(id, "stdout") == vec![b'x'; SPOOL as usize],
            "{mode:?}"
        );
    }
}

/// Nor does a client that has the output streamed to it and does not read.
#[test]
fn a_reader_that_is_slow_costs_no_memory_and_holds_nothing_up() {
    for mode in Mode::all() {
        let daemon = daemon(mode);
        let memory = Memory::of(&daemon);
        let mut slow = daemon.connect();
        let call = crate::support::bash_call("yes", &json!({"timeout_secs": 0.8}));
        let accept = [("Accept", "text/event-stream")];
        slow.send("POST", "/execute", &accept, call.to_string().as_bytes());
        assert_eq!(slow.reply_head().status, 200);
        let started = String::from_utf8(slow.chunk().expect("an event")).expect("text");
        let id = started.split('"').nth(3).expect("an id").to_owned();
        let record = daemon.ended(&id);
        assert_eq!(record["status"], "timeout", "{mode:?}");
        memory.assert_bounded(&format!("{mode:?}"));
        let mut rest = Vec::new();
        while let Some(chunk) = slow.chunk() {
            rest.extend(chunk);
        }
        let rest = String::from_utf8(rest).expect("text");
        assert!(
            rest.contains("\nevent: result") || rest.contains("event: result\n"),
            "{mode:?}"
        );
    }
}

#[test]
fn others_are_answered_while_a_flood_goes_on() {
    for mode in Mode::all() {
        let daemon = daemon(mode);
        let id = daemon.begin("yes", &json!({}));
        for _ in 0..20 {
            let (reply, took) = timed(|| daemon.get("/health"));
            assert_eq!(reply.json()["running"], 1, "{mode:?}");
            assert!(
                took.within(Duration::from_millis(100)),
                "{mode:?}: {took:?}"
            );
        }
        assert_eq!(daemon.bash("echo hi").stdout(), "hi");
        let path = format!("/executions/{id}");
        let cancelled = daemon.connect().request("DELETE", &path, &[], b"");
        assert_eq!(cancelled.json()["status"], "cancelled");
    }
}

/// Each stream's share is exact: standard error its quarter, standard output the rest.
#[test]
fn the_cut_is_right_to_the_byte() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "max_output_bytes = 1000");
        for (stdout, stderr, shares) in [
            (1000, 0, (1000, 0)),
            (1001, 0, (1000, 0)),
            (400_000, 0, (1000, 0)),
            (0, 400_000, (0, 1000)),
            (5000, 5000, (750, 250)),
            (400_000, 400_000, (750, 250)),
            (600, 5000, (600, 400)),
            (5000, 100, (900, 100)),
        ] {
            let numbers = "seq -s, 1000000 | head -c";
            let command = format!("{numbers} {stdout}; {numbers} {stderr} >&2");
            let reply = daemon.bash(&command);
            let whole: String = (1..)
                .flat_map(|n| format!("{n},").into_bytes())
                .take(400_000)
                .map(char::from)
                .collect();
            let section = |name: &str, length: usize, share: usize| match (length, share) {
                (0, _) => String::new(),
                (length, share) if length == share => format!("[{name}]\n{}\n\n", &whole[..share]),
                (_, share) => format!("[{name}]\n{}\n...(truncated)\n\n", &whole[..share]),
            };
            let expected = format!(
                "{}{}[exit_code]\n0",
                section("stdout", stdout, shares.0),
                section("stderr", stderr, shares.1)
            );
            assert_eq!(reply.content(), expected, "{mode:?} {stdout} {stderr}");
            let body = reply.json();
            assert_eq!(body["truncated"], stdout + stderr > 1000, "{mode:?}");
            assert_eq!(body["stdout_bytes"], stdout, "{mode:?}");
            assert_eq!(body["stderr_bytes"], stderr, "{mode:?}");
            let id = body["execution_id"].as_str().expect("an id");
            assert!(
                daemon.output(id, "stdout") == whole.as_bytes()[..stdout],
                "{mode:?}"
            );
            assert!(
                daemon.output(id, "stderr") == whole.as_bytes()[..stderr],
                "{mode:?}"
            );
        }
    }
}

/// A pipe whose writer sets `O_DIRECT` hands out one packet at a time, and drops what of it there is no room for.
#[test]
fn a_stream_of_packets_is_read_whole() {
    let daemon = Daemon::start();
    for (size, count) in [
        (100, 50),
        (1000, 1000),
        (4096, 300),
        (1000, 3000),
        (5000, 100),
    ] {
        let command = format!("dd if=/dev/zero bs={size} count={count} oflag=direct status=none");
        let body = daemon.bash(&command).json();
        assert_eq!(body["stdout_bytes"], size * count, "{size} {count}: {body}");
        let id = body["execution_id"].as_str().expect("an id");
        assert_eq!(daemon.output(id, "stdout").len(), size * count);
    }
}

#[test]
fn what_is_kept_to_its_last_byte_has_its_digest() {
    const KEPT: usize = 2_000_000;
    let limits = format!("max_output_bytes = 10\nspool_max_bytes = {KEPT}");
    let daemon = Daemon::start_with(Mode::Group, &limits);
    for length in [KEPT - 1, KEPT] {
        daemon.bash(&format!("head -c {length} /dev/zero"));
    }
    let trail = String::from_utf8(daemon.get("/audit").body).expect("text");
    let records = trail
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let digests: Vec<Value> = records
        .filter(|record: &Value| record["kind"] == "ending")
        .map(|record| record["body"]["stdout_sha256"].clone())
        .collect();
    let of = |length| json!(Digest::of(&vec![0; length]));
    assert_eq!(digests, [of(KEPT - 1), of(KEPT)]);
}

#[test]
fn any_part_of_the_spool_can_be_read() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "max_output_bytes = 10\nspool_max_bytes = 1000000");
        let body = daemon.bash("seq 1000000; seq 5 >&2").json();
        let id = body["execution_id"].as_str().expect("an id");
        let whole: Vec<u8> = (1..=1_000_000)
            .flat_map(|n| format!("{n}\n").into_bytes())
            .collect();
        assert_eq!(body["stdout_bytes"], whole.len());
        let kept = &whole[..1_000_000];
        assert!(daemon.output(id, "stdout") == kept, "{mode:?}");
        assert_eq!(daemon.output(id, "stderr"), b"1\n2\n3\n4\n5\n", "{mode:?}");
        let path = format!("/executions/{id}/output?stream=stdout");
        for (range, expected, says) in [
            ("bytes=0-9", &kept[..10], "bytes 0-9/1000000"),
            (
                "bytes=300000-900000",
                &kept[300_000..=900_000],
                "bytes 300000-900000/1000000",
            ),
            (
                "bytes=999999-",
                &kept[999_999..],
                "bytes 999999-999999/1000000",
            ),
            ("bytes=-7", &kept[999_993..], "bytes 999993-999999/1000000"),
        ] {
            let reply = daemon
                .connect()
                .request("GET", &path, &[("Range", range)], b"");
            assert_eq!(reply.status, 206, "{mode:?} {range}");
            assert_eq!(reply.header("content-range"), Some(says), "{mode:?}");
            assert!(reply.body == expected, "{mode:?} {range}");
        }
        let beyond = daemon
            .connect()
            .request("GET", &path, &[("Range", "bytes=1000000-")], b"");
        assert_eq!(beyond.status, 416, "{mode:?}");
        assert_eq!(
            beyond.header("content-range"),
            Some("bytes */1000000"),
            "{mode:?}"
        );
    }
}
