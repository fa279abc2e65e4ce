//! What is to be written: asked for by many, taken by whoever writes next.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{broadcast, oneshot};

use super::LedgerError;
use super::event::{Events, NumberedEvents};
use super::file::beside;
use super::log::LOGS;
use super::record::Head;
use super::work::{Failing, OnTrust, Receipt, Reply, Task, Work, Write};
use crate::domain::Degradation;
use crate::metrics::Metrics;

/// The code of a problem that only another file ends.
const DAMAGED: &str = "ledger_damaged";

/// How long nothing must come before the writer does what can wait. Long enough that a client who
/// calls again at once does not find it busy.
const IDLE: Duration = Duration::from_millis(50);

/// How long what is in the log waits for company before it is written to the file. Who follows
/// what happens need not wait.
const COMPANY: Duration = Duration::from_millis(10);

/// How much longer, where by then more than a few have come: whoever keeps the processors busy gains more by fewer
/// commits than by early ones.
const MORE_COMPANY: Duration = Duration::from_millis(40);

/// What counts as a few.
pub(super) const FEW: usize = 16;

/// How many writes are company enough: some milliseconds' work, and so few that they are let go of before what
/// comes meanwhile has filled the mapped part of the other log.
pub(super) const CROWD: usize = 80;

/// How many writes that were told to be safe may not be in the file yet: when it takes no more, because the
/// disk is full or somebody has locked it, that many have to be kept.
pub(super) const ON_TRUST: usize = 1024;

/// How much those may hold, in bytes: a call may be 16 MiB.
const BYTES_ON_TRUST: usize = 64 << 20;

/// How often a ledger that cannot be written tries again by itself.
const PROBE: Duration = Duration::from_millis(500);

/// How many batches of events a listener may be behind before it has to read them from the file:
/// an execution has one or two.
const TOLD: usize = 1024;

/// What the writer shares with those who ask it.
pub(super) struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    state: Mutex<State>,
    told: broadcast::Sender<Arc<NumberedEvents>>,
    pub file: PathBuf,
    /// All that it is made of, and which files those are.
    files: Vec<(PathBuf, (u64, u64))>,
    /// Where it is measured how long the writer takes, if anywhere.
    pub metrics: OnceLock<Arc<Metrics>>,
}

struct Queue {
    tasks: Vec<Box<dyn Work>>,
    /// What was written, for those who ask to let go of: the memory is that of their thread. From the
    /// writer's they would have to wait for each other at every piece of it.
    spent: Vec<Box<dyn Work>>,
    /// What of them, and of what is being written or waits for the disk, was told to be safe.
    on_trust: OnTrust,
    /// Whether one of them is not to wait for company.
    is_urgent: bool,
    next_event: u64,
    is_closing: bool,
    /// Whether what was queued before is being written.
    is_writing: bool,
    /// Whether the writer sleeps for longer than what waits for company may wait.
    is_dozing: bool,
}

impl Queue {
    fn take(&mut self) -> Next {
        self.is_urgent = false;
        self.is_dozing = false;
        self.is_writing = true;
        Next::Write(std::mem::take(&mut self.tasks))
    }
}

/// What the writer would have to do if nothing were queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Nothing,
    /// What can wait for an idle moment.
    Chores,
    /// What has waited for one too long.
    Overdue,
    /// To try whether the disk is back.
    Failing,
}

/// What the writer's thread is to do next.
pub(super) enum Next {
    Write(Vec<Box<dyn Work>>),
    Chore,
    Probe,
    Close,
}

struct State {
    head: Head,
    problem: Option<Degradation>,
    /// The file that has gone from under us.
    gone: Option<PathBuf>,
}

/// Which file has this name, by device and inode.
fn identity(file: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// What a ledger is made of while it is open: SQLite keeps its own log and its index from the first statement to the
/// last, beside what a link leads to.
fn parts(file: &Path) -> impl Iterator<Item = PathBuf> {
    let real = file.canonicalize();
    let real = real.unwrap_or_else(|_| file.to_owned());
    let logs = LOGS.map(|suffix| beside(file, suffix));
    let of_sqlite = ["-wal", "-shm"].map(|suffix| beside(&real, suffix));
    logs.into_iter().chain([file.to_owned()]).chain(of_sqlite)
}

impl Shared {
    pub(super) fn new(file: PathBuf, head: Head, next_event: u64) -> Self {
        Self {
            queue: Mutex::new(Queue {
                tasks: Vec::new(),
                spent: Vec::new(),
                on_trust: OnTrust::default(),
                is_urgent: false,
                next_event,
                is_closing: false,
                is_writing: false,
                is_dozing: false,
            }),
            wake: Condvar::new(),
            state: Mutex::new(State {
                head,
                problem: None,
                gone: None,
            }),
            files: parts(&file)
                .filter_map(|path| identity(&path).map(|known| (path, known)))
                .collect(),
            told: broadcast::Sender::new(TOLD),
            file,
            metrics: OnceLock::new(),
        }
    }

    /// Queues the write that `make` makes, given the next number for events, and `events` with it.
    pub(super) fn queue<T: Send + 'static, W: Write<T>>(
        &self,
        failing: Failing,
        events: Option<Events>,
        make: impl FnOnce(u64) -> W,
    ) -> Receipt<T> {
        let (reply, receipt) = oneshot::channel();
        self.push(failing, events, make, Reply::Receipt(reply));
        Receipt(receipt)
    }

    /// The same, and then `then`, on the writer's thread; not at all if the ledger is closing.
    pub(super) fn queue_then<W: Write<()>>(
        &self,
        failing: Failing,
        events: Option<Events>,
        make: impl FnOnce(u64) -> W,
        then: impl FnOnce(Result<(), LedgerError>) + Send + 'static,
    ) {
        self.push(failing, events, make, Reply::Then(Box::new(then)));
    }

    fn push<T: Send + 'static, W: Write<T>>(
        &self,
        failing: Failing,
        events: Option<Events>,
        make: impl FnOnce(u64) -> W,
        reply: Reply<T>,
    ) {
        let failing = failing.with_events(events.as_ref());
        let OnTrust { count, bytes } = failing.on_trust();
        let mut queue = self.queue.lock();
        if queue.is_closing {
            return;
        }
        let number = queue.next_event;
        let events = events.map(|events| NumberedEvents {
            first: number,
            events,
        });
        queue.next_event = events.as_ref().map_or(number, |events| events.last() + 1);
        queue.on_trust.count += count;
        queue.on_trust.bytes += bytes;
        queue.tasks.push(Box::new(Task {
            write: make(number),
            events,
            done: None,
            reply: Some(reply),
            failing,
            told: self.told.clone(),
        }));
        let is_urgent = count == 0 || queue.tasks.len() >= CROWD || self.told.receiver_count() > 0;
        let is_news = is_urgent && !queue.is_urgent;
        queue.is_urgent |= is_urgent;
        let was_dozing = std::mem::take(&mut queue.is_dozing);
        // Two are let go of for each that is added, so that their number shrinks.
        let spent = [queue.spent.pop(), queue.spent.pop()];
        drop(queue);
        drop(spent);
        if is_news || was_dozing {
            self.wake.notify_one();
        }
    }

    /// Takes what is done with, to be let go of.
    pub(super) fn spend(&self, done: Vec<Box<dyn Work>>) {
        let mut queue = self.queue.lock();
        for work in &done {
            let OnTrust { count, bytes } = work.failing().on_trust();
            queue.on_trust.count -= count;
            queue.on_trust.bytes -= bytes;
        }
        queue.spent.extend(done);
    }

    /// Lets go of what was written. On a thread of those who ask.
    pub(super) fn let_go(&self) {
        let spent = std::mem::take(&mut self.queue.lock().spent);
        drop(spent);
    }

    /// Whether more may be taken on trust, which the file is to have as soon as it can be written.
    pub(super) fn is_trusted(&self) -> bool {
        let OnTrust { count, bytes } = self.queue.lock().on_trust;
        count < ON_TRUST && bytes < BYTES_ON_TRUST
    }

    /// Whether somebody waits for what is queued.
    pub(super) fn is_pressing(&self) -> bool {
        let queue = self.queue.lock();
        queue.is_urgent || queue.is_closing
    }

    /// Whether everything that was queued is in the file.
    pub(super) fn is_settled(&self) -> bool {
        let queue = self.queue.lock();
        queue.tasks.is_empty() && !queue.is_writing
    }

    /// Waits for something to do, when all there was before is done but for `rest`.
    pub(super) fn next(&self, rest: Rest) -> Next {
        let mut queue = self.queue.lock();
        queue.is_writing = false;
        let mut company = COMPANY;
        loop {
            if rest == Rest::Overdue {
                return Next::Chore;
            }
            if queue.is_urgent || (queue.is_closing && !queue.tasks.is_empty()) {
                return queue.take();
            }
            if queue.is_closing {
                return Next::Close;
            }
            let waits_for_company = !queue.tasks.is_empty();
            let patience = match rest {
                // What was told waits for it, too: it would fail with all that has failed before.
                Rest::Failing => Some(PROBE),
                _ if waits_for_company => Some(company),
                Rest::Chores | Rest::Overdue => Some(IDLE),
                Rest::Nothing => None,
            };
            queue.is_dozing = !waits_for_company;
            let Some(patience) = patience else {
                self.wake.wait(&mut queue);
                continue;
            };
            let timeout = self.wake.wait_for(&mut queue, patience);
            if !timeout.timed_out() || queue.is_urgent || queue.is_closing {
                continue;
            }
            match rest {
                Rest::Failing if waits_for_company => return queue.take(),
                _ if waits_for_company && company == COMPANY && queue.tasks.len() > FEW => {
                    company = MORE_COMPANY;
                }
                _ if waits_for_company => return queue.take(),
                _ if !queue.tasks.is_empty() => {}
                Rest::Failing => return Next::Probe,
                Rest::Nothing | Rest::Chores | Rest::Overdue => return Next::Chore,
            }
        }
    }

    /// Follows what has happened, from now on.
    pub(super) fn follow(&self) -> broadcast::Receiver<Arc<NumberedEvents>> {
        self.told.subscribe()
    }

    /// The number of the last event that was queued.
    pub(super) fn last_event(&self) -> u64 {
        self.queue.lock().next_event.saturating_sub(1)
    }

    pub(super) fn close(&self) {
        self.queue.lock().is_closing = true;
        self.wake.notify_one();
    }

    pub(super) fn head(&self) -> Head {
        self.state.lock().head
    }

    pub(super) fn set_head(&self, head: Head) {
        self.state.lock().head = head;
    }

    pub(super) fn problem(&self) -> Option<Degradation> {
        let state = self.state.lock();
        let gone = state.gone.as_ref().map(|gone| Degradation {
            code: "ledger_failed",
            detail: format!(
                "`{}` was removed or replaced while in use: what is recorded may be lost when the daemon stops; put it back or begin a new ledger, and restart the daemon",
                gone.display()
            ),
            source: self.file.display().to_string(),
        });
        gone.or_else(|| state.problem.clone())
    }

    /// Whether a file that is open is no longer that of its name.
    pub(super) fn is_gone(&self) -> bool {
        self.state.lock().gone.is_some()
    }

    /// Looks whether the files that are open are still those of their names. SQLite does not.
    pub(super) fn look(&self) {
        // Some go when it is closed.
        if self.queue.lock().is_closing {
            return;
        }
        let mut files = self.files.iter();
        let gone = files.find(|(path, known)| identity(path) != Some(*known));
        self.state.lock().gone = gone.map(|(path, _)| path.clone());
    }

    pub(super) fn set_problem(&self, problem: Option<&LedgerError>) {
        let mut state = self.state.lock();
        if state
            .problem
            .as_ref()
            .is_some_and(|known| known.code == DAMAGED)
        {
            // What can be written elsewhere in the file mends nothing.
            return;
        }
        state.problem = problem.map(|error| Degradation {
            code: match error {
                LedgerError::Full { .. } => "ledger_full",
                LedgerError::Damaged { .. } => DAMAGED,
                LedgerError::Unwritable { .. }
                | LedgerError::Open { .. }
                | LedgerError::InUse { .. }
                | LedgerError::TooNew { .. }
                | LedgerError::Duplicate { .. }
                | LedgerError::NotOpen { .. }
                | LedgerError::Text { .. }
                | LedgerError::Altered { .. }
                | LedgerError::NoWords { .. }
                | LedgerError::Closed
                | LedgerError::Internal { .. } => "ledger_failed",
            },
            detail: error.to_string(),
            source: self.file.display().to_string(),
        });
    }
}
