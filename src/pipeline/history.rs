//! What was executed, and what happens: asked of the ledger.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use super::execution::{Execution, Terms};
use super::executor::{Executor, Inner};
use super::record::{digests, kept};
use super::{Begun, Brief, Event, Record, beside, remembered};
use crate::domain::{Caller, ExecutionId, StreamName, TraceParent};
use crate::ledger::{
    CloseRecord, Cursor, EventFilter, EventPage, Events, ExecutionRecord, Filter, Head,
    LedgerError, Limits, Link, NumberedEvents, Verified,
};
use crate::runner::Kept;

/// An execution that was asked for.
#[derive(Debug)]
pub enum Found {
    /// It is under way, or has only just ended.
    Live(Arc<Execution>),
    /// It is history.
    Past(Box<Record>),
}

impl Found {
    /// Its id.
    pub fn id(&self) -> ExecutionId {
        match self {
            Self::Live(execution) => execution.id,
            Self::Past(record) => record.id,
        }
    }

    /// Whose call it is of.
    pub fn caller_uid(&self) -> u32 {
        match self {
            Self::Live(execution) => execution.caller.uid,
            Self::Past(record) => record.caller_uid,
        }
    }

    /// Its record as it stands.
    pub fn into_record(self) -> Record {
        match self {
            Self::Live(execution) => execution.record(),
            Self::Past(record) => *record,
        }
    }
}

/// One page of history.
#[derive(Debug)]
pub struct HistoryPage {
    /// Newest first.
    pub executions: Vec<Brief>,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
}

/// Why an execution cannot be repeated.
#[derive(Debug, thiserror::Error)]
pub enum CannotReplay {
    /// Nobody knows it.
    #[error("there is no such execution")]
    Unknown,
    /// Its record is not the call.
    #[error(
        "secrets were masked in the record of this call, so that it cannot be repeated: send the call itself again"
    )]
    Masked,
    /// The history cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Inner {
    /// The record of an execution that is over, with its text if there is one: it may be forgotten at any moment.
    pub(super) async fn recall(&self, id: ExecutionId) -> Result<Option<Record>, LedgerError> {
        let Some(ledger) = &self.ledger else {
            return Ok(None);
        };
        let Some(record) = ledger.get(id).await? else {
            return Ok(None);
        };
        let (spool, config) = (self.spool.clone(), self.config());
        let read = move || {
            let record = Record::from_ledger(record, spool.as_ref(), &config);
            let finished = record.finished.as_ref();
            let is_whole = finished.map_or(Ok(true), |finished| finished.hold_text());
            is_whole.map(|is_whole| (record, is_whole))
        };
        let read = beside(read).await;
        let (record, is_whole) = read.map_err(|error| LedgerError::Text {
            id,
            reason: Arc::new(error),
        })?;
        // What is forgotten is first gone from the ledger.
        let is_forgotten = !is_whole && ledger.get(id).await?.is_none();
        Ok((!is_forgotten).then_some(record))
    }
}

impl Executor {
    /// An execution that is under way or remembered.
    ///
    /// # Errors
    /// When the history cannot be read.
    pub async fn find(&self, id: ExecutionId) -> Result<Option<Found>, LedgerError> {
        if let Some(execution) = self.inner.records.find(id) {
            return Ok(Some(Found::Live(execution)));
        }
        let record = self.inner.recall(id).await?;
        Ok(record.map(|record| Found::Past(Box::new(record))))
    }

    /// What came of an execution by calls of its tool, theirs among it, oldest first.
    ///
    /// # Errors
    /// When the history cannot be read.
    pub async fn descendants(&self, id: ExecutionId) -> Result<Vec<Record>, LedgerError> {
        let Some(ledger) = &self.inner.ledger else {
            return Ok(descendants(id, self.inner.records.all()));
        };
        let records = ledger.descendants(id).await?;
        // As most have none.
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let executor = self.clone();
        let newest = move || {
            let newest = records.into_iter().map(|record| executor.newest(record));
            newest.collect()
        };
        Ok(beside(newest).await)
    }

    /// What the ledger has of an execution, unless more is known here, as of one under way.
    fn newest(&self, record: ExecutionRecord) -> Record {
        match self.inner.records.find(record.open.id) {
            Some(live) => live.record(),
            None => Record::from_ledger(record, self.inner.spool.as_ref(), &self.config()),
        }
    }

    /// One output stream of an execution that is over, as far as it is kept.
    ///
    /// # Errors
    /// When the history cannot be read.
    pub async fn kept(&self, id: ExecutionId, name: StreamName) -> Result<Kept, LedgerError> {
        let Some(ledger) = &self.inner.ledger else {
            return Ok(Kept::Nowhere);
        };
        let record = ledger.get(id).await?;
        Ok(record.map_or(Kept::Nowhere, |record| {
            kept(record, self.inner.spool.as_ref(), name)
        }))
    }

    /// What there was to see of the streams of an execution that is over: of each the first `cap` bytes, as far as it
    /// is kept. One that is not is left out.
    pub async fn written(&self, record: &Record, cap: usize) -> Vec<(StreamName, Bytes)> {
        let run = record.finished.as_ref().and_then(|finished| finished.run());
        let mut written = Vec::new();
        for name in [StreamName::Stdout, StreamName::Stderr] {
            let kept = match self.inner.records.find(record.id) {
                Some(live) => live.kept(name),
                None => self.kept(record.id, name).await.unwrap_or(Kept::Nowhere),
            };
            // What was left alive may have gone on writing to it.
            let length = run.map_or(u64::MAX, |run| run.bytes_of(name));
            let read = beside(move || kept.head(length.min(cap as u64))).await;
            written.extend(read.ok().flatten().map(|bytes| (name, bytes)));
        }
        written
    }

    /// A page of history. Without a ledger it is what is remembered, all that fits on one page.
    ///
    /// # Errors
    /// When the history cannot be read, and for a text without a word.
    pub async fn history(&self, filter: Filter) -> Result<HistoryPage, LedgerError> {
        let Some(ledger) = &self.inner.ledger else {
            let remembered = self.inner.records.all();
            let fitting = move || remembered::fitting(remembered, &filter);
            // Texts may be on disk.
            let records = tokio::task::spawn_blocking(fitting).await;
            let records = records.unwrap_or(Err(LedgerError::Closed))?;
            return Ok(HistoryPage {
                executions: records.iter().map(Brief::from).collect(),
                next: None,
            });
        };
        let status = filter.status;
        let page = ledger.list(filter, Brief::of).await?;
        let listed = page.records.into_iter();
        let newest = listed.map(|listed| match self.inner.records.find(listed.id) {
            Some(live) => Brief::from(&live.record()),
            None => listed,
        });
        // What the file has been asked for may be another's by now.
        let fitting = newest.filter(|brief| status.is_none_or(|status| brief.status == status));
        Ok(HistoryPage {
            executions: fitting.collect(),
            next: page.next,
        })
    }

    /// Forgets every execution that has ended, and says how many. The
    /// audit trail stays, and says who did it. To be polled to its end, or the rest stays.
    ///
    /// # Errors
    /// When the history cannot be written; some may be forgotten by then.
    pub async fn clear_history(&self, by: &Caller) -> Result<usize, LedgerError> {
        let Some(ledger) = &self.inner.ledger else {
            return Ok(self.inner.records.clear());
        };
        let mut count = 0;
        let mut removing = Vec::new();
        let forgotten = |ids: Vec<ExecutionId>| {
            count += ids.len();
            removing.extend(self.remove_outputs(ids));
        };
        let cleared = ledger.clear(by.uid, forgotten).await;
        // Who hears that it is forgotten may have had a reason.
        for removed in removing {
            let _ = removed.await;
        }
        cleared?;
        Ok(count + self.inner.records.clear())
    }

    /// Forgets the oldest executions until what is configured holds. Call it now and then.
    ///
    /// # Errors
    /// When the history cannot be written.
    pub async fn prune_history(&self) -> Result<(), LedgerError> {
        let Some(ledger) = &self.inner.ledger else {
            return Ok(());
        };
        if let Some(spool) = &self.inner.spool {
            ledger.discount(&spool.take_given_up()).await?;
        }
        let history = self.config().history;
        let limits = Limits {
            max_count: Some(history.max_count),
            not_before: history
                .max_age
                .and_then(|age| SystemTime::now().checked_sub(age)),
            max_total_bytes: Some(history.max_total_bytes),
        };
        ledger
            .prune(limits, |ids| drop(self.remove_outputs(ids)))
            .await
    }

    fn remove_outputs(&self, ids: Vec<ExecutionId>) -> Option<JoinHandle<()>> {
        let spool = self.inner.spool.clone().filter(|_| !ids.is_empty())?;
        // Each takes a system call or three, and there may be thousands.
        let remove = move || ids.into_iter().for_each(|id| spool.remove(id));
        Some(tokio::task::spawn_blocking(remove))
    }

    /// Makes a call again that is on record: a new execution of `caller`'s, judged anew, and a part of `trace`.
    ///
    /// # Errors
    /// See [`CannotReplay`].
    pub async fn replay(
        &self,
        id: ExecutionId,
        trace: Option<TraceParent>,
        caller: Caller,
        terms: Terms,
    ) -> Result<Begun, CannotReplay> {
        let found = self.find(id).await?.ok_or(CannotReplay::Unknown)?;
        let record = found.into_record();
        let call = record.call.call(&record.tool, None);
        let mut call = call.ok_or(CannotReplay::Masked)?;
        if let Some(TraceParent { trace, parent }) = trace {
            call.options.trace_id = Some(trace);
            call.options.parent = Some(parent);
        }
        let terms = Terms {
            replay_of: Some(id),
            ..terms
        };
        Ok(self.begin(call, caller, terms).await)
    }

    /// Says that something has happened that concerns no execution.
    pub fn announce(&self, event: Event) {
        if let Some(ledger) = &self.inner.ledger {
            drop(ledger.record_events(Events {
                execution_id: None,
                tool: None,
                caller_uid: None,
                happened: [(SystemTime::now(), event)].into_iter().collect(),
            }));
        }
    }

    /// Follows what happens from now on; `None` where nothing is recorded. Whoever falls behind
    /// reads on with [`Self::events`].
    pub fn follow_events(&self) -> Option<broadcast::Receiver<Arc<NumberedEvents>>> {
        let ledger = self.inner.ledger.as_ref()?;
        Some(ledger.follow())
    }

    /// The number of the last event there is.
    pub fn last_event(&self) -> u64 {
        let ledger = self.inner.ledger.as_ref();
        ledger.map_or(0, crate::ledger::Ledger::last_event)
    }

    /// What has happened after a number, of `limit` batches.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn events(
        &self,
        after: u64,
        filter: EventFilter,
        limit: usize,
    ) -> Result<EventPage, LedgerError> {
        let Some(ledger) = &self.inner.ledger else {
            return Ok(EventPage {
                events: Vec::new(),
                through: after,
                has_more: false,
                kept_from: 0,
            });
        };
        ledger.events(after, filter, limit).await
    }

    /// The end of the audit trail; `None` where there is none.
    pub fn audit_head(&self) -> Option<Head> {
        self.inner.ledger.as_ref().map(crate::ledger::Ledger::head)
    }

    /// Checks the whole audit trail, against heads that were written down elsewhere, and what is kept of executions
    /// against it; `None` where there is no trail.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn verify_audit(&self, known: Vec<Head>) -> Result<Option<Verified>, LedgerError> {
        let spool = self.inner.spool.clone();
        let hash = move |close: &CloseRecord| digests(close, spool.as_ref());
        match &self.inner.ledger {
            Some(ledger) => ledger.verify_audit(known, hash).await.map(Some),
            None => Ok(None),
        }
    }

    /// What `of` makes of records of the audit trail after a number, in order: of some, of none where there is no further
    /// one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn audit_after<T: Send + 'static>(
        &self,
        after: u64,
        of: impl FnOnce(Vec<Link>) -> T + Send + 'static,
    ) -> Result<T, LedgerError> {
        match &self.inner.ledger {
            Some(ledger) => ledger.audit_after(after, of).await,
            None => Ok(of(Vec::new())),
        }
    }
}

/// Those of `all`, newest first, that came of `id`; oldest first.
fn descendants(id: ExecutionId, all: Vec<Record>) -> Vec<Record> {
    let mut family = HashSet::from([id]);
    let mut below: Vec<Record> = all;
    below.reverse();
    below.retain(|record| {
        let parent = record.lineage.as_ref().map(|lineage| lineage.parent);
        parent.is_some_and(|parent| family.contains(&parent)) && family.insert(record.id)
    });
    below
}
