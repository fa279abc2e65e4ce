//! An execution's way through the file: opened, changed, closed.

use std::borrow::Cow;
use std::collections::HashSet;

use rusqlite::{OptionalExtension as _, Statement, ToSql, params};
use serde::Serialize;

use super::convert::{signed, word};
use super::record::{
    Change, Claim, CloseRecord, Events, NumberedEvents, OpenRecord, Output, Place,
};
use super::store::{Fault, Pending, Store};
use super::time::micros;
use super::{Digest, Json, LedgerError};
use crate::domain::{ApprovalId, ExecutionId, Ruling, Status, Verdict};

/// How far back in the trail one may be that is still in a log of openings: two logs of shortest
/// lines, and two records in the trail for each.
const OPENINGS: u64 = 32_768;

/// What a record takes besides its texts, in bytes: row, indices, events, audit.
const OVERHEAD: u64 = 1024;

/// The first twenty columns are known when an execution is opened, the others when it ends.
const OPEN: &str = "INSERT INTO executions (number, id, facet, tool, status, caller_uid, caller_gid, asynchronous,
    call, working_dir, tool_use_id, trace_id, replay_of, idempotency_key, body_digest, verdict, rule, rule_source,
    first_event, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (number) DO NOTHING";

const ENTER: &str = "INSERT INTO executions (number, id, facet, tool, status, caller_uid, caller_gid, asynchronous,
    call, working_dir, tool_use_id, trace_id, replay_of, idempotency_key, body_digest, verdict, rule, rule_source,
    first_event, created_at, ending, problem, usage, stages, started_at, ended_at, approval_id, approver_uid,
    content_sha256, stdout_bytes, stdout_sha256, stderr_bytes, stderr_sha256, kept_bytes, kept, content, stdout, stderr)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (number) DO NOTHING";

const CHANGE: &str = "UPDATE executions SET status = ?2, facet = ?3, call = coalesce(?4, call),
    working_dir = coalesce(?5, working_dir), started_at = coalesce(?6, started_at), verdict = coalesce(?7, verdict),
    rule = coalesce(?8, rule), rule_source = coalesce(?9, rule_source) WHERE number = ?1";

const CLOSE: &str = "UPDATE executions SET status = ?2, facet = ?3, ending = ?4, problem = ?5, usage = ?6, stages = ?7,
    started_at = coalesce(?8, started_at), ended_at = ?9, approval_id = ?10, approver_uid = ?11, content_sha256 = ?12,
    stdout_bytes = ?13, stdout_sha256 = ?14, stderr_bytes = ?15, stderr_sha256 = ?16, kept_bytes = ?17, kept = ?18,
    content = ?19, stdout = ?20, stderr = ?21 WHERE number = ?1";

/// Where the columns of an ending begin in [`CLOSE`] and [`ENTER`].
const CLOSE_FROM: usize = 4;
const ENTER_FROM: usize = 21;

/// What an open execution's row says that a change or the end of it must know.
struct Row<'a> {
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

/// What an execution's row says from the first.
struct Opening<'a> {
    record: &'a OpenRecord,
    facet: i64,
    status: Status,
    first_event: u64,
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
        let ruling = record.ruling.as_ref();
        let row = Row {
            number,
            tool: Cow::Borrowed(&record.tool),
            status: record.status,
            uid: record.caller_uid,
            call,
            call_bytes: record.call.as_str().len(),
            verdict: ruling.map(|ruling| ruling.verdict),
            rule: ruling.and_then(|ruling| ruling.rule.as_deref().map(Cow::Borrowed)),
            rule_source: ruling.and_then(|ruling| ruling.source.as_deref().map(Cow::Borrowed)),
        };
        self.append_ending(close, &row)
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
                "SELECT execution_id FROM audit WHERE number > ? AND execution_id IS NOT NULL",
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

    /// Enters the ends out of the log that had not got here either.
    pub(super) fn close_missing(
        &mut self,
        logged: Vec<(CloseRecord, Option<Events>)>,
    ) -> Result<(), Fault> {
        for (record, events) in logged {
            match self.close(&record) {
                Ok(()) => {}
                // It has got here, and may be forgotten by now.
                Err(Fault::Refused(LedgerError::NotOpen { .. })) => continue,
                Err(fault) => return Err(fault),
            }
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
        let holder = self
            .connection
            .prepare_cached(
                "SELECT id, body_digest, ended_at IS NOT NULL FROM executions
                 WHERE caller_uid = ? AND idempotency_key = ?",
            )?
            .query_row(params![record.caller_uid, claim.key], |row| {
                let id: [u8; 16] = row.get(0)?;
                let digest: [u8; 32] = row.get(1)?;
                Ok((ExecutionId::from_bytes(id), Digest(digest), row.get(2)?))
            })
            .optional()?;
        match holder {
            None => {
                self.open(record, first_event)?;
                Ok(Claim::New)
            }
            Some((id, digest, _)) if digest != claim.body_digest => Ok(Claim::Conflict(id)),
            Some((id, _, true)) => Ok(Claim::Finished(id)),
            Some((id, _, false)) => Ok(Claim::InProgress(id)),
        }
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
struct Ending<'a> {
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
    fn new(record: &'a CloseRecord, row: &'a Row<'_>) -> Self {
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

/// Enters a row, whose number it returns: two calls in one microsecond, and the later one goes
/// behind. The columns that it does not know have been bound, if there are any.
fn insert(statement: &mut Statement<'_>, columns: &Opening<'_>) -> Result<i64, Fault> {
    let record = columns.record;
    let ruling = record.ruling.as_ref();
    let claim = record.idempotency.as_ref();
    let created_at = micros(record.created_at);
    let dir = record.working_dir.as_ref().map(|dir| dir.to_string_lossy());
    let replay_of = record.replay_of.as_ref();
    let known = params![
        record.id.as_bytes(),
        columns.facet,
        record.tool,
        columns.status.as_str(),
        record.caller_uid,
        record.caller_gid,
        record.asynchronous,
        record.call.as_str(),
        dir,
        record.tool_use_id,
        record.trace_id.as_ref().map(|id| id.as_str()),
        replay_of.map(|id| id.as_bytes().as_slice()),
        claim.map(|claim| &claim.key),
        claim.map(|claim| claim.body_digest.0),
        ruling.map(|ruling| ruling.verdict.as_str()),
        ruling.and_then(|ruling| ruling.rule.as_ref()),
        ruling.and_then(|ruling| ruling.source.as_ref()),
        signed(columns.first_event),
        created_at,
    ];
    bind(statement, 2, known)?;
    let mut number = created_at;
    loop {
        statement.raw_bind_parameter(1, number)?;
        match statement.raw_execute() {
            Ok(0) => number += 1,
            Ok(_) => return Ok(number),
            Err(error) if is_constraint(&error) => {
                return Err(Fault::Refused(LedgerError::Duplicate { id: record.id }));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Binds what is known at the end, in the order in which [`CLOSE`] and [`ENTER`] have it.
fn bind_ending(
    statement: &mut Statement<'_>,
    from: usize,
    record: &CloseRecord,
    call_bytes: usize,
) -> rusqlite::Result<()> {
    let texts = [&record.content, &record.stdout, &record.stderr];
    let kept = Json::of(&(record.content.bytes, texts.map(|text| &text.place)));
    let (approval, approver) = record.approved.unzip();
    let known = params![
        record.ending.as_str(),
        record.problem.as_ref().map(Json::as_str),
        record.usage.as_ref().map(Json::as_str),
        record.stages.as_str(),
        record.started_at.map(micros),
        micros(record.ended_at),
        approval.as_ref().map(|id| id.as_bytes().as_slice()),
        approver,
        sha256(&record.content),
        signed(record.stdout.bytes),
        sha256(&record.stdout),
        signed(record.stderr.bytes),
        sha256(&record.stderr),
        signed(all_bytes(record, call_bytes)),
        kept.as_str(),
        inline(&record.content).map(String::from_utf8_lossy),
        inline(&record.stdout),
        inline(&record.stderr),
    ];
    bind(statement, from, known)
}

fn bind(statement: &mut Statement<'_>, from: usize, values: &[&dyn ToSql]) -> rusqlite::Result<()> {
    for (index, value) in (from..).zip(values) {
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
}

/// What an execution takes, here and in the spool.
fn all_bytes(record: &CloseRecord, call_bytes: usize) -> u64 {
    let texts = [&record.content, &record.stdout, &record.stderr];
    let kept: u64 = texts.map(|text| kept_bytes(&text.place)).iter().sum();
    OVERHEAD + call_bytes as u64 + kept
}

fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

fn sha256(text: &Output) -> Option<[u8; 32]> {
    text.digest.map(|digest| digest.0)
}

fn inline(text: &Output) -> Option<&[u8]> {
    match &text.place {
        Place::Inline(bytes) => Some(bytes),
        Place::Nowhere | Place::InContent { .. } | Place::Spool { .. } => None,
    }
}

fn kept_bytes(place: &Place) -> u64 {
    match place {
        Place::Nowhere | Place::InContent { .. } => 0,
        Place::Inline(bytes) => bytes.len() as u64,
        Place::Spool { bytes } => *bytes,
    }
}
