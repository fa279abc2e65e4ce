//! What a daemon that did not end its executions has left open in the file.

use std::time::SystemTime;

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::event::{EventFilter, Events, NumberedEvent, NumberedEvents};
use super::record::{Approval, ApprovalStatus, CloseRecord, Decision, OpenRecord, Output};
use super::store::{Fault, Store};
use super::time::micros;
use super::{Json, approvals, read};
use crate::domain::{ApprovalId, ExecutionId, Failure, Stage, StageTimes, Status};

/// What was open when the ledger was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// What became of these is not known; their records say `lost`.
    pub lost: Vec<OpenRecord>,
    /// These nobody waits for, and their approval is still pending, or was given, denied or lapsed when nobody was
    /// there any more to be told: they stay [`Status::Waiting`].
    pub waiting: Vec<Waiting>,
}

/// An execution that goes on waiting for its approval.
#[derive(Debug)]
pub struct Waiting {
    /// What was called.
    pub record: super::ExecutionRecord,
    /// What it waits for. It may have been approved, but not used, or denied before the restart, and its time may be over.
    pub approval: Approval,
}

impl Recovered {
    /// Of which nobody knows what became.
    pub fn lost_ids(&self) -> Vec<ExecutionId> {
        self.lost.iter().map(|record| record.id).collect()
    }
}

impl Store {
    /// Closes what is open, in one transaction of the caller's.
    pub(super) fn recover(&mut self, now: SystemTime) -> Result<Recovered, Fault> {
        let mut recovered = Recovered::default();
        let mut event = self.next_event()?;
        for record in read::open_ones(&self.connection)? {
            let id = record.open.id;
            let approvals = self.unused_approvals(id)?;
            let waits = record.open.asynchronous && record.open.status == Status::Waiting;
            let refused = self.refused_approval(id)?;
            if let Some(approval) = refused.as_ref().or(approvals.last()).filter(|_| waits) {
                let approval = approval.clone();
                recovered.waiting.push(Waiting { record, approval });
                continue;
            }
            let call: Value = record.open.call.read().unwrap_or_default();
            let summary = call["summary"].as_str().unwrap_or_default();
            let told = self.events_of(id)?;
            let mut happened = Vec::new();
            if told.is_empty() {
                // It died with the first of them on its way.
                let started = json!({"type": "executionStarted", "summary": summary});
                happened.push((record.open.created_at, started));
            }
            for approval in approvals {
                happened.push((now, self.withdraw(&approval, now)?));
            }
            let approved = self.used_approval(id)?;
            self.close(&CloseRecord {
                approved,
                summary: summary.to_owned(),
                stages: Json::of(&(true, stages(&told))),
                ..lost(id, now)
            })?;
            let aborted = json!({
                "type": "executionAborted", "status": Status::Lost,
                "summary": summary, "detail": Failure::LOST,
            });
            happened.push((now, aborted));
            let count = happened.len() as u64;
            self.events(&NumberedEvents {
                first: event,
                events: Events {
                    execution_id: Some(id),
                    tool: Some(record.open.tool.clone()),
                    caller_uid: Some(record.open.caller_uid),
                    happened: happened.into_iter().collect(),
                },
            })?;
            event += count;
            recovered.lost.push(record.open);
        }
        self.withdraw_the_rest(&recovered, now, event)?;
        Ok(recovered)
    }

    /// Withdraws what is still asked about executions that have ended: the disk was full when nobody asked any more.
    fn withdraw_the_rest(
        &mut self,
        recovered: &Recovered,
        now: SystemTime,
        mut event: u64,
    ) -> Result<(), Fault> {
        let waits = |approval: &Approval| {
            let mut waiting = recovered.waiting.iter();
            waiting.any(|one| one.record.open.id == approval.execution_id)
        };
        for approval in self.pending_approvals()? {
            if waits(&approval) {
                continue;
            }
            let withdrawn = self.withdraw(&approval, now)?;
            self.events(&NumberedEvents {
                first: event,
                events: Events {
                    execution_id: Some(approval.execution_id),
                    tool: Some(approval.tool),
                    caller_uid: Some(approval.caller_uid),
                    happened: std::iter::once((now, withdrawn)).collect(),
                },
            })?;
            event += 1;
        }
        Ok(())
    }

    /// What was told of an execution.
    pub(super) fn events_of(&self, id: ExecutionId) -> Result<Vec<NumberedEvent>, Fault> {
        /// Rows, each of which has several: more than any execution has.
        const ALL: usize = 10_000;
        let filter = EventFilter {
            execution_id: Some(id),
            ..EventFilter::default()
        };
        Ok(read::events(&self.connection, 0, &filter, ALL)?.events)
    }

    /// The approval that an execution was begun under, and who gave it.
    fn used_approval(&self, id: ExecutionId) -> rusqlite::Result<Option<(ApprovalId, u32)>> {
        let mut used = self.connection.prepare_cached(
            "SELECT id, decided_by FROM approvals WHERE execution_id = ? AND status = 'used' AND decided_by IS NOT NULL",
        )?;
        let mut rows = used.query_map([id.as_bytes()], |row| {
            Ok((ApprovalId::from_bytes(row.get(0)?), row.get(1)?))
        })?;
        rows.next().transpose()
    }

    /// What was denied of an execution, or lapsed.
    fn refused_approval(&self, id: ExecutionId) -> rusqlite::Result<Option<Approval>> {
        let sql = format!(
            "SELECT {} FROM approvals WHERE execution_id = ? AND status IN ('denied', 'expired')",
            approvals::COLUMNS
        );
        let mut refused = self.connection.prepare_cached(&sql)?;
        let mut rows = refused.query_map([id.as_bytes()], approvals::read)?;
        rows.next().transpose()
    }

    /// The approvals of an execution that may still lead to something.
    fn unused_approvals(&self, id: ExecutionId) -> rusqlite::Result<Vec<Approval>> {
        let sql = format!(
            "SELECT {} FROM approvals WHERE execution_id = ? AND status IN ('pending', 'approved')",
            approvals::COLUMNS
        );
        let mut unused = self.connection.prepare_cached(&sql)?;
        let rows = unused.query_map([id.as_bytes()], approvals::read)?;
        rows.collect()
    }

    /// Those of all executions that nobody has decided on.
    fn pending_approvals(&self) -> rusqlite::Result<Vec<Approval>> {
        let sql = format!(
            "SELECT {} FROM approvals WHERE status = 'pending'",
            approvals::COLUMNS
        );
        let mut pending = self.connection.prepare(&sql)?;
        let rows = pending.query_map([], approvals::read)?;
        rows.collect()
    }

    /// Nobody is asked any more: what those who listen are told of it.
    fn withdraw(&mut self, approval: &Approval, now: SystemTime) -> Result<Value, Fault> {
        let id = approval.id.to_string();
        let withdrawn = json!({
            "type": "confirmationDecided", "approval_id": id, "decision": "withdrawn", "by": null,
        });
        if self.revoke(approval, micros(now))? {
            return Ok(withdrawn);
        }
        let status = if approval.expires_at > now {
            ApprovalStatus::Withdrawn
        } else {
            ApprovalStatus::Expired
        };
        self.decide(&Decision {
            id: approval.id,
            status,
            by: None,
            reason: Some("the daemon was started anew".to_owned()),
            remember: None,
            at: now,
        })?;
        Ok(if status == ApprovalStatus::Expired {
            json!({"type": "confirmationExpired", "approval_id": id})
        } else {
            withdrawn
        })
    }
}

/// The stages that an execution was in, as its events tell it: the last of them has no end.
fn stages(told: &[NumberedEvent]) -> Vec<StageTimes> {
    let mut stages: Vec<StageTimes> = Vec::new();
    for event in told {
        match (event.kind.as_str(), stages.last_mut()) {
            ("stageStarted", _) => {
                let stage = event.body.get("stage").map(Stage::deserialize);
                stages.extend(stage.and_then(Result::ok).map(|stage| StageTimes {
                    stage,
                    started_at: event.time,
                    ended_at: None,
                }));
            }
            ("stageCompleted", Some(last)) => last.ended_at = Some(event.time),
            _ => {}
        }
    }
    stages
}

fn lost(id: ExecutionId, now: SystemTime) -> CloseRecord {
    CloseRecord {
        id,
        status: Status::Lost,
        summary: String::new(),
        ending: Json::default(),
        problem: None,
        usage: None,
        stages: Json::default(),
        started_at: None,
        ended_at: now,
        approved: None,
        content: Output::default(),
        stdout: Output::default(),
        stderr: Output::default(),
    }
}
