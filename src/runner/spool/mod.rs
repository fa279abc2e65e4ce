//! Full outputs on disk: one file a stream, bounded each and in all, readable while it grows. And the texts
//! of answers, which belong to the history where there is one.
//! A disk that is full or broken costs the part that did not fit, never the execution.

mod file;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use self::file::Size;
pub use self::file::SpoolFile;
pub(super) use self::file::create;
use crate::config::SpoolConfig;
use crate::domain::{Degradation, ExecutionId, StreamName};

/// The longest stream, and the longest text of an answer, that stays with its record (in memory, or in the ledger) instead
/// of becoming a file, in bytes. With a thousand records in memory this is 12 MiB at the very worst.
pub const KEPT_WITH_RECORD: usize = 4096;

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

/// The file with which it is tried whether the directory takes output again: nobody's, so that one that a crash
/// has left goes at the next start.
const PROBE: &str = "probe";

/// How long that file is: as much as a long output has at first.
const PROBE_BYTES: usize = 64 * 1024;

/// How long the spool has had a problem before that is tried, and how long there is between two times: whoever
/// looks now and then is to see it.
const PROBE_AFTER: Duration = Duration::from_secs(2);

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
    /// What has given way and nobody has [asked](Self::take_given_up) about yet.
    given_up: Mutex<Vec<(ExecutionId, StreamName)>>,
    problem: Mutex<Option<Problem>>,
}

/// What is wrong with a spool.
#[derive(Clone, Debug)]
struct Problem {
    detail: String,
    /// When it was last so.
    at: Instant,
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
    /// How much it held when it was finished.
    size: Size,
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

impl Kept {
    /// Its first bytes, `most` of them where there are so many; `None` where nothing is kept. May read from disk.
    ///
    /// # Errors
    /// When its file cannot be read, as one that has been given up.
    pub fn head(self, most: u64) -> io::Result<Option<Bytes>> {
        match self {
            Self::Memory(bytes) => {
                let length = usize::try_from(most).unwrap_or(usize::MAX);
                Ok(Some(bytes.slice(..length.min(bytes.len()))))
            }
            Self::File {
                file,
                offset,
                length,
            } => {
                let mut bytes = vec![0; usize::try_from(length.min(most)).unwrap_or(usize::MAX)];
                file.open()?.read_exact_at(&mut bytes, offset)?;
                Ok(Some(bytes.into()))
            }
            Self::Nowhere => Ok(None),
        }
    }
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
            if entry.file_name() == PROBE {
                std::fs::remove_file(entry.path())?;
            }
            let Some((id, suffix)) = entry.file_name().to_str().and_then(spooled) else {
                continue;
            };
            let size = Size::from(&entry.metadata()?);
            // An empty one was begun when its daemon was killed: what is short is kept elsewhere.
            if !lasting || suffix == SCRIPT || size.is_nothing() {
                std::fs::remove_file(entry.path())?;
                continue;
            }
            let key = Key::new(id, suffix);
            *match key.stays {
                true => &mut used_by_history,
                false => &mut used,
            } += size.len;
            let known = Entry {
                live: Weak::new(),
                size,
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
            given_up: Mutex::default(),
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
        let problem = self.problem.lock().clone();
        problem.map(|Problem { detail, .. }| Degradation {
            code: "spool_failed",
            detail,
            source: self.dir.display().to_string(),
        })
    }

    /// Whether something has been wrong for long enough to be [tried](Self::probe) again.
    pub fn wants_probe(&self) -> bool {
        self.due().is_some()
    }

    /// Tries whether what is wrong is over: the next long output may be long in coming. Blocks.
    pub fn probe(&self) {
        let Some(at) = self.due() else {
            return;
        };
        let is_over = self.try_write().is_ok();
        let mut problem = self.problem.lock();
        if is_over {
            // Another one may have come meanwhile.
            problem.take_if(|problem| problem.at == at);
        } else if let Some(problem) = &mut *problem {
            problem.at = Instant::now();
        }
    }

    /// When what is wrong was last so, if it is time to try again.
    fn due(&self) -> Option<Instant> {
        let at = self.problem.lock().as_ref()?.at;
        (at.elapsed() >= PROBE_AFTER).then_some(at)
    }

    fn try_write(&self) -> io::Result<()> {
        let path = self.dir.join(PROBE);
        // One that could not be removed says nothing of now.
        let _ = std::fs::remove_file(&path);
        let mut file = create(&path)?;
        let written = file.write_all(&vec![0; PROBE_BYTES]);
        written.and(std::fs::remove_file(&path))
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
                let size = Size::default();
                let created = SpoolFile::new(self, key.clone(), Some(file), size);
                let live = Arc::downgrade(&created);
                self.files.lock().insert(key, Entry { live, size });
                Some(created)
            }
            Err(error) => {
                self.report(format!("cannot create `{}`: {error}", path.display()));
                None
            }
        }
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
        let mut files = self.files.lock();
        let entry = files.get_mut(key)?;
        if let Some(live) = entry.live.upgrade() {
            return Some(live);
        }
        if !self.lasting {
            // It is just going, with the last who referred to it.
            return None;
        }
        let file = SpoolFile::new(self, key.clone(), None, entry.size);
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
        let own = writer.len();
        let wanted = wanted.min(self.max_bytes.load(Ordering::Relaxed).saturating_sub(own));
        let total = self.total_bytes.load(Ordering::Relaxed);
        while !take(&self.used, wanted, total) {
            if writer.is_evicted() {
                return 0;
            }
            let oldest = self
                .files
                .lock()
                .keys()
                .take_while(|key| !key.stays)
                .find(|key| *key != writer.key())
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
                Some(file) => {
                    if file.give_up() && self.lasting {
                        self.given_up.lock().extend(stream_of(&oldest));
                    }
                }
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

    /// The finished streams that have given way to newer ones since it was last asked: they are on record as kept.
    pub fn take_given_up(&self) -> Vec<(ExecutionId, StreamName)> {
        std::mem::take(&mut *self.given_up.lock())
    }

    /// Whose files are in it.
    pub fn ids(&self) -> Vec<ExecutionId> {
        let files = self.files.lock();
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
        self.problem.lock().take();
    }

    fn report(&self, detail: String) {
        let at = Instant::now();
        *self.problem.lock() = Some(Problem { detail, at });
    }
}

/// Takes `wanted` of what is counted in `used`, up to `bound`, if there is as much: what others take
/// meanwhile is not given twice.
fn take(used: &AtomicU64, wanted: u64, bound: u64) -> bool {
    let more = |used: u64| used.checked_add(wanted).filter(|used| *used <= bound);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .is_ok()
}

/// What a file holds that has what a stream said so far.
fn draft(name: StreamName) -> String {
    format!("{}-draft", name.as_str())
}

/// Whose stream it is, if it is the whole of one.
fn stream_of(key: &Key) -> Option<(ExecutionId, StreamName)> {
    let (id, suffix) = spooled(&key.name)?;
    Some((id, StreamName::from_word(suffix)?))
}

/// Whose file it is, and what it holds, if its name is one that a spool gives.
fn spooled(name: &str) -> Option<(ExecutionId, &'static str)> {
    let (id, suffix) = name.split_once('.')?;
    let suffix = SUFFIXES.into_iter().find(|known| *known == suffix)?;
    Some((id.parse().ok()?, suffix))
}

/// Whether a stream of this length is kept in memory rather than on disk.
pub(super) fn fits_memory(len: usize) -> bool {
    len <= KEPT_WITH_RECORD
}

#[cfg(test)]
mod tests;
