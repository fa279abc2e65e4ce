//! The file as such: its lock, its version, whether it is sound.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rusqlite::{Connection, OpenFlags};

use super::{LedgerError, words};

/// What makes a new file.
const SCHEMA: &str = include_str!("schema.sql");

/// The steps from each version to the next, from the first on.
const STEPS: &[&str] = &[
    include_str!("schema-2.sql"),
    include_str!("schema-3.sql"),
    include_str!("schema-4.sql"),
    include_str!("schema-5.sql"),
    include_str!("schema-6.sql"),
    include_str!("schema-7.sql"),
    include_str!("schema-8.sql"),
    include_str!("schema-9.sql"),
    include_str!("schema-10.sql"),
];

/// How many bytes of file are checked before the ledger is in use. More would hold up the start,
/// at some 300 MB/s, and are checked behind it.
pub(super) const CHECKED_AT_OPEN: u64 = 4 << 20;

/// How long a reader waits while the file is being locked, which takes microseconds.
const BUSY: Duration = Duration::from_secs(5);

/// Keeps other daemons out. A file of its own: to close a second descriptor of the ledger's would
/// drop SQLite's locks on it (fcntl(2)).
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "held, not used")] Flock<File>);

impl Lock {
    pub(super) fn take(file: &Path) -> Result<Self, LedgerError> {
        let fail = |source| LedgerError::Open {
            file: file.to_owned(),
            source: Arc::new(source),
        };
        if let Some(dir) = file.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(fail)?;
        }
        let lock = private(&beside(file, "-lock")).map_err(fail)?;
        let lock = match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Self(lock),
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(LedgerError::InUse {
                    file: file.to_owned(),
                });
            }
            Err((_, errno)) => return Err(fail(errno.into())),
        };
        // Only one that is not there: another ledger of this process may have had the file before, and still read it.
        if !file.exists() {
            private(file).map_err(fail)?;
        }
        Ok(lock)
    }
}

/// Opens a file, or makes it. It holds what commands printed: nobody else's to read, whatever the umask.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).open(path)
}

/// The file of that name with a suffix.
pub(super) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The one connection that writes.
pub(super) fn open_to_write(file: &Path, synchronous: &str) -> Result<Connection, LedgerError> {
    let fail = |error| LedgerError::from_sqlite(error, file);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, flags).map_err(fail)?;
    connection.busy_timeout(BUSY).map_err(fail)?;
    connection.set_prepared_statement_cache_capacity(64);
    write_ahead(&connection, file)?;
    words::define(&connection).map_err(fail)?;
    // Checkpoints are the writer's to time, after acknowledging. What is deleted is overwritten
    // only where that costs nothing.
    let pragmas = format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 0;
         PRAGMA journal_size_limit = 67108864; PRAGMA secure_delete = FAST; PRAGMA cache_size = -1024;
         PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;"
    );
    connection.execute_batch(&pragmas).map_err(fail)?;
    let length = fs::metadata(file).map_or(0, |metadata| metadata.len());
    if length <= CHECKED_AT_OPEN {
        check(&connection, file)?;
    }
    migrate(&mut connection, file)?;
    Ok(connection)
}

/// Has what is written go to a log first: readers hold nobody up then. Where there can be none SQLite goes on
/// without, and says so in its answer alone.
fn write_ahead(connection: &Connection, file: &Path) -> Result<(), LedgerError> {
    let mode = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0));
    let mode: String = mode.map_err(|error| LedgerError::from_sqlite(error, file))?;
    if mode == "wal" {
        return Ok(());
    }
    Err(LedgerError::Unwritable {
        file: file.to_owned(),
        detail: format!(
            "SQLite has no write-ahead log there, only `{mode}`: put the state directory on a local file system"
        ),
    })
}

/// One that reads.
pub(super) fn open_to_read(file: &Path) -> Result<Connection, LedgerError> {
    let fail = |error| LedgerError::from_sqlite(error, file);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(fail)?;
    connection.busy_timeout(BUSY).map_err(fail)?;
    connection.set_prepared_statement_cache_capacity(32);
    connection
        .execute_batch(
            "PRAGMA cache_size = -1024; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;",
        )
        .map_err(fail)?;
    Ok(connection)
}

/// Whether the file is sound.
pub(super) fn check(connection: &Connection, file: &Path) -> Result<(), LedgerError> {
    let answer: Result<String, _> =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    match answer {
        Ok(answer) if answer == "ok" => Ok(()),
        Ok(detail) => Err(LedgerError::Damaged {
            file: file.to_owned(),
            detail,
        }),
        Err(error) => Err(LedgerError::from_sqlite(error, file)),
    }
}

/// The version of the tables.
const VERSION: usize = STEPS.len() + 1;

/// Brings the file to our version: a new one at once, which takes a third of the time, an old one step by step.
fn migrate(connection: &mut Connection, file: &Path) -> Result<(), LedgerError> {
    let fail = |error| LedgerError::from_sqlite(error, file);
    let found: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(fail)?;
    let todo: Vec<(usize, &str)> = match usize::try_from(found) {
        Ok(0) => vec![(VERSION, SCHEMA)],
        Ok(version @ 1..=VERSION) => (version + 1..)
            .zip(STEPS[version - 1..].iter().copied())
            .collect(),
        Ok(_) | Err(_) => {
            return Err(LedgerError::TooNew {
                file: file.to_owned(),
                found,
                known: VERSION as i64,
            });
        }
    };
    for (version, sql) in todo {
        let transaction = connection.transaction().map_err(fail)?;
        transaction.execute_batch(sql).map_err(fail)?;
        let version = format!("PRAGMA user_version = {version}");
        transaction.execute_batch(&version).map_err(fail)?;
        transaction.commit().map_err(fail)?;
    }
    Ok(())
}
