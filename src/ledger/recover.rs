//! What a daemon that did not end its executions has left open in the file.

use std::time::SystemTime;

use rusqlite::params;
use serde_json::{Value, json};

use super::record::{
    Approval, ApprovalStatus, CloseRecord, Decision, Event, Events, NumberedEvents, Output,
};
use super::store::{Fault, Store};
use super::time::micros;
use super::{approvals, read};
use crate::domain::{ExecutionId, Status};

/// What was open when the ledger was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// What became of these is not known; their records say `lost`.
    pub lost: Vec<ExecutionId>,
    /// These nobody waits for, and their approval is still pending: they stay
    /// [`Status::Waiting`].
    pub waiting: Vec<Waiting>,
}

/// An execution that goes on waiting for its approval.
#[derive(Debug)]
pub struct Waiting {
    /// What was called.
    pub record: super::ExecutionRecord,
    /// What it waits for. It may have been approved, but not used, before the restart.
    pub approval: Approval,
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
            let valid = approvals.iter().find(|approval| approval.expires_at > now);
            if let Some(approval) = valid.filter(|_| waits) {
                let approval = approval.clone();
                recovered.waiting.push(Waiting { record, approval });
                continue;
            }
            for approval in approvals {
                self.withdraw(&approval, now)?;
            }
            self.close(&lost(id, now))?;
            let lost = Event {
                kind: "executionAborted".to_owned(),
                time: now,
                body: json!({"status": Status::Lost.as_str()}),
            };
            self.events(&NumberedEvents {
                first: event,
                events: Events {
                    execution_id: Some(id),
                    tool: Some(record.open.tool),
                    caller_uid: Some(record.open.caller_uid),
                    events: vec![lost],
                },
            })?;
            event += 1;
            recovered.lost.push(id);
        }
        Ok(recovered)
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

    fn withdraw(&mut self, approval: &Approval, now: SystemTime) -> Result<(), Fault> {
        if approval.status == ApprovalStatus::Approved {
            // Decided, but what it was given for will not run: only the trail tells.
            self.connection.execute(
                "UPDATE approvals SET status = 'withdrawn' WHERE id = ?",
                params![approval.id.as_bytes()],
            )?;
            let body = json!({"approval_id": approval.id.to_string(), "status": "withdrawn"});
            self.append(
                "approval_decided",
                Some(approval.execution_id),
                micros(now),
                &body,
            )?;
            return Ok(());
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
        Ok(())
    }
}

fn lost(id: ExecutionId, now: SystemTime) -> CloseRecord {
    CloseRecord {
        id,
        status: Status::Lost,
        summary: String::new(),
        ending: Value::Null,
        problem: None,
        usage: None,
        stages: json!([]),
        started_at: None,
        ended_at: now,
        approved: None,
        content: Output::default(),
        stdout: Output::default(),
        stderr: Output::default(),
    }
}
