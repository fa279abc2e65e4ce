//! One file of the spool: written by one thread, read by many while it grows, given up at any time.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::{Errno, ReadWriteFlags};

use super::{Key, Spool};

/// The permissions of a file to which something did not fit: the next daemon has nothing else to tell it by.
/// Nobody writes to it any more.
const FULL_MODE: u32 = 0o400;

/// How much a file holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// So many bytes.
    pub(super) len: u64,
    /// Whether something did not fit.
    full: bool,
}

impl Size {
    /// Whether nothing was ever to be written.
    pub(super) fn is_nothing(self) -> bool {
        self.len == 0 && !self.full
    }
}

impl From<&Metadata> for Size {
    fn from(metadata: &Metadata) -> Self {
        Self {
            len: metadata.len(),
            full: metadata.mode() & 0o777 == FULL_MODE,
        }
    }
}

/// One file of the spool. It disappears with the last reference to it, or when the spool is told
/// to, if its files are lasting.
#[derive(Debug)]
pub struct SpoolFile {
    key: Key,
    pub(super) path: PathBuf,
    /// Open from when it is made until it is finished: a thousand records are remembered, and none may cost
    /// a descriptor. Locked before it is written to or given up.
    writer: Mutex<Option<File>>,
    len: AtomicU64,
    /// Whether something did not fit.
    full: AtomicBool,
    evicted: AtomicBool,
    spool: Arc<Spool>,
}

impl SpoolFile {
    /// A file of that `size`, written to by whoever has this if there is a `writer`.
    pub(super) fn new(spool: &Arc<Spool>, key: Key, writer: Option<File>, size: Size) -> Arc<Self> {
        Arc::new(Self {
            path: spool.dir.join(&key.name),
            key,
            writer: Mutex::new(writer),
            len: AtomicU64::new(size.len),
            full: AtomicBool::new(size.full),
            evicted: AtomicBool::new(false),
            spool: Arc::clone(spool),
        })
    }

    /// Its place in the order in which files are to go.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Appends what fits of `bytes`; where that is not all, nothing more will: what is kept is a beginning.
    /// Only one thread may write to a file at a time.
    pub(in crate::runner) fn append(&self, bytes: &[u8]) {
        // An empty write would say nothing about whether the disk takes anything.
        if bytes.is_empty() || self.is_evicted() || self.is_cut() {
            return;
        }
        let granted = self.spool.reserve(self, bytes.len() as u64);
        let wanted = &bytes[..usize::try_from(granted).unwrap_or(bytes.len())];
        // Reserving may give files up, so this one is not locked before.
        let writer = self.writer.lock();
        let is_all = granted == bytes.len() as u64;
        if !is_all {
            tell_the_next(writer.as_ref());
        }
        let written = match &*writer {
            Some(file) => write_at(file, wanted, self.len()),
            // Given up meanwhile.
            None => return self.unreserve(granted),
        };
        match written {
            Ok(()) => {
                self.len.fetch_add(granted, Ordering::Release);
                // Behind that: whoever sees that it is full has seen all there will be.
                self.full.fetch_or(!is_all, Ordering::Release);
                if granted > 0 {
                    self.spool.recover();
                }
            }
            Err(error) => {
                drop(writer);
                // What was written of it is cut off again by `len`, which readers go by.
                self.unreserve(granted);
                self.fail(&error);
            }
        }
    }

    /// Says that nothing more will be written.
    pub(in crate::runner) fn finish(&self) {
        drop(self.writer.lock().take());
        // Given up, it is not there any more, and another may have its name.
        if self.is_evicted() {
            return;
        }
        if let Some(entry) = self.spool.files.lock().get_mut(&self.key) {
            entry.size = Size {
                len: self.len(),
                full: self.is_cut(),
            };
        }
    }

    fn unreserve(&self, bytes: u64) {
        let used = match self.is_history() {
            true => &self.spool.used_by_history,
            false => &self.spool.used,
        };
        used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether it is a part of the history, whose bounds are not the spool's.
    pub(super) fn is_history(&self) -> bool {
        self.spool.lasting && self.key.stays
    }

    fn fail(&self, error: &io::Error) {
        self.evict();
        self.spool
            .report(format!("cannot write `{}`: {error}", self.path.display()));
    }

    /// Says that something was not even tried to fit in.
    pub(in crate::runner) fn cut(&self) {
        if !self.is_cut() && !self.is_evicted() {
            tell_the_next(self.writer.lock().as_ref());
            self.full.store(true, Ordering::Release);
        }
    }

    /// Whether something did not fit: what is there is a beginning.
    pub fn is_cut(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Whether more fits.
    pub(in crate::runner) fn has_room(&self) -> bool {
        !self.is_cut()
            && !self.is_evicted()
            && self.len() < self.spool.max_bytes.load(Ordering::Relaxed)
    }

    /// How many bytes can be read.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its bytes were given up for newer ones, or for want of disk space.
    pub fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Acquire)
    }

    /// Opens it for reading. Reports to the spool what went wrong.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self) -> io::Result<File> {
        File::open(&self.path).inspect_err(|error| {
            if !self.is_evicted() {
                let path = self.path.display();
                self.spool.report(format!("cannot read `{path}`: {error}"));
            }
        })
    }

    /// Gives the disk space back. Readers that are under way find it empty.
    pub fn evict(&self) {
        self.give_up();
    }

    /// Does so, unless somebody has: says whether.
    pub(super) fn give_up(&self) -> bool {
        let mut writer = self.writer.lock();
        if self.evicted.swap(true, Ordering::AcqRel) {
            return false;
        }
        let freed = self.len.swap(0, Ordering::AcqRel);
        self.unreserve(freed);
        self.spool.files.lock().remove(&self.key);
        // Gone already when somebody cleared the directory: just as well.
        let _ = std::fs::remove_file(&self.path);
        if let Some(file) = writer.take() {
            let _ = file.set_len(0);
        }
        true
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        if !self.spool.lasting {
            return self.evict();
        }
        self.finish();
    }
}

/// Marks a file to which something did not fit.
fn tell_the_next(file: Option<&File>) {
    if let Some(file) = file {
        // Where that fails, it passes for the whole after a crash.
        let _ = file.set_permissions(Permissions::from_mode(FULL_MODE));
    }
}

/// Writes `bytes` at `offset`. Large pieces go past the page cache where the kernel and the file
/// system know how (`RWF_DONTCACHE`, Linux 6.14): what is hardly ever read again should not push
/// out what is, and finding fresh pages for it takes longer than filling them.
fn write_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    /// Each such write is one of the disk's, too.
    const LARGE: usize = 64 * 1024;
    let uncached = ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE as u32);
    while bytes.len() >= LARGE {
        match rustix::io::pwritev2(file, &[IoSlice::new(bytes)], offset, uncached) {
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            // If that is not what it means, the other way to write will say so.
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => break,
            Err(error) => return Err(error.into()),
        }
    }
    file.write_all_at(bytes, offset)
}

/// A new private file. A directory that somebody has cleared away is made again.
pub(in crate::runner) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match (options.open(path), path.parent()) {
        (Err(error), Some(dir)) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(dir)?;
            options.open(path)
        }
        (opened, _) => opened,
    }
}
