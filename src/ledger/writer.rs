//! The one thread that writes. Whatever is queued goes into one transaction, then all who wait
//! are told; what can wait (text index, checkpoint) happens behind that.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{broadcast, oneshot};

use super::record::{Events, Head, NumberedEvents};
use super::store::{Fault, Store};
use super::{LedgerError, file};
use crate::domain::Degradation;

/// How long nothing must come before the writer does what can wait. Long enough that a client who
/// calls again at once does not find it busy.
const IDLE: Duration = Duration::from_millis(50);

/// How often a ledger that cannot be written tries again by itself.
const PROBE: Duration = Duration::from_millis(500);

/// How many ended executions may wait for the text index while there is no idle moment. It takes
/// a third of what an execution costs here, which a burst can do without; each waits with 24 bytes.
const INDEX_BACKLOG: usize = 16_384;

/// How many go in at once: the more, the cheaper each, and the longer a commit may wait behind
/// them (some 30 µs each).
pub(super) const INDEX_BATCH: usize = 256;

/// After how many writes the log is moved into the file without an idle moment, and with one. A
/// checkpoint waits for the disk twice, so it should be rare; between two the log grows by some
/// 10 KiB for each.
const CHECKPOINT_BUSY: usize = 4096;
const CHECKPOINT_IDLE: usize = 256;

/// The log is moved whatever it takes once it is that long, in bytes.
const LOG_BYTES: u64 = 64 << 20;

/// How many batches of events a listener may be behind before it has to read them from the file:
/// an execution has two or three.
const TOLD: usize = 4096;

/// How many writes that failed for want of disk are kept for when there is some. What they hold
/// is a call each, 100 KiB at the most in practice.
const RETRIES: usize = 1024;

/// A write that was asked for. Resolves once it is on file (or with the reason why not); dropped,
/// the write happens all the same.
#[derive(Debug)]
#[must_use = "the write may fail; drop it where that does not matter"]
pub struct Receipt<T>(oneshot::Receiver<Result<T, LedgerError>>);

impl<T> Future for Receipt<T> {
    type Output = Result<T, LedgerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|received| received.unwrap_or(Err(LedgerError::Closed)))
    }
}

impl<T> Receipt<T> {
    /// Waits on a thread that may block.
    ///
    /// # Errors
    /// As the write's.
    pub fn wait(self) -> Result<T, LedgerError> {
        self.0.blocking_recv().unwrap_or(Err(LedgerError::Closed))
    }
}

/// What becomes of a write that fails for the disk's sake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failing {
    /// It is tried again when the disk is back: history should not lack it.
    Kept,
    /// It is dropped: whoever asked decides.
    Dropped,
}

/// One write, its type forgotten.
trait Work: Send {
    /// Does it within a transaction; done again when that failed.
    fn apply(&mut self, store: &mut Store) -> Result<(), Fault>;
    /// Tells whoever waits.
    fn acknowledge(&mut self, committed: Result<(), LedgerError>);
    fn failing(&self) -> Failing;
}

struct Task<T, F> {
    write: F,
    events: Option<NumberedEvents>,
    done: Option<T>,
    reply: Option<oneshot::Sender<Result<T, LedgerError>>>,
    failing: Failing,
    told: broadcast::Sender<Arc<NumberedEvents>>,
}

impl<T: Send, F: FnMut(&mut Store) -> Result<T, Fault> + Send> Work for Task<T, F> {
    fn apply(&mut self, store: &mut Store) -> Result<(), Fault> {
        self.done = Some((self.write)(store)?);
        match &self.events {
            Some(events) => store.events(events),
            None => Ok(()),
        }
    }

    fn acknowledge(&mut self, committed: Result<(), LedgerError>) {
        // What is not on file has not happened yet, as far as listeners are concerned.
        if committed.is_ok()
            && let Some(events) = self.events.take()
        {
            // Nobody may be listening.
            let _ = self.told.send(Arc::new(events));
        }
        let Some(reply) = self.reply.take() else {
            return;
        };
        let result = committed.and_then(|()| self.done.take().ok_or(LedgerError::Closed));
        // Nobody waits for most of them.
        let _ = reply.send(result);
    }

    fn failing(&self) -> Failing {
        self.failing
    }
}

/// What the writer shares with those who ask it.
pub(super) struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    state: Mutex<State>,
    told: broadcast::Sender<Arc<NumberedEvents>>,
    pub file: PathBuf,
}

struct Queue {
    tasks: Vec<Box<dyn Work>>,
    next_event: u64,
    is_closing: bool,
}

struct State {
    head: Head,
    problem: Option<Degradation>,
}

impl Shared {
    pub(super) fn new(file: PathBuf, head: Head, next_event: u64) -> Self {
        Self {
            queue: Mutex::new(Queue {
                tasks: Vec::new(),
                next_event,
                is_closing: false,
            }),
            wake: Condvar::new(),
            state: Mutex::new(State {
                head,
                problem: None,
            }),
            told: broadcast::Sender::new(TOLD),
            file,
        }
    }

    /// Queues the write that `make` makes, given the next number for events, and `events` with it.
    pub(super) fn queue<T: Send + 'static, F>(
        &self,
        failing: Failing,
        events: Option<Events>,
        make: impl FnOnce(u64) -> F,
    ) -> Receipt<T>
    where
        F: FnMut(&mut Store) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, receipt) = oneshot::channel();
        let mut queue = lock(&self.queue);
        let number = queue.next_event;
        if !queue.is_closing {
            let events = events.map(|events| NumberedEvents {
                first: number,
                events,
            });
            queue.next_event = events.as_ref().map_or(number, |events| events.last() + 1);
            let was_empty = queue.tasks.is_empty();
            queue.tasks.push(Box::new(Task {
                write: make(number),
                events,
                done: None,
                reply: Some(reply),
                failing,
                told: self.told.clone(),
            }));
            drop(queue);
            if was_empty {
                self.wake.notify_one();
            }
        }
        Receipt(receipt)
    }

    /// Follows what has happened, from now on.
    pub(super) fn follow(&self) -> broadcast::Receiver<Arc<NumberedEvents>> {
        self.told.subscribe()
    }

    /// The number of the last event that was queued.
    pub(super) fn last_event(&self) -> u64 {
        lock(&self.queue).next_event.saturating_sub(1)
    }

    pub(super) fn close(&self) {
        lock(&self.queue).is_closing = true;
        self.wake.notify_one();
    }

    pub(super) fn head(&self) -> Head {
        lock(&self.state).head
    }

    pub(super) fn problem(&self) -> Option<Degradation> {
        lock(&self.state).problem.clone()
    }

    pub(super) fn set_problem(&self, problem: Option<&LedgerError>) {
        lock(&self.state).problem = problem.map(|error| Degradation {
            code: match error {
                LedgerError::Full { .. } => "ledger_full",
                LedgerError::Damaged { .. } => "ledger_damaged",
                LedgerError::Unwritable { .. }
                | LedgerError::Open { .. }
                | LedgerError::InUse { .. }
                | LedgerError::TooNew { .. }
                | LedgerError::Duplicate { .. }
                | LedgerError::NotOpen { .. }
                | LedgerError::NoWords { .. }
                | LedgerError::Closed
                | LedgerError::Internal { .. } => "ledger_failed",
            },
            detail: error.to_string(),
            source: self.file.display().to_string(),
        });
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the writer is to do next.
enum Next {
    Write(Vec<Box<dyn Work>>),
    Idle,
    Probe,
    Close,
}

pub(super) struct Writer {
    pub store: Store,
    pub shared: Arc<Shared>,
    /// What failed for the disk's sake.
    retries: Vec<Box<dyn Work>>,
    is_failing: bool,
    since_checkpoint: usize,
}

impl Writer {
    pub(super) fn new(store: Store, shared: Arc<Shared>) -> Self {
        Self {
            store,
            shared,
            retries: Vec::new(),
            is_failing: false,
            since_checkpoint: 0,
        }
    }

    /// Writes until the ledger is closed and everything is written.
    pub(super) fn run(mut self) {
        loop {
            match self.next() {
                Next::Write(batch) => {
                    self.write(batch);
                    if self.store.pending.len() >= INDEX_BACKLOG {
                        self.index();
                    }
                    if self.since_checkpoint >= CHECKPOINT_BUSY || self.log_is_long() {
                        self.checkpoint();
                    }
                }
                Next::Idle if self.store.pending.is_empty() => self.checkpoint(),
                Next::Idle => self.index(),
                Next::Probe => self.probe(),
                Next::Close => break,
            }
        }
        while !self.is_failing && !self.store.pending.is_empty() {
            self.index();
        }
    }

    fn next(&self) -> Next {
        let mut queue = lock(&self.shared.queue);
        loop {
            if !queue.tasks.is_empty() {
                return Next::Write(std::mem::take(&mut queue.tasks));
            }
            if queue.is_closing {
                return Next::Close;
            }
            let has_idle_work =
                !self.store.pending.is_empty() || self.since_checkpoint >= CHECKPOINT_IDLE;
            let (patience, then) = match (self.is_failing, has_idle_work) {
                (true, _) => (PROBE, Next::Probe),
                (false, true) => (IDLE, Next::Idle),
                (false, false) => {
                    queue = self
                        .shared
                        .wake
                        .wait(queue)
                        .unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
            };
            let (woken, timeout) = self
                .shared
                .wake
                .wait_timeout(queue, patience)
                .unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            if timeout.timed_out() && queue.tasks.is_empty() && !queue.is_closing {
                return then;
            }
        }
    }

    /// Writes what failed before, then `batch`, and tells everybody.
    fn write(&mut self, batch: Vec<Box<dyn Work>>) {
        let mut tasks = std::mem::take(&mut self.retries);
        tasks.extend(batch);
        self.since_checkpoint += tasks.len();
        match self.transact(&mut tasks) {
            Ok(()) => tasks.iter_mut().for_each(|task| task.acknowledge(Ok(()))),
            Err(error) if error.is_of_the_disk() => self.fail(tasks, &error),
            // One of them cannot be done: each by itself, to find out which.
            Err(_) => {
                for mut task in tasks {
                    match self.transact(std::slice::from_mut(&mut task)) {
                        Ok(()) => task.acknowledge(Ok(())),
                        Err(error) if error.is_of_the_disk() => self.fail(vec![task], &error),
                        Err(error) => task.acknowledge(Err(error)),
                    }
                }
            }
        }
    }

    /// Does all of it or nothing.
    fn transact(&mut self, tasks: &mut [Box<dyn Work>]) -> Result<(), LedgerError> {
        let done =
            self.in_transaction(|store| tasks.iter_mut().try_for_each(|task| task.apply(store)));
        if done.is_ok() {
            lock(&self.shared.state).head = self.store.head;
            if self.is_failing {
                self.is_failing = false;
                self.shared.set_problem(None);
            }
        }
        done
    }

    fn in_transaction(
        &mut self,
        work: impl FnOnce(&mut Store) -> Result<(), Fault>,
    ) -> Result<(), LedgerError> {
        let done = execute(&self.store.connection, "BEGIN IMMEDIATE")
            .and_then(|()| work(&mut self.store))
            .and_then(|()| execute(&self.store.connection, "COMMIT"));
        done.map_err(|fault| {
            self.roll_back();
            match fault {
                Fault::Sqlite(error) => LedgerError::from_sqlite(error, &self.shared.file),
                Fault::Refused(error) => error,
            }
        })
    }

    /// Forgets the transaction, in the file and in memory.
    fn roll_back(&mut self) {
        if !self.store.connection.is_autocommit() {
            let _ = self.store.connection.execute_batch("ROLLBACK");
        }
        if let Err(error) = self.store.reload() {
            let error = LedgerError::from_sqlite(error, &self.shared.file);
            self.is_failing = true;
            self.shared.set_problem(Some(&error));
        }
    }

    /// Tells everybody that the disk does not do it, and keeps what history should not lack.
    fn fail(&mut self, tasks: Vec<Box<dyn Work>>, error: &LedgerError) {
        self.is_failing = true;
        self.shared.set_problem(Some(error));
        for mut task in tasks {
            task.acknowledge(Err(error.clone()));
            if task.failing() == Failing::Kept && self.retries.len() < RETRIES {
                self.retries.push(task);
            }
        }
    }

    /// Tries whether the disk is back, with what waits for it or a write of its own.
    fn probe(&mut self) {
        if !self.retries.is_empty() {
            self.write(Vec::new());
            return;
        }
        let done = self.in_transaction(|store| {
            let probes = store.meta("probes")?;
            Ok(store.set_meta("probes", probes + 1)?)
        });
        self.is_failing = done.is_err();
        self.shared.set_problem(done.as_ref().err());
    }

    fn index(&mut self) {
        let done = self.in_transaction(|store| store.index(INDEX_BATCH).map(drop));
        self.since_checkpoint += INDEX_BATCH / 8;
        if let Err(error) = done {
            self.is_failing = true;
            self.shared.set_problem(Some(&error));
        }
    }

    /// Moves the log into the file, without waiting for readers. Here and nowhere else: SQLite
    /// before 3.51.3 can damage a file that one connection writes while another checkpoints.
    fn checkpoint(&mut self) {
        self.since_checkpoint = 0;
        let mode = if self.log_is_long() {
            "RESTART"
        } else {
            "PASSIVE"
        };
        let pragma = format!("PRAGMA wal_checkpoint({mode})");
        // What fails here fails the next commit, too, or the next checkpoint does it.
        let _ = self.store.connection.query_row(&pragma, [], |_| Ok(()));
    }

    fn log_is_long(&self) -> bool {
        // A look at the file for every commit would cost as much as writing a page.
        self.since_checkpoint.is_multiple_of(64)
            && std::fs::metadata(file::beside(&self.shared.file, "-wal"))
                .is_ok_and(|log| log.len() > LOG_BYTES)
    }
}

fn execute(connection: &Connection, sql: &str) -> Result<(), Fault> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}
