//! Connections that read. Two, because a third could not run at once on a small machine; more
//! questions wait.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};

use rusqlite::Connection;

use super::queue::lock;
use super::store::Fault;
use super::{LedgerError, file};

/// How many may read at once.
const READERS: usize = 2;

pub(super) struct Readers {
    file: PathBuf,
    idle: Mutex<Idle>,
    returned: Condvar,
}

struct Idle {
    connections: Vec<Connection>,
    /// How many more may be opened.
    spare: usize,
}

impl Readers {
    pub(super) fn new(file: PathBuf) -> Self {
        Self {
            file,
            idle: Mutex::new(Idle {
                connections: Vec::new(),
                spare: READERS,
            }),
            returned: Condvar::new(),
        }
    }

    /// Asks on a connection, when there is one. However many statements the question takes, all see the file
    /// as it was for the first of them.
    pub(super) fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, LedgerError> {
        let connection = match self.take() {
            Some(connection) => Ok(connection),
            None => file::open_to_read(&self.file),
        };
        let answer = connection.and_then(|connection| {
            let answer = at_one_time(&connection, question).map_err(|fault| match fault {
                Fault::Sqlite(error) => LedgerError::from_sqlite(error, &self.file),
                Fault::Refused(error) => error,
            })?;
            Ok((answer, connection))
        });
        let mut idle = lock(&self.idle);
        let answer = match answer {
            Ok((answer, connection)) => {
                idle.connections.push(connection);
                Ok(answer)
            }
            // A connection that has failed is not used again.
            Err(error) => {
                idle.spare += 1;
                Err(error)
            }
        };
        drop(idle);
        self.returned.notify_one();
        answer
    }

    /// An idle connection, or the permission to open one.
    fn take(&self) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        loop {
            if let Some(connection) = idle.connections.pop() {
                return Some(connection);
            }
            if idle.spare > 0 {
                idle.spare -= 1;
                return None;
            }
            idle = self
                .returned
                .wait(idle)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn at_one_time<T>(
    connection: &Connection,
    question: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let transaction = connection.unchecked_transaction()?;
    let answer = question(&transaction)?;
    transaction.finish()?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::Scratch;

    #[test]
    fn a_question_is_answered_from_one_state_of_the_file() {
        let scratch = Scratch::new();
        let file = scratch.0.join("ledger.db");
        std::fs::write(&file, "").expect("an empty file");
        let writer = file::open_to_write(&file, "NORMAL").expect("a ledger");
        let count = |connection: &Connection| -> Result<u64, Fault> {
            let sql = "SELECT count(*) FROM meta";
            Ok(connection.query_row(sql, [], |row| row.get(0))?)
        };
        let readers = Readers::new(file);
        let twice = readers.ask(|connection| {
            let before = count(connection)?;
            writer.execute("INSERT INTO meta (key, value) VALUES ('new', 1)", [])?;
            Ok((before, count(connection)?))
        });
        let (before, then) = twice.expect("answers");
        assert_eq!(then, before);
        assert_eq!(readers.ask(count).expect("an answer"), before + 1);
    }
}
