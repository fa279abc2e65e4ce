//! Whether what is kept of executions is what the audit trail says of them.

use std::collections::HashSet;

use rusqlite::Connection;
use serde_json::Value;

use super::chain::{Chain, Link};
use super::executions::{Ending, Row};
use super::readers::Readers;
use super::record::{ExecutionRecord, HashKept, Place};
use super::store::Fault;
use super::time::micros;
use super::{Digest, Json, LedgerError, read};
use crate::domain::ExecutionId;

/// What a check of the audit trail found, and of what is kept of executions against it.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// The trail itself. Executions are held against it as far as it holds.
    pub chain: Chain,
    /// How many executions are kept as the trail says.
    pub proven: u64,
    /// How many are not.
    pub altered: u64,
    /// The first of them.
    pub first: Option<Altered>,
}

/// An execution that is not kept as the trail says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Altered {
    /// Its id.
    pub id: ExecutionId,
    /// What is not so.
    pub detail: String,
}

/// Holds what is kept against the trail, as that is read.
pub(super) struct Prover<'a> {
    readers: &'a Readers,
    hash: HashKept<'a>,
    /// What had ended before, and has not been read of yet: some 20 bytes for each that is kept.
    unseen: HashSet<ExecutionId>,
    proven: u64,
    altered: u64,
    first: Option<Altered>,
}

/// An execution as the file has it.
enum Found {
    Nothing,
    Record(Box<ExecutionRecord>),
    /// What no program of ours has written.
    Unreadable(String),
}

impl<'a> Prover<'a> {
    pub(super) fn new(readers: &'a Readers, hash: HashKept<'a>) -> Result<Self, LedgerError> {
        Ok(Self {
            readers,
            hash,
            unseen: readers.ask(read::ended)?,
            proven: 0,
            altered: 0,
            first: None,
        })
    }

    /// Takes the next record of the trail.
    pub(super) fn take(&mut self, link: &Link) -> Result<(), LedgerError> {
        let (Some(id), "ending" | "lost") = (link.execution_id, link.kind.as_str()) else {
            return Ok(());
        };
        self.unseen.remove(&id);
        match self.readers.ask(|connection| find(connection, id))? {
            // It is forgotten.
            Found::Nothing => {}
            Found::Unreadable(detail) => {
                self.tell(id, format!("its row is none that was written ({detail})"));
            }
            Found::Record(record) => match self.difference(link, *record) {
                None => self.proven += 1,
                Some(what) => {
                    let number = link.number;
                    self.tell(id, format!("{what} is not what record {number} says"));
                }
            },
        }
        Ok(())
    }

    /// What was found, of a trail that has been read to its end.
    pub(super) fn finish(mut self, chain: Chain) -> Result<Verified, LedgerError> {
        if let Chain::Holds(_) = chain {
            let mut unseen: Vec<_> = self.unseen.drain().collect();
            unseen.sort_unstable();
            let forgotten = |connection: &Connection| read::unknown(connection, &unseen);
            let forgotten = self.readers.ask(forgotten)?;
            for id in unseen.iter().filter(|id| !forgotten.contains(id)) {
                self.tell(*id, "the trail has no ending of it".to_owned());
            }
        }
        Ok(Verified {
            chain,
            proven: self.proven,
            altered: self.altered,
            first: self.first,
        })
    }

    fn tell(&mut self, id: ExecutionId, detail: String) {
        self.altered += 1;
        self.first.get_or_insert(Altered { id, detail });
    }

    /// What is another in the record than in its ending's.
    fn difference(&self, link: &Link, record: ExecutionRecord) -> Option<String> {
        let Some(close) = record.close else {
            return Some("that it has not ended".to_owned());
        };
        let call = Digest::of(record.open.call.as_str().as_bytes());
        let row = Row::of(&record.open, 0, call);
        let said: Value = serde_json::from_str(&link.body).unwrap_or_default();
        let is_another = |member: &str, value: &Value| {
            // What it was about is in the call. Older programs have written less.
            member != "summary" && said.get(member).is_some_and(|said| said != value)
        };
        let kept: Value = Json::of(&Ending::new(&close, &row))
            .read()
            .unwrap_or_default();
        let mut members = kept.as_object().into_iter().flatten();
        if let Some((member, _)) = members.find(|(member, value)| is_another(member, value)) {
            return Some(format!("`{member}`"));
        }
        if micros(close.ended_at) != link.time {
            return Some("its end".to_owned());
        }
        let content = match &close.content.place {
            Place::Inline(bytes) => Some(Digest::of(bytes)),
            Place::Nowhere | Place::InContent { .. } | Place::Spool { .. } => None,
        };
        let [stdout, stderr] = (self.hash)(&close);
        let texts = [
            ("content", close.content.digest, content),
            ("standard output", close.stdout.digest, stdout),
            ("standard error", close.stderr.digest, stderr),
        ];
        let changed = texts.into_iter().find(|(_, digest, kept)| {
            digest.is_some_and(|digest| kept.is_some_and(|kept| kept != digest))
        });
        changed.map(|(what, ..)| format!("its {what}"))
    }
}

fn find(connection: &Connection, id: ExecutionId) -> Result<Found, Fault> {
    match read::get(connection, id) {
        Ok(None) => Ok(Found::Nothing),
        Ok(Some(record)) => Ok(Found::Record(Box::new(record))),
        Err(Fault::Sqlite(error)) if error.sqlite_error_code().is_none() => {
            Ok(Found::Unreadable(error.to_string()))
        }
        Err(fault) => Err(fault),
    }
}
