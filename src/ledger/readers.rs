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

    /// Asks on a connection, when there is one.
    pub(super) fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, LedgerError> {
        let connection = match self.take() {
            Some(connection) => Ok(connection),
            None => file::open_to_read(&self.file),
        };
        let answer = connection.and_then(|connection| {
            let answer = question(&connection).map_err(|fault| match fault {
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
