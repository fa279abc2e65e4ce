use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;

use crate::domain::ExecutionId;

/// What the ledger could not do. Cheap to clone: all who wait for one commit are told the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file cannot be had.
    #[error("cannot open the ledger `{}`", file.display())]
    Open {
        /// The ledger's file.
        file: PathBuf,
        /// Why.
        source: Arc<io::Error>,
    },
    /// Another daemon has it.
    #[error("the ledger `{}` is in use by another daemon; each needs a state directory of its own", file.display())]
    InUse {
        /// The ledger's file.
        file: PathBuf,
    },
    /// A newer program has written it.
    #[error(
        "the ledger `{}` has version {found}, and this program knows up to {known}: use the newer program, or move the file (and those beside it) away",
        file.display()
    )]
    TooNew {
        /// The ledger's file.
        file: PathBuf,
        /// The file's version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// It is no ledger, or not a sound one.
    #[error(
        "the ledger `{}` is damaged ({detail}): move it and the files beside it away to begin a new one; `sqlite3 FILE .recover` saves what can be saved",
        file.display()
    )]
    Damaged {
        /// The ledger's file.
        file: PathBuf,
        /// In SQLite's words.
        detail: String,
    },
    /// There is no room on the disk.
    #[error("the ledger `{}` cannot be written: the disk is full", file.display())]
    Full {
        /// The ledger's file.
        file: PathBuf,
    },
    /// It cannot be written for another reason of the disk's.
    #[error("the ledger `{}` cannot be written: {detail}", file.display())]
    Unwritable {
        /// The ledger's file.
        file: PathBuf,
        /// In SQLite's words.
        detail: String,
    },
    /// An execution was opened twice.
    #[error("execution {id} is in the ledger already")]
    Duplicate {
        /// Its id.
        id: ExecutionId,
    },
    /// An execution is not there, or has ended.
    #[error("execution {id} is not open in the ledger")]
    NotOpen {
        /// Its id.
        id: ExecutionId,
    },
    /// The text of an answer, which has a file of its own, cannot be opened for want of descriptors or memory.
    #[error("the text of execution {id} cannot be read now: {reason}")]
    Text {
        /// Whose.
        id: ExecutionId,
        /// Why.
        reason: Arc<io::Error>,
    },
    /// A record of the audit trail is none that was ever written.
    #[error("record {number} of the audit trail is not what was written: {detail}")]
    Altered {
        /// Its number in the file; none that is below 1 was written.
        number: i64,
        /// What is wrong with it.
        detail: String,
    },
    /// A search that cannot be one.
    #[error("cannot search for {text:?}: it has no word")]
    NoWords {
        /// What was asked for.
        text: String,
    },
    /// The ledger was closed.
    #[error("the ledger is closed")]
    Closed,
    /// SQLite refused for a reason of our own making.
    #[error("the ledger failed")]
    Internal {
        /// In SQLite's words.
        #[source]
        source: Arc<rusqlite::Error>,
    },
}

impl LedgerError {
    /// Sorts what SQLite says of `file`.
    pub(super) fn from_sqlite(error: rusqlite::Error, file: &std::path::Path) -> Self {
        let file = file.to_owned();
        let Some(code) = error.sqlite_error_code() else {
            return Self::Internal {
                source: Arc::new(error),
            };
        };
        let extended = error.sqlite_error().map(|error| error.extended_code);
        #[expect(clippy::wildcard_enum_match_arm, reason = "SQLite's codes, not ours")]
        match code {
            ErrorCode::DiskFull => Self::Full { file },
            // It writes to each page of its `-shm` so that there is room for it.
            _ if extended == Some(SQLITE_IOERR_SHMSIZE) => Self::Full { file },
            ErrorCode::ReadOnly
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            // Somebody looks into the file with a tool of their own, and has locked it.
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked => Self::Unwritable {
                file,
                detail: error.to_string(),
            },
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Self::Damaged {
                file,
                detail: error.to_string(),
            },
            _ => Self::Internal {
                source: Arc::new(error),
            },
        }
    }

    /// Whether there is no room on the disk.
    pub(super) fn is_for_want_of_room(&self) -> bool {
        let is_of_open = |source: &io::Error| source.kind() == io::ErrorKind::StorageFull;
        matches!(self, Self::Full { .. })
            || matches!(self, Self::Open { source, .. } if is_of_open(source))
    }

    /// Whether it is the disk's or the file's, so that the same may succeed later.
    pub(super) fn is_of_the_disk(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Unwritable { .. } | Self::Damaged { .. } => true,
            Self::Open { .. }
            | Self::InUse { .. }
            | Self::TooNew { .. }
            | Self::Duplicate { .. }
            | Self::NotOpen { .. }
            | Self::Text { .. }
            | Self::Altered { .. }
            | Self::NoWords { .. }
            | Self::Closed
            | Self::Internal { .. } => false,
        }
    }
}
