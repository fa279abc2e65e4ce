//! An execution's way in: begun in the log and entered as a whole at its end, or entered at once and
//! changed step by step.

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use super::LedgerError;
use super::event::Events;
use super::handle::{Inner, Ledger};
use super::log::{Begun, Extent, Log, Logged, Opening, Queued};
use super::record::{Change, Claim, CloseRecord, LateDigests, OpenRecord};
use super::store::{Fault, Store};
use super::time::micros;
use super::work::{Failing, Receipt, Write};
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
        if let Some(log) = &self.inner.log {
            log.doubt(record.id);
        }
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
        self.inner.open(id);
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
        self.inner.note(events.as_ref());
        let now = micros(SystemTime::now());
        let failing = Failing::kept(change.held_bytes());
        self.write(failing, events, move |store| store.change(id, &change, now))
    }

    /// Enters how an execution ended, there and in the audit trail. Resolves when that is in the
    /// file. After a failure for the disk's sake it is written when the disk is back.
    pub fn close_execution(&self, record: CloseRecord, events: Option<Events>) -> Receipt<()> {
        self.close(record, None, events)
    }

    /// The same with digests that may be late.
    pub(crate) fn close(
        &self,
        record: CloseRecord,
        late: Option<LateDigests>,
        events: Option<Events>,
    ) -> Receipt<()> {
        let log = self.inner.log.as_ref();
        match log.and_then(|log| log.take(record.id)) {
            Some(Opening::Here(begun)) => self.inner.enter(begun, record, late, events),
            Some(Opening::Handed(_) | Opening::Unsafe) | None => {
                let failing = Failing::kept(record.held_bytes());
                let finish = Finish {
                    close: record,
                    late,
                    line: None,
                    within: Arc::downgrade(&self.inner),
                };
                self.inner.shared.queue(failing, events, |_| finish)
            }
        }
    }

    /// The same for whoever only waits until the end cannot be lost any more: the answer may then
    /// be sent. Digests that are `late` are waited for on the writer's thread; after a crash they are computed
    /// anew, of what is kept. What has [begun](Self::begin_execution) in the log, or is in the file, ends in the
    /// log, and comes into the file within 10 to 50 ms, where a question finds it at once; `then` is called when it is there, or
    /// cannot be yet, on the writer's thread. While the file cannot be written or cannot keep up, this goes as far
    /// as the log has room, and as far as what waits for the file may be kept in memory.
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
        let shared = &self.inner.shared;
        let log = self.inner.log.as_ref().filter(|_| shared.is_trusted());
        let Some(log) = log else {
            return Ended::Queued(self.close(record, late, events), then);
        };
        match log.take(record.id) {
            Some(Opening::Here(mut begun)) => {
                let events = Events::joined(begun.events.take(), events);
                let all = (events.as_ref(), Extent::Last);
                let Some(end) = log.end(&record, late.is_some(), all) else {
                    return Ended::Queued(self.inner.enter(begun, record, late, events), then);
                };
                let failing = Failing::never(begun.record.held_bytes() + record.held_bytes());
                let make = |first_event| Enter {
                    open: begun.record,
                    close: record,
                    late,
                    _lines: [begun.logged, end],
                    first_event,
                };
                shared.queue_then(failing, events, make, then);
            }
            opening @ (Some(Opening::Handed(_)) | None) => {
                let joined = match opening {
                    Some(Opening::Handed(told)) => Events::joined(told, events.clone()),
                    Some(Opening::Here(_) | Opening::Unsafe) | None => None,
                };
                let known = match &joined {
                    Some(all) => (Some(all), Extent::All),
                    None => (events.as_ref(), Extent::Last),
                };
                let Some(end) = log.end(&record, late.is_some(), known) else {
                    return Ended::Queued(self.close(record, late, events), then);
                };
                let failing = Failing::never(record.held_bytes());
                let finish = Finish {
                    close: record,
                    late,
                    line: Some(end),
                    within: Weak::new(),
                };
                shared.queue_then(failing, events, |_| finish, then);
            }
            // A start that found the end alone could make nothing of it.
            Some(Opening::Unsafe) => {
                return Ended::Queued(self.close(record, late, events), then);
            }
        }
        Ended::Logged
    }
}

impl Inner {
    /// Notes what is queued to have happened to an execution whose opening may still be on its way.
    pub(super) fn note(&self, events: Option<&Events>) {
        let id = events.and_then(|events| events.execution_id);
        if let (Some(log), Some(id), Some(events)) = (&self.log, id, events) {
            log.note(id, events);
        }
    }

    /// Has an execution entered that is in the log and nowhere else, if it is one.
    fn open(&self, id: ExecutionId) {
        if let Some(log) = &self.log {
            log.hand_over(id, |begun| self.enter_opening(begun));
        }
    }

    fn enter_opening(&self, begun: Begun) -> Queued {
        let Begun {
            record,
            events,
            logged,
            ..
        } = begun;
        let bytes = record.held_bytes();
        let (failing, queued) = match self.shared.is_trusted() {
            true => (Failing::never(bytes), Queued::Safe),
            false => (Failing::kept(bytes), Queued::Unsafe),
        };
        drop(self.shared.queue(failing, events, |event| {
            move |store: &mut Store| {
                // In the log until this has been done for good.
                let _logged = &logged;
                store.open(&record, event)
            }
        }));
        queued
    }

    pub(super) fn open_all(&self) {
        let all = self.log.as_ref().map(Log::begun);
        all.into_iter().flatten().for_each(|id| self.open(id));
    }

    fn enter(
        &self,
        begun: Begun,
        record: CloseRecord,
        late: Option<LateDigests>,
        events: Option<Events>,
    ) -> Receipt<()> {
        let events = Events::joined(begun.events, events);
        let failing = Failing::kept(begun.record.held_bytes() + record.held_bytes());
        self.shared.queue(failing, events, |first_event| Enter {
            open: begun.record,
            close: record,
            late,
            _lines: [begun.logged],
            first_event,
        })
    }
}

/// The end of an execution that has been entered; its line stays in the log until that has been done for good.
struct Finish {
    close: CloseRecord,
    late: Option<LateDigests>,
    line: Option<Logged>,
    /// Where a log is for one that has no line yet.
    within: Weak<Inner>,
}

impl Write<()> for Finish {
    fn write(&mut self, store: &mut Store) -> Result<(), Fault> {
        self.close.complete(self.late.take().map(|late| late()));
        store.close(&self.close)
    }

    /// The log has room where the disk has none, and what was to be in the file before it, where it is not, is less
    /// than the end.
    fn secure(&mut self, events: Option<&Events>) {
        // Once: what has found no room there finds none at the next try either.
        let inner = std::mem::take(&mut self.within).upgrade();
        if let Some(log) = inner.as_ref().and_then(|inner| inner.log.as_ref()) {
            let events = (events, Extent::Last);
            self.line = log.end(&self.close, self.late.is_some(), events);
        }
    }

    fn lighten(&mut self) -> Option<usize> {
        self.close.lighten();
        Some(self.close.held_bytes())
    }
}

/// An execution as a whole, likewise.
struct Enter<const N: usize> {
    open: OpenRecord,
    close: CloseRecord,
    late: Option<LateDigests>,
    _lines: [Logged; N],
    first_event: u64,
}

impl<const N: usize> Write<()> for Enter<N> {
    fn write(&mut self, store: &mut Store) -> Result<(), Fault> {
        self.close.complete(self.late.take().map(|late| late()));
        store.enter(&self.open, self.first_event, &self.close)
    }

    fn lighten(&mut self) -> Option<usize> {
        self.close.lighten();
        Some(self.open.held_bytes() + self.close.held_bytes())
    }
}
