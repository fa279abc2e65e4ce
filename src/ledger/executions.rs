//! An execution's way through the file: opened, changed, closed.

use rusqlite::{OptionalExtension as _, params};
use serde_json::{Value, json};

use super::convert::{signed, word};
use super::record::{Change, Claim, CloseRecord, OpenRecord, Output, Place};
use super::store::{Fault, Pending, Store};
use super::time::micros;
use super::{Digest, LedgerError};
use crate::domain::{ExecutionId, Ruling, Status, Verdict};

/// What a record takes besides its texts, in bytes: row, indices, events, audit.
const OVERHEAD: u64 = 1024;

const INSERT: &str = "INSERT INTO executions (number, id, facet, tool, status, caller_uid, caller_gid, asynchronous,
    call, working_dir, tool_use_id, trace_id, replay_of, idempotency_key, body_digest, verdict, rule, rule_source,
    first_event, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (number) DO NOTHING";

const CHANGE: &str = "UPDATE executions SET status = ?2, facet = ?3, call = coalesce(?4, call),
    working_dir = coalesce(?5, working_dir), started_at = coalesce(?6, started_at), verdict = coalesce(?7, verdict),
    rule = coalesce(?8, rule), rule_source = coalesce(?9, rule_source) WHERE number = ?1";

const CLOSE: &str = "UPDATE executions SET status = ?2, facet = ?3, ending = ?4, problem = ?5, usage = ?6, stages = ?7,
    started_at = coalesce(?8, started_at), ended_at = ?9, approval_id = ?10, approver_uid = ?11, content_sha256 = ?12,
    stdout_bytes = ?13, stdout_sha256 = ?14, stderr_bytes = ?15, stderr_sha256 = ?16, kept_bytes = ?17, kept = ?18,
    content = ?19, stdout = ?20, stderr = ?21 WHERE number = ?1";

/// What an open execution's row says that a change or the end of it must know.
struct Row {
    number: i64,
    tool: String,
    status: Status,
    uid: u32,
    call: Digest,
    call_bytes: u64,
    verdict: Option<Verdict>,
    rule: Option<String>,
    rule_source: Option<String>,
}

impl Store {
    /// Enters an execution. `first_event` is the number its first event can have at the least.
    pub(super) fn open(&mut self, record: &OpenRecord, first_event: u64) -> Result<(), Fault> {
        let facet = self.facet(&record.tool, record.status, record.caller_uid)?;
        let created_at = micros(record.created_at);
        let mut insert = self.connection.prepare_cached(INSERT)?;
        let call = record.call.to_string();
        let ruling = record.ruling.as_ref();
        // Two calls in one microsecond: the later one goes behind.
        for number in created_at.. {
            let inserted = insert.execute(params![
                number,
                record.id.as_bytes(),
                facet,
                record.tool,
                record.status.as_str(),
                record.caller_uid,
                record.caller_gid,
                record.asynchronous,
                call,
                record.working_dir.as_ref().map(|dir| dir.to_string_lossy()),
                record.tool_use_id,
                record.trace_id.as_ref().map(|id| id.as_str()),
                record.replay_of.as_ref().map(|id| id.as_bytes().as_slice()),
                record.idempotency.as_ref().map(|claim| &claim.key),
                record.idempotency.as_ref().map(|claim| claim.body_digest.0),
                ruling.map(|ruling| ruling.verdict.as_str()),
                ruling.and_then(|ruling| ruling.rule.as_ref()),
                ruling.and_then(|ruling| ruling.source.as_ref()),
                signed(first_event),
                created_at,
            ]);
            match inserted {
                Ok(0) => {}
                Ok(_) => break,
                Err(error) if is_constraint(&error) => {
                    return Err(Fault::Refused(LedgerError::Duplicate { id: record.id }));
                }
                Err(error) => return Err(error.into()),
            }
        }
        drop(insert);
        if let Some(ruling) = ruling {
            let decision = Decision {
                tool: &record.tool,
                uid: record.caller_uid,
                call: Digest::of(call.as_bytes()),
                ruling,
            };
            self.append("decision", Some(record.id), created_at, &decision.body())?;
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
        let call = change.call.as_ref().map(Value::to_string);
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
            let decision = Decision {
                tool: &row.tool,
                uid: row.uid,
                call: call.map_or(row.call, |call| Digest::of(call.as_bytes())),
                ruling,
            };
            self.append("decision", Some(id), now, &decision.body())?;
        }
        Ok(())
    }

    /// Enters the end of an open execution.
    pub(super) fn close(&mut self, record: &CloseRecord) -> Result<(), Fault> {
        let row = self.row(record.id)?;
        let facet = self.facet(&row.tool, record.status, row.uid)?;
        let texts = [&record.content, &record.stdout, &record.stderr];
        let bytes = OVERHEAD
            + row.call_bytes
            + texts
                .map(|text| kept_bytes(&text.place))
                .iter()
                .sum::<u64>();
        let kept = json!([record.content.bytes, texts.map(|text| &text.place)]).to_string();
        let (approval, approver) = record.approved.unzip();
        self.connection.prepare_cached(CLOSE)?.execute(params![
            row.number,
            record.status.as_str(),
            facet,
            record.ending.to_string(),
            record.problem.as_ref().map(Value::to_string),
            record.usage.as_ref().map(Value::to_string),
            record.stages.to_string(),
            record.started_at.map(micros),
            micros(record.ended_at),
            approval.as_ref().map(|id| id.as_bytes().as_slice()),
            approver,
            sha256(&record.content),
            signed(record.stdout.bytes),
            sha256(&record.stdout),
            signed(record.stderr.bytes),
            sha256(&record.stderr),
            signed(bytes),
            kept,
            inline(&record.content).map(String::from_utf8_lossy),
            inline(&record.stdout),
            inline(&record.stderr),
        ])?;
        let body = ending(record, &row);
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
            bytes,
        });
        Ok(())
    }

    /// The row of an execution that has not ended.
    fn row(&self, id: ExecutionId) -> Result<Row, Fault> {
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
                    tool: row.get(1)?,
                    status: word(row, 2, Status::from_word)?.unwrap_or(Status::Running),
                    uid: row.get(3)?,
                    call: Digest::of(call.as_bytes()),
                    call_bytes: call.len() as u64,
                    verdict: word(row, 5, Verdict::from_word)?,
                    rule: row.get(6)?,
                    rule_source: row.get(7)?,
                })
            })
            .optional()?;
        row.ok_or(Fault::Refused(LedgerError::NotOpen { id }))
    }
}

/// What the audit trail keeps of what the policy said.
struct Decision<'a> {
    tool: &'a str,
    uid: u32,
    call: Digest,
    ruling: &'a Ruling,
}

impl Decision<'_> {
    fn body(&self) -> Value {
        json!({
            "tool": self.tool,
            "caller_uid": self.uid,
            "call_sha256": self.call.to_string(),
            "verdict": self.ruling.verdict.as_str(),
            "rule": self.ruling.rule,
            "rule_source": self.ruling.source,
        })
    }
}

/// What the audit trail keeps of an ending: enough to tell without the record who did what, and
/// to prove the record as long as it is there.
fn ending(record: &CloseRecord, row: &Row) -> Value {
    let hex = |text: &Output| text.digest.map(|digest| digest.to_string());
    json!({
        "tool": row.tool,
        "caller_uid": row.uid,
        "summary": record.summary,
        "call_sha256": row.call.to_string(),
        "verdict": row.verdict.map(Verdict::as_str),
        "rule": row.rule,
        "rule_source": row.rule_source,
        "approval_id": record.approved.map(|(id, _)| id.to_string()),
        "approver_uid": record.approved.map(|(_, uid)| uid),
        "status": record.status.as_str(),
        "ending": record.ending,
        "content_sha256": hex(&record.content),
        "stdout_sha256": hex(&record.stdout),
        "stderr_sha256": hex(&record.stderr),
    })
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
