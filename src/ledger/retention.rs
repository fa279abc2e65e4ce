//! What is kept of history, and how it is forgotten. The audit trail is always kept.

use std::time::SystemTime;

use rusqlite::{OptionalExtension as _, Row, params};
use serde_json::json;

use super::convert::{places, signed, unsigned};
use super::queue::ON_TRUST;
use super::record::{Limits, Place};
use super::search::numbers;
use super::store::{Fault, Store, Totals};
use super::time::micros;
use super::writer::INDEX_BATCH;
use crate::domain::{ExecutionId, StreamName};

/// How many executions are forgotten, or hold less, in one transaction, so that no commit waits long behind it:
/// some 30 µs each.
pub(super) const STEP: usize = 128;

/// How long the end of an execution is kept at the most, in microseconds, whatever the limits say.
const RESPITE: i64 = 10 * 60 * 1_000_000;

/// How many events at the most are kept from before the oldest execution.
const KEPT: u64 = 10_000;

/// What has ended and was there at a time, before an event: where the clock was set back, the time does not tell.
const ENDED_BEFORE: &str = "ended_at IS NOT NULL AND (number <= ?1 OR first_event < ?2)";

/// What one step has forgotten.
#[derive(Debug, Default)]
pub(super) struct Pruned {
    pub ids: Vec<ExecutionId>,
    pub is_done: bool,
}

/// An order to clear the history: who gave it, when, and before which event; what has come since stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clearing {
    pub by_uid: u32,
    pub now: i64,
    pub next_event: u64,
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

impl Forgettable {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            number: row.get(0)?,
            id: ExecutionId::from_bytes(row.get(1)?),
            bytes: unsigned(row.get(2)?),
        })
    }
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
    /// Counts no more what the spool has given up of these streams; says whether it could: what is not indexed yet goes first.
    pub(super) fn discount(
        &mut self,
        given_up: &[(ExecutionId, StreamName)],
    ) -> Result<bool, Fault> {
        if self.index(INDEX_BATCH)? > 0 {
            // It is not in the totals yet.
            return Ok(false);
        }
        let mut left = self.totals;
        for (id, stream) in given_up {
            let bytes = self.bytes_in_spool(*id, *stream)?;
            self.connection
                .prepare_cached("UPDATE executions SET kept_bytes = kept_bytes - ? WHERE id = ?")?
                .execute(params![signed(bytes), id.as_bytes()])?;
            left.bytes = left.bytes.saturating_sub(bytes);
        }
        self.set_totals(left)?;
        Ok(true)
    }

    /// How much of a stream went into the spool, by what is on record of its execution.
    fn bytes_in_spool(&self, id: ExecutionId, stream: StreamName) -> rusqlite::Result<u64> {
        let ended = "SELECT kept FROM executions WHERE id = ? AND ended_at IS NOT NULL";
        let places = self
            .connection
            .prepare_cached(ended)?
            .query_row([id.as_bytes()], |row| places(row, 0))
            .optional()?;
        let place = places.map(|(_, [_, stdout, stderr])| match stream {
            StreamName::Stdout => stdout,
            StreamName::Stderr => stderr,
        });
        Ok(match place {
            Some(Place::Spool { bytes }) => bytes,
            Some(Place::Nowhere | Place::Inline(_) | Place::InContent { .. }) | None => 0,
        })
    }

    /// Forgets the oldest until the limits hold, a step at a time.
    pub(super) fn prune(&mut self, limits: &Limits) -> Result<Pruned, Fault> {
        if self.index(INDEX_BATCH)? > 0 {
            // What is not indexed yet cannot be taken out of the index.
            return Ok(Pruned::default());
        }
        let not_before = limits.not_before.map_or(i64::MIN, micros);
        let oldest = self.oldest(micros(SystemTime::now()))?;
        let is_too_old = |execution: &Forgettable| execution.number < not_before;
        let (mut going, others): (Vec<_>, Vec<_>) = oldest.into_iter().partition(is_too_old);
        let mut left = going.iter().fold(self.totals, Totals::without);
        going.extend(others.into_iter().take_while(|execution| {
            let too_many = limits.max_count.is_some_and(|max| left.count > max);
            let too_long = limits.max_total_bytes.is_some_and(|max| left.bytes > max);
            left = left.without(execution);
            too_many || too_long
        }));
        self.forget(&going)
    }

    /// Forgets all that has ended, a step at a time.
    pub(super) fn clear(&mut self, clearing: Clearing) -> Result<Pruned, Fault> {
        if self.index(INDEX_BATCH)? > 0 {
            // What is not indexed yet cannot be taken out of the index.
            return Ok(Pruned::default());
        }
        if !clearing.is_told {
            // With the first of them, whatever becomes of the rest; how many there are by now, for what ends meanwhile goes, too.
            let ended = format!("SELECT count(*) FROM executions WHERE {ENDED_BEFORE}");
            let before = params![clearing.now, signed(clearing.next_event)];
            let ended = self
                .connection
                .query_row(&ended, before, |row| row.get::<_, i64>(0))?;
            let body = json!({"by_uid": clearing.by_uid, "executions": ended});
            self.append("history_cleared", None, clearing.now, &body)?;
        }
        self.forget(&self.ended_before(clearing)?)
    }

    /// The oldest of what an order to clear the history is about.
    fn ended_before(&self, clearing: Clearing) -> rusqlite::Result<Vec<Forgettable>> {
        let mut ended = self.connection.prepare_cached(&format!(
            "SELECT number, id, kept_bytes FROM executions WHERE {ENDED_BEFORE} ORDER BY number LIMIT ?3"
        ))?;
        let bound = params![clearing.now, signed(clearing.next_event), STEP as i64];
        let rows = ended.query_map(bound, Forgettable::of)?;
        rows.collect()
    }

    /// The oldest that have ended, each of them for as long as it took or [`RESPITE`]: who has
    /// waited long for an end must find it. What the clock says is yet to come was there before it was set back,
    /// and is older than what has come since.
    fn oldest(&self, now: i64) -> rusqlite::Result<Vec<Forgettable>> {
        let mut oldest = self.connection.prepare_cached(
            "SELECT number, id, kept_bytes FROM (
                 SELECT * FROM (SELECT number, id, kept_bytes, first_event FROM executions
                     WHERE ended_at IS NOT NULL AND number <= ?2 AND ended_at <= ?2 - min(ended_at - created_at, ?3)
                     ORDER BY number LIMIT ?1)
                 UNION ALL
                 SELECT * FROM (SELECT number, id, kept_bytes, first_event FROM executions
                     WHERE ended_at IS NOT NULL AND number > ?2 AND ended_at NOT BETWEEN ?2 - ?3 AND ?2
                     ORDER BY number LIMIT ?1)
             ) ORDER BY first_event, number LIMIT ?1",
        )?;
        let rows = oldest.query_map(params![STEP as i64, now, RESPITE], Forgettable::of)?;
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
        // What is there from before the clock was set back is among the last.
        let oldest = "SELECT min(first_event) FROM (
                 SELECT * FROM (SELECT first_event FROM executions ORDER BY number LIMIT ?1)
                 UNION ALL
                 SELECT * FROM (SELECT first_event FROM executions WHERE number > ?2 ORDER BY number LIMIT ?1))";
        let kept_from: Option<i64> = self
            .connection
            .prepare_cached(oldest)?
            .query_row([OVERTAKEN, micros(SystemTime::now())], |row| row.get(0))?;
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
