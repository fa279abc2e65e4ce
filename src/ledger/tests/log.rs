//! What is safe before it is in the file.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::*;
use crate::domain::RunReport;
use crate::ledger::file::beside;
use crate::ledger::log::LOGS;

/// An end with a text of each kind that is kept with it.
fn closing_with_texts(id: ExecutionId) -> CloseRecord {
    let text = |text: &[u8]| Output {
        bytes: text.len() as u64,
        digest: Some(Digest::of(text)),
        place: Place::Inline(text.to_vec()),
    };
    CloseRecord {
        problem: Some(json!({"kind": "timeout"}).into()),
        usage: Some(json!({"cpu_ms": 3}).into()),
        started_at: Some(at(3)),
        content: text("größer\n\u{0}".as_bytes()),
        stdout: text(b""),
        stderr: Output {
            bytes: 7,
            digest: None,
            place: Place::InContent { offset: 2 },
        },
        ..closing(id, Status::Timeout)
    }
}

fn events(id: ExecutionId, kind: &str) -> Option<Events> {
    Some(Events {
        execution_id: Some(id),
        tool: Some("bash".to_owned()),
        caller_uid: Some(7),
        happened: [(at(4), json!({"type": kind}))].into_iter().collect(),
    })
}

fn copy(from: &Path, to: &Path, which: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        if which(&entry.file_name().to_string_lossy()) {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
}

fn is_log(name: &str) -> bool {
    name.contains("-log-")
}

#[test]
fn an_end_that_was_told_survives_in_the_log_alone() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let early = enter(&ledger, opening("bash", 7, at(1)), Status::Success);
    let crashed = Scratch::new();
    copy(&scratch.0, &crashed.0, |name| !is_log(name));

    let mut opened = opening("bash", 7, at(2));
    opened.ruling = Some(Ruling {
        verdict: Verdict::Allow,
        rule: Some("bash".to_owned()),
        source: None,
    });
    let id = opened.id;
    let begun = ledger.begin_execution(opened.clone(), events(id, "executionStarted"));
    assert!(begun.is_none());
    let end = closing_with_texts(id);
    let told = ledger.end_execution(end.clone(), None, events(id, "executionFailed"), drop);
    assert!(matches!(told, Ended::Logged));
    // The file as it was before, and the log as it is now.
    copy(&scratch.0, &crashed.0, is_log);

    let expected = block_on(ledger.get(id)).expect("read").expect("there");
    for _ in 0..2 {
        // A log that is read again, because nobody could forget it, changes nothing.
        let log = Scratch::new();
        copy(&crashed.0, &log.0, is_log);
        let opened = open(&crashed.file());
        assert!(opened.recovered.lost.is_empty());
        let ledger = &opened.ledger;
        let record = block_on(ledger.get(id)).expect("read").expect("there");
        assert_eq!(format!("{:?}", record.open), format!("{:?}", expected.open));
        assert_eq!(
            format!("{:?}", record.close),
            format!("{:?}", expected.close)
        );
        let close = record.close.expect("an end");
        assert_eq!(close.content, end.content);
        assert_eq!(close.stderr.place, end.stderr.place);
        let page = block_on(ledger.events(0, EventFilter::default(), 10)).expect("read");
        let kinds: Vec<_> = page.events.iter().map(|event| &*event.kind).collect();
        assert_eq!(kinds, ["executionStarted", "executionFailed"]);
        let all = block_on(ledger.list(
            Filter {
                limit: 10,
                ..Filter::default()
            },
            |listed| listed.id,
        ));
        assert_eq!(ids(&all.expect("listed")), [id, early]);
        // One ending of the early one; a decision and an ending of the other.
        let chain = verified(ledger, Vec::new());
        assert!(
            matches!(chain, Chain::Holds(head) if head.number == 3),
            "{chain:?}"
        );
        drop(opened);
        copy(&log.0, &crashed.0, is_log);
    }
}

#[test]
fn an_end_is_kept_although_what_happened_cannot_be_read() {
    let (crashed, id) = crashed_behind_an_end();
    for suffix in LOGS {
        let log = beside(&crashed.file(), suffix);
        let text = fs::read_to_string(&log).expect("a log");
        let cut: String = text
            .lines()
            // Without a checksum, which would tell.
            .map(|line| format!("{}\n", line[9..].replace("\t[[", "\t[")))
            .collect();
        fs::write(&log, cut).expect("written");
    }
    let ledger = crashed.open();
    let record = block_on(ledger.get(id)).expect("read").expect("there");
    assert_eq!(record.close.expect("an end").status, Status::Timeout);
    let page = block_on(ledger.events(0, EventFilter::default(), 10)).expect("read");
    assert!(page.events.is_empty());
}

#[test]
fn what_the_versions_before_have_left_in_the_log_is_read() {
    let scratch = Scratch::new();
    drop(scratch.open());
    let log = beside(&scratch.file(), LOGS[0]);
    // As a daemon of version 7 left it that was killed behind two answers; one line is of one before that.
    fs::write(log, include_bytes!("version-7.log")).expect("written");
    let ledger = scratch.open();
    let ended = |id: &str| {
        let id: ExecutionId = id.parse().expect("an id");
        let record = block_on(ledger.get(id)).expect("read").expect("there");
        let call: Value = record.open.call.read().expect("a call");
        (call, record.close.expect("an end"))
    };
    let (call, close) = ended("01a213dd-1aa9-74eb-b8a9-c4a2f131be0e");
    assert_eq!(call["input"], json!({"command": "true"}));
    assert_eq!(close.status, Status::Success);
    let report: RunReport = close.ending.read().expect("the facts");
    assert!(report.background.is_empty() && report.kill.is_none() && report.sandbox.is_none());
    assert_eq!(report.usage.cpu, Duration::from_millis(3));
    assert!(close.problem.is_none() && close.usage.is_some());
    assert!(close.stages.as_str().contains("1795629587113989"));
    let text = Place::Inline(b"[exit_code]\n0".to_vec());
    assert_eq!(close.content.place, text);

    let (call, close) = ended("01a213dd-1aab-70c8-a638-a308aa2d1e2e");
    assert_eq!(
        call["input"],
        json!({"command": "false"}),
        "as it was changed"
    );
    assert_eq!(close.status, Status::Denied);
    let problem = json!({"kind": "permission_denied"});
    assert_eq!(close.problem, Some(problem.into()));
    assert_eq!((close.ending, close.usage), (Json::default(), None));

    let page = block_on(ledger.events(0, EventFilter::default(), 10)).expect("read");
    assert_eq!(page.events.len(), 2);
}

#[test]
fn a_text_of_more_than_one_line_is_kept_although_no_line_holds_it() {
    let scratch = Scratch::new();
    let crashed = Scratch::new();
    let ledger = scratch.open();
    let call = Json::from_text("{\n\t\"input\": {}}").expect("JSON");
    let opened = OpenRecord {
        call,
        ..opening("bash", 7, at(2))
    };
    let id = opened.id;
    let begun = ledger.begin_execution(opened, None);
    block_on(begun.expect("not in the log")).expect("in the file");
    copy(&scratch.0, &crashed.0, |_| true);
    assert_eq!(open(&crashed.file()).recovered.lost_ids(), [id]);
}

#[test]
fn a_line_of_which_a_part_is_another_s_is_none() {
    let (crashed, id) = crashed_behind_an_end();
    // As when the machine loses power, and some of the pages are those of before.
    let log = beside(&crashed.file(), LOGS[0]);
    let text = fs::read_to_string(&log).expect("a log");
    assert!(text.contains("größer"));
    fs::write(&log, text.replace("größer", "kürzer")).expect("written");
    assert_eq!(open(&crashed.file()).recovered.lost_ids(), [id]);
}

/// What a daemon leaves that dies when it has told an end: that is in the log alone.
fn crashed_behind_an_end() -> (Scratch, ExecutionId) {
    let scratch = Scratch::new();
    let crashed = Scratch::new();
    let ledger = scratch.open();
    copy(&scratch.0, &crashed.0, |name| !is_log(name));
    let id = opened_and_ended(&ledger);
    copy(&scratch.0, &crashed.0, is_log);
    (crashed, id)
}

fn opened_and_ended(ledger: &Ledger) -> ExecutionId {
    let opened = opening("bash", 7, at(2));
    let id = opened.id;
    let begun = ledger.begin_execution(opened, events(id, "executionStarted"));
    assert!(begun.is_none());
    let told = ledger.end_execution(
        closing_with_texts(id),
        None,
        events(id, "executionFailed"),
        drop,
    );
    assert!(matches!(told, Ended::Logged));
    id
}

/// Who lists what runs has it entered, and what had happened to it by then with it: that may be on its way still
/// when the end is told and the daemon dies, or have arrived.
#[test]
fn what_was_on_its_way_into_the_file_before_the_end_is_not_lost() {
    for arrived in 0..=2 {
        let scratch = Scratch::new();
        let crashed = Scratch::new();
        let ledger = scratch.open();
        let keep = |step: usize| {
            if step == arrived {
                copy(&scratch.0, &crashed.0, |name| !is_log(name));
            }
        };
        keep(0);
        let opened = opening("bash", 7, at(2));
        let id = opened.id;
        let begun = ledger.begin_execution(opened, events(id, "executionStarted"));
        assert!(begun.is_none());
        let listed = block_on(ledger.list(Filter::default(), |listed| listed.id));
        listed.expect("listed");
        keep(1);
        let noted = ledger.record_events(events(id, "executionQueued").expect("one"));
        noted.wait().expect("written");
        keep(2);
        let last = events(id, "executionFailed");
        let told = ledger.end_execution(closing_with_texts(id), None, last, drop);
        assert!(matches!(told, Ended::Logged));
        copy(&scratch.0, &crashed.0, is_log);
        let opened = open(&crashed.file());
        assert_eq!(opened.recovered.lost_ids(), []);
        let page = block_on(opened.ledger.events(0, EventFilter::default(), 10)).expect("read");
        let kinds: Vec<_> = page.events.iter().map(|event| &*event.kind).collect();
        assert_eq!(
            kinds,
            ["executionStarted", "executionQueued", "executionFailed"],
            "{arrived}"
        );
    }
}

#[test]
fn a_digest_that_was_late_is_computed_anew_after_a_crash() {
    let scratch = Scratch::new();
    let crashed = Scratch::new();
    let ledger = scratch.open();
    copy(&scratch.0, &crashed.0, |name| !is_log(name));
    let opened = opening("bash", 7, at(2));
    let id = opened.id;
    assert!(ledger.begin_execution(opened, None).is_none());
    let told = Digest::of(b"told");
    let late: LateDigests = Box::new(move || [Some(told), None]);
    let end = ledger.end_execution(closing(id, Status::Success), Some(late), None, drop);
    assert!(matches!(end, Ended::Logged));
    let digest = |ledger: &Ledger| {
        let record = block_on(ledger.get(id)).expect("read").expect("there");
        record.close.expect("an end").stdout.digest
    };
    assert_eq!(digest(&ledger), Some(told));

    copy(&scratch.0, &crashed.0, is_log);
    let log = Scratch::new();
    copy(&crashed.0, &log.0, is_log);
    let kept = Digest::of(b"kept");
    let asked = std::cell::Cell::new(0);
    let hash = |close: &CloseRecord| {
        assert_eq!(close.id, id);
        asked.set(asked.get() + 1);
        [Some(kept), None]
    };
    for _ in 0..2 {
        let opened = Ledger::open_with(&crashed.file(), Durability::Process, &hash);
        let ledger = opened.expect("the ledger opens").ledger;
        assert_eq!(digest(&ledger), Some(kept));
        let chain = verified(&ledger, Vec::new());
        assert!(
            matches!(chain, Chain::Holds(head) if head.number == 1),
            "{chain:?}"
        );
        drop(ledger);
        copy(&log.0, &crashed.0, is_log);
    }
    // What is in the file is not computed again.
    assert_eq!(asked.get(), 1);
}

#[test]
fn what_the_trail_has_of_one_before_it_has_ended_does_not_make_it_forgotten() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let opened = opening("bash", 7, at(2));
    let id = opened.id;
    assert!(ledger.begin_execution(opened, None).is_none());
    let heard = ledger.audit(AuditEntry {
        kind: "hook".to_owned(),
        execution_id: Some(id),
        time: at(2),
        body: json!({"hook": "guard"}),
    });
    heard.wait().expect("written");
    let crashed = Scratch::new();
    copy(&scratch.0, &crashed.0, |name| !is_log(name));
    let told = ledger.end_execution(closing(id, Status::Success), None, None, drop);
    assert!(matches!(told, Ended::Logged));
    copy(&scratch.0, &crashed.0, is_log);

    let ledger = crashed.open();
    let record = block_on(ledger.get(id)).expect("read").expect("there");
    assert_eq!(record.status(), Status::Success);
}

#[test]
fn what_becomes_known_before_the_start_is_in_the_log_too() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let opened = opening("bash", 7, at(2));
    let id = opened.id;
    assert!(ledger.begin_execution(opened, None).is_none());
    let change = || Change {
        call: Some(json!({"input": {"command": "changed"}}).into()),
        ruling: Some(Ruling {
            verdict: Verdict::Allow,
            rule: Some("bash".to_owned()),
            source: None,
        }),
        ..Change::default()
    };
    assert!(ledger.go_on(id, change(), None).is_none());
    let crashed = Scratch::new();
    copy(&scratch.0, &crashed.0, |_| true);
    // More than one change, or one that is not about to run, goes into the file.
    let again = ledger.go_on(id, change(), None).expect("a receipt");
    again.wait().expect("written");
    let waiting = opening("bash", 7, at(3));
    let waits = Change {
        status: Some(Status::Waiting),
        ..change()
    };
    assert!(ledger.begin_execution(waiting.clone(), None).is_none());
    let receipt = ledger.go_on(waiting.id, waits, None).expect("a receipt");
    receipt.wait().expect("written");

    let opened = open(&crashed.file());
    assert_eq!(opened.recovered.lost_ids(), [id]);
    let record = block_on(opened.ledger.get(id)).expect("read");
    let record = record.expect("there").open;
    assert_eq!(record.ruling, change().ruling);
    assert_eq!(Some(record.call), change().call);
    let links = exported(&opened.ledger, 0).expect("read").into_iter();
    assert!(links.map(|link| link.kind).eq(["decision", "lost"]));
}

#[test]
fn whoever_asks_finds_what_has_just_ended() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    for n in 1..50 {
        let record = opening("bash", 7, at(n));
        let id = record.id;
        assert!(
            ledger
                .begin_execution(record, events(id, "executionStarted"))
                .is_none()
        );
        let told = ledger.end_execution(
            closing(id, Status::Success),
            None,
            events(id, "executionCompleted"),
            drop,
        );
        assert!(matches!(told, Ended::Logged));
        match n % 4 {
            0 => {
                let record = block_on(ledger.get(id)).expect("read").expect("there");
                assert_eq!(record.status(), Status::Success);
            }
            1 => {
                let chain = verified(&ledger, Vec::new());
                assert!(
                    matches!(chain, Chain::Holds(head) if head.number == n),
                    "{chain:?}"
                );
            }
            2 => {
                let filter = EventFilter {
                    execution_id: Some(id),
                    ..EventFilter::default()
                };
                let page = block_on(ledger.events(0, filter, 10)).expect("read");
                assert_eq!(page.events.len(), 2);
            }
            _ => {
                assert_eq!(exported(&ledger, 0).expect("read").len() as u64, n);
            }
        }
    }
}

#[test]
fn what_a_line_cannot_hold_is_in_the_file_before_it_is_told() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    for text in [vec![0xff, 0xfe], vec![b'x'; 100 << 10]] {
        let record = opening("bash", 7, at(1));
        let mut end = closing(record.id, Status::Success);
        end.stdout.place = Place::Inline(text);
        assert!(ledger.begin_execution(record, None).is_none());
        let Ended::Queued(receipt, _) = ledger.end_execution(end.clone(), None, None, drop) else {
            panic!("in the log");
        };
        receipt.wait().expect("written");
        let record = block_on(ledger.get(end.id)).expect("read").expect("there");
        assert_eq!(record.close.expect("an end").stdout, end.stdout);
    }
    // Nor is there anything to be told of one whose opening may be nowhere.
    let asked = opening("bash", 7, at(2));
    drop(ledger.open_execution(asked.clone(), None));
    let told = ledger.end_execution(closing(asked.id, Status::Success), None, None, drop);
    let Ended::Queued(receipt, _) = told else {
        panic!("in the log");
    };
    receipt.wait().expect("written");
}

/// However its opening came into the file, or is on its way there.
#[test]
fn what_ends_while_the_file_cannot_be_written_survives_in_the_log() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let record = |n| opening("bash", 7, at(n));
    let [claimed, entered, nudged, begun] = [1, 2, 3, 4].map(record);
    let claim = OpenRecord {
        idempotency: Some(Idempotency {
            key: "once".to_owned(),
            body_digest: Digest::of(b"body"),
        }),
        ..claimed.clone()
    };
    let claimed_first = ledger.claim(claim).wait().expect("written");
    assert!(matches!(claimed_first, Claim::New));
    for record in [&entered, &nudged] {
        assert!(ledger.begin_execution(record.clone(), None).is_none());
    }
    ledger.nudge(entered.id);
    assert!(block_on(ledger.get(entered.id)).expect("read").is_some());

    let somebody = Connection::open(scratch.file()).expect("a file");
    somebody.execute_batch("BEGIN IMMEDIATE").expect("free");
    ledger.nudge(nudged.id);
    until("a problem", || ledger.problem().is_some());
    assert!(ledger.begin_execution(begun.clone(), None).is_none());
    let change = Change {
        working_dir: Some("/tmp".into()),
        ..Change::default()
    };
    assert!(ledger.go_on(begun.id, change, None).is_none());
    let all = [&claimed, &entered, &nudged, &begun];
    for record in all {
        let told = ledger.end_execution(closing_with_texts(record.id), None, None, drop);
        assert!(matches!(told, Ended::Logged), "{:?}", record.created_at);
    }
    assert!(ledger.problem().is_some());
    let crashed = Scratch::new();
    copy(&scratch.0, &crashed.0, |_| true);

    let opened = open(&crashed.file());
    assert_eq!(opened.recovered.lost_ids(), []);
    somebody.execute_batch("ROLLBACK").expect("begun");
    until("the ledger is well", || ledger.problem().is_none());
    for ledger in [&opened.ledger, &ledger] {
        for record in all {
            let record = block_on(ledger.get(record.id)).expect("read");
            assert_eq!(record.expect("there").status(), Status::Timeout);
        }
        let chain = verified(ledger, Vec::new());
        assert!(matches!(chain, Chain::Holds(head) if head.number == 4));
    }
}

/// What is done with it then the next start does.
#[test]
fn a_log_that_is_left_behind_is_not_begun_anew() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let somebody = Connection::open(scratch.file()).expect("a file");
    somebody.execute_batch("BEGIN IMMEDIATE").expect("free");
    let id = opened_and_ended(&ledger);
    ledger.close_file();
    // As much as both have room for where there is most to gain.
    for n in 0..30 {
        let mut late = opening("bash", 7, at(n));
        late.call = json!({"input": {"command": "x".repeat(30_000)}}).into();
        drop(ledger.begin_execution(late.clone(), None));
        drop(ledger.end_execution(closing(late.id, Status::Success), None, None, drop));
    }
    drop((ledger, somebody));
    let record = block_on(scratch.open().get(id)).expect("read");
    assert_eq!(record.expect("there").status(), Status::Timeout);
}

#[test]
fn one_that_wants_the_disk_to_have_it_uses_no_log() {
    let scratch = Scratch::new();
    let ledger = Ledger::open(&scratch.file(), Durability::Fsync).expect("the ledger opens");
    let record = opening("bash", 7, at(1));
    let id = record.id;
    let begun = ledger.ledger.begin_execution(record, None);
    begun
        .expect("something to wait for")
        .wait()
        .expect("written");
    let told = ledger
        .ledger
        .end_execution(closing(id, Status::Success), None, None, drop);
    assert!(matches!(told, Ended::Queued(..)));
}

#[test]
fn what_had_only_begun_when_the_daemon_died_is_lost_and_not_forgotten() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let ended = opening("bash", 7, at(1));
    let gone = opening("bash", 7, at(0));
    for record in [&gone, &ended] {
        assert!(ledger.begin_execution(record.clone(), None).is_none());
        ledger
            .close_execution(closing(record.id, Status::Success), None)
            .wait()
            .expect("closed");
        if record.id == gone.id {
            cleared(&ledger, 0);
        }
    }
    let begun = opening("bash", 7, at(2));
    assert!(ledger.begin_execution(begun.clone(), None).is_none());
    // The files as they are now, as if the daemon had died; one line is cut off.
    let crashed = Scratch::new();
    for entry in fs::read_dir(&scratch.0).expect("a directory").flatten() {
        fs::copy(entry.path(), crashed.0.join(entry.file_name())).expect("copied");
    }
    let path = crashed.0.join("ledger.db-log-1");
    let text = fs::read(&path).expect("a log");
    let end = text.iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;
    let log = fs::OpenOptions::new().write(true).open(&path);
    let log = log.expect("a log");
    log.write_all_at(&text[..100], end as u64).expect("written");

    let opened = open(&crashed.file());
    assert_eq!(opened.recovered.lost_ids(), [begun.id]);
    let record = block_on(opened.ledger.get(begun.id))
        .expect("read")
        .expect("there");
    assert_eq!((record.status(), record.open.caller_uid), (Status::Lost, 7));
    assert_eq!(record.open.created_at, begun.created_at);
    let of_it = EventFilter {
        execution_id: Some(begun.id),
        ..EventFilter::default()
    };
    let told = block_on(opened.ledger.events(0, of_it, 10)).expect("read");
    let told: Vec<_> = told.events.iter().map(|event| &*event.kind).collect();
    assert_eq!(told, ["executionStarted", "executionAborted"]);
    assert!(
        block_on(opened.ledger.get(gone.id))
            .expect("read")
            .is_none()
    );
    drop(opened);
    assert!(open(&crashed.file()).recovered.lost.is_empty());
    // Whoever lists sees it without waiting for company.
    let page = block_on(ledger.list(
        Filter {
            limit: 10,
            ..Filter::default()
        },
        |listed| listed.id,
    ));
    assert_eq!(ids(&page.expect("listed")), [begun.id, ended.id]);
}

#[test]
fn the_logs_take_turns_and_stay_small() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    for n in 0..3000 {
        let mut record = opening("bash", 0, at(n));
        record.call = json!({"input": {"command": "x".repeat(1000)}}).into();
        let id = record.id;
        assert!(ledger.begin_execution(record, None).is_none());
        drop(ledger.close_execution(closing(id, Status::Success), None));
        if n % 100 == 0 {
            // An urgent write takes all before it along.
            ledger
                .audit(AuditEntry {
                    kind: "mark".to_owned(),
                    execution_id: None,
                    time: at(n),
                    body: json!({}),
                })
                .wait()
                .expect("written");
        }
    }
    let length = |suffix: &str| {
        let path = scratch.0.join(format!("ledger.db-log-{suffix}"));
        fs::metadata(path).expect("a log").len()
    };
    assert!(
        length("1") + length("2") < 1 << 20,
        "{} {}",
        length("1"),
        length("2")
    );
}
