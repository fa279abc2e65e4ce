//! An execution's way in: begun in the log and entered as a whole at its end, or entered at once and
//! changed step by step.

use std::time::SystemTime;

use super::LedgerError;
use super::event::Events;
use super::handle::{Inner, Ledger};
use super::log::{Begun, Log, Logged};
use super::queue::{Failing, Receipt};
use super::record::{Change, Claim, CloseRecord, LateDigests, OpenRecord};
use super::store::{Fault, Store};
use super::time::micros;
use crate::domain::ExecutionId;

/// What became of the end of an execution.
#[derive(Debug)]
#[must_use = "the end may not be on file yet"]
pub enum Ended<F> {
    /// It cannot be lost any more: the answer may be sent.
    Logged,
    /// It is safe when the receipt says so, and what was to be done then is the caller's.
    Queued(Receipt<()>, F),
}

impl Ledger {
    /// Enters an execution and its first events. There is no need to wait: what is asked later is
    /// written later.
    pub fn open_execution(&self, record: OpenRecord, events: Option<Events>) -> Receipt<()> {
        let failing = Failing::kept(record.held_bytes());
        self.inner.shared.queue(failing, events, |event| {
            move |store: &mut Store| store.open(&record, event)
        })
    }

    /// Enters an execution that is about to run in the log, from where the next start takes it;
    /// into the file it comes at its end, with its first change, or when somebody calls
    /// [`Self::nudge`]. Where it cannot be there, there is a receipt to be waited for.
    pub fn begin_execution(
        &self,
        record: OpenRecord,
        events: Option<Events>,
    ) -> Option<Receipt<()>> {
        let Some(log) = &self.inner.log else {
            return Some(self.open_execution(record, events));
        };
        let refused = log.begin(record, events);
        refused.map(|(record, events)| self.open_execution(record, events))
    }

    /// Enters what became known of an execution that is about to run: in the log if it has only
    /// [begun](Self::begin_execution), else, and while the file cannot keep up, as [`Self::change`] does.
    pub fn go_on(
        &self,
        id: ExecutionId,
        change: Change,
        events: Option<Events>,
    ) -> Option<Receipt<()>> {
        // How long it stands where it stands otherwise, nobody knows.
        let is_about_to_run = change.status.is_none() && change.started_at.is_none();
        let is_safe = is_about_to_run && self.inner.shared.is_trusted();
        let log = self.inner.log.as_ref().filter(|_| is_safe);
        let refused = match log {
            Some(log) => log.change(id, change, events),
            None => Some((change, events)),
        };
        refused.map(|(change, events)| self.change(id, change, events))
    }

    /// Has an execution that has only begun entered now.
    pub fn nudge(&self, id: ExecutionId) {
        if let Some(begun) = self.inner.begun(id) {
            self.inner.open(begun);
        }
    }

    /// Enters an execution if its caller has not used its key before. To be waited for before
    /// anything is run.
    pub fn claim(&self, record: OpenRecord) -> Receipt<Claim> {
        self.inner.shared.queue(Failing::Dropped, None, |event| {
            move |store: &mut Store| store.claim(&record, event)
        })
    }

    /// Lets go of the key of an execution that has ended and was nothing to be repeated.
    pub fn release_key(&self, id: ExecutionId) -> Receipt<()> {
        self.write(Failing::Dropped, None, move |store| store.release_key(id))
    }

    /// Enters what became known of an open execution. A ruling goes into the audit trail.
    pub fn change(&self, id: ExecutionId, change: Change, events: Option<Events>) -> Receipt<()> {
        self.nudge(id);
        let now = micros(SystemTime::now());
        let failing = Failing::kept(change.held_bytes());
        self.write(failing, events, move |store| store.change(id, &change, now))
    }

    /// Enters how an execution ended, there and in the audit trail. Resolves when that is in the
    /// file. After a failure for the disk's sake it is written when the disk is back.
    pub fn close_execution(&self, record: CloseRecord, events: Option<Events>) -> Receipt<()> {
        self.close(record, None, events)
    }

    fn close(
        &self,
        mut record: CloseRecord,
        mut late: Option<LateDigests>,
        events: Option<Events>,
    ) -> Receipt<()> {
        match self.inner.begun(record.id) {
            Some(begun) => self.inner.enter(begun, record, late, events),
            None => {
                let failing = Failing::kept(record.held_bytes());
                self.write(failing, events, move |store| {
                    record.complete(late.take());
                    store.close(&record)
                })
            }
        }
    }

    /// The same for whoever only waits until the end cannot be lost any more: the answer may then
    /// be sent. Digests that are `late` are waited for on the writer's thread; after a crash they are computed
    /// anew, of what is kept. What has only [begun](Self::begin_execution) ends in the log, too, and comes into
    /// the file within 10 ms, where a question finds it; `then` is called when it is there, or cannot
    /// be, on the writer's thread. Not so while the file cannot be written or cannot keep up, for
    /// there is no telling for how long.
    pub fn end_execution<F>(
        &self,
        record: CloseRecord,
        late: Option<LateDigests>,
        events: Option<Events>,
        then: F,
    ) -> Ended<F>
    where
        F: FnOnce(Result<(), LedgerError>) + Send + 'static,
    {
        let log = self.inner.log.as_ref();
        let log = log.filter(|_| self.inner.shared.is_trusted());
        // What has begun is taken only where it ends in the log, too.
        let taken = log.and_then(|log| Some((log, self.inner.begun(record.id)?)));
        let Some((log, mut begun)) = taken else {
            return Ended::Queued(self.close(record, late, events), then);
        };
        let events = Events::joined(begun.events.take(), events);
        let Some(end) = log.end(&record, late.is_some(), events.as_ref()) else {
            return Ended::Queued(self.inner.enter(begun, record, late, events), then);
        };
        let lines = [begun.logged, end];
        let make = |event| enter(begun.record, record, late, lines, event);
        let shared = &self.inner.shared;
        shared.queue_then(Failing::Never, events, make, then);
        Ended::Logged
    }
}

impl Inner {
    /// Takes an execution that is in the log and nowhere else.
    fn begun(&self, id: ExecutionId) -> Option<Begun> {
        self.log.as_ref().and_then(|log| log.take(id))
    }

    fn open(&self, begun: Begun) {
        let Begun {
            record,
            events,
            logged,
            ..
        } = begun;
        let failing = Failing::kept(record.held_bytes());
        drop(self.shared.queue(failing, events, |event| {
            move |store: &mut Store| {
                // In the log until this has been done for good.
                let _logged = &logged;
                store.open(&record, event)
            }
        }));
    }

    pub(super) fn open_all(&self) {
        let all = self.log.as_ref().map(Log::take_all);
        all.into_iter().flatten().for_each(|begun| self.open(begun));
    }

    fn enter(
        &self,
        begun: Begun,
        record: CloseRecord,
        late: Option<LateDigests>,
        events: Option<Events>,
    ) -> Receipt<()> {
        let events = Events::joined(begun.events, events);
        let lines = [begun.logged];
        let failing = Failing::kept(begun.record.held_bytes() + record.held_bytes());
        self.shared.queue(failing, events, |event| {
            enter(begun.record, record, late, lines, event)
        })
    }
}

/// Enters an execution as a whole; the lines stay in the log until that has been done for good.
fn enter<const N: usize>(
    open: OpenRecord,
    mut close: CloseRecord,
    mut late: Option<LateDigests>,
    lines: [Logged; N],
    first_event: u64,
) -> impl FnMut(&mut Store) -> Result<(), Fault> + Send {
    move |store| {
        let _lines = &lines;
        close.complete(late.take());
        store.enter(&open, first_event, &close)
    }
}
