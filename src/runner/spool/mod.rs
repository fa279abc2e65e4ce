//! Full outputs on disk: one file a stream, bounded each and in all, readable while it grows. And the texts
//! of answers, which belong to the history where there is one.
//! A disk that is full or broken costs the part that did not fit, never the execution.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags};

use crate::config::SpoolConfig;
use crate::domain::{Degradation, ExecutionId, StreamName};

/// A stream up to this length stays in memory with its record instead of becoming a file. With a
/// thousand records kept this is 8 MiB at the very worst.
const MEMORY_BYTES: usize = 4096;

/// What the files hold, after their execution's id and a dot: a text for the model, and a script
/// that is too long for an argument, besides the two streams.
const CONTENT: &str = "content";
pub(super) const SCRIPT: &str = "script";
const SUFFIXES: [&str; 6] = [
    "stdout",
    "stderr",
    "stdout-draft",
    "stderr-draft",
    CONTENT,
    SCRIPT,
];

/// The directory of full outputs.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    max_bytes: AtomicU64,
    total_bytes: AtomicU64,
    used: AtomicU64,
    /// What the history may hold, of which texts are a part.
    history_bytes: AtomicU64,
    /// By texts that are a part of it.
    used_by_history: AtomicU64,
    /// Whether files stay when nobody refers to them any more.
    lasting: bool,
    files: Mutex<BTreeMap<Key, Entry>>,
    problem: Mutex<Option<String>>,
}

/// A file in the order in which they are to go: those that give way to newer ones first, the oldest
/// first, for ids sort by time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    stays: bool,
    name: String,
}

impl Key {
    fn new(id: ExecutionId, suffix: &str) -> Self {
        Self {
            stays: suffix == CONTENT,
            name: format!("{id}.{suffix}"),
        }
    }
}

/// What the spool knows of a file.
#[derive(Debug)]
struct Entry {
    /// While somebody refers to it.
    live: Weak<SpoolFile>,
    /// How long it was when it was finished.
    len: u64,
}

/// One file of the spool. It disappears with the last reference to it, or when the spool is told
/// to, if its files are lasting.
#[derive(Debug)]
pub struct SpoolFile {
    key: Key,
    path: PathBuf,
    /// Open from when it is made until it is finished: a thousand records are remembered, and none may cost
    /// a descriptor. Locked before it is written to or given up.
    writer: Mutex<Option<File>>,
    len: AtomicU64,
    /// Whether something did not fit.
    full: AtomicBool,
    evicted: AtomicBool,
    spool: Arc<Spool>,
}

/// Where a stream's bytes are.
#[derive(Clone, Debug)]
pub enum Kept {
    /// In memory, the whole of it.
    Memory(Bytes),
    /// In the spool, `length` bytes from `offset` of a file.
    File {
        /// The file.
        file: Arc<SpoolFile>,
        /// Where in it the stream begins.
        offset: u64,
        /// How long the stream is by now.
        length: u64,
    },
    /// The spool had no room for it, or has none configured.
    Nowhere,
}

impl Spool {
    /// Opens the directory that `config` names, with the files of an earlier spool where they are
    /// to last and there is a history, of so many bytes; otherwise they belong to executions that nobody
    /// remembers, and go. What else is in there is left alone.
    ///
    /// # Errors
    /// When the directory cannot be made, read or cleared.
    pub fn open(config: &SpoolConfig, history_bytes: Option<u64>) -> io::Result<Self> {
        let lasting = config.lasting && history_bytes.is_some();
        std::fs::create_dir_all(&config.dir)?;
        let (mut files, mut used, mut used_by_history) = (BTreeMap::new(), 0, 0);
        for entry in std::fs::read_dir(&config.dir)? {
            let entry = entry?;
            let Some((id, suffix)) = entry.file_name().to_str().and_then(spooled) else {
                continue;
            };
            if !lasting || suffix == SCRIPT {
                std::fs::remove_file(entry.path())?;
                continue;
            }
            let (key, len) = (Key::new(id, suffix), entry.metadata()?.len());
            *match key.stays {
                true => &mut used_by_history,
                false => &mut used,
            } += len;
            let known = Entry {
                live: Weak::new(),
                len,
            };
            files.insert(key, known);
        }
        Ok(Self {
            dir: config.dir.clone(),
            max_bytes: AtomicU64::new(config.max_bytes),
            total_bytes: AtomicU64::new(config.total_bytes),
            used: AtomicU64::new(used),
            history_bytes: AtomicU64::new(history_bytes.unwrap_or_default()),
            used_by_history: AtomicU64::new(used_by_history),
            lasting,
            files: Mutex::new(files),
            problem: Mutex::default(),
        })
    }

    /// Changes the bounds; what of the streams is already kept beyond them goes with the next write.
    pub fn set_bounds(&self, max_bytes: u64, total_bytes: u64, history_bytes: u64) {
        self.max_bytes.store(max_bytes, Ordering::Relaxed);
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
        self.history_bytes.store(history_bytes, Ordering::Relaxed);
    }

    /// What is wrong with the spool, if something is.
    pub fn problem(&self) -> Option<Degradation> {
        lock(&self.problem).clone().map(|detail| Degradation {
            code: "spool_failed",
            detail,
            source: self.dir.display().to_string(),
        })
    }

    /// Whether its files are there for the next process, too.
    pub(super) fn is_lasting(&self) -> bool {
        self.lasting
    }

    /// A new file for what a stream has said so far.
    pub(super) fn draft(
        self: &Arc<Self>,
        id: ExecutionId,
        name: StreamName,
    ) -> Option<Arc<SpoolFile>> {
        self.create(id, &draft(name))
    }

    /// A new file named after an execution and what it holds.
    pub(super) fn create(
        self: &Arc<Self>,
        id: ExecutionId,
        suffix: &str,
    ) -> Option<Arc<SpoolFile>> {
        let key = Key::new(id, suffix);
        let path = self.dir.join(&key.name);
        match create(&path) {
            Ok(file) => {
                let created = self.file(key.clone(), Some(file), 0);
                let live = Arc::downgrade(&created);
                lock(&self.files).insert(key, Entry { live, len: 0 });
                Some(created)
            }
            Err(error) => {
                self.report(format!("cannot create `{}`: {error}", path.display()));
                None
            }
        }
    }

    fn file(self: &Arc<Self>, key: Key, writer: Option<File>, len: u64) -> Arc<SpoolFile> {
        Arc::new(SpoolFile {
            path: self.dir.join(&key.name),
            key,
            writer: Mutex::new(writer),
            len: AtomicU64::new(len),
            full: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            spool: Arc::clone(self),
        })
    }

    /// Keeps `bytes` as a whole as an execution's text for the model; `None` when there is no room
    /// for it. Other than a stream it does not give way to newer ones, and where files last it takes no room
    /// from streams: how much there is of it is the history's to bound.
    pub fn store(self: &Arc<Self>, id: ExecutionId, bytes: &[u8]) -> Option<Arc<SpoolFile>> {
        let file = self.create(id, CONTENT)?;
        file.append(bytes);
        file.finish();
        if file.len() == bytes.len() as u64 {
            return Some(file);
        }
        file.evict();
        None
    }

    /// The file that has an execution's text for the model, if there is one.
    pub fn content(self: &Arc<Self>, id: ExecutionId) -> Option<Arc<SpoolFile>> {
        self.find(&Key::new(id, CONTENT))
    }

    /// The file that has one of an execution's streams, or what of it was saved before the daemon was
    /// killed, if there is one.
    pub fn stream(self: &Arc<Self>, id: ExecutionId, name: StreamName) -> Option<Arc<SpoolFile>> {
        let whole = self.find(&Key::new(id, name.as_str()));
        let draft = self.find(&Key::new(id, &draft(name)));
        match (whole, draft) {
            // It was killed while the whole was begun.
            (Some(whole), Some(draft)) if draft.len() > whole.len() => Some(draft),
            (whole, draft) => whole.or(draft),
        }
    }

    fn find(self: &Arc<Self>, key: &Key) -> Option<Arc<SpoolFile>> {
        let mut files = lock(&self.files);
        let entry = files.get_mut(key)?;
        if let Some(live) = entry.live.upgrade() {
            return Some(live);
        }
        if !self.lasting {
            // It is just going, with the last who referred to it.
            return None;
        }
        let file = self.file(key.clone(), None, entry.len);
        entry.live = Arc::downgrade(&file);
        Some(file)
    }

    /// Removes all that is kept of an execution.
    pub fn remove(self: &Arc<Self>, id: ExecutionId) {
        for suffix in SUFFIXES {
            if let Some(file) = self.find(&Key::new(id, suffix)) {
                file.evict();
            }
        }
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Makes room for `wanted` more bytes of `writer` by evicting the oldest files, and says how
    /// many of them fit.
    fn reserve(self: &Arc<Self>, writer: &SpoolFile, wanted: u64) -> u64 {
        if writer.is_history() {
            return self.reserve_history(wanted);
        }
        let own = writer.len.load(Ordering::Relaxed);
        let wanted = wanted.min(self.max_bytes.load(Ordering::Relaxed).saturating_sub(own));
        let total = self.total_bytes.load(Ordering::Relaxed);
        while !take(&self.used, wanted, total) {
            if writer.is_evicted() {
                return 0;
            }
            let oldest = lock(&self.files)
                .keys()
                .take_while(|key| !key.stays)
                .find(|key| **key != writer.key)
                .cloned();
            let Some(oldest) = oldest else {
                let room = wanted.min(total.saturating_sub(self.used()));
                return if take(&self.used, room, total) {
                    room
                } else {
                    0
                };
            };
            match self.find(&oldest) {
                Some(file) => file.evict(),
                // Somebody else is giving it up.
                None => thread::yield_now(),
            }
        }
        wanted
    }

    /// Whether the history may have so many bytes more: all of them, or none. It is held to its bounds by
    /// forgetting executions, every second; this is for when that does not work or is not enough.
    fn reserve_history(&self, wanted: u64) -> u64 {
        let bounds = [&self.history_bytes, &self.total_bytes].map(|b| b.load(Ordering::Relaxed));
        let bound = bounds[0].saturating_add(bounds[1]);
        match take(&self.used_by_history, wanted, bound) {
            true => wanted,
            false => 0,
        }
    }

    /// Whose files are in it.
    pub fn ids(&self) -> Vec<ExecutionId> {
        let files = lock(&self.files);
        let mut ids: Vec<_> = files
            .keys()
            .filter_map(|key| spooled(&key.name).map(|(id, _)| id))
            .collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// Says that it takes output again.
    fn recover(&self) {
        lock(&self.problem).take();
    }

    fn report(&self, detail: String) {
        *lock(&self.problem) = Some(detail);
    }
}

impl SpoolFile {
    /// Appends what fits of `bytes`; where that is not all, nothing more will: what is kept is a beginning.
    /// Only one thread may write to a file at a time.
    pub(super) fn append(&self, bytes: &[u8]) {
        if self.is_evicted() || self.full.load(Ordering::Acquire) {
            return;
        }
        let granted = self.spool.reserve(self, bytes.len() as u64);
        let wanted = &bytes[..usize::try_from(granted).unwrap_or(bytes.len())];
        // Reserving may give files up, so this one is not locked before.
        let writer = lock(&self.writer);
        let written = match &*writer {
            Some(file) => write_at(file, wanted, self.len()),
            // Given up meanwhile.
            None => return self.unreserve(granted),
        };
        match written {
            Ok(()) => {
                self.len.fetch_add(granted, Ordering::Release);
                // Behind that: whoever sees that it is full has seen all there will be.
                let is_all = granted == bytes.len() as u64;
                self.full.fetch_or(!is_all, Ordering::Release);
                self.spool.recover();
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
    pub(super) fn finish(&self) {
        drop(lock(&self.writer).take());
        // Given up, it is not there any more, and another may have its name.
        if self.is_evicted() {
            return;
        }
        if let Some(entry) = lock(&self.spool.files).get_mut(&self.key) {
            entry.len = self.len();
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
    fn is_history(&self) -> bool {
        self.spool.lasting && self.key.stays
    }

    fn fail(&self, error: &io::Error) {
        self.evict();
        self.spool
            .report(format!("cannot write `{}`: {error}", self.path.display()));
    }

    /// Whether more fits.
    pub(super) fn has_room(&self) -> bool {
        let is_full = self.full.load(Ordering::Acquire);
        !is_full && !self.is_evicted() && self.len() < self.spool.max_bytes.load(Ordering::Relaxed)
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
        let mut writer = lock(&self.writer);
        if !self.evicted.swap(true, Ordering::AcqRel) {
            let freed = self.len.swap(0, Ordering::AcqRel);
            self.unreserve(freed);
            lock(&self.spool.files).remove(&self.key);
            // Gone already when somebody cleared the directory: just as well.
            let _ = std::fs::remove_file(&self.path);
            if let Some(file) = writer.take() {
                let _ = file.set_len(0);
            }
        }
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

/// Takes `wanted` of what is counted in `used`, up to `bound`, if there is as much: what others take
/// meanwhile is not given twice.
fn take(used: &AtomicU64, wanted: u64, bound: u64) -> bool {
    let more = |used: u64| used.checked_add(wanted).filter(|used| *used <= bound);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .is_ok()
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
pub(super) fn create(path: &Path) -> io::Result<File> {
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

/// What a file holds that has what a stream said so far.
fn draft(name: StreamName) -> String {
    format!("{}-draft", name.as_str())
}

/// Whose file it is, and what it holds, if its name is one that a spool gives.
fn spooled(name: &str) -> Option<(ExecutionId, &'static str)> {
    let (id, suffix) = name.split_once('.')?;
    let suffix = SUFFIXES.into_iter().find(|known| *known == suffix)?;
    Some((id.parse().ok()?, suffix))
}

/// Whether a stream of this length is kept in memory rather than on disk.
pub(super) fn fits_memory(len: usize) -> bool {
    len <= MEMORY_BYTES
}

/// For what is complete in itself at every change, so that a panic elsewhere leaves nothing half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
