//! An execution's way through the file: opened, changed, closed.

use std::borrow::Cow;
use std::collections::HashSet;

use rusqlite::{OptionalExtension as _, params};
use serde::Serialize;

use super::columns::{
    CLOSE, CLOSE_FROM, ENTER, ENTER_FROM, OPEN, Opening, all_bytes, bind_ending, insert,
};
use super::convert::{signed, word};
use super::event::NumberedEvents;
use super::log::{Extent, Told};
use super::record::{Change, Claim, CloseRecord, HashKept, OpenRecord};
use super::store::{Fault, Pending, Store};
use super::time::micros;
use super::{Digest, Json, LedgerError, read};
use crate::domain::{ApprovalId, ExecutionId, Ruling, Status, Verdict};

/// How far back in the trail one may be that is still in the log: both parts of shortest
/// lines, and two records in the trail for each.
const OPENINGS: u64 = 32_768;

const CHANGE: &str = "UPDATE executions SET status = ?2, facet = ?3, call = coalesce(?4, call),
    working_dir = coalesce(?5, working_dir), started_at = coalesce(?6, started_at), verdict = coalesce(?7, verdict),
    rule = coalesce(?8, rule), rule_source = coalesce(?9, rule_source) WHERE number = ?1";

/// What an open execution's row says that a change or the end of it must know.
pub(super) struct Row<'a> {
    number: i64,
    tool: Cow<'a, str>,
    status: Status,
    uid: u32,
    call: Digest,
    call_bytes: usize,
    verdict: Option<Verdict>,
    rule: Option<Cow<'a, str>>,
    rule_source: Option<Cow<'a, str>>,
}

impl<'a> Row<'a> {
    pub(super) fn of(record: &'a OpenRecord, number: i64, call: Digest) -> Self {
        let ruling = record.ruling.as_ref();
        Self {
            number,
            tool: Cow::Borrowed(&record.tool),
            status: record.status,
            uid: record.caller_uid,
            call,
            call_bytes: record.call.as_str().len(),
            verdict: ruling.map(|ruling| ruling.verdict),
            rule: ruling.and_then(|ruling| ruling.rule.as_deref().map(Cow::Borrowed)),
            rule_source: ruling.and_then(|ruling| ruling.source.as_deref().map(Cow::Borrowed)),
        }
    }
}

impl Store {
    /// Enters an execution. `first_event` is the number its first event can have at the least.
    pub(super) fn open(&mut self, record: &OpenRecord, first_event: u64) -> Result<(), Fault> {
        let columns = self.opening(record, record.status, first_event)?;
        insert(&mut *self.connection.prepare_cached(OPEN)?, &columns)?;
        self.append_decision(record, Digest::of(record.call.as_str().as_bytes()))
    }

    /// Enters an execution that has ended already, in one go.
    pub(super) fn enter(
        &mut self,
        record: &OpenRecord,
        first_event: u64,
        close: &CloseRecord,
    ) -> Result<(), Fault> {
        let columns = self.opening(record, close.status, first_event)?;
        let call = record.call.as_str();
        let number = {
            let mut statement = self.connection.prepare_cached(ENTER)?;
            bind_ending(&mut statement, ENTER_FROM, close, call.len())?;
            insert(&mut statement, &columns)?
        };
        let call = Digest::of(call.as_bytes());
        self.append_decision(record, call)?;
        self.append_ending(close, &Row::of(record, number, call))
    }

    fn opening<'a>(
        &mut self,
        record: &'a OpenRecord,
        status: Status,
        first_event: u64,
    ) -> Result<Opening<'a>, Fault> {
        Ok(Opening {
            facet: self.facet(&record.tool, status, record.caller_uid)?,
            record,
            status,
            first_event,
        })
    }

    fn append_decision(&mut self, record: &OpenRecord, call: Digest) -> Result<(), Fault> {
        if let Some(ruling) = &record.ruling {
            let decision = Decision::new(&record.tool, record.caller_uid, call, ruling);
            let time = micros(record.created_at);
            self.append("decision", Some(record.id), time, &decision)?;
        }
        Ok(())
    }

    /// Enters the executions out of the log that had not got here when the daemon died.
    pub(super) fn open_missing(&mut self, logged: &[OpenRecord]) -> Result<(), Fault> {
        let mut missing = Vec::new();
        for record in logged {
            let mut known = self
                .connection
                .prepare_cached("SELECT 1 FROM executions WHERE id = ?")?;
            if !known.exists([record.id.as_bytes()])? {
                missing.push(record);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        // One that was forgotten in between has its place in the trail.
        let ended: HashSet<Vec<u8>> = {
            let mut ended = self.connection.prepare(
                "SELECT execution_id FROM audit WHERE number > ? AND kind IN ('ending', 'lost')",
            )?;
            let from = self.head.number.saturating_sub(OPENINGS);
            let rows = ended.query_map([signed(from)], |row| row.get(0))?;
            rows.collect::<Result<_, _>>()?
        };
        for record in missing {
            if !ended.contains(record.id.as_bytes().as_slice()) {
                let event = self.next_event()?;
                self.open(record, event)?;
            }
        }
        Ok(())
    }

    /// Enters the ends out of the log that had not got here either; `hash` computes the digests that were
    /// late.
    pub(super) fn close_missing(
        &mut self,
        logged: Vec<Told>,
        hash: HashKept<'_>,
    ) -> Result<(), Fault> {
        for told in logged {
            let mut record = told.record;
            match self.row(record.id) {
                Ok(_) => {}
                // It has got here, and may be forgotten by now.
                Err(Fault::Refused(LedgerError::NotOpen { .. })) => continue,
                Err(fault) => return Err(fault),
            }
            let late = told.is_late.then(|| hash(&record));
            record.complete(late);
            let events = match (told.events, told.extent) {
                (Some(events), Extent::All) => {
                    let there = self.events_of(record.id)?.len();
                    Some(events.behind(there))
                }
                (events, Extent::All | Extent::Last) => events,
            };
            self.close(&record)?;
            if let Some(events) = events {
                let first = self.next_event()?;
                self.events(&NumberedEvents { first, events })?;
            }
        }
        Ok(())
    }

    /// Enters an execution unless its caller's key is taken.
    pub(super) fn claim(&mut self, record: &OpenRecord, first_event: u64) -> Result<Claim, Fault> {
        let Some(claim) = &record.idempotency else {
            self.open(record, first_event)?;
            return Ok(Claim::New);
        };
        let holder = read::holder(&self.connection, record.caller_uid, claim)?;
        if holder.is_none() {
            self.open(record, first_event)?;
        }
        Ok(holder.unwrap_or(Claim::New))
    }

    /// Lets go of the key of an execution that has ended.
    pub(super) fn release_key(&mut self, id: ExecutionId) -> Result<(), Fault> {
        self.connection
            .prepare_cached(
                "UPDATE executions SET idempotency_key = NULL, body_digest = NULL
                 WHERE id = ? AND ended_at IS NOT NULL",
            )?
            .execute([id.as_bytes()])?;
        Ok(())
    }

    /// Enters what became known of an open execution.
    pub(super) fn change(
        &mut self,
        id: ExecutionId,
        change: &Change,
        now: i64,
    ) -> Result<(), Fault> {
        let row = self.row(id)?;
        let status = change.status.unwrap_or(row.status);
        let facet = self.facet(&row.tool, status, row.uid)?;
        let ruling = change.ruling.as_ref();
        let call = change.call.as_ref().map(Json::as_str);
        self.connection.prepare_cached(CHANGE)?.execute(params![
            row.number,
            status.as_str(),
            facet,
            call,
            change.working_dir.as_ref().map(|dir| dir.to_string_lossy()),
            change.started_at.map(micros),
            ruling.map(|ruling| ruling.verdict.as_str()),
            ruling.and_then(|ruling| ruling.rule.as_ref()),
            ruling.and_then(|ruling| ruling.source.as_ref()),
        ])?;
        if let Some(ruling) = ruling {
            let call = call.map_or(row.call, |call| Digest::of(call.as_bytes()));
            let decision = Decision::new(&row.tool, row.uid, call, ruling);
            self.append("decision", Some(id), now, &decision)?;
        }
        Ok(())
    }

    /// Enters the end of an open execution.
    pub(super) fn close(&mut self, record: &CloseRecord) -> Result<(), Fault> {
        let row = self.row(record.id)?;
        let facet = self.facet(&row.tool, record.status, row.uid)?;
        {
            let mut update = self.connection.prepare_cached(CLOSE)?;
            update.raw_bind_parameter(1, row.number)?;
            update.raw_bind_parameter(2, record.status.as_str())?;
            update.raw_bind_parameter(3, facet)?;
            bind_ending(&mut update, CLOSE_FROM, record, row.call_bytes)?;
            update.raw_execute()?;
        }
        self.append_ending(record, &row)
    }

    fn append_ending(&mut self, record: &CloseRecord, row: &Row<'_>) -> Result<(), Fault> {
        let body = Ending::new(record, row);
        let kind = match record.status {
            Status::Lost => "lost",
            Status::Queued
            | Status::Waiting
            | Status::Running
            | Status::Success
            | Status::Error
            | Status::Timeout
            | Status::Cancelled
            | Status::Denied
            | Status::Failed => "ending",
        };
        self.append(kind, Some(record.id), micros(record.ended_at), &body)?;
        self.pending.push_back(Pending {
            number: row.number,
            audit: self.head.number,
            bytes: all_bytes(record, row.call_bytes),
        });
        Ok(())
    }

    /// The row of an execution that has not ended.
    fn row(&self, id: ExecutionId) -> Result<Row<'static>, Fault> {
        let row = self
            .connection
            .prepare_cached(
                "SELECT number, tool, status, caller_uid, call, verdict, rule, rule_source FROM executions
                 WHERE id = ? AND ended_at IS NULL",
            )?
            .query_row([id.as_bytes()], |row| {
                let call = row.get_ref(4)?.as_str()?;
                Ok(Row {
                    number: row.get(0)?,
                    tool: Cow::Owned(row.get(1)?),
                    status: word(row, 2, Status::from_word)?.unwrap_or(Status::Running),
                    uid: row.get(3)?,
                    call: Digest::of(call.as_bytes()),
                    call_bytes: call.len(),
                    verdict: word(row, 5, Verdict::from_word)?,
                    rule: row.get::<_, Option<String>>(6)?.map(Cow::Owned),
                    rule_source: row.get::<_, Option<String>>(7)?.map(Cow::Owned),
                })
            })
            .optional()?;
        row.ok_or(Fault::Refused(LedgerError::NotOpen { id }))
    }
}

/// What the audit trail keeps of what the policy said.
#[derive(Serialize)]
struct Decision<'a> {
    tool: &'a str,
    caller_uid: u32,
    call_sha256: Digest,
    verdict: Verdict,
    rule: Option<&'a str>,
    rule_source: Option<&'a str>,
}

impl<'a> Decision<'a> {
    fn new(tool: &'a str, caller_uid: u32, call_sha256: Digest, ruling: &'a Ruling) -> Self {
        Self {
            tool,
            caller_uid,
            call_sha256,
            verdict: ruling.verdict,
            rule: ruling.rule.as_deref(),
            rule_source: ruling.source.as_deref(),
        }
    }
}

/// What the audit trail keeps of an ending: enough to tell without the record who did what, and
/// to prove the record as long as it is there.
#[derive(Serialize)]
pub(super) struct Ending<'a> {
    tool: &'a str,
    caller_uid: u32,
    summary: &'a str,
    call_sha256: Digest,
    verdict: Option<Verdict>,
    rule: Option<&'a str>,
    rule_source: Option<&'a str>,
    approval_id: Option<ApprovalId>,
    approver_uid: Option<u32>,
    status: Status,
    ending: &'a Json,
    content_sha256: Option<Digest>,
    stdout_sha256: Option<Digest>,
    stderr_sha256: Option<Digest>,
}

impl<'a> Ending<'a> {
    pub(super) fn new(record: &'a CloseRecord, row: &'a Row<'_>) -> Self {
        let (approval_id, approver_uid) = record.approved.unzip();
        Self {
            tool: &row.tool,
            caller_uid: row.uid,
            summary: &record.summary,
            call_sha256: row.call,
            verdict: row.verdict,
            rule: row.rule.as_deref(),
            rule_source: row.rule_source.as_deref(),
            approval_id,
            approver_uid,
            status: record.status,
            ending: &record.ending,
            content_sha256: record.content.digest,
            stdout_sha256: record.stdout.digest,
            stderr_sha256: record.stderr.digest,
        }
    }
}
