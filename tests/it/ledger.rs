//! The ledger's file after a daemon that was killed in the middle of writing.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::Connection;
use serde_json::json;
use shelly_executor::config::LedgerConfig;
use shelly_executor::domain::{Call, Caller, ExecutionId, Status};
use shelly_executor::ledger::{
    Chain, CloseRecord, Digest, Durability, Ended, Events, Filter, Head, Ledger, OpenRecord,
    Output, Place,
};
use shelly_executor::pipeline::{Begun, Terms};
use shelly_executor::{Executor, ExecutorConfig};

use crate::support::{scratch, wait_for, wait_on};

/// Where the child finds the file; a test that is run with it is the child.
const FILE: &str = "SHELLY_TEST_LEDGER";

/// How often the child is killed, and how many write at once.
const ROUNDS: u32 = 25;
const CLIENTS: usize = 4;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An executor with nothing but a ledger.
fn executor(file: &Path) -> Executor {
    let config = ExecutorConfig {
        ledger: Some(LedgerConfig {
            file: file.to_owned(),
            durability: Durability::Process,
        }),
        ..ExecutorConfig::default()
    };
    Executor::start(config).expect("started").executor
}

/// The thread that writes the ledger may be the last to hold it.
#[tokio::test(flavor = "multi_thread")]
async fn an_executor_may_go_while_an_end_is_on_its_way_to_the_file() {
    let dir = scratch();
    let file = dir.join("ledger.db");
    for _ in 0..20 {
        let executor = executor(&file);
        let call = Call::new("bash", json!({"command": "true"}));
        let begun = executor.begin(call, Caller::this_process(), Terms::default());
        let Begun::New(execution) = begun.await else {
            panic!("not begun");
        };
        assert_eq!(execution.wait().await.status, Status::Success);
        let id = execution.id;
        drop((execution, executor));
        let opened = wait_for("the file is let go of", || {
            Ledger::open(&file, Durability::Process).ok()
        });
        let record = opened.ledger.get(id).await.expect("read");
        assert_eq!(record.expect("kept").status(), Status::Success);
    }
}

/// Somebody has locked the file: it has what was so before.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_is_told_at_once_and_not_listed_as_running() {
    let dir = scratch();
    let (file, go) = (dir.join("ledger.db"), dir.join("go"));
    let executor = executor(&file);
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let command = format!("read x < {}", go.display());
    let call = Call::new("bash", json!({"command": command}));
    let begun = executor.begin(call, Caller::this_process(), Terms::default());
    let Begun::New(execution) = begun.await else {
        panic!("not begun");
    };
    let listed = async |status| {
        let filter = Filter {
            status: Some(status),
            limit: 10,
            ..Filter::default()
        };
        let page = executor.history(filter).await.expect("read");
        let ids = page.executions.iter().map(|brief| brief.id);
        ids.collect::<Vec<_>>()
    };
    // Nobody waits for its beginning to be entered.
    execution.started().await;
    assert_eq!(listed(Status::Running).await, [execution.id]);

    let somebody = Connection::open(&file).expect("a file");
    somebody.execute_batch("BEGIN IMMEDIATE").expect("free");
    let locked = Instant::now();
    std::fs::write(&go, "on\n").expect("somebody reads");
    assert_eq!(execution.wait().await.status, Status::Success);
    // SQLite would wait for the lock that long.
    assert!(
        locked.elapsed() < Duration::from_secs(4),
        "{:?}",
        locked.elapsed()
    );
    assert_eq!(listed(Status::Running).await, []);
    drop(somebody);
    wait_on("the file is written", async || {
        let problems = executor.degradations().await;
        let of_ledger = problems
            .iter()
            .any(|problem| problem.code == "ledger_failed");
        (!of_ledger).then_some(())
    })
    .await;
    assert_eq!(listed(Status::Success).await, [execution.id]);
}

#[test]
fn what_was_acknowledged_survives_a_kill_at_any_moment() {
    let dir = std::env::temp_dir().join(format!("shelly-ledger-killed-{}", std::process::id()));
    let scratch = Scratch(dir.clone());
    std::fs::create_dir_all(&dir).expect("a directory");
    let file = scratch.0.join("ledger.db");
    let mut acknowledged = HashMap::new();
    let mut lost = 0;
    for round in 0..ROUNDS {
        let head = killed(&file, round, &mut acknowledged);
        lost += sound(&file, head, &acknowledged);
    }
    let left_open = acknowledged
        .values()
        .filter(|status| *status == "lost")
        .count();
    assert!(
        lost > left_open,
        "nothing was ever under way: this tests nothing"
    );
    assert!(acknowledged.len() > 1000, "{}", acknowledged.len());
}

/// Lets a child write and kills it; adds what it had acknowledged, with what it said of it, and
/// gives the last head of the trail that it told.
fn killed(file: &Path, round: u32, acknowledged: &mut HashMap<ExecutionId, String>) -> Head {
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child
        .args([
            "ledger::child_that_writes_until_it_is_killed",
            "--exact",
            "--nocapture",
        ])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = child.spawn().expect("started");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    // A moment that differs each time, in acknowledgements and a little beyond.
    let (moment, killing) = mpsc::channel();
    let pid = child.id();
    let killer = std::thread::spawn(move || {
        let () = killing.recv().expect("the moment comes");
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_micros(u64::from(round) * 37 % 500) {
            std::hint::spin_loop();
        }
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid as i32),
            nix::sys::signal::Signal::SIGKILL,
        )
    });
    let mut seen = 0;
    let mut head = None;
    for line in lines.map_while(Result::ok) {
        let Some((id, status, number, hash)) = told(&line) else {
            continue;
        };
        acknowledged.insert(id, status);
        head = head.max(Some((number, hash)));
        seen += 1;
        if seen == 1 + round * 7 % 60 + round * 3 {
            moment.send(()).expect("somebody kills");
        }
    }
    killer.join().expect("no panic").expect("killed");
    child.wait().expect("reaped");
    let (number, hash) = head.expect("something was acknowledged");
    Head {
        number,
        hash: Digest::from_hex(&hash).expect("a digest"),
    }
}

/// `ack ID STATUS NUMBER HASH`, if that is what a line is, as a whole.
fn told(line: &str) -> Option<(ExecutionId, String, u64, String)> {
    let mut words = line.split("ack ").nth(1)?.split(' ');
    let id = words.next()?.parse().ok()?;
    let status = words.next()?.to_owned();
    let number = words.next()?.parse().ok()?;
    let hash = words.next().filter(|hash| hash.len() == 64)?;
    Some((id, status, number, hash.to_owned()))
}

/// Opens the file as the next daemon does; how many were lost.
fn sound(file: &Path, head: Head, acknowledged: &HashMap<ExecutionId, String>) -> usize {
    let opened = Ledger::open(file, Durability::Process).expect("it opens");
    let (ledger, lost) = (opened.ledger, opened.recovered.lost_ids());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let verified = runtime
        .block_on(ledger.verify_audit(vec![head], |_| [None, None]))
        .expect("read");
    assert!(matches!(verified.chain, Chain::Holds(_)), "{verified:?}");
    assert_eq!(verified.first, None);
    let mut all = HashMap::new();
    let mut cursor = None;
    loop {
        let filter = Filter {
            cursor,
            limit: 1000,
            ..Filter::default()
        };
        let page = ledger.list(filter, |listed| (listed.id, listed.status));
        let page = runtime.block_on(page).expect("listed");
        all.extend(page.records);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    for (id, status) in acknowledged {
        assert_eq!(
            all.get(id).map(|status| status.as_str()),
            Some(status.as_str()),
            "{id}"
        );
    }
    assert!(all.values().all(|status| status.is_final()));
    assert!(lost.iter().all(|id| all.get(id) == Some(&Status::Lost)));
    ledger.close_file();
    let connection = Connection::open(file).expect("a file");
    let check: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("an answer");
    assert_eq!(check, "ok");
    lost.len()
}

/// Nothing by itself: the process that the test above kills.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(file) = std::env::var_os(FILE) else {
        return;
    };
    let opened = Ledger::open(Path::new(&file), Durability::Process).expect("it opens");
    let ledger = &opened.ledger;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                for n in 0_u64.. {
                    write_one(ledger, n * CLIENTS as u64 + client as u64);
                }
            });
        }
    });
}

fn write_one(ledger: &Ledger, n: u64) {
    let open = OpenRecord {
        id: ExecutionId::new(),
        tool: "bash".to_owned(),
        caller_uid: 0,
        caller_gid: 0,
        call: json!({"input": {"command": "x".repeat(n as usize % 7000)}}).into(),
        working_dir: None,
        asynchronous: false,
        status: Status::Running,
        created_at: SystemTime::now(),
        replay_of: None,
        lineage: None,
        trace_id: None,
        tool_use_id: None,
        idempotency: None,
        ruling: None,
    };
    let status = if n.is_multiple_of(3) {
        Status::Error
    } else {
        Status::Success
    };
    let close = CloseRecord {
        id: open.id,
        status,
        summary: String::new(),
        ending: json!({"exit_code": n % 3}).into(),
        problem: None,
        usage: None,
        stages: json!([]).into(),
        started_at: None,
        ended_at: SystemTime::now(),
        approved: None,
        content: Output {
            bytes: 1,
            digest: None,
            place: Place::Inline(vec![b'y'; n as usize % 3000]),
        },
        stdout: Output::default(),
        stderr: Output::default(),
    };
    let id = open.id;
    // The way of the daemon, through the log, and that of what takes longer.
    let is_logged = n % 3 == 1;
    if is_logged {
        assert!(ledger.begin_execution(open, None).is_none());
    } else {
        let opening = ledger.open_execution(open, None);
        // Most are opened and closed in one transaction; these are seen in between.
        if n.is_multiple_of(5) || n % 50 == 7 {
            opening.wait().expect("opened");
        }
    }
    if n % 50 == 7 {
        // One that never ends is lost.
        return acknowledged(ledger, id, Status::Lost);
    }
    let ended = Events {
        execution_id: Some(close.id),
        tool: None,
        caller_uid: None,
        happened: [(SystemTime::now(), json!({"type": "executionCompleted"}))]
            .into_iter()
            .collect(),
    };
    let told = if is_logged {
        ledger.end_execution(close, None, Some(ended), drop)
    } else {
        Ended::Queued(ledger.close_execution(close, Some(ended)), drop)
    };
    if let Ended::Queued(receipt, _) = told {
        receipt.wait().expect("closed");
    }
    acknowledged(ledger, id, status);
}

/// Says what the file must have from now on.
fn acknowledged(ledger: &Ledger, id: ExecutionId, status: Status) {
    let head = ledger.head();
    let line = format!(
        "ack {id} {} {} {}\n",
        status.as_str(),
        head.number,
        head.hash
    );
    let _ = std::io::stdout().write_all(line.as_bytes());
}
