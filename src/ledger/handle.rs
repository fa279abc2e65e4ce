use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::broadcast;

use super::chain::{Link, Verifier};
use super::convert::signed;
use super::event::{EventFilter, EventPage, Events, NumberedEvents};
use super::log::{Found, Log};
use super::proof::{Prover, Verified};
use super::queue::Shared;
use super::read::{self, Approvals};
use super::readers::Readers;
use super::record::{
    Approval, AuditEntry, Claim, CloseRecord, Decision, ExecutionRecord, Filter, HashKept, Head,
    Idempotency, Limits, Listed, Page, StreamDigests, Verdicted,
};
use super::recover::Recovered;
use super::retention::{Clearing, Pruned, STEP};
use super::store::{Fault, Store};
use super::time::micros;
use super::work::{Failing, Receipt};
use super::writer::{INDEX_BATCH, Writer};
use super::{Digest, LedgerError, file, reserve};
use crate::config::Durability;
use crate::domain::{ApprovalId, Degradation, ExecutionId, StreamName};
use crate::metrics::Metrics;

/// To free as much as this has glibc look how much is free at the top of its thread's heap, in bytes
/// (`FASTBIN_CONSOLIDATION_THRESHOLD` in its `malloc.c` is half of it); malloc_trim(3) does so for the main heap only.
const TRIMS_HEAP_BYTES: usize = 128 << 10;

/// The ledger. Cheap to clone; all clones are one, and the last to go closes it.
#[derive(Clone)]
pub struct Ledger {
    pub(super) inner: Arc<Inner>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ledger")
            .field(&self.inner.shared.file)
            .finish()
    }
}

pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    /// Where something is safe until the writer gets to it; none where only a commit is.
    pub(super) log: Option<Log>,
    pub(super) readers: Readers,
    /// Whoever goes through the whole trail, one after another.
    verifying: tokio::sync::Mutex<()>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// A ledger made ready, and what it found.
pub struct Opened {
    /// Ready.
    pub ledger: Ledger,
    /// What an earlier daemon had not closed.
    pub recovered: Recovered,
}

impl Ledger {
    /// Opens the file, or makes it; may take as long as a look at 4 MiB of it. A longer file is
    /// looked at behind that, and [`Self::problem`] tells.
    ///
    /// # Errors
    /// When another daemon has the file, when it cannot be read or written, is damaged, or was
    /// written by a newer program. Each says what to do.
    pub fn open(file: &Path, durability: Durability) -> Result<Opened, LedgerError> {
        Self::open_with(file, durability, &|_| [None, None])
    }

    /// The same. What an end lacks that was told while the digests of its streams were still being
    /// computed, `hash` computes anew, of what is kept of them.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(
        file: &Path,
        durability: Durability,
        hash: HashKept<'_>,
    ) -> Result<Opened, LedgerError> {
        let lock = file::Lock::take(file)?;
        let ready = match Ready::make(file, durability, hash) {
            Err(error) if error.is_for_want_of_room() && reserve::give_up(file) => {
                tracing::warn!(%error, "the room that was kept for a start without any is given up");
                Ready::make(file, durability, hash)
            }
            made => made,
        };
        let Ready {
            store,
            log,
            recovered,
            next_event,
        } = ready?;
        let shared = Arc::new(Shared::new(file.to_owned(), store.head, next_event));
        let writer = Writer::new(store, Arc::clone(&shared));
        let checked = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || {
                // From here: of all threads the writer is to be the first that asks for memory (`M_ARENA_MAX`).
                check_behind(&checked);
                reserve::keep(&checked.file);
                drop(checked);
                writer.run();
                // The lock goes last, when the connection is closed.
                drop(lock);
            });
        let thread = thread.map_err(|source| LedgerError::Open {
            file: file.to_owned(),
            source: Arc::new(source),
        })?;
        let ledger = Self {
            inner: Arc::new(Inner {
                shared,
                log,
                readers: Readers::new(file.to_owned()),
                verifying: tokio::sync::Mutex::default(),
                writer: Mutex::new(Some(thread)),
            }),
        };
        Ok(Opened { ledger, recovered })
    }

    /// Writes what is queued and closes the file. Later writes fail; reads still work.
    pub fn close_file(&self) {
        self.inner.close();
    }

    /// Has what the ledger does measured, from now on.
    pub fn measure(&self, metrics: Arc<Metrics>) {
        // Once, by whoever opened it.
        let _ = self.inner.shared.metrics.set(metrics);
    }

    /// What does not work, for `/health` and for whoever may not run what is not recorded. The
    /// ledger goes on trying by itself.
    pub fn problem(&self) -> Option<Degradation> {
        self.inner.shared.problem()
    }

    /// Whether its file was removed or replaced when that was looked at last: what is recorded does not outlast the daemon
    /// then.
    pub fn is_gone(&self) -> bool {
        self.inner.shared.is_gone()
    }

    /// Looks whether its file is still there, which [`Self::problem`] tells from then on.
    pub fn look(&self) {
        self.inner.shared.look();
    }

    /// Lets go of the pages that it keeps in memory, those of its log among them, and of its thread's heap what is free beyond glibc's
    /// `M_TRIM_THRESHOLD`; and keeps room for a start on a full disk, where that was given up and there is some again. For a while
    /// in which nothing happens.
    pub fn shrink(&self) -> Receipt<()> {
        self.inner.shared.let_go();
        if let Some(log) = &self.inner.log {
            log.rest();
        }
        let file = self.inner.shared.file.clone();
        self.write(Failing::Dropped, None, move |store| {
            reserve::keep(&file);
            store.connection.execute_batch("PRAGMA shrink_memory")?;
            drop(black_box(Vec::<u8>::with_capacity(TRIMS_HEAP_BYTES)));
            Ok(())
        })
    }

    /// The end of the audit trail as committed.
    pub fn head(&self) -> Head {
        self.inner.shared.head()
    }

    // History.

    /// One execution.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn get(&self, id: ExecutionId) -> Result<Option<ExecutionRecord>, LedgerError> {
        self.ask(move |connection| read::get(connection, id)).await
    }

    /// What has a caller's key, which nobody claims by this.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn holder(
        &self,
        caller_uid: u32,
        claim: Idempotency,
    ) -> Result<Option<Claim>, LedgerError> {
        let look = move |connection: &Connection| read::holder(connection, caller_uid, &claim);
        self.ask(look).await
    }

    /// Which of these executions it has no record of. Looked up by the writer, in passing: at the start another
    /// thread, and another connection, would take memory for good.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub async fn unknown(&self, ids: &[ExecutionId]) -> Result<Vec<ExecutionId>, LedgerError> {
        /// How many are looked up at once, in a millisecond or two.
        const SOME: usize = 256;
        let mut unknown = Vec::new();
        for ids in ids.chunks(SOME) {
            let ids = ids.to_vec();
            let look = move |store: &mut Store| read::unknown(&store.connection, &ids);
            unknown.extend(self.write(Failing::Dropped, None, look).await?);
        }
        Ok(unknown)
    }

    /// Whether the audit trail tells of any of these executions, though there may be no record of it any more.
    ///
    /// # Errors
    /// As [`Self::unknown`].
    pub async fn has_known(&self, ids: Vec<ExecutionId>) -> Result<bool, LedgerError> {
        let look = move |store: &mut Store| read::has_known(&store.connection, &ids);
        self.write(Failing::Dropped, None, look).await
    }

    /// What came of an execution by calls of its tool, theirs among it, oldest first; a thousand of
    /// them at the most.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn descendants(&self, id: ExecutionId) -> Result<Vec<ExecutionRecord>, LedgerError> {
        // What has just begun is among them.
        self.inner.open_all();
        self.ask(move |connection| read::descendants(connection, id))
            .await
    }

    /// A page of history, each execution as what `of` makes of it where it is read. With a text, the ended ones that
    /// are not in the text index yet are put there first.
    ///
    /// # Errors
    /// When the file cannot be read, and for a text without a word.
    pub async fn list<T: Send + 'static>(
        &self,
        filter: Filter,
        of: impl Fn(Listed<'_>) -> T + Send + 'static,
    ) -> Result<Page<T>, LedgerError> {
        // What has just begun is history, too.
        self.inner.open_all();
        if filter.text.is_some() {
            // Where this fails, the list lacks the newest; problem() tells.
            let index = || self.write(Failing::Dropped, None, |store| store.index(INDEX_BATCH));
            while index().await.is_ok_and(|left| left > 0) {}
        }
        self.ask(move |connection| read::list(connection, &filter, of))
            .await
    }

    /// Counts no more to what the history holds what the spool has given up of it. What a crash or a full disk
    /// loses of that counts until its execution is forgotten, among the next.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn discount(
        &self,
        given_up: &[(ExecutionId, StreamName)],
    ) -> Result<(), LedgerError> {
        for step in given_up.chunks(STEP) {
            let step: Arc<[_]> = step.into();
            while !self.discount_step(Arc::clone(&step)).await? {}
        }
        Ok(())
    }

    fn discount_step(&self, step: Arc<[(ExecutionId, StreamName)]>) -> Receipt<bool> {
        self.write(Failing::Dropped, None, move |store| store.discount(&step))
    }

    /// Forgets the oldest executions until the limits hold, a step at a time, and says at each which are
    /// `forgotten`: what the spool has of them is the caller's to remove.
    ///
    /// # Errors
    /// When the file cannot be written; what was told by then is forgotten.
    pub async fn prune(
        &self,
        limits: Limits,
        mut forgotten: impl FnMut(Vec<ExecutionId>),
    ) -> Result<(), LedgerError> {
        loop {
            let step: Pruned = self
                .write(Failing::Dropped, None, move |store| store.prune(&limits))
                .await?;
            forgotten(step.ids);
            if step.is_done {
                return Ok(());
            }
        }
    }

    /// Forgets all executions that have ended, likewise. The audit trail stays, and says who did it.
    ///
    /// # Errors
    /// As [`Self::prune`].
    pub async fn clear(
        &self,
        by_uid: u32,
        mut forgotten: impl FnMut(Vec<ExecutionId>),
    ) -> Result<(), LedgerError> {
        let now = micros(SystemTime::now());
        let next_event = self.last_event() + 1;
        let mut is_told = false;
        loop {
            let clearing = Clearing {
                by_uid,
                now,
                next_event,
                is_told,
            };
            let step: Pruned = self
                .write(Failing::Dropped, None, move |store| store.clear(clearing))
                .await?;
            is_told |= step.is_done || !step.ids.is_empty();
            forgotten(step.ids);
            if step.is_done {
                return Ok(());
            }
        }
    }

    // Events.

    /// Enters events that go with nothing else.
    pub fn record_events(&self, events: Events) -> Receipt<()> {
        if let Some(id) = events.execution_id {
            self.nudge(id);
        }
        self.inner.note(Some(&events));
        self.write(Failing::kept(0), Some(events), |_| Ok(()))
    }

    /// Follows what happens from now on. Whoever falls behind reads on with [`Self::events`].
    pub fn follow(&self) -> broadcast::Receiver<Arc<NumberedEvents>> {
        self.inner.shared.follow()
    }

    /// The number of the last event there is, on file or about to be.
    pub fn last_event(&self) -> u64 {
        self.inner.shared.last_event()
    }

    /// Events after a number, oldest first, of `limit` batches.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn events(
        &self,
        after: u64,
        filter: EventFilter,
        limit: usize,
    ) -> Result<EventPage, LedgerError> {
        self.ask(move |connection| read::events(connection, after, &filter, limit))
            .await
    }

    // Approvals.

    /// Asks for an approval. The execution's status is changed with [`Self::change`].
    pub fn ask_approval(&self, approval: Approval) -> Receipt<()> {
        self.nudge(approval.execution_id);
        self.write(Failing::Dropped, None, move |store| store.ask(&approval))
    }

    /// Decides on a pending approval; the first to decide does. That nobody asks any more is written when the disk
    /// is back, or somebody could still be asked.
    pub fn decide(&self, decision: Decision) -> Receipt<Verdicted> {
        let failing = match decision.is_of_the_pipeline() {
            true => Failing::kept(0),
            false => Failing::Dropped,
        };
        self.write(failing, None, move |store| store.decide(&decision))
    }

    /// Uses an approval up, immediately before what it was given for is run: once, if it was
    /// given for exactly that, and before it expires.
    pub fn use_approval(&self, id: ApprovalId, digest: Digest) -> Receipt<Verdicted> {
        let now = micros(SystemTime::now());
        self.write(Failing::Dropped, None, move |store| {
            store.use_up(id, digest, now)
        })
    }

    /// Takes back an approved one that nothing will be run under, if it is one still; says whether it was.
    pub fn revoke_approval(&self, approval: Approval) -> Receipt<bool> {
        let now = micros(SystemTime::now());
        self.write(Failing::kept(0), None, move |store| {
            store.revoke(&approval, now)
        })
    }

    /// Approvals, oldest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn approvals(&self, which: Approvals) -> Result<Vec<Approval>, LedgerError> {
        self.approvals_as(which, |approval| approval).await
    }

    /// The same, each as what `of` makes of it where it is read: no two are held whole at once.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn approvals_as<T: Send + 'static>(
        &self,
        which: Approvals,
        of: impl Fn(Approval) -> T + Send + 'static,
    ) -> Result<Vec<T>, LedgerError> {
        self.ask(move |connection| read::approvals(connection, which, of))
            .await
    }

    // The audit trail.

    /// Enters what is neither a decision on an execution nor its ending, which enter themselves.
    pub fn audit(&self, entry: AuditEntry) -> Receipt<()> {
        self.write(Failing::kept(0), None, move |store| store.audit(&entry))
    }

    /// Checks the whole audit trail, against what was last written to it since it was opened, and heads that were
    /// written down elsewhere; and what is kept of executions against the trail, of their streams what `hash` computes of
    /// them.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn verify_audit(
        &self,
        known: Vec<Head>,
        hash: impl Fn(&CloseRecord) -> StreamDigests + Send + 'static,
    ) -> Result<Verified, LedgerError> {
        let ledger = self.clone();
        let verify = move || {
            let mut verifier = Verifier::new([ledger.head()].into_iter().chain(known));
            let mut prover = Prover::new(&ledger.inner.readers, &hash)?;
            let mut proven = Ok(());
            let take = |link: Link| {
                let holds = verifier.take(&link);
                if holds {
                    proven = prover.take(&link);
                }
                holds && proven.is_ok()
            };
            // From the first that there can be: what was put before the first that was written is found, too.
            match ledger.links(i64::MIN, take) {
                Err(LedgerError::Altered { number, detail }) => {
                    verifier.take_altered(number, detail);
                }
                read => read?,
            }
            proven?;
            prover.finish(verifier.finish())
        };
        // Each takes as long as the trail is, on one of the threads that file tools and long bodies have as well.
        let _turn = self.inner.verifying.lock().await;
        let verified = tokio::task::spawn_blocking(verify).await;
        verified.unwrap_or(Err(LedgerError::Closed))
    }

    /// What `of` makes, where they are read, of records of the audit trail after a number, in order: of some, of none
    /// where there is no further one.
    ///
    /// # Errors
    /// When the file cannot be read, and at a record that is none that was ever written.
    pub async fn audit_after<T: Send + 'static>(
        &self,
        after: u64,
        of: impl FnOnce(Vec<Link>) -> T + Send + 'static,
    ) -> Result<T, LedgerError> {
        match signed(after).checked_add(1) {
            Some(from) => {
                self.ask(move |connection| read::links(connection, from).map(of))
                    .await
            }
            // There is none behind the last that there can be.
            None => Ok(of(Vec::new())),
        }
    }

    /// Gives every record of the audit trail from a number on, in order, to `take`, until it says false or has all that
    /// there are by then. Blocks: for a thread that may.
    fn links(&self, mut from: i64, mut take: impl FnMut(Link) -> bool) -> Result<(), LedgerError> {
        let inner = &self.inner;
        if let Some(receipt) = inner.settling() {
            // Where this fails, problem() tells.
            let _ = receipt.wait();
        }
        loop {
            let ask = |connection: &Connection| read::links(connection, from);
            let links = inner.readers.ask(ask)?;
            if links.is_empty() {
                return Ok(());
            }
            for link in links {
                let next = signed(link.number).checked_add(1);
                let (true, Some(next)) = (take(link), next) else {
                    return Ok(());
                };
                from = next;
            }
        }
    }

    pub(super) fn write<T: Send + 'static>(
        &self,
        failing: Failing,
        events: Option<Events>,
        write: impl FnMut(&mut Store) -> Result<T, Fault> + Send + 'static,
    ) -> Receipt<T> {
        self.inner.shared.queue(failing, events, |_| write)
    }

    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.inner.settle().await;
        let inner = Arc::clone(&self.inner);
        // Before there is a thread: file tools and long bodies have the same ones, and questions may be many and slow.
        let turn = Arc::clone(&inner.readers.turns).acquire_owned().await;
        let answer = tokio::task::spawn_blocking(move || {
            // Its own until it has read, though nobody may wait for that any more.
            let _turn = turn;
            let answer = inner.readers.ask(question);
            if let Err(error @ LedgerError::Damaged { .. }) = &answer {
                inner.shared.set_problem(Some(error));
            }
            answer
        });
        answer.await.unwrap_or(Err(LedgerError::Closed))
    }
}

impl Inner {
    fn settling(&self) -> Option<Receipt<()>> {
        (!self.shared.is_settled()).then(|| {
            self.shared
                .queue(Failing::Dropped, None, |_| |_: &mut Store| Ok(()))
        })
    }

    /// Has what was told to be safe written to the file, where a question finds it.
    async fn settle(&self) {
        if let Some(receipt) = self.settling() {
            // Where this fails, problem() tells.
            let _ = receipt.await;
        }
    }

    fn close(&self) {
        self.open_all();
        if let Some(log) = &self.log {
            log.unmap();
        }
        self.shared.close();
        let writer = self.writer.lock().take();
        // It may be the writer itself that lets go of the ledger last, with what it has just told.
        let writer = writer.filter(|writer| writer.thread().id() != thread::current().id());
        if let Some(writer) = writer {
            // A panic there was told by the panic hook.
            let _ = writer.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// What is there before anything is entered.
struct Ready {
    store: Store,
    log: Option<Log>,
    recovered: Recovered,
    next_event: u64,
}

impl Ready {
    fn make(file: &Path, durability: Durability, hash: HashKept<'_>) -> Result<Self, LedgerError> {
        let synchronous = match durability {
            Durability::Process => "NORMAL",
            Durability::Fsync => "FULL",
        };
        let fail = |error| LedgerError::from_sqlite(error, file);
        let mut store = Store::new(file::open_to_write(file, synchronous)?).map_err(fail)?;
        let failed = |source| LedgerError::Open {
            file: file.to_owned(),
            source: Arc::new(source),
        };
        let (log, found) = Log::open(file).map_err(failed)?;
        let recovered = recover(&mut store, file, found, hash)?;
        log.clear().map_err(failed)?;
        let log = (durability == Durability::Process).then_some(log);
        if let Some(log) = &log {
            log.map();
        }
        Ok(Self {
            next_event: store.next_event().map_err(fail)?,
            store,
            log,
            recovered,
        })
    }
}

/// Settles what an earlier daemon left, all of it or nothing.
fn recover(
    store: &mut Store,
    file: &Path,
    found: Found,
    hash: HashKept<'_>,
) -> Result<Recovered, LedgerError> {
    let run = move |store: &mut Store| {
        store.connection.execute_batch("BEGIN IMMEDIATE")?;
        store.open_missing(&found.opened)?;
        store.close_missing(found.ended, hash)?;
        let recovered = store.recover(SystemTime::now())?;
        store.connection.execute_batch("COMMIT")?;
        Ok(recovered)
    };
    run(store).map_err(|fault| match fault {
        Fault::Sqlite(error) => LedgerError::from_sqlite(error, file),
        Fault::Refused(error) => error,
    })
}

/// Looks at a file that was too long to be looked at while opening it.
fn check_behind(shared: &Arc<Shared>) {
    let length = std::fs::metadata(&shared.file).map_or(0, |metadata| metadata.len());
    if length <= file::CHECKED_AT_OPEN {
        return;
    }
    let shared = Arc::clone(shared);
    let check = move || {
        let path: PathBuf = shared.file.clone();
        let checked =
            file::open_to_read(&path).and_then(|connection| file::check(&connection, &path));
        if let Err(error) = checked {
            shared.set_problem(Some(&error));
        }
    };
    // Without a thread it is not looked at, which is no reason not to start.
    let _ = thread::Builder::new()
        .name("ledger-check".to_owned())
        .spawn(check);
}
