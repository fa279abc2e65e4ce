//! Approvals: each is decided once, by whoever comes first.

use std::time::Duration;

use rusqlite::{OptionalExtension as _, Row, params};
use serde_json::json;

use super::Digest;
use super::convert::{blob_digest, id_bytes, json as json_column, path, word};
use super::record::{Approval, ApprovalStatus, Decided, Decision, Verdicted};
use super::store::{Fault, Store};
use super::time::{from_micros, micros};
use crate::domain::{ApprovalId, ExecutionId, RiskLevel};

/// The columns that [`read`] reads, in its order.
pub(super) const COLUMNS: &str =
    "id, execution_id, tool, input, working_dir, env_names, caller_uid, digest, created_at,
    expires_at, status, decided_by, decided_at, reason, remember, remember_rules,
    chain, stdin, timeout_micros, keeps_background, tool_version, risk_level, workspace, context";

impl Store {
    /// Asks.
    pub(super) fn ask(&mut self, approval: &Approval) -> Result<(), Fault> {
        let decided = approval.decided.as_ref();
        self.connection
            .prepare_cached(
                "INSERT INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                approval.id.as_bytes(),
                approval.execution_id.as_bytes(),
                approval.tool,
                approval.input.to_string(),
                approval
                    .working_dir
                    .as_ref()
                    .map(|dir| dir.to_string_lossy()),
                json!(approval.env_names).to_string(),
                approval.caller_uid,
                approval.digest.0,
                micros(approval.created_at),
                micros(approval.expires_at),
                approval.status.as_str(),
                decided.and_then(|decided| decided.by),
                decided.map(|decided| micros(decided.at)),
                decided.and_then(|decided| decided.reason.as_ref()),
                approval.remember,
                json!(approval.remember_rules).to_string(),
                json!(approval.chain).to_string(),
                approval.stdin,
                approval.timeout.map(as_micros),
                approval.keeps_background,
                approval.tool_version,
                approval.risk_level.as_str(),
                approval
                    .workspace
                    .as_ref()
                    .map(|dir| dir.to_string_lossy()),
                approval.context.to_string(),
            ])?;
        let body = json!({
            "approval_id": approval.id.to_string(),
            "tool": approval.tool,
            "tool_version": approval.tool_version,
            "chain": approval.chain,
            "caller_uid": approval.caller_uid,
            "digest": approval.digest.to_string(),
        });
        self.append(
            "approval_asked",
            Some(approval.execution_id),
            micros(approval.created_at),
            &body,
        )?;
        Ok(())
    }

    /// Decides on a pending one. After its expiry it can only expire or be withdrawn.
    pub(super) fn decide(&mut self, decision: &Decision) -> Result<Verdicted, Fault> {
        let at = micros(decision.at);
        let decided = self
            .connection
            .prepare_cached(
                "UPDATE approvals SET status = ?2, decided_by = ?3, decided_at = ?4, reason = ?5, remember = ?6
                 WHERE id = ?1 AND status = 'pending' AND (?7 OR expires_at > ?4)",
            )?
            .execute(params![
                decision.id.as_bytes(),
                decision.status.as_str(),
                decision.by,
                at,
                decision.reason,
                decision.remember,
                decision.is_of_the_pipeline(),
            ])?;
        self.settle(decision.id, decided, at, "approval_decided")
    }

    /// Uses an approved one up: once, for what it was given for, before it expires.
    pub(super) fn use_up(
        &mut self,
        id: ApprovalId,
        digest: Digest,
        at: i64,
    ) -> Result<Verdicted, Fault> {
        let used = self
            .connection
            .prepare_cached(
                "UPDATE approvals SET status = 'used'
                 WHERE id = ? AND status = 'approved' AND digest = ? AND expires_at > ?",
            )?
            .execute(params![id.as_bytes(), digest.0, at])?;
        self.settle(id, used, at, "approval_used")
    }

    /// Takes back an approved one that nothing will be run under, though it may have been used up for that. Says whether
    /// there was one.
    pub(super) fn revoke(&mut self, approval: &Approval, at: i64) -> Result<bool, Fault> {
        let revoked = self
            .connection
            .prepare_cached(
                "UPDATE approvals SET status = 'withdrawn' WHERE id = ? AND status IN ('approved', 'used')",
            )?
            .execute([approval.id.as_bytes()])?;
        if revoked > 0 {
            let body = json!({"approval_id": approval.id.to_string(), "status": "withdrawn"});
            self.append("approval_decided", Some(approval.execution_id), at, &body)?;
        }
        Ok(revoked > 0)
    }

    /// Says how an approval stands after an attempt that changed so many.
    fn settle(
        &mut self,
        id: ApprovalId,
        changed: usize,
        at: i64,
        kind: &str,
    ) -> Result<Verdicted, Fault> {
        let sql = format!("SELECT {COLUMNS} FROM approvals WHERE id = ?");
        let found = self
            .connection
            .prepare_cached(&sql)?
            .query_row([id.as_bytes()], read)
            .optional()?;
        let Some(approval) = found.map(Box::new) else {
            return Ok(Verdicted::Unknown);
        };
        if changed == 0 {
            return Ok(Verdicted::TooLate(approval));
        }
        let decided = approval.decided.as_ref();
        let body = json!({
            "approval_id": approval.id.to_string(),
            "status": approval.status.as_str(),
            "digest": approval.digest.to_string(),
            "by": decided.and_then(|decided| decided.by),
            "reason": decided.and_then(|decided| decided.reason.as_ref()),
            "remember": approval.remember,
        });
        self.append(kind, Some(approval.execution_id), at, &body)?;
        Ok(Verdicted::Done(approval))
    }
}

fn as_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// An approval out of [`COLUMNS`].
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Approval> {
    let texts = |column| -> rusqlite::Result<Vec<String>> {
        let value = json_column(row, column)?;
        Ok(serde_json::from_value(value).unwrap_or_default())
    };
    let decided_at: Option<i64> = row.get(12)?;
    let decided = match decided_at {
        Some(at) => Some(Decided {
            by: row.get(11)?,
            at: from_micros(at),
            reason: row.get(13)?,
        }),
        None => None,
    };
    Ok(Approval {
        id: ApprovalId::from_bytes(row.get(0)?),
        execution_id: ExecutionId::from_bytes(id_bytes(row, 1)?.unwrap_or_default()),
        tool: row.get(2)?,
        tool_version: row.get(20)?,
        chain: texts(16)?,
        input: json_column(row, 3)?,
        working_dir: path(row, 4)?,
        env_names: texts(5)?,
        stdin: row.get(17)?,
        timeout: row.get::<_, Option<u64>>(18)?.map(Duration::from_micros),
        keeps_background: row.get(19)?,
        // What cannot be read is not shown for more than it may be.
        risk_level: word(row, 21, RiskLevel::from_word)?.unwrap_or(RiskLevel::Trusted),
        workspace: path(row, 22)?,
        context: json_column(row, 23)?,
        caller_uid: row.get(6)?,
        digest: blob_digest(row, 7)?.unwrap_or(Digest::ZERO),
        created_at: from_micros(row.get(8)?),
        expires_at: from_micros(row.get(9)?),
        // What cannot be read may not be used.
        status: word(row, 10, ApprovalStatus::from_word)?.unwrap_or(ApprovalStatus::Withdrawn),
        decided,
        remember: row.get(14)?,
        remember_rules: texts(15)?,
    })
}
