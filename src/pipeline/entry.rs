use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};

use super::event::Event;
use super::{CallRecord, Execution, Finished};
use crate::domain::{ApprovalId, Correlation, Digests, ExecutionId, Ruling, Status, StreamName};
use crate::ledger::{
    self, Approval, AuditEntry, Change, CloseRecord, Ended, Events, Happened, Idempotency, Json,
    LateDigests, Ledger, LedgerError, OpenRecord, Output, Place, Receipt,
};
use crate::runner::{KEPT_WITH_RECORD, Kept};

/// An execution's entry in the ledger. What is known of it is gathered until somebody has to wait
/// anyway: a call that runs at once is entered in one piece, behind the start of its process.
#[derive(Debug)]
pub(super) struct Entry {
    ledger: Ledger,
    /// Told with everything that happens.
    correlation: Correlation,
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    /// Whether the execution has been entered.
    is_open: bool,
    /// Whether it was entered under a key, of which the log knows nothing.
    is_claimed: bool,
    /// Whether something of it is on its way into the file that nothing else holds: its end comes behind that.
    is_followed: bool,
    /// Whether its end has been entered.
    is_closed: bool,
    change: Change,
    has_change: bool,
    /// When its process was started, as it was entered last.
    told_start: Option<SystemTime>,
    happened: Happened,
}

impl Entry {
    pub(super) fn new(ledger: Ledger, correlation: Correlation) -> Self {
        Self {
            ledger,
            correlation,
            pending: Mutex::default(),
        }
    }

    /// Something happened.
    pub(super) fn note(&self, event: Event) {
        self.note_at(SystemTime::now(), event);
    }

    /// Something happens now, which has been read off the clock already.
    pub(super) fn note_at(&self, time: SystemTime, event: Event) {
        let happened = &mut self.lock().happened;
        event.tell(&self.correlation, time, happened);
    }

    /// Its input is another than it was, defaults filled in.
    pub(super) fn set_call(&self, call: &CallRecord) {
        self.change(|change| change.call = Some(Json::of(call)));
    }

    /// The policy has judged it.
    pub(super) fn set_ruling(&self, ruling: Ruling) {
        self.change(|change| change.ruling = Some(ruling));
    }

    /// It waits, or runs after all.
    pub(super) fn set_status(&self, status: Status) {
        self.change(|change| change.status = Some(status));
    }

    /// Its process runs, which nobody hears of otherwise before its end.
    pub(super) fn tell_start(&self, execution: &Execution) {
        {
            let mut pending = self.lock();
            let started_at = execution.started_at();
            if pending.is_closed || pending.told_start == started_at {
                return;
            }
            pending.told_start = started_at;
            pending.has_change = true;
            pending.change.started_at = started_at;
        }
        drop(self.write(execution));
    }

    fn change(&self, change: impl FnOnce(&mut Change)) {
        let mut pending = self.lock();
        pending.has_change = true;
        change(&mut pending.change);
    }

    /// Enters it if nobody has used its key before, which [`Self::adopt`] is to be told of. To be waited for before
    /// anything is run.
    pub(super) fn claim(
        &self,
        execution: &Execution,
        idempotency: Idempotency,
    ) -> Receipt<ledger::Claim> {
        self.ledger.claim(OpenRecord {
            idempotency: Some(idempotency),
            ..open_record(execution, Change::default())
        })
    }

    /// Lets go of the key of another execution that nothing came of.
    pub(super) fn release_key(&self, id: ExecutionId) -> Receipt<()> {
        self.ledger.release_key(id)
    }

    /// It is in the ledger already.
    pub(super) fn adopt(&self) {
        let mut pending = self.lock();
        (pending.is_open, pending.is_claimed) = (true, true);
    }

    /// Whether it has been entered, or will be as soon as that can be written.
    pub(super) fn is_open(&self) -> bool {
        self.lock().is_open
    }

    /// Enters what has been gathered; `None` when there is nothing to be waited for.
    pub(super) fn write(&self, execution: &Execution) -> Option<Receipt<()>> {
        let mut pending = self.lock();
        let events = take_events(&mut pending, execution);
        let change = std::mem::take(&mut pending.change);
        let has_change = std::mem::take(&mut pending.has_change);
        let was_open = std::mem::replace(&mut pending.is_open, true);
        // What else there is in a change, its end tells as well.
        let is_essential = pending.is_claimed || change.call.is_some() || change.ruling.is_some();
        let receipt = match (was_open, has_change, events) {
            (false, _, events) => {
                return self
                    .ledger
                    .begin_execution(open_record(execution, change), events);
            }
            (true, true, events) => self.ledger.go_on(execution.id, change, events),
            (true, false, Some(events)) => Some(self.ledger.record_events(events)),
            (true, false, None) => None,
        };
        pending.is_followed |= is_essential && receipt.is_some();
        receipt
    }

    /// Enters something about it into the audit trail.
    pub(super) fn audit(&self, entry: AuditEntry) -> Receipt<()> {
        self.ledger.audit(entry)
    }

    /// Takes back an approval of it that nothing will be run under.
    pub(super) fn revoke(&self, approval: Approval) -> Receipt<bool> {
        self.ledger.revoke_approval(approval)
    }

    /// Enters its end, and then does `then`; see [`Ledger::end_execution`].
    pub(super) fn close<F>(
        &self,
        execution: &Execution,
        finished: &Finished,
        outputs: Outputs,
        then: F,
    ) -> Ended<F>
    where
        F: FnOnce(Result<(), LedgerError>) + Send + 'static,
    {
        let is_new = {
            let mut pending = self.lock();
            pending.is_closed = true;
            !pending.is_open || pending.has_change
        };
        let written = is_new.then(|| self.write(execution)).flatten();
        let is_behind = written.is_some() || self.lock().is_followed;
        let summary = execution.summary();
        self.note(Event::of_ending(finished, &summary));
        let events = take_events(&mut self.lock(), execution);
        let Outputs {
            content,
            stdout,
            stderr,
            late,
        } = outputs;
        let close = CloseRecord {
            id: execution.id,
            status: finished.status,
            summary,
            ending: Json::of(&finished.ran),
            problem: finished.failure.as_ref().map(Json::of),
            usage: finished.run().map(|run| Json::of(&run.usage)),
            stages: Json::of(&(execution.timed, execution.stages())),
            // A process that could not execute its program was none.
            started_at: execution.started_at().filter(|_| finished.ran.is_some()),
            ended_at: finished.ended_at,
            approved: execution.approved(),
            content,
            stdout,
            stderr,
        };
        match is_behind {
            // What is only on its way into the file is there before the end is told.
            true => Ended::Queued(self.ledger.close(close, late, events), then),
            false => self.ledger.end_execution(close, late, events, then),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock()
    }
}

/// The texts of an execution, and where they are kept.
pub(super) struct Outputs {
    pub(super) content: Output,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    /// What is missing of the two.
    pub(super) late: Option<LateDigests>,
}

impl Outputs {
    /// Where the streams are kept, once they are where they will stay.
    pub(super) fn new(
        execution: &Execution,
        finished: &Finished,
        content: Output,
        digests: Digests,
    ) -> Self {
        let ([stdout, stderr], late) = if digests.are_at_hand() {
            (digests.compute(), None)
        } else {
            let late: LateDigests = Box::new(|| digests.compute());
            ([None, None], Some(late))
        };
        let stream = |name, digest| {
            let report = finished.run();
            let bytes = report.map_or(0, |report| report.bytes_of(name));
            let place = match (execution.stream(name).kept(), finished.verbatim().of(name)) {
                // What was left alive may still be writing to it.
                (Kept::File { length, .. }, _) => Place::Spool { bytes: length },
                (Kept::Memory(_) | Kept::Nowhere, Some(offset)) => Place::InContent {
                    offset: offset as u64,
                },
                // What is longer is in the spool, if there is one.
                (Kept::Memory(bytes), None) if (1..=KEPT_WITH_RECORD).contains(&bytes.len()) => {
                    Place::Inline(bytes.to_vec())
                }
                (Kept::Memory(_) | Kept::Nowhere, None) => Place::Nowhere,
            };
            Output {
                bytes,
                digest,
                place,
            }
        };
        Self {
            content,
            stdout: stream(StreamName::Stdout, stdout),
            stderr: stream(StreamName::Stderr, stderr),
            late,
        }
    }
}

fn take_events(pending: &mut Pending, execution: &Execution) -> Option<Events> {
    let happened = std::mem::take(&mut pending.happened);
    (!happened.is_empty()).then(|| Events {
        execution_id: Some(execution.id),
        tool: Some(execution.tool.clone()),
        caller_uid: Some(execution.caller.uid),
        happened,
    })
}

fn open_record(execution: &Execution, change: Change) -> OpenRecord {
    let call = execution.call();
    OpenRecord {
        id: execution.id,
        tool: execution.tool.clone(),
        caller_uid: execution.caller.uid,
        caller_gid: execution.caller.gid,
        call: Json::of(&*call),
        working_dir: call.working_dir.clone(),
        asynchronous: execution.terms.asynchronous,
        status: change.status.unwrap_or(Status::Running),
        created_at: execution.created_at,
        replay_of: execution.terms.replay_of,
        lineage: execution.family.lineage().cloned(),
        trace_id: execution.correlation.trace_id.clone(),
        tool_use_id: execution.tool_use_id.clone(),
        idempotency: None,
        ruling: change.ruling,
    }
}

/// Who approved an execution: the question and the user.
pub(super) type Approved = (ApprovalId, u32);
