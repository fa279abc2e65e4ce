//! The one thread that writes. Whatever is queued goes into one transaction, then all who wait
//! are told; what can wait (text index, checkpoint) happens behind that.

use std::iter;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rusqlite::Connection;

use super::queue::{FEW, Next, Rest, Shared};
use super::store::{Fault, Store};
use super::work::{Failing, Work};
use super::{LedgerError, file, reserve};

/// How many ended executions may wait for the text index while there is no idle moment. It takes
/// a tenth of what an execution costs here, which a burst can do without; each waits with 24 bytes.
const INDEX_BACKLOG: usize = 16_384;

/// How many go in at once: the more, the cheaper each, and the longer a commit may wait behind
/// them (some 5 µs each, 2 ms at the most: all the words of 8 KiB are new).
pub(super) const INDEX_BATCH: usize = 256;

/// After how many writes the log is moved into the file without an idle moment, and with one. A
/// checkpoint waits for the disk twice, so it should be rare; between two the log grows by some
/// 10 KiB for each.
const CHECKPOINT_BUSY: usize = 4096;
const CHECKPOINT_IDLE: usize = 256;

/// The log is moved whatever it takes once it is that long, in bytes.
const LOG_BYTES: u64 = 64 << 20;

/// How many writes that failed for want of disk are kept for when there is some.
const RETRIES: usize = 16_384;

/// How much they may hold, in bytes, if there is more than one: a call may be 16 MiB.
const RETRIED_BYTES: usize = 64 << 20;

/// What is no longer than that counts as one of them only, in bytes.
const LIGHT: usize = 4096;

/// How many writes there are between two looks at how long the log is, which cost as much as
/// writing a page.
const LOOK: usize = 64;

pub(super) struct Writer {
    store: Store,
    shared: Arc<Shared>,
    /// What failed for the disk's sake.
    retries: Vec<Box<dyn Work>>,
    is_failing: bool,
    /// Whether what the store remembers is of a transaction that came to nothing.
    is_stale: bool,
    since_checkpoint: usize,
    is_log_long: bool,
}

impl Writer {
    pub(super) fn new(store: Store, shared: Arc<Shared>) -> Self {
        Self {
            store,
            shared,
            retries: Vec::new(),
            is_failing: false,
            is_stale: false,
            since_checkpoint: 0,
            is_log_long: false,
        }
    }

    /// Writes until the ledger is closed and everything is written.
    pub(super) fn run(mut self) {
        loop {
            match self.shared.next(self.rest()) {
                Next::Write(tasks) => self.write(tasks),
                Next::Chore => self.do_chore(),
                Next::Probe => self.probe(),
                Next::Close => break,
            }
        }
        self.write_the_rest();
        while !self.is_failing && !self.store.pending.is_empty() {
            self.index();
        }
    }

    /// Writes what waits for the disk, at the cost of the reserve: nobody is there to try again. What has no room with
    /// its texts has it without, perhaps.
    fn write_the_rest(&mut self) {
        if self.retries.is_empty() {
            return;
        }
        reserve::give_up(&self.shared.file);
        self.write(Vec::new());
        if !self.retries.is_empty() {
            self.retries.iter_mut().for_each(|task| task.lighten());
            self.write(Vec::new());
        }
        if !self.retries.is_empty() {
            tracing::error!(
                count = self.retries.len(),
                "what the disk had no room for is not in the ledger: executions whose end is not in its log either are taken for lost at the next start"
            );
        }
    }

    /// What there is to do when nothing is queued.
    fn rest(&self) -> Rest {
        if self.is_failing {
            Rest::Failing
        } else if self.store.pending.len() >= INDEX_BACKLOG
            || self.since_checkpoint >= CHECKPOINT_BUSY
            || self.is_log_long
        {
            Rest::Overdue
        } else if !self.store.pending.is_empty() || self.since_checkpoint >= CHECKPOINT_IDLE {
            Rest::Chores
        } else {
            Rest::Nothing
        }
    }

    fn do_chore(&mut self) {
        let is_overdue = self.since_checkpoint >= CHECKPOINT_BUSY || self.is_log_long;
        if is_overdue || self.store.pending.is_empty() {
            self.checkpoint();
        } else {
            self.index();
        }
    }

    /// Writes what failed before, then `batch`, and tells everybody.
    pub(super) fn write(&mut self, batch: Vec<Box<dyn Work>>) {
        let mut tasks = std::mem::take(&mut self.retries);
        tasks.extend(batch);
        let looked = self.since_checkpoint / LOOK;
        self.since_checkpoint += tasks.len();
        if self.since_checkpoint / LOOK != looked {
            self.is_log_long = self.log_bytes() > LOG_BYTES;
        }
        if let Err(fault) = self.recall() {
            // Whatever it is, none of them can help it.
            let error = self.told(fault);
            return self.fail(tasks, &error);
        }
        match self.transact(&mut tasks) {
            Ok(()) => {
                let pace = Pace::of(&tasks);
                for task in &mut tasks {
                    task.acknowledge(Ok(()));
                    pace.pause(&self.shared);
                }
                self.shared.spend(tasks);
            }
            Err(error) if error.is_of_the_disk() || self.is_stale => self.fail(tasks, &error),
            // One of them cannot be done: each by itself, to find out which.
            Err(_) => self.write_each(tasks),
        }
    }

    fn write_each(&mut self, tasks: Vec<Box<dyn Work>>) {
        let mut done = Vec::new();
        let mut tasks = tasks.into_iter();
        while let Some(mut task) = tasks.next() {
            match self.transact(std::slice::from_mut(&mut task)) {
                Ok(()) => task.acknowledge(Ok(())),
                Err(error) if error.is_of_the_disk() || self.is_stale => {
                    // What follows may build on it, as an end does on its beginning.
                    self.fail(iter::once(task).chain(tasks).collect(), &error);
                    break;
                }
                Err(error) => {
                    if task.failing() != Failing::Dropped {
                        tracing::error!(%error, "the ledger lacks what could not be entered");
                    }
                    task.acknowledge(Err(error));
                }
            }
            done.push(task);
        }
        self.shared.spend(done);
    }

    /// Does all of it or nothing.
    fn transact(&mut self, tasks: &mut [Box<dyn Work>]) -> Result<(), LedgerError> {
        let begun = Instant::now();
        let (pace, shared) = (Pace::of(tasks), Arc::clone(&self.shared));
        let done = self.in_transaction(|store| {
            tasks.iter_mut().try_for_each(|task| {
                task.apply(store)?;
                pace.pause(&shared);
                Ok(())
            })
        });
        if done.is_ok() {
            if let Some(metrics) = self.shared.metrics.get() {
                metrics.committed(begun.elapsed());
            }
            self.shared.set_head(self.store.head);
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
        let done = self
            .recall()
            .and_then(|()| execute(&self.store.connection, "BEGIN IMMEDIATE"))
            .and_then(|()| work(&mut self.store))
            .and_then(|()| execute(&self.store.connection, "COMMIT"));
        done.map_err(|fault| {
            self.roll_back();
            self.told(fault)
        })
    }

    fn told(&self, fault: Fault) -> LedgerError {
        match fault {
            Fault::Sqlite(error) => LedgerError::from_sqlite(error, &self.shared.file),
            Fault::Refused(error) => error,
        }
    }

    /// Forgets the transaction, in the file and in memory.
    fn roll_back(&mut self) {
        if !self.store.connection.is_autocommit() {
            let _ = self.store.connection.execute_batch("ROLLBACK");
        }
        self.is_stale = true;
        // What fails here fails the next transaction, which is not begun without it.
        let _ = self.recall();
    }

    /// Has the store remember what is in the file.
    fn recall(&mut self) -> Result<(), Fault> {
        if self.is_stale {
            self.store.reload()?;
            self.is_stale = false;
        }
        Ok(())
    }

    /// Tells everybody that the disk does not do it, and keeps what history should not lack.
    fn fail(&mut self, tasks: Vec<Box<dyn Work>>, error: &LedgerError) {
        self.is_failing = true;
        self.shared.set_problem(Some(error));
        let mut kept = Kept::default();
        for mut task in tasks {
            task.secure();
            task.acknowledge(Err(error.clone()));
            if !kept.has_room_for(&*task) {
                // Better an end without its text than an execution that never ended.
                task.lighten();
            }
            if kept.take(&*task) {
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
        let mode = if self.is_log_long {
            "RESTART"
        } else {
            "PASSIVE"
        };
        self.since_checkpoint = 0;
        self.is_log_long = false;
        let pragma = format!("PRAGMA wal_checkpoint({mode})");
        // What fails here fails the next commit, too, or the next checkpoint does it.
        let _ = self.store.connection.query_row(&pragma, [], |_| Ok(()));
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        &self.store.connection
    }

    fn log_bytes(&self) -> u64 {
        let log = std::fs::metadata(file::beside(&self.shared.file, "-wal"));
        log.map_or(0, |log| log.len())
    }
}

/// What is kept for when the disk is back and nobody was told of.
#[derive(Default)]
struct Kept {
    count: usize,
    bytes: usize,
}

impl Kept {
    fn has_room_for(&self, task: &dyn Work) -> bool {
        match task.failing() {
            // What was told already takes nobody's place: an opening that is dropped makes its end
            // one of an execution that was never opened.
            Failing::Never { .. } => true,
            Failing::Kept { bytes } => {
                let fits = bytes <= LIGHT || self.bytes.saturating_add(bytes) <= RETRIED_BYTES;
                self.count == 0 || (self.count < RETRIES && fits)
            }
            Failing::Dropped => false,
        }
    }

    /// Says whether it is kept.
    fn take(&mut self, task: &dyn Work) -> bool {
        let is_kept = self.has_room_for(task);
        if let (true, Failing::Kept { bytes }) = (is_kept, task.failing()) {
            self.count += 1;
            self.bytes += if bytes > LIGHT { bytes } else { 0 };
        }
        is_kept
    }
}

/// How a batch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// One by one, others first: a command that the writer is in the way of, or the event loop, would wait for all
    /// of them else, half a millisecond with one client.
    Easy,
    /// As fast as can be: with more than [`FEW`] the processors are busy, and to let others go first is to fall
    /// behind; or somebody waits.
    Quick,
}

impl Pace {
    fn of(tasks: &[Box<dyn Work>]) -> Self {
        let mut failing = tasks.iter().map(|task| task.failing());
        if tasks.len() <= FEW && failing.all(|failing| matches!(failing, Failing::Never { .. })) {
            Self::Easy
        } else {
            Self::Quick
        }
    }

    /// Between two writes.
    fn pause(self, shared: &Shared) {
        if self == Self::Easy && !shared.is_pressing() {
            thread::yield_now();
        }
    }
}

fn execute(connection: &Connection, sql: &str) -> Result<(), Fault> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}
