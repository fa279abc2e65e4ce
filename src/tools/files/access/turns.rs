//! Turns of calls that change the same file. Each reads it, changes it and puts it in place of what it has read; two at
//! once would take each other for somebody else.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::tools::files::{FileError, ShouldStop};

/// How often one that waits looks at whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// The files that are being changed: one for each call at the most, and gone with it.
static TAKEN: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);
static FREED: Condvar = Condvar::new();

/// The turn of one call, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(PathBuf);

impl Turn {
    /// Waits until no other call changes what is really at `path`.
    pub(crate) fn wait(path: &Path, stop: ShouldStop<'_>) -> Result<Self, FileError> {
        let mut taken = TAKEN.lock();
        loop {
            let files = taken.get_or_insert_default();
            if files.insert(path.to_owned()) {
                return Ok(Self(path.to_owned()));
            }
            FREED.wait_for(&mut taken, LOOK);
            if stop() {
                return Err(FileError::Stopped);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(files) = &mut *TAKEN.lock() {
            files.remove(&self.0);
        }
        FREED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_stopped_waits_no_longer_and_leaves_nothing() {
        let path = Path::new("/turns/one");
        let first = Turn::wait(path, &|| false).expect("nobody has it");
        let other = Turn::wait(Path::new("/turns/other"), &|| true);
        assert!(other.is_ok(), "of another file");
        let second = Turn::wait(path, &|| true);
        assert!(matches!(second, Err(FileError::Stopped)));
        drop((first, other));
        assert!(Turn::wait(path, &|| true).is_ok());
        let taken = TAKEN.lock();
        let mut left = taken.iter().flatten();
        assert!(!left.any(|path| path.starts_with("/turns")));
    }
}
