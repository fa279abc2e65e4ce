//! What was opened and is not in the file yet: a line for each, written before anything is run. A
//! write to a log takes microseconds where a commit takes a hundred, and the death of the daemon
//! loses neither, so that the opening and the end of a short execution can be one commit.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::file::beside;
use super::record::OpenRecord;
use super::writer::lock;

/// How long a log gets before the other is used, in bytes: some thousand calls of the usual kind.
const TURN: u64 = 1 << 20;

/// Two logs in turns: what the other one holds is in the ledger by the time this one is full.
#[derive(Debug)]
pub(super) struct Openings(Mutex<Turns>);

#[derive(Debug)]
struct Turns {
    current: Log,
    other: Log,
}

#[derive(Debug)]
struct Log {
    file: File,
    length: u64,
    /// How many of its lines are not in the ledger.
    open: Arc<AtomicUsize>,
}

/// An opening that is in a log; dropped when it is in the ledger, too.
#[derive(Debug)]
pub(super) struct Logged(Arc<AtomicUsize>);

impl Drop for Logged {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Openings {
    /// Opens the logs beside a ledger's file, and reads what is in them.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn open(file: &Path) -> io::Result<(Self, Vec<OpenRecord>)> {
        let mut records = Vec::new();
        let mut log = |suffix: &str| {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(beside(file, suffix))?;
            for line in BufReader::new(&file).split(b'\n') {
                // The last one may have been cut off: nothing of it was run.
                records.extend(serde_json::from_slice::<OpenRecord>(&line?).ok());
            }
            let length = file.metadata()?.len();
            Ok::<_, io::Error>(Log {
                file,
                length,
                open: Arc::default(),
            })
        };
        let turns = Turns {
            current: log("-open-1")?,
            other: log("-open-2")?,
        };
        Ok((Self(Mutex::new(turns)), records))
    }

    /// Forgets what is in the logs: it is in the ledger.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn clear(&self) -> io::Result<()> {
        let turns = &mut *lock(&self.0);
        turns.current.clear()?;
        turns.other.clear()
    }

    /// Enters an opening.
    ///
    /// # Errors
    /// What the kernel says; then it is not in the log.
    pub(super) fn append(&self, record: &OpenRecord) -> io::Result<Logged> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let turns = &mut *lock(&self.0);
        if turns.current.length > TURN && turns.other.open.load(Ordering::Acquire) == 0 {
            turns.other.clear()?;
            std::mem::swap(&mut turns.current, &mut turns.other);
        }
        let log = &mut turns.current;
        if let Err(error) = log.file.write_all_at(&line, log.length) {
            // A part of it may be there, which reads like a line that was cut off.
            let _ = log.file.set_len(log.length);
            return Err(error);
        }
        log.length += line.len() as u64;
        log.open.fetch_add(1, Ordering::Relaxed);
        Ok(Logged(Arc::clone(&log.open)))
    }
}

impl Log {
    fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.length = 0;
        Ok(())
    }
}
