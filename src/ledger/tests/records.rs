use super::*;
use crate::domain::ApprovalId;

#[test]
fn what_one_execution_has_is_none_of_the_next_that_has_not() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let full = |created_at| OpenRecord {
        working_dir: Some(PathBuf::from("/srv")),
        replay_of: Some(ExecutionId::new()),
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".parse().ok(),
        tool_use_id: Some("toolu_1".to_owned()),
        ruling: Some(Ruling {
            verdict: Verdict::Allow,
            rule: Some("bash".to_owned()),
            source: Some("policy.toml:3".to_owned()),
        }),
        ..opening("bash", 7, created_at)
    };
    let full_end = |id| CloseRecord {
        problem: Some(json!({"kind": "timeout"}).into()),
        usage: Some(json!({"cpu_ms": 1}).into()),
        started_at: Some(at(1)),
        approved: Some((ApprovalId::new(), 7)),
        content: Output {
            bytes: 5,
            digest: Some(Digest::of(b"hello")),
            place: Place::Inline(b"hello".to_vec()),
        },
        ..closing(id, Status::Timeout)
    };
    let bare_end = |id| CloseRecord {
        problem: None,
        usage: None,
        started_at: None,
        content: Output::default(),
        stdout: Output::default(),
        stderr: Output::default(),
        ..closing(id, Status::Success)
    };
    // Entered as a whole, and step by step: by all statements that enter one.
    for as_a_whole in [true, false] {
        let enter = |open: OpenRecord, close: CloseRecord| {
            let id = open.id;
            if as_a_whole {
                assert!(ledger.begin_execution(open, None).is_none());
            } else {
                ledger.open_execution(open, None).wait().expect("opened");
            }
            ledger.close_execution(close, None).wait().expect("closed");
            block_on(ledger.get(id)).expect("read").expect("there")
        };
        let open = full(at(2));
        let end = full_end(open.id);
        let first = enter(open, end);
        assert!(first.close.expect("an end").approved.is_some());

        let open = OpenRecord {
            ruling: None,
            ..opening("bash", 7, at(3))
        };
        let end = bare_end(open.id);
        let OpenRecord {
            working_dir,
            replay_of,
            trace_id,
            tool_use_id,
            idempotency,
            ruling,
            lineage,
            ..
        } = enter(open, end.clone()).open;
        assert_eq!((working_dir, replay_of, lineage), (None, None, None));
        assert_eq!((trace_id, tool_use_id), (None, None));
        assert_eq!((idempotency, ruling), (None, None));
        let close = block_on(ledger.get(end.id))
            .expect("read")
            .expect("there")
            .close;
        let close = close.expect("an end");
        assert_eq!((close.problem, close.usage), (None, None));
        assert_eq!((close.approved, close.started_at), (None, None));
        assert_eq!((close.content, close.stdout), (end.content, end.stdout));
    }
}

#[test]
fn what_goes_in_comes_out() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let open = OpenRecord {
        working_dir: Some(PathBuf::from("/srv/ü")),
        asynchronous: true,
        status: Status::Queued,
        replay_of: Some(ExecutionId::new()),
        lineage: None,
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".parse().ok(),
        tool_use_id: Some("toolu_1".to_owned()),
        idempotency: Some(Idempotency {
            key: "k".to_owned(),
            body_digest: Digest::of(b"body"),
        }),
        ..opening("bash", 1000, at(0))
    };
    ledger
        .open_execution(open.clone(), None)
        .wait()
        .expect("opened");
    let ruling = Ruling {
        verdict: Verdict::Ask,
        rule: Some("bash(command:git *)".to_owned()),
        source: Some("policy.toml:3".to_owned()),
    };
    let change = Change {
        call: Some(json!({"input": {"command": "git status", "x": 1}}).into()),
        status: Some(Status::Waiting),
        ruling: Some(ruling.clone()),
        ..Change::default()
    };
    ledger
        .change(open.id, change, None)
        .wait()
        .expect("changed");
    let waiting = block_on(ledger.get(open.id)).expect("read").expect("there");
    assert_eq!(waiting.status(), Status::Waiting);
    assert_eq!(waiting.open.ruling, Some(ruling));
    assert!(waiting.close.is_none() && waiting.started_at.is_none());
    assert_eq!(
        waiting.open.call,
        json!({"input": {"command": "git status", "x": 1}}).into()
    );

    let close = CloseRecord {
        problem: Some(json!({"code": "timeout"}).into()),
        usage: Some(json!({"cpu_ms": 1}).into()),
        stages: json!([{"name": "discovery"}]).into(),
        started_at: Some(at(1)),
        ended_at: at(2),
        approved: Some((ApprovalId::new(), 0)),
        content: Output {
            bytes: 5,
            digest: Some(Digest::of(b"hello")),
            place: Place::Inline(b"hello".to_vec()),
        },
        stdout: Output {
            bytes: 2,
            digest: None,
            place: Place::InContent { offset: 3 },
        },
        stderr: Output {
            bytes: 1 << 40,
            digest: Some(Digest::of(b"")),
            place: Place::Spool { bytes: 1 << 30 },
        },
        ..closing(open.id, Status::Timeout)
    };
    ledger
        .close_execution(close.clone(), None)
        .wait()
        .expect("closed");
    let record = block_on(ledger.get(open.id)).expect("read").expect("there");
    assert_eq!(record.status(), Status::Timeout);
    assert_eq!(record.started_at, Some(at(1)));
    let closed = record.close.expect("closed");
    assert_eq!(
        (&closed.content, &closed.stdout, &closed.stderr),
        (&close.content, &close.stdout, &close.stderr)
    );
    assert_eq!(
        (
            closed.ending,
            closed.problem,
            closed.usage,
            closed.stages,
            closed.approved,
            closed.ended_at
        ),
        (
            close.ending,
            close.problem,
            close.usage,
            close.stages,
            close.approved,
            close.ended_at
        )
    );
    let read = record.open;
    assert_eq!(
        (
            read.working_dir,
            read.asynchronous,
            read.replay_of,
            read.trace_id,
            read.tool_use_id,
            read.idempotency
        ),
        (
            open.working_dir,
            true,
            open.replay_of,
            open.trace_id,
            open.tool_use_id,
            open.idempotency
        )
    );
    assert!(
        block_on(ledger.get(ExecutionId::new()))
            .expect("read")
            .is_none()
    );
}

#[test]
fn one_bad_write_does_not_spoil_its_neighbours() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let first = opening("bash", 0, at(0));
    let twice = first.clone();
    let second = opening("bash", 0, at(0));
    let id = second.id;
    let receipts = [
        ledger.open_execution(first, None),
        ledger.open_execution(twice, None),
        ledger.close_execution(closing(ExecutionId::new(), Status::Success), None),
        ledger.open_execution(second, None),
        ledger.close_execution(closing(id, Status::Success), None),
        ledger.close_execution(closing(id, Status::Error), None),
    ];
    let results = receipts.map(|receipt| receipt.wait().map_err(|error| error.to_string()));
    assert_eq!(
        results.each_ref().map(Result::is_ok),
        [true, false, false, true, true, false],
        "{results:?}"
    );
    assert_eq!(ledger.problem(), None);
    let found = block_on(ledger.get(id)).expect("read").expect("there");
    assert_eq!(found.status(), Status::Success);
    assert_eq!(
        verified(&ledger, vec![ledger.head()]),
        Chain::Holds(ledger.head())
    );
}

#[test]
fn a_key_is_claimed_once_whatever_happens_in_between() {
    let scratch = Scratch::new();
    let claiming = |uid, body: &[u8]| OpenRecord {
        idempotency: Some(Idempotency {
            key: "key".to_owned(),
            body_digest: Digest::of(body),
        }),
        ..opening("bash", uid, at(0))
    };
    let ledger = scratch.open();
    let record = claiming(1, b"a");
    let id = record.id;
    // All in one transaction, most likely.
    let claims = [
        ledger.claim(record),
        ledger.claim(claiming(1, b"a")),
        ledger.claim(claiming(1, b"b")),
        ledger.claim(claiming(2, b"b")),
    ];
    let claims = claims.map(|claim| claim.wait().expect("answered"));
    assert_eq!(
        claims,
        [
            Claim::New,
            Claim::InProgress(id),
            Claim::Conflict(id),
            Claim::New
        ]
    );
    ledger
        .close_execution(closing(id, Status::Success), None)
        .wait()
        .expect("closed");
    drop(ledger);
    let ledger = scratch.open();
    let claims = [claiming(1, b"a"), claiming(1, b"b")]
        .map(|record| ledger.claim(record).wait().expect("answered"));
    assert_eq!(claims, [Claim::Finished(id), Claim::Conflict(id)]);
    // The other one was lost: that it may have run is the point.
    assert!(matches!(
        ledger.claim(claiming(2, b"b")).wait(),
        Ok(Claim::Finished(_))
    ));
    // A key is kept as long as its record.
    cleared(&ledger, 0);
    assert_eq!(
        ledger.claim(claiming(1, b"b")).wait().expect("answered"),
        Claim::New
    );
}

#[test]
fn events_are_numbered_for_good() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let event = |kind: &&str| (at(3), json!({"type": kind, "a": 1}));
    let of = |id: Option<ExecutionId>, kinds: &[&str]| Events {
        execution_id: id,
        tool: id.map(|_| "bash".to_owned()),
        caller_uid: id.map(|_| 7),
        happened: kinds.iter().map(event).collect(),
    };
    let first = opening("bash", 7, at(0));
    let (one, two) = (first.id, ExecutionId::new());
    let begun = of(Some(one), &["executionStarted", "stageStarted"]);
    drop(ledger.open_execution(first, Some(begun.clone())));
    drop(ledger.record_events(of(Some(two), &["stageStarted"])));
    drop(ledger.record_events(of(None, &["configurationReloaded"])));
    assert_eq!(ledger.last_event(), 4);
    let ended = of(Some(one), &["executionCompleted"]);
    ledger
        .close_execution(closing(one, Status::Success), Some(ended))
        .wait()
        .expect("closed");
    let numbers = |ledger: &Ledger, after, filter: EventFilter| -> Vec<u64> {
        let page = block_on(ledger.events(after, filter, 10)).expect("read");
        assert!(!page.has_more && page.through == 5);
        page.events.iter().map(|event| event.number).collect()
    };
    let all = EventFilter::default;
    assert_eq!(numbers(&ledger, 0, all()), [1, 2, 3, 4, 5]);
    // In the middle of what went together, too.
    assert_eq!(numbers(&ledger, 1, all()), [2, 3, 4, 5]);
    for (filter, expected) in [
        (
            EventFilter {
                execution_id: Some(one),
                ..all()
            },
            &[1, 2, 5][..],
        ),
        (
            EventFilter {
                tool: Some("bash".to_owned()),
                ..all()
            },
            &[1, 2, 3, 5],
        ),
        (
            EventFilter {
                caller_uid: Some(8),
                ..all()
            },
            &[],
        ),
        (
            EventFilter {
                kinds: vec![
                    "stageStarted".to_owned(),
                    "configurationReloaded".to_owned(),
                ],
                ..all()
            },
            &[2, 3, 4],
        ),
    ] {
        assert_eq!(numbers(&ledger, 0, filter.clone()), expected, "{filter:?}");
    }
    let page = block_on(ledger.events(0, all(), 1)).expect("read");
    assert!(page.has_more && page.through == 2 && page.kept_from == 1);
    assert_eq!(page.events[0].kind, "executionStarted");
    assert_eq!(page.events[0].body["a"], 1);

    cleared(&ledger, 0);
    let page = block_on(ledger.events(0, all(), 10)).expect("read");
    assert!(page.events.is_empty() && page.kept_from > 5);
    drop(ledger);
    let ledger = scratch.open();
    drop(ledger.record_events(of(None, &["x"])));
    assert_eq!(ledger.last_event(), 6);
}

/// It is asked for with every page, however many events there are.
#[test]
fn the_first_event_that_is_kept_is_found_without_a_look_at_the_others() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    for n in 0..1000 {
        drop(
            ledger.record_events(Events {
                execution_id: Some(ExecutionId::new()),
                tool: None,
                caller_uid: Some(n),
                happened: [(at(0), json!({"type": "stageStarted"}))]
                    .into_iter()
                    .collect(),
            }),
        );
    }
    drop(ledger);
    let connection = rusqlite::Connection::open(scratch.file()).expect("a file");
    let count = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    assert_eq!(count("SELECT count(*) FROM events"), Ok(1000));
    let mut first = connection.prepare(read::FIRST_EVENT).expect("SQL");
    let found = first.query_row([], |row| row.get::<_, Option<i64>>(0));
    assert_eq!(found, Ok(Some(1)));
    let steps = first.get_status(rusqlite::StatementStatus::VmStep);
    assert!(steps < 100, "{steps}");
}

#[test]
fn events_from_before_the_first_execution_go_when_executions_go() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let reloaded = || Events {
        execution_id: None,
        tool: None,
        caller_uid: None,
        happened: [(at(0), json!({"type": "configurationReloaded"}))]
            .into_iter()
            .collect(),
    };
    let kept_from = |limits| {
        pruned(&ledger, limits);
        let page = block_on(ledger.events(0, EventFilter::default(), 1)).expect("read");
        page.kept_from
    };
    let at_most = |count| Limits {
        max_count: Some(count),
        ..Limits::default()
    };
    drop(ledger.record_events(reloaded()));
    assert_eq!(kept_from(at_most(1)), 1);
    enter(&ledger, opening("bash", 0, at(0)), Status::Success);
    assert_eq!(kept_from(at_most(1)), 1);
    drop(ledger.record_events(reloaded()));
    enter(&ledger, opening("bash", 0, at(1)), Status::Success);
    assert_eq!(kept_from(at_most(1)), 3);
    for _ in 0..12_000 {
        drop(ledger.record_events(reloaded()));
    }
    cleared(&ledger, 0);
    for _ in 0..12_000 {
        drop(ledger.record_events(reloaded()));
    }
    assert_eq!(kept_from(at_most(1)), ledger.last_event() + 1 - 10_000);
}

#[test]
fn who_overtakes_an_older_execution_keeps_its_events() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let enter_at = |micros| {
        let record = opening("bash", 0, at(micros));
        let events = Events {
            execution_id: Some(record.id),
            tool: None,
            caller_uid: None,
            happened: [(at(micros), json!({"type": "executionStarted"}))]
                .into_iter()
                .collect(),
        };
        let id = record.id;
        drop(ledger.open_execution(record, Some(events)));
        let closed = ledger.close_execution(closing(id, Status::Success), None);
        closed.wait().expect("closed");
    };
    // The one that began last is in the file before the one in the middle.
    for seconds in [0, 2, 1] {
        enter_at(seconds);
    }
    let limits = Limits {
        max_count: Some(2),
        ..Limits::default()
    };
    assert_eq!(pruned(&ledger, limits).len(), 1);
    let page = block_on(ledger.events(0, EventFilter::default(), 9)).expect("read");
    let numbers: Vec<u64> = page.events.iter().map(|event| event.number).collect();
    assert_eq!((page.kept_from, numbers), (2, vec![2, 3]));
}

#[test]
fn listeners_hear_of_what_is_on_file_in_its_order() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let mut listener = ledger.follow();
    let record = opening("bash", 0, at(0));
    let id = record.id;
    let of = |kind: &str| Events {
        execution_id: Some(id),
        tool: None,
        caller_uid: Some(0),
        happened: [(at(0), json!({"type": kind}))].into_iter().collect(),
    };
    drop(ledger.open_execution(record, Some(of("executionStarted"))));
    let closed =
        ledger.close_execution(closing(id, Status::Success), Some(of("executionCompleted")));
    closed.wait().expect("closed");
    for (number, kind) in [(1, "executionStarted"), (2, "executionCompleted")] {
        let heard = block_on(listener.recv()).expect("heard");
        let told = heard.pick(0, &EventFilter::default());
        assert_eq!((heard.first, told[0].kind.as_str()), (number, kind));
    }
    // What cannot be written has not happened.
    let twice = ledger.close_execution(closing(id, Status::Success), Some(of("executionFailed")));
    assert!(twice.wait().is_err());
    assert!(listener.try_recv().is_err());
}
