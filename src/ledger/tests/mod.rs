//! The ledger through its public face, on files of its own.

mod approvals;
mod company;
mod file;
mod history;
mod log;
mod proof;
mod records;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::*;
use crate::domain::{ExecutionId, Status, TraceId};

/// A directory that goes when the test does.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "shelly-ledger-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("ledger.db")
    }

    fn open(&self) -> Ledger {
        open(&self.file()).ledger
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(file: &Path) -> Opened {
    Ledger::open(file, Durability::Process).expect("the ledger opens")
}

/// A whole number of microseconds, as the file keeps it.
pub(super) fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

pub(super) fn opening(tool: &str, uid: u32, created_at: SystemTime) -> OpenRecord {
    OpenRecord {
        id: ExecutionId::new(),
        tool: tool.to_owned(),
        caller_uid: uid,
        caller_gid: uid,
        call: json!({"summary": "git status", "input": {"command": "git status"}}).into(),
        working_dir: None,
        asynchronous: false,
        status: Status::Running,
        created_at,
        replay_of: None,
        lineage: None,
        trace_id: None,
        tool_use_id: None,
        idempotency: None,
        ruling: None,
    }
}

fn closing(id: ExecutionId, status: Status) -> CloseRecord {
    CloseRecord {
        id,
        status,
        summary: "git status".to_owned(),
        ending: json!({"exit_code": 0}).into(),
        problem: None,
        usage: None,
        stages: json!([]).into(),
        started_at: None,
        ended_at: at(1_000_000),
        approved: None,
        content: Output::default(),
        stdout: Output::default(),
        stderr: Output::default(),
    }
}

/// Opens and closes one.
fn enter(ledger: &Ledger, record: OpenRecord, status: Status) -> ExecutionId {
    let id = record.id;
    drop(ledger.open_execution(record, None));
    ledger
        .close_execution(closing(id, status), None)
        .wait()
        .expect("closed");
    id
}

/// What the trail is, against which everything that is kept holds.
fn verified(ledger: &Ledger, known: Vec<Head>) -> Chain {
    let found = block_on(ledger.verify_audit(known, |_| [None, None])).expect("read");
    assert_eq!((found.altered, found.first), (0, None));
    found.chain
}

/// The records of the trail after a number.
fn exported(ledger: &Ledger, after: u64) -> Result<Vec<Link>, LedgerError> {
    let mut all: Vec<Link> = Vec::new();
    loop {
        let last = all.last().map_or(after, |link| link.number);
        match block_on(ledger.audit_after(last, |links| links))? {
            links if links.is_empty() => return Ok(all),
            links => all.extend(links),
        }
    }
}

/// What is forgotten until these limits hold.
fn pruned(ledger: &Ledger, limits: Limits) -> Vec<ExecutionId> {
    let mut ids = Vec::new();
    block_on(ledger.prune(limits, |step| ids.extend(step))).expect("pruned");
    ids
}

/// What is forgotten where all of it is.
fn cleared(ledger: &Ledger, by_uid: u32) -> Vec<ExecutionId> {
    let mut ids = Vec::new();
    block_on(ledger.clear(by_uid, |step| ids.extend(step))).expect("cleared");
    ids
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
        .block_on(future)
}

/// Waits for what must come about.
fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ids(page: &Page<ExecutionId>) -> Vec<ExecutionId> {
    page.records.clone()
}
