//! The columns of an execution: what is bound where, and what of it is counted.

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Statement, ToSql, params};

use super::convert::signed;
use super::record::{CloseRecord, OpenRecord, Output, Place};
use super::store::Fault;
use super::time::micros;
use super::{Json, LedgerError};
use crate::domain::Status;

/// What a record takes besides its texts, in bytes: row, indices, events, audit.
const OVERHEAD: u64 = 1024;

/// The first twenty-two columns are known when an execution is opened, the others when it ends.
pub(super) const OPEN: &str = "INSERT INTO executions (number, id, facet, tool, status, caller_uid, caller_gid, asynchronous,
    call, working_dir, tool_use_id, trace_id, replay_of, idempotency_key, body_digest, verdict, rule, rule_source,
    first_event, created_at, parent_id, depth) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (number) DO NOTHING";

pub(super) const ENTER: &str = "INSERT INTO executions (number, id, facet, tool, status, caller_uid, caller_gid, asynchronous,
    call, working_dir, tool_use_id, trace_id, replay_of, idempotency_key, body_digest, verdict, rule, rule_source,
    first_event, created_at, parent_id, depth, ending, problem, usage, stages, started_at, ended_at, approval_id, approver_uid,
    content_sha256, stdout_bytes, stdout_sha256, stderr_bytes, stderr_sha256, kept_bytes, kept, content, stdout, stderr)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (number) DO NOTHING";

pub(super) const CLOSE: &str = "UPDATE executions SET status = ?2, facet = ?3, ending = ?4, problem = ?5, usage = ?6, stages = ?7,
    started_at = coalesce(?8, started_at), ended_at = ?9, approval_id = ?10, approver_uid = ?11, content_sha256 = ?12,
    stdout_bytes = ?13, stdout_sha256 = ?14, stderr_bytes = ?15, stderr_sha256 = ?16, kept_bytes = ?17, kept = ?18,
    content = ?19, stdout = ?20, stderr = ?21 WHERE number = ?1";

/// Where the columns of an ending begin in [`CLOSE`] and [`ENTER`].
pub(super) const CLOSE_FROM: usize = 4;
pub(super) const ENTER_FROM: usize = 23;

/// What an execution's row says from the first.
pub(super) struct Opening<'a> {
    pub record: &'a OpenRecord,
    pub facet: i64,
    pub status: Status,
    pub first_event: u64,
}

/// Enters a row, whose number it returns: two calls in one microsecond, and the later one goes
/// behind. The columns that it does not know have been bound, if there are any.
pub(super) fn insert(statement: &mut Statement<'_>, columns: &Opening<'_>) -> Result<i64, Fault> {
    let record = columns.record;
    let ruling = record.ruling.as_ref();
    let claim = record.idempotency.as_ref();
    let created_at = micros(record.created_at);
    let dir = record.working_dir.as_ref().map(|dir| dir.to_string_lossy());
    let replay_of = record.replay_of.as_ref();
    let parent = record.lineage.as_ref().map(|lineage| &lineage.parent);
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
        parent.map(|parent| parent.as_bytes().as_slice()),
        record.lineage.as_ref().map_or(0, |lineage| lineage.depth),
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
pub(super) fn bind_ending(
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

/// Half of an execution's columns are NULL, and are so already: rusqlite's cache hands statements out with nothing bound.
fn bind(statement: &mut Statement<'_>, from: usize, values: &[&dyn ToSql]) -> rusqlite::Result<()> {
    for (index, value) in (from..).zip(values) {
        let value = value.to_sql()?;
        let is_null = matches!(
            value,
            ToSqlOutput::Borrowed(ValueRef::Null) | ToSqlOutput::Owned(Value::Null)
        );
        if !is_null {
            statement.raw_bind_parameter(index, value)?;
        }
    }
    Ok(())
}

/// What an execution takes, here and in the spool.
pub(super) fn all_bytes(record: &CloseRecord, call_bytes: usize) -> u64 {
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
