use std::fs::File;
use std::io::{self, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock, fstat, fsync, ftruncate};
use rustix::io::Errno;

use super::{Existing, Target};
use crate::tools::files::{FileError, ShouldStop};

/// How often a lock is tried that somebody else holds.
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// How long it is tried.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// What an append has to be true to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// The file: whoever else appends does no harm.
    Found,
    /// All that it held, which somebody has read.
    Read,
}

impl Target {
    /// Appends `bytes` in place, so that whoever has the file open sees them. When that fails the
    /// file is as long as before; that length is what is returned.
    pub(crate) fn append(
        &self,
        existing: &Existing,
        bytes: &[u8],
        since: Since,
        stop: ShouldStop<'_>,
    ) -> Result<u64, FileError> {
        let asked = &self.asked;
        let mut file = existing.found.open(OFlags::WRONLY | OFlags::APPEND)?;
        lock(&file, asked, stop)?;
        match since {
            Since::Read => self.check_unchanged()?,
            Since::Found => self.check_same_file()?,
        }
        if stop() {
            return Err(FileError::Stopped);
        }
        let before = size(&file).map_err(FileError::io("look at", asked))?;
        let mut written = 0;
        let mut done = write(&mut file, bytes, &mut written);
        if done.is_ok() {
            done = fsync(&file).map_err(io::Error::from);
        }
        let Err(source) = done else {
            // Who replaces files does not wait for locks.
            let is_there = self.check_same_file();
            let late = "was replaced while it was appended to: what was added is in the old file, which is gone; append again";
            return is_there.map_or(Err(FileError::refused(asked, late)), |()| Ok(before));
        };
        match roll_back(&file, before, written) {
            Ok(()) => Err(FileError::io("append to", asked)(source)),
            Err(error) => Err(FileError::refused(
                asked,
                format!("was appended to in part ({source}), which could not be undone ({error})"),
            )),
        }
    }
}

fn size(file: &File) -> io::Result<u64> {
    Ok(u64::try_from(fstat(file)?.st_size).unwrap_or(0))
}

fn write(file: &mut File, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < bytes.len() {
        match file.write(&bytes[*written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes away what was written, unless somebody else has written behind it.
fn roll_back(file: &File, before: u64, written: usize) -> io::Result<()> {
    if size(file)? != before + written as u64 {
        return Err(io::Error::other("somebody else has written to it, too"));
    }
    ftruncate(file, before)?;
    Ok(fsync(file)?)
}

/// Keeps changes of a file apart, of this process and of all who ask.
pub(super) fn lock(file: &File, asked: &str, stop: ShouldStop<'_>) -> Result<(), FileError> {
    let begun = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            // Not every file system has locks.
            Err(Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
            Err(error) => return Err(FileError::io("lock", asked)(error)),
        }
        if stop() {
            return Err(FileError::Stopped);
        }
        if begun.elapsed() > LOCK_PATIENCE {
            let why = "another process holds a lock on it (flock): nothing was written; try again";
            return Err(FileError::refused(asked, why.to_owned()));
        }
        sleep(LOCK_RETRY);
    }
}
