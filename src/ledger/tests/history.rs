use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use rusqlite::Connection;

use super::super::readers::READERS;
use super::*;
use crate::domain::StreamName;

fn list(ledger: &Ledger, filter: Filter) -> Page<ExecutionId> {
    block_on(ledger.list(
        Filter {
            limit: 100,
            ..filter
        },
        |listed| listed.id,
    ))
    .expect("listed")
}

/// What the calls of a test belong to, in turns.
const TRACES: [Option<&str>; 4] = [
    None,
    Some("4bf92f3577b34da6a3ce929d0e0e4736"),
    None,
    Some("turn-7"),
];

fn trace_id(name: &str) -> TraceId {
    name.parse().expect("a name")
}

#[test]
fn filters_find_what_fits_and_nothing_else() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let mut all = Vec::new();
    for n in 0..60_u64 {
        let tool = ["bash", "read_file", "write_file"][n as usize % 3];
        let status = [Status::Success, Status::Error][n as usize % 2];
        let uid = (n % 5) as u32;
        let trace = TRACES[n as usize % 4];
        let mut record = opening(tool, uid, at(n));
        record.trace_id = trace.map(trace_id);
        let id = enter(&ledger, record, status);
        all.push((id, tool, status, uid, at(n), trace));
    }
    let running = opening("bash", 0, at(60));
    all.push((running.id, "bash", Status::Running, 0, at(60), None));
    ledger.open_execution(running, None).wait().expect("opened");
    let filters = [
        Filter::default(),
        Filter {
            tool: Some("bash".to_owned()),
            ..Filter::default()
        },
        Filter {
            status: Some(Status::Error),
            ..Filter::default()
        },
        Filter {
            status: Some(Status::Running),
            ..Filter::default()
        },
        Filter {
            caller_uid: Some(3),
            ..Filter::default()
        },
        Filter {
            tool: Some("bash".to_owned()),
            status: Some(Status::Success),
            caller_uid: Some(0),
            ..Filter::default()
        },
        Filter {
            since: Some(at(10)),
            until: Some(at(20)),
            ..Filter::default()
        },
        Filter {
            since: Some(at(10)),
            tool: Some("read_file".to_owned()),
            ..Filter::default()
        },
        Filter {
            tool: Some("no such".to_owned()),
            ..Filter::default()
        },
        Filter {
            status: Some(Status::Lost),
            text: Some("git".to_owned()),
            ..Filter::default()
        },
        Filter {
            trace_id: TRACES[1].map(trace_id),
            ..Filter::default()
        },
        Filter {
            trace_id: TRACES[3].map(trace_id),
            tool: Some("bash".to_owned()),
            status: Some(Status::Error),
            since: Some(at(10)),
            ..Filter::default()
        },
        Filter {
            trace_id: TRACES[1].map(trace_id),
            caller_uid: Some(3),
            text: Some("git".to_owned()),
            ..Filter::default()
        },
        Filter {
            trace_id: Some(trace_id("no such")),
            ..Filter::default()
        },
    ];
    for filter in filters {
        let expected: Vec<ExecutionId> = all
            .iter()
            .rev()
            .filter(|(_, tool, status, uid, time, trace)| {
                filter.tool.as_deref().is_none_or(|wanted| wanted == *tool)
                    && filter.status.is_none_or(|wanted| wanted == *status)
                    && filter.caller_uid.is_none_or(|wanted| wanted == *uid)
                    && filter
                        .trace_id
                        .as_ref()
                        .is_none_or(|wanted| Some(wanted.as_str()) == *trace)
                    && filter.since.is_none_or(|since| *time >= since)
                    && filter.until.is_none_or(|until| *time < until)
            })
            .map(|(id, ..)| *id)
            .collect();
        assert_eq!(ids(&list(&ledger, filter.clone())), expected, "{filter:?}");
        // And in pages of seven.
        let (mut paged, mut cursor) = (Vec::new(), None);
        loop {
            let page = block_on(ledger.list(
                Filter {
                    cursor,
                    limit: 7,
                    ..filter.clone()
                },
                |listed| listed.id,
            ))
            .expect("listed");
            paged.extend(ids(&page));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(paged, expected, "{filter:?}");
    }
}

#[test]
fn a_cursor_survives_being_written_down() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    for n in 0..3 {
        enter(&ledger, opening("bash", 0, at(n)), Status::Success);
    }
    let page = block_on(ledger.list(
        Filter {
            limit: 2,
            ..Filter::default()
        },
        |listed| listed.id,
    ))
    .expect("listed");
    let cursor = page.next.expect("there is more");
    assert_eq!(cursor.to_string().parse(), Ok(cursor));
    for text in ["", "x", "12", "zzzzzzzzzzzzzzzzz"] {
        assert!(text.parse::<Cursor>().is_err(), "{text}");
    }
}

/// Who is found by these words.
fn found(ledger: &Ledger, text: &str) -> Vec<ExecutionId> {
    let text = Some(text.to_owned());
    let filter = Filter {
        text,
        ..Filter::default()
    };
    ids(&list(ledger, filter))
}

/// Of a call only what was said is looked at, and not the JSON that it is kept as.
#[test]
fn a_word_is_found_wherever_it_stands_and_the_names_around_it_are_not() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let mut record = opening("bash", 0, at(0));
    record.call = json!({
        "input": {"command": "echo one\ntwo\tthree\n\"four\" \u{1}five"},
        "env": {"STAGE": "blue"},
    })
    .into();
    let mut close = closing(record.id, Status::Success);
    close.content.place = Place::Inline("部署完成了, ready".as_bytes().to_vec());
    let id = record.id;
    drop(ledger.open_execution(record, None));
    ledger.close_execution(close, None).wait().expect("closed");
    for text in [
        "one two three four five",
        "stage blue",
        "部署",
        "完成",
        "成",
        "部*",
        "ready",
    ] {
        assert_eq!(found(&ledger, text), [id], "{text}");
    }
    for text in ["ntwo", "tthree", "command", "input", "env", "署部", "部成"] {
        assert_eq!(found(&ledger, text), [], "{text}");
    }
    // It is taken out as it was put in.
    cleared(&ledger, 0);
    assert_eq!(found(&ledger, "部署"), []);
}

#[test]
fn history_is_searched_by_words_of_call_and_answer() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let mut entered = Vec::new();
    for (n, (command, content)) in [
        ("git status", "nothing to commit"),
        ("ls /srv", "Straße été"),
        ("git log", "commit 1"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut record = opening(["bash", "other"][n % 2], 0, at(n as u64));
        record.call = json!({"input": {"command": command}}).into();
        let mut close = closing(record.id, Status::Success);
        close.content.place = Place::Inline(content.as_bytes().to_vec());
        entered.push(record.id);
        drop(ledger.open_execution(record, None));
        ledger.close_execution(close, None).wait().expect("closed");
    }
    let found = |text: &str, tool: Option<&str>| {
        let page = list(
            &ledger,
            Filter {
                text: Some(text.to_owned()),
                tool: tool.map(str::to_owned),
                ..Filter::default()
            },
        );
        let at = |id: &ExecutionId| entered.iter().position(|entered| entered == id);
        ids(&page).iter().filter_map(at).collect::<Vec<_>>()
    };
    assert_eq!(found("git", None), [2, 0]);
    assert_eq!(found("GIT commit", None), [2, 0]);
    assert_eq!(found("git status", None), [0]);
    assert_eq!(found("sta*", None), [0]);
    assert_eq!(found("ete", None), [1]);
    assert_eq!(found("/srv", None), [1]);
    assert!(found("git", Some("other")).is_empty());
    assert_eq!(found("commit", Some("bash")), [2, 0]);
    assert!(found("git OR ls", None).is_empty());
    let nothing = Filter {
        text: Some(" && ".to_owned()),
        ..Filter::default()
    };
    assert!(matches!(
        block_on(ledger.list(nothing, |listed| listed.id)),
        Err(LedgerError::NoWords { .. })
    ));
    // What is forgotten is not found, what is left still is.
    pruned(
        &ledger,
        Limits {
            max_count: Some(1),
            ..Limits::default()
        },
    );
    assert_eq!(found("git", None), [2]);
}

#[test]
fn what_ends_in_another_order_than_it_began_is_found_and_forgotten() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let entered: Vec<_> = (0..300)
        .map(|n| {
            let mut record = opening("bash", 0, at(n));
            record.call = json!({"input": {"command": format!("echo word{n}")}}).into();
            let id = record.id;
            drop(ledger.open_execution(record, None));
            id
        })
        .collect();
    let ends = entered
        .iter()
        .rev()
        .map(|id| ledger.close_execution(closing(*id, Status::Success), None));
    for end in ends.collect::<Vec<_>>() {
        end.wait().expect("closed");
    }
    let found = |n: usize| {
        let text = Some(format!("word{n}"));
        let page = list(
            &ledger,
            Filter {
                text,
                ..Filter::default()
            },
        );
        ids(&page)
    };
    for limits in [None, Some(120)] {
        let left = limits.map_or(0, |count| entered.len() - count as usize);
        pruned(
            &ledger,
            Limits {
                max_count: limits,
                ..Limits::default()
            },
        );
        for (n, id) in entered.iter().enumerate() {
            let expected = if n < left { vec![] } else { vec![*id] };
            assert_eq!(found(n), expected, "{n}");
        }
    }
}

#[test]
fn made_up_names_of_tools_do_not_break_filters() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let mut receipts = Vec::new();
    for n in 0..5000_u64 {
        receipts.push(ledger.open_execution(opening(&format!("tool{n}"), 0, at(n)), None));
    }
    receipts
        .into_iter()
        .for_each(|receipt| receipt.wait().expect("opened"));
    for n in [0, 4095, 4096, 4999] {
        let tool = Some(format!("tool{n}"));
        assert_eq!(
            list(
                &ledger,
                Filter {
                    tool,
                    ..Filter::default()
                }
            )
            .records
            .len(),
            1,
            "{n}"
        );
    }
    assert_eq!(
        list(
            &ledger,
            Filter {
                status: Some(Status::Running),
                ..Filter::default()
            }
        )
        .records
        .len(),
        100
    );
}

#[test]
fn what_the_spool_has_given_up_is_nothing_that_history_holds() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let entered: Vec<_> = (1..=300)
        .map(|n| {
            let record = opening("bash", 0, at(n));
            let mut close = closing(record.id, Status::Success);
            close.stdout.place = Place::Spool { bytes: 1 << 20 };
            let id = record.id;
            drop(ledger.open_execution(record, None));
            drop(ledger.close_execution(close, None));
            id
        })
        .collect();
    let mut given_up: Vec<_> = entered[..200]
        .iter()
        .map(|id| (*id, StreamName::Stdout))
        .collect();
    // Neither of them has anything in the spool.
    given_up.push((entered[250], StreamName::Stderr));
    given_up.push((ExecutionId::new(), StreamName::Stdout));
    block_on(ledger.discount(&given_up)).expect("discounted");
    let most = |mib: u64| Limits {
        max_total_bytes: Some(mib << 20),
        ..Limits::default()
    };
    assert_eq!(pruned(&ledger, most(102)), []);
    // For a MiB and a bit all go that have given up theirs, and two that have not.
    drop(ledger);
    let ledger = scratch.open();
    assert_eq!(pruned(&ledger, most(99)), entered[..=201]);
}

#[test]
fn what_is_too_old_too_many_or_too_much_is_forgotten() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let mut entered = Vec::new();
    let running = opening("bash", 0, at(0));
    let still = running.id;
    drop(ledger.open_execution(running, None));
    for n in 1..=400 {
        let record = opening("bash", 0, at(n));
        let mut close = closing(record.id, Status::Success);
        close.stdout.place = Place::Spool { bytes: 1 << 20 };
        entered.push(record.id);
        drop(ledger.open_execution(record, None));
        drop(ledger.close_execution(close, None));
    }
    let prune = |limits| pruned(&ledger, limits);
    assert_eq!(prune(Limits::default()), []);
    assert_eq!(
        prune(Limits {
            max_count: Some(100),
            ..Limits::default()
        }),
        entered[..300]
    );
    assert_eq!(
        prune(Limits {
            max_count: Some(100),
            ..Limits::default()
        }),
        []
    );
    assert_eq!(
        prune(Limits {
            not_before: Some(at(311)),
            ..Limits::default()
        }),
        entered[300..310]
    );
    let left = Limits {
        max_total_bytes: Some(81 << 20),
        ..Limits::default()
    };
    assert_eq!(prune(left), entered[310..320]);
    // The same after a restart, which closes what still runs.
    drop(ledger);
    let opened = open(&scratch.file());
    assert_eq!(opened.recovered.lost_ids(), [still]);
    let ledger = opened.ledger;
    let left = Limits {
        max_count: Some(10),
        ..Limits::default()
    };
    // What took long and has only just ended has its time.
    assert_eq!(pruned(&ledger, left), entered[320..391]);
    assert!(block_on(ledger.get(still)).expect("read").is_some());
    let head = ledger.head();
    let mut left = vec![still];
    left.extend(&entered[391..]);
    assert_eq!(cleared(&ledger, 7), left);
    assert_eq!(list(&ledger, Filter::default()).records.len(), 0);
    // The trail tells of all of them, and of the clearing.
    assert_eq!(ledger.head().number, head.number + 1);
    assert_eq!(verified(&ledger, vec![head]), Chain::Holds(ledger.head()));
    let last = exported(&ledger, head.number).expect("read").pop();
    let last = last.expect("one").to_json();
    let last: serde_json::Value = serde_json::from_str(&last).expect("JSON");
    assert_eq!(
        (&last["kind"], &last["body"]),
        (
            &json!("history_cleared"),
            &json!({"by_uid": 7, "executions": 10})
        )
    );
}

/// It is the newest, and what was there before is the oldest, whatever the clock said then.
#[test]
fn what_has_come_since_the_clock_was_set_back_is_forgotten_last() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let enter = |created_at| {
        let record = opening("bash", 0, created_at);
        let id = record.id;
        let begun = Events {
            execution_id: Some(id),
            tool: None,
            caller_uid: Some(0),
            happened: [(created_at, json!({"type": "executionStarted"}))]
                .into_iter()
                .collect(),
        };
        drop(ledger.open_execution(record, Some(begun)));
        let close = CloseRecord {
            ended_at: created_at,
            ..closing(id, Status::Success)
        };
        ledger.close_execution(close, None).wait().expect("closed");
        id
    };
    let secs = Duration::from_secs;
    let now = SystemTime::now();
    let before = (0..20).map(|n| enter(now + secs(86_400 + n)));
    let before: Vec<_> = before.collect();
    let since = (0..10).map(|n| enter(now - secs(60 - n)));
    let since: Vec<_> = since.collect();
    let most = |max| Limits {
        max_count: Some(max),
        ..Limits::default()
    };
    assert_eq!(pruned(&ledger, most(20)), before[..10]);
    let events = block_on(ledger.events(0, EventFilter::default(), 100)).expect("read");
    assert_eq!((events.kept_from, events.events.len()), (11, 20));
    assert_eq!(
        pruned(&ledger, most(5)),
        [&before[10..], &since[..5]].concat()
    );
    let ahead = enter(now + secs(86_400));
    let too_old = Limits {
        not_before: Some(now),
        ..Limits::default()
    };
    assert_eq!(pruned(&ledger, too_old), since[5..]);
    assert_eq!(cleared(&ledger, 0), [ahead]);
}

#[test]
fn the_trail_tells_of_a_clearing_with_the_first_that_is_forgotten() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    for n in 0..300 {
        enter(&ledger, opening("bash", 0, at(n)), Status::Success);
    }
    let told = ledger.head().number + 1;
    let mut steps = Vec::new();
    let forgotten = |ids: Vec<ExecutionId>| steps.push((ids.len(), ledger.head().number));
    block_on(ledger.clear(7, forgotten)).expect("cleared");
    steps.retain(|(forgotten, _)| *forgotten > 0);
    assert_eq!(steps, [(128, told), (128, told), (44, told)]);
    let links = exported(&ledger, told - 1).expect("read");
    let bodies: Vec<_> = links.into_iter().map(|link| link.body).collect();
    assert_eq!(
        bodies,
        [json!({"by_uid": 7, "executions": 300}).to_string()]
    );
}

/// However long its records are, and however many.
#[test]
fn the_trail_is_read_piece_by_piece_and_whole() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let (long, many) = ("x".repeat(200 << 10), 600);
    let enter = |number| {
        let text = if [300, 310].contains(&number) {
            &long
        } else {
            ""
        };
        ledger.audit(AuditEntry {
            kind: "test".to_owned(),
            execution_id: None,
            time: at(number),
            body: json!({"text": text}),
        })
    };
    (1..many).for_each(|number| drop(enter(number)));
    enter(many).wait().expect("entered");
    let numbers = exported(&ledger, 2).expect("read").into_iter();
    assert!(numbers.map(|link| link.number).eq(3..=many));
    let pieces = |from| {
        let links = ledger
            .inner
            .readers
            .ask(|connection| read::links(connection, from));
        links.expect("read").len()
    };
    // So many, or two of the long ones.
    let lengths = [1, 257, 311, 567, 601].map(pieces);
    assert_eq!(lengths, [256, 54, 256, 34, 0]);
    assert_eq!(verified(&ledger, Vec::new()), Chain::Holds(ledger.head()));
}

#[test]
fn who_waits_for_a_turn_to_read_takes_no_thread_from_others() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().max_blocking_threads(READERS + 1);
    let runtime = runtime.build().expect("a runtime");
    let (gate, reading) = (Arc::new(RwLock::new(())), Arc::new(AtomicUsize::new(0)));
    let shut = gate.write();
    let answers = runtime.block_on(async {
        let ask = || {
            let (ledger, gate, reading) = (ledger.clone(), gate.clone(), reading.clone());
            tokio::spawn(async move {
                let question = move |_: &Connection| {
                    reading.fetch_add(1, Ordering::Relaxed);
                    drop(gate.read());
                    Ok(())
                };
                ledger.ask(question).await
            })
        };
        let answers: Vec<_> = (0..4 * READERS).map(|_| ask()).collect();
        let all_read = async {
            while reading.load(Ordering::Relaxed) < READERS {
                tokio::task::yield_now().await;
            }
        };
        let all_read = tokio::time::timeout(Duration::from_secs(20), all_read).await;
        all_read.expect("as many questions are read as there are readers");
        let other = tokio::task::spawn_blocking(|| ());
        let other = tokio::time::timeout(Duration::from_secs(20), other).await;
        drop(shut);
        other.expect("there is a thread").expect("no panic");
        answers
    });
    for answer in answers {
        let answer = runtime.block_on(answer).expect("no panic");
        answer.expect("answered");
    }
}
