//! The writer's side of the file: what is remembered of it between transactions, and the writes
//! that need no more than that.

use std::collections::{HashMap, VecDeque};

use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;

use super::chain::{self, Link};
use super::convert::{signed, unsigned};
use super::event::{Events, NumberedEvents};
use super::record::{AuditEntry, Head};
use super::time::micros;
use super::{Digest, Json, LedgerError};
use crate::domain::{ExecutionId, Status};

/// How many facets tools may have of their own. Names of tools come from callers, who may make
/// them up; a filter looks at every facet that fits, at some 3 µs each.
const FACETS: usize = 4096;

/// The longest name of a tool that gets a facet, in bytes.
const FACET_NAME: usize = 128;

/// What can go wrong in a transaction.
#[derive(Debug)]
pub(super) enum Fault {
    /// SQLite said so.
    Sqlite(rusqlite::Error),
    /// We did.
    Refused(LedgerError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// How much history there is, as of the last batch that went into the text index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub count: u64,
    pub bytes: u64,
}

/// An ended execution that the text index and the totals do not have yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// Of the execution.
    pub number: i64,
    /// Of its ending in the audit trail, which is in the order in which they ended.
    pub audit: u64,
    pub bytes: u64,
}

/// The connection that writes and what it knows.
#[derive(Debug)]
pub(super) struct Store {
    pub connection: Connection,
    pub head: Head,
    pub totals: Totals,
    pub pending: VecDeque<Pending>,
    facets: HashMap<(Status, u32), HashMap<String, i64>>,
    facet_count: usize,
}

impl Store {
    pub(super) fn new(connection: Connection) -> rusqlite::Result<Self> {
        let mut store = Self {
            connection,
            head: Head {
                number: 0,
                hash: Digest::ZERO,
            },
            totals: Totals::default(),
            pending: VecDeque::new(),
            facets: HashMap::new(),
            facet_count: 0,
        };
        store.reload()?;
        Ok(store)
    }

    /// Reads what is remembered from the file: at first, and after a transaction that failed.
    pub(super) fn reload(&mut self) -> rusqlite::Result<()> {
        self.head = chain::head(&self.connection)?;
        self.totals = Totals {
            count: unsigned(self.meta("count")?),
            bytes: unsigned(self.meta("bytes")?),
        };
        self.facets.clear();
        self.facet_count = 0;
        let mut known = Vec::new();
        {
            let mut all = self
                .connection
                .prepare_cached("SELECT facet, tool, status, caller_uid FROM facets")?;
            let mut rows = all.query([])?;
            while let Some(row) = rows.next()? {
                let tool: Option<String> = row.get(1)?;
                let status: String = row.get(2)?;
                known.push((row.get(0)?, tool, Status::from_word(&status), row.get(3)?));
            }
        }
        for (facet, tool, status, uid) in known {
            let Some(status) = status else { continue };
            self.remember_facet(tool, status, uid, facet);
        }
        self.reload_pending()
    }

    fn reload_pending(&mut self) -> rusqlite::Result<()> {
        let indexed = self.meta("indexed")?;
        let mut ended = self.connection.prepare_cached(
            "SELECT e.number, a.number, e.kept_bytes FROM audit a JOIN executions e ON e.id = a.execution_id
             WHERE a.number > ? AND a.kind IN ('ending', 'lost') ORDER BY a.number",
        )?;
        let rows = ended.query_map([indexed], |row| {
            Ok(Pending {
                number: row.get(0)?,
                audit: unsigned(row.get(1)?),
                bytes: unsigned(row.get(2)?),
            })
        })?;
        self.pending = rows.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// A number kept under a name; 0 when there is none.
    pub(super) fn meta(&self, key: &str) -> rusqlite::Result<i64> {
        let value = self
            .connection
            .prepare_cached("SELECT value FROM meta WHERE key = ?")?
            .query_row([key], |row| row.get(0))
            .optional()?;
        Ok(value.unwrap_or_default())
    }

    pub(super) fn set_meta(&self, key: &str, value: i64) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2",
            )?
            .execute(params![key, value])?;
        Ok(())
    }

    /// The first number that no event has had.
    pub(super) fn next_event(&self) -> rusqlite::Result<u64> {
        let last: Option<i64> =
            self.connection
                .query_row("SELECT max(last) FROM events", [], |row| row.get(0))?;
        Ok(unsigned(last.unwrap_or_default().max(self.meta("last_event")?)) + 1)
    }

    /// The number that stands for tool, status and user together.
    pub(super) fn facet(&mut self, tool: &str, status: Status, uid: u32) -> rusqlite::Result<i64> {
        let known = self.facets.get(&(status, uid));
        if let Some(facet) = known.and_then(|by_tool| by_tool.get(tool)) {
            return Ok(*facet);
        }
        let own = self.facet_count < FACETS && tool.len() <= FACET_NAME && !tool.is_empty();
        if !own && let Some(facet) = known.and_then(|by_tool| by_tool.get("")) {
            return Ok(*facet);
        }
        let name = own.then(|| tool.to_owned());
        let facet = self
            .connection
            .prepare_cached(
                "INSERT INTO facets (tool, status, caller_uid) VALUES (?, ?, ?) RETURNING facet",
            )?
            .query_row(params![name, status.as_str(), uid], |row| row.get(0))?;
        self.remember_facet(name, status, uid, facet);
        Ok(facet)
    }

    fn remember_facet(&mut self, tool: Option<String>, status: Status, uid: u32, facet: i64) {
        self.facet_count += 1;
        self.facets
            .entry((status, uid))
            .or_default()
            .insert(tool.unwrap_or_default(), facet);
    }

    /// Adds a record to the audit trail.
    pub(super) fn append(
        &mut self,
        kind: &str,
        id: Option<ExecutionId>,
        time: i64,
        body: &impl Serialize,
    ) -> rusqlite::Result<()> {
        let link = Link::after(self.head, time, kind, id, Json::of(body).into_string());
        link.insert(&self.connection)?;
        self.head = link.head();
        Ok(())
    }

    pub(super) fn audit(&mut self, entry: &AuditEntry) -> Result<(), Fault> {
        self.append(
            &entry.kind,
            entry.execution_id,
            micros(entry.time),
            &entry.body,
        )?;
        Ok(())
    }

    /// Enters events, one row for all of them: an execution has fourteen.
    pub(super) fn events(&self, numbered: &NumberedEvents) -> Result<(), Fault> {
        let Events {
            execution_id,
            tool,
            caller_uid,
            happened,
        } = &numbered.events;
        self.connection
            .prepare_cached("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)")?
            .execute(params![
                signed(numbered.last()),
                signed(numbered.first),
                execution_id.as_ref().map(|id| id.as_bytes().as_slice()),
                tool,
                caller_uid,
                happened.to_json(),
            ])?;
        Ok(())
    }
}
