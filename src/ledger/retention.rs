//! What is kept of history, and how it is forgotten. The audit trail is always kept.

use std::time::SystemTime;

use rusqlite::params;
use serde_json::json;

use super::convert::{signed, unsigned};
use super::queue::ON_TRUST;
use super::record::Limits;
use super::search::numbers;
use super::store::{Fault, Store, Totals};
use super::time::micros;
use super::writer::INDEX_BATCH;
use crate::domain::ExecutionId;

/// How many executions are forgotten in one transaction, so that no commit waits long behind it:
/// some 30 µs each.
const STEP: usize = 128;

/// How long the end of an execution is kept at the most, in microseconds, whatever the limits say.
const RESPITE: i64 = 10 * 60 * 1_000_000;

/// How many events at the most are kept from before the oldest execution.
const KEPT: u64 = 10_000;

/// What one step has forgotten.
#[derive(Debug, Default)]
pub(super) struct Pruned {
    pub ids: Vec<ExecutionId>,
    pub is_done: bool,
}

/// An order to clear the history: who gave it, and when; what has come since stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clearing {
    pub by_uid: u32,
    pub now: i64,
    /// Whether the audit trail tells of it.
    pub is_told: bool,
}

/// An execution that may be forgotten.
struct Forgettable {
    number: i64,
    id: ExecutionId,
    /// What it takes, here and in the spool.
    bytes: u64,
}

impl Totals {
    fn without(self, execution: &Forgettable) -> Self {
        Self {
            count: self.count.saturating_sub(1),
            bytes: self.bytes.saturating_sub(execution.bytes),
        }
    }
}

impl Store {
    /// Forgets the oldest until the limits hold, a step at a time.
    pub(super) fn prune(&mut self, limits: &Limits) -> Result<Pruned, Fault> {
        if self.index(INDEX_BATCH)? > 0 {
            // What is not indexed yet cannot be taken out of the index.
            return Ok(Pruned::default());
        }
        let not_before = limits.not_before.map_or(i64::MIN, micros);
        let oldest = self.oldest(micros(SystemTime::now()))?.into_iter();
        let mut left = self.totals;
        let too_old = oldest.take_while(|execution| {
            let too_many = limits.max_count.is_some_and(|max| left.count > max);
            let too_long = limits.max_total_bytes.is_some_and(|max| left.bytes > max);
            left = left.without(execution);
            too_many || too_long || execution.number < not_before
        });
        self.forget(&too_old.collect::<Vec<_>>())
    }

    /// Forgets all that has ended, a step at a time.
    pub(super) fn clear(&mut self, clearing: Clearing) -> Result<Pruned, Fault> {
        if self.index(INDEX_BATCH)? > 0 {
            // What is not indexed yet cannot be taken out of the index.
            return Ok(Pruned::default());
        }
        if !clearing.is_told {
            // With the first of them, whatever becomes of the rest; how many there are by now, for what ends meanwhile goes, too.
            let ended =
                "SELECT count(*) FROM executions WHERE ended_at IS NOT NULL AND number <= ?";
            let ended = self
                .connection
                .query_row(ended, [clearing.now], |row| row.get::<_, i64>(0))?;
            let body = json!({"by_uid": clearing.by_uid, "executions": ended});
            self.append("history_cleared", None, clearing.now, &body)?;
        }
        let mut oldest = self.oldest(i64::MAX)?;
        oldest.retain(|execution| execution.number <= clearing.now);
        self.forget(&oldest)
    }

    /// The oldest that have ended, each of them for as long as it took or [`RESPITE`]: who has
    /// waited long for an end must find it.
    fn oldest(&self, now: i64) -> rusqlite::Result<Vec<Forgettable>> {
        let mut oldest = self.connection.prepare_cached(
            "SELECT number, id, kept_bytes FROM executions WHERE ended_at IS NOT NULL
             AND ended_at <= ?2 - min(ended_at - created_at, ?3) ORDER BY number LIMIT ?1",
        )?;
        let rows = oldest.query_map(params![STEP as i64, now, RESPITE], |row| {
            Ok(Forgettable {
                number: row.get(0)?,
                id: ExecutionId::from_bytes(row.get(1)?),
                bytes: unsigned(row.get(2)?),
            })
        })?;
        rows.collect()
    }

    /// Forgets these, all at once: less than a whole step is the last one.
    fn forget(&mut self, executions: &[Forgettable]) -> Result<Pruned, Fault> {
        if !executions.is_empty() {
            let numbers = numbers(executions.iter().map(|execution| execution.number));
            self.unindex(&numbers)?;
            self.for_all(
                "DELETE FROM approvals WHERE execution_id IN
                 (SELECT id FROM executions WHERE number IN (SELECT value FROM json_each(?)))",
                &numbers,
            )?;
            self.for_all(
                "DELETE FROM executions WHERE number IN (SELECT value FROM json_each(?))",
                &numbers,
            )?;
        }
        self.forget_events(!executions.is_empty())?;
        self.set_totals(executions.iter().fold(self.totals, Totals::without))?;
        Ok(Pruned {
            ids: executions.iter().map(|execution| execution.id).collect(),
            is_done: executions.len() < STEP,
        })
    }

    /// Forgets the events from before the oldest execution that is left, when others were just
    /// forgotten. What happened before the first of all, such as a change of the configuration, is
    /// kept until then, within [`KEPT`].
    fn forget_events(&mut self, has_forgotten: bool) -> Result<(), Fault> {
        /// The oldest need not have the first events: a short execution comes into the file before a longer
        /// one that began earlier. So many cannot do so, for no more wait to be written.
        const OVERTAKEN: i64 = 4 * ON_TRUST as i64;
        let next = self.next_event()?;
        let oldest = "SELECT min(first_event) FROM (SELECT first_event FROM executions ORDER BY number LIMIT ?)";
        let kept_from: Option<i64> = self
            .connection
            .prepare_cached(oldest)?
            .query_row([OVERTAKEN], |row| row.get(0))?;
        let mut kept_from = kept_from.map_or(next, unsigned);
        if !has_forgotten {
            kept_from = kept_from.min(next.saturating_sub(KEPT));
        }
        // A number is never given out again, even when its event is forgotten.
        self.set_meta("last_event", signed(next - 1))?;
        self.connection
            .prepare_cached("DELETE FROM events WHERE last < ?")?
            .execute([signed(kept_from)])?;
        Ok(())
    }
}
