//! Connections that read. Two, because a third could not run at once on a small machine; more
//! questions wait.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::store::Fault;
use super::{LedgerError, file};

/// How many may read at once.
pub(super) const READERS: usize = 2;

pub(super) struct Readers {
    file: PathBuf,
    idle: Mutex<Idle>,
    returned: Condvar,
    /// As many as may read at once, for who would wait without a thread.
    pub(super) turns: Arc<Semaphore>,
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
            turns: Arc::new(Semaphore::new(READERS)),
        }
    }

    /// Asks on a connection, when there is one. However many statements the question takes, all see the file
    /// as it was for the first of them.
    pub(super) fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, LedgerError> {
        let mut turn = self.take();
        let connection = match turn.connection.take() {
            Some(connection) => connection,
            None => file::open_to_read(&self.file)?,
        };
        let answer = at_one_time(&connection, question).map_err(|fault| match fault {
            Fault::Sqlite(error) => LedgerError::from_sqlite(error, &self.file),
            Fault::Refused(error) => error,
        })?;
        // One that has failed is not used again.
        turn.connection = Some(connection);
        Ok(answer)
    }

    /// A turn to read, when there is one.
    fn take(&self) -> Turn<'_> {
        let mut idle = self.idle.lock();
        loop {
            let connection = idle.connections.pop();
            if connection.is_some() || idle.spare > 0 {
                idle.spare -= usize::from(connection.is_none());
                return Turn {
                    readers: self,
                    connection,
                };
            }
            self.returned.wait(&mut idle);
        }
    }
}

/// One of so many who may read, with a connection or the permission to open one. It is given back
/// whatever comes of the question.
struct Turn<'a> {
    readers: &'a Readers,
    connection: Option<Connection>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut idle = self.readers.idle.lock();
        match self.connection.take() {
            Some(connection) => idle.connections.push(connection),
            None => idle.spare += 1,
        }
        drop(idle);
        self.readers.returned.notify_one();
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

    fn ledger(scratch: &Scratch) -> (Connection, Readers) {
        let file = scratch.0.join("ledger.db");
        std::fs::write(&file, "").expect("an empty file");
        let writer = file::open_to_write(&file, "NORMAL").expect("a ledger");
        (writer, Readers::new(file))
    }

    #[test]
    fn questions_that_fail_or_panic_keep_nobody_from_asking() {
        let scratch = Scratch::new();
        let (_writer, readers) = ledger(&scratch);
        for _ in 0..=READERS {
            let ask = || readers.ask(|_| -> Result<(), Fault> { panic!("as a test") });
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).expect_err("panics");
            let failed = readers.ask(|connection| Ok(connection.execute_batch("nonsense")?));
            failed.expect_err("fails");
        }
        readers.ask(|_| Ok(())).expect("an answer");
        assert_eq!(readers.idle.lock().spare, READERS - 1);
    }

    #[test]
    fn a_question_is_answered_from_one_state_of_the_file() {
        let scratch = Scratch::new();
        let (writer, readers) = ledger(&scratch);
        let count = |connection: &Connection| -> Result<u64, Fault> {
            let sql = "SELECT count(*) FROM meta";
            Ok(connection.query_row(sql, [], |row| row.get(0))?)
        };
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
