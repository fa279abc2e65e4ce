//! What one output stream has said so far, secrets masked: the part that answers need, in memory
//! and bounded; the whole of it in the spool. It outlives whoever reads the pipe: giving up on a
//! pipe loses nothing that was read.

mod draft;
mod follower;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use draft::Draft;
pub use follower::{Ahead, Follower};

use super::hashing::Hashing;
use super::spool::{Kept, Spool, SpoolFile, fits_memory};
use crate::config::Truncate;
use crate::domain::{CONTEXT, ExecutionId, PendingDigest, Secrets, StreamName};

/// How much of a stream is read on the event loop and held in memory whatever the cap, before a
/// thread of its own takes over and the spool goes to disk. It is what an answer holds by default
/// and a little room for the end of a stream of that length to be seen in, so that only what
/// outgrows its answer pays for a thread.
const INLINE_BYTES: usize = (1 << 20) + SMALL_BYTES;

/// Room for what most commands say, in bytes. A stream that is no longer is kept in memory and in the history, and never
/// becomes a file.
pub(super) const SMALL_BYTES: usize = 4 * 1024;

/// How much of a stream is hashed as it is read. What follows would keep its writer waiting: it is
/// hashed on a thread beside the one that reads it, or after the end.
const HASHED_BYTES: usize = SMALL_BYTES + PIPE_BYTES;

/// What a pipe holds at first (pipe(7)). A stream beyond it is likely to become a long one.
const PIPE_BYTES: usize = 64 * 1024;

/// The most that one packet of a pipe holds whose writer has set `O_DIRECT` (`PIPE_BUF`). Of a packet the kernel drops what
/// there is no room for (pipe(2)).
pub(super) const PACKET_BYTES: usize = 4096;

/// The head (and with `Truncate::Middle` the tail) of one stream, and where the whole of it is.
#[derive(Debug)]
pub struct Capture {
    id: ExecutionId,
    name: StreamName,
    spool: Option<Arc<Spool>>,
    secrets: Arc<Secrets>,
    /// The hash of everything captured so far, except what a growing head has not hashed yet
    /// ([`Growing::hashed`]). `None` once bytes were only counted, or once sealed. Locked before `inner`, so that
    /// nobody waits for `inner` while bytes are hashed.
    hashing: Mutex<Option<Hashing>>,
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    head: Head,
    head_cap: usize,
    /// The last bytes of what is not in `head`, up to `tail_cap`.
    tail: VecDeque<u8>,
    tail_cap: usize,
    total: u64,
    file: Option<Arc<SpoolFile>>,
    /// Until there is a file, or the record has what the stream said.
    draft: Option<Draft>,
    /// What was held back when the head was sealed: its offset, and its bytes before masking. Whoever reads on
    /// needs them unmasked, for what follows may complete a secret.
    unmasked: Option<(usize, Vec<u8>)>,
    /// Whether anything was held back at the seal: the spool file then continues differently from how the
    /// answer ends.
    is_apart: bool,
    error: Option<io::Error>,
    followers: usize,
    /// What goes with the last follower.
    release: Option<Release>,
}

/// The first bytes: growing, or complete and shared with the answer.
#[derive(Debug)]
enum Head {
    Growing(Growing),
    Sealed(Bytes),
}

/// What has been read, and how much of it nobody needs to hold back any more: what follows may be
/// the beginning of a secret. As much of that as is hashed comes first.
#[derive(Debug, Default)]
struct Growing {
    bytes: Vec<u8>,
    done: usize,
    hashed: usize,
}

/// The beginning of something that may become a secret, for whoever reads on.
#[derive(Debug)]
pub(super) struct Held {
    /// With what stands before it, which decides whether a word begins there.
    pub(super) bytes: Vec<u8>,
    /// How much that is.
    pub(super) done: usize,
}

/// What an ended stream lets go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// All of its bytes in memory: others have them.
    Everything,
    /// Those of a stream that is too long to stay there.
    WhatIsLong,
}

/// A stream as it was captured.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// The first bytes.
    pub head: Bytes,
    /// The last bytes; between the two, `total - head.len() - tail.len()` are missing.
    pub tail: Bytes,
    /// What was written in all.
    pub total: u64,
    /// Of all that was written; `None` when that was more than anybody kept.
    pub digest: Option<PendingDigest>,
}

impl Capture {
    pub(super) fn new(
        id: ExecutionId,
        name: StreamName,
        cap: usize,
        truncate: Truncate,
        spool: Option<Arc<Spool>>,
        secrets: Arc<Secrets>,
    ) -> Self {
        Self {
            id,
            name,
            spool,
            secrets,
            hashing: Mutex::new(Some(Hashing::default())),
            inner: Mutex::new(Inner {
                head: Head::Growing(Growing::default()),
                head_cap: cap.max(INLINE_BYTES),
                tail: VecDeque::new(),
                tail_cap: match truncate {
                    Truncate::Tail => 0,
                    Truncate::Middle => cap,
                },
                total: 0,
                file: None,
                draft: None,
                unmasked: None,
                is_apart: false,
                error: None,
                followers: 0,
                release: None,
            }),
            changed: Notify::new(),
        }
    }

    /// Which stream this is.
    pub fn name(&self) -> StreamName {
        self.name
    }

    /// What is masked in it.
    pub(super) fn secrets(&self) -> &Arc<Secrets> {
        &self.secrets
    }

    /// Lets `read` append to the head as much as there is room for, and returns what it returned. While there is less room than
    /// `PACKET_BYTES` it appends at most so many ([`Capture::append`]). `None` when the head is as good as full, at
    /// `INLINE_BYTES`, or complete.
    pub(super) fn fill<T>(&self, read: impl FnOnce(&mut Vec<u8>) -> T) -> Option<T> {
        let mut hashing = self.hashing.lock();
        let mut inner = self.lock();
        let Head::Growing(Growing {
            bytes,
            done,
            hashed,
        }) = &mut inner.head
        else {
            return None;
        };
        let before = bytes.len();
        if before + PACKET_BYTES > INLINE_BYTES {
            return None;
        }
        if before >= SMALL_BYTES {
            Self::make_room(bytes, PACKET_BYTES);
        }
        let (result, done_before) = (read(bytes), *done);
        if bytes.len() > before {
            *done = self.secrets.mask(bytes, done_before, false);
            if let Some(hashing) = &mut *hashing
                && *done <= HASHED_BYTES
            {
                hashing.update(&bytes[*hashed..*done]);
                *hashed = *done;
            }
            let grown = (*done > done_before, bytes.len());
            inner.total = inner.total - before as u64 + grown.1 as u64;
            drop(inner);
            if grown.0 {
                self.changed.notify_waiters();
            }
        }
        Some(result)
    }

    /// Appends a small piece to a head.
    pub(super) fn append(head: &mut Vec<u8>, piece: &[u8]) {
        Self::make_room(head, piece.len());
        head.extend_from_slice(piece);
    }

    /// In three steps, instead of copying it at each doubling.
    fn make_room(head: &mut Vec<u8>, wanted: usize) {
        let length = head.len() + wanted;
        if length > head.capacity() {
            let steps = [SMALL_BYTES, SMALL_BYTES + PIPE_BYTES, INLINE_BYTES];
            let next = steps.into_iter().find(|step| *step >= length);
            head.reserve_exact(next.unwrap_or(length) - head.len());
        }
    }

    /// Begins the stream's spool file with what is in memory, and hands out what is held back of
    /// it, in `buffer`. For a thread that may block, and that is from now on the only one to read the pipe.
    pub(super) fn begin_file(&self, buffer: Vec<u8>) -> (Option<Arc<SpoolFile>>, Held) {
        let (held, done) = self.lock().take_held(buffer);
        if let Some(hashing) = &mut *self.hashing.lock() {
            hashing.move_beside();
        }
        (self.write_file(done), held)
    }

    /// Writes the stream to its spool file, which has ended and is in memory. For a thread that may block.
    pub(super) fn write_whole(&self) {
        if let Some(file) = self.write_file(usize::MAX) {
            file.finish();
        }
    }

    /// Makes the spool file, of what is in memory up to `done`.
    fn write_file(&self, done: usize) -> Option<Arc<SpoolFile>> {
        let create = |spool: &Arc<Spool>| spool.create(self.id, self.name.as_str());
        let file = self.spool.as_ref().and_then(create);
        self.copy_head(file.as_deref(), done);
        if let Some(file) = &file {
            let mut inner = self.lock();
            inner.file = Some(Arc::clone(file));
            let draft = inner.draft.take();
            // That waits for whoever writes to it.
            drop(inner);
            drop(draft);
        }
        file
    }

    /// Hashes what of the head is not yet before all else, and writes it to `file`, up to `done`. In pieces:
    /// nobody waits for the disk under the lock, and a copy of the whole would be memory.
    fn copy_head(&self, file: Option<&SpoolFile>, done: usize) {
        let mut copied = 0;
        loop {
            let mut hashing = self.hashing.lock();
            let (piece, unhashed) = self.lock().head.take_piece(copied, done);
            if piece.is_empty() {
                return;
            }
            if let Some(hashing) = &mut *hashing {
                hashing.update(&unhashed);
            }
            drop(hashing);
            if let Some(file) = file {
                file.append(&piece);
            }
            copied += piece.len();
        }
    }

    /// Takes in `bytes`, which a thread with a buffer of its own has read, masked (and spooled).
    pub(super) fn absorb(&self, bytes: &[u8]) {
        let mut hashing = self.hashing.lock();
        if let Some(hashing) = &mut *hashing {
            hashing.update(bytes);
        }
        let mut inner = self.lock();
        inner.total += bytes.len() as u64;
        let cap = inner.head_cap;
        let room = match &mut inner.head {
            Head::Growing(Growing {
                bytes: head,
                done,
                hashed,
            }) => {
                let room = cap.saturating_sub(head.len()).min(bytes.len());
                head.extend_from_slice(&bytes[..room]);
                *done = head.len();
                *hashed = *done;
                room
            }
            Head::Sealed(_) => 0,
        };
        inner.push_tail(&bytes[room..]);
        drop((inner, hashing));
        self.changed.notify_waiters();
    }

    /// Whether the bytes themselves are still of use, and not only how many they are.
    pub(super) fn wants_bytes(&self) -> bool {
        let inner = self.lock();
        match &inner.head {
            Head::Growing(head) => head.bytes.len() < inner.head_cap || inner.tail_cap > 0,
            Head::Sealed(_) => false,
        }
    }

    /// Counts bytes that nobody wants to see here.
    pub(super) fn count(&self, bytes: usize) {
        let mut hashing = self.hashing.lock();
        self.lock().total += bytes as u64;
        *hashing = None;
    }

    pub(super) fn fail(&self, error: io::Error) {
        self.lock().error.get_or_insert(error);
    }

    /// What went wrong since it was sealed, if anything did.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        self.lock().error.take()
    }

    /// Completes the capture as far as the answer is concerned, and hands it out with the error
    /// that reading met, if any. What is still written later only reaches the spool.
    pub(super) fn seal(&self) -> (Captured, Option<io::Error>) {
        let mut hashing = self.hashing.lock();
        let mut inner = self.lock();
        let (head, hashed) = match std::mem::replace(&mut inner.head, Head::Sealed(Bytes::new())) {
            Head::Growing(Growing {
                mut bytes,
                done,
                hashed,
            }) => {
                let before = bytes.len();
                inner.is_apart = before > done;
                inner.unmasked = inner.is_apart.then(|| (done, bytes[done..].to_vec()));
                self.secrets.mask(&mut bytes, done, true);
                inner.total -= (before - bytes.len()) as u64;
                (Bytes::from(bytes), hashed)
            }
            Head::Sealed(head) => {
                let hashed = head.len();
                (head, hashed)
            }
        };
        let hashing = hashing.take();
        inner.head = Head::Sealed(head.clone());
        inner.tail_cap = 0;
        let tail = Vec::from(std::mem::take(&mut inner.tail)).into();
        let captured = Captured {
            head: head.clone(),
            tail,
            total: inner.total,
            digest: hashing.map(|hashing| hashing.finish(head.slice(hashed..))),
        };
        let error = inner.error.take();
        drop(inner);
        self.changed.notify_waiters();
        (captured, error)
    }

    /// Whether the stream has to be written to disk before its record can do without `head`.
    pub(super) fn wants_file(&self) -> bool {
        let inner = self.lock();
        self.spool.is_some() && inner.file.is_none() && !fits_memory(inner.head.bytes().len())
    }

    /// Lets go of the memory that only the answer needed, once nobody follows the stream any
    /// more.
    pub fn release(&self, what: Release) {
        let draft = self.lock().release(what);
        if let Some(draft) = draft {
            // It may be written to at this moment: for a thread that may block, as this one is where
            // there is no event loop.
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(|| drop(draft))),
                Err(_) => drop(draft),
            }
        }
    }

    /// The stream as far as it is kept, for whoever asks for the raw bytes.
    pub fn kept(&self) -> Kept {
        let inner = self.lock();
        match (&inner.file, &inner.head) {
            (Some(file), _) if file.is_evicted() => Kept::Nowhere,
            (Some(file), _) => Kept::File {
                file: Arc::clone(file),
                offset: 0,
                length: file.len(),
            },
            // What a sealed head had held back counts only when it is handed on.
            (None, head) if head.len() as u64 >= inner.total => Kept::Memory(head.share()),
            (None, _) => Kept::Nowhere,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Head {
    fn share(&self) -> Bytes {
        match self {
            Self::Growing(_) => Bytes::copy_from_slice(self.bytes()),
            Self::Sealed(head) => head.clone(),
        }
    }

    /// What follows the first `from` bytes, up to `done`, a part of it at the most while it grows; and what
    /// of that is not hashed, which it is from now on.
    fn take_piece(&mut self, from: usize, done: usize) -> (Bytes, Bytes) {
        match self {
            Self::Growing(head) => {
                let end = head.done.min(done).min(from + PIPE_BYTES);
                let piece = Bytes::copy_from_slice(&head.bytes[from..end]);
                let unhashed = piece.slice(head.hashed.clamp(from, end) - from..);
                head.hashed = head.hashed.max(end);
                (piece, unhashed)
            }
            // It may have been let go of meanwhile.
            Self::Sealed(head) => {
                let end = head.len().min(done);
                (head.slice(from.min(end)..end), Bytes::new())
            }
        }
    }

    /// Those that are not held back.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Growing(head) => &head.bytes[..head.done],
            Self::Sealed(head) => head,
        }
    }

    /// Of all, those held back among them.
    fn len(&self) -> usize {
        match self {
            Self::Growing(head) => head.bytes.len(),
            Self::Sealed(head) => head.len(),
        }
    }
}

impl Inner {
    /// Lets go of what only the answer needed, if nobody follows, and hands out the draft.
    fn release(&mut self, what: Release) -> Option<Draft> {
        self.release = Some(what);
        self.unmasked = None;
        if self.followers == 0 {
            let fits = fits_memory(self.head.bytes().len()) && self.file.is_none();
            self.head = Head::Sealed(match what {
                // A copy of its own size, for the original has room to grow.
                Release::WhatIsLong if fits => Bytes::copy_from_slice(self.head.bytes()),
                Release::WhatIsLong | Release::Everything => Bytes::new(),
            });
        }
        self.draft.take()
    }

    /// What is held back, which counts when it is handed on, in `buffer` behind what stands before it; and how
    /// much of the head there is up to that.
    fn take_held(&mut self, mut buffer: Vec<u8>) -> (Held, usize) {
        let (from, held_back, counted) = match &mut self.head {
            Head::Growing(Growing { bytes, done, .. }) => {
                let held_back = bytes.split_off(*done);
                let counted = held_back.len();
                (*done, held_back, counted)
            }
            Head::Sealed(head) => {
                let (from, unmasked) = self.unmasked.take().unwrap_or((head.len(), Vec::new()));
                (from, unmasked, head.len().saturating_sub(from))
            }
        };
        self.total -= counted as u64;
        let before = from.saturating_sub(CONTEXT);
        let context = self.head.bytes().get(before..from).unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(context);
        buffer.extend_from_slice(&held_back);
        let held = Held {
            done: context.len(),
            bytes: buffer,
        };
        (held, from)
    }

    fn push_tail(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.tail_cap)..];
        let excess = (self.tail.len() + bytes.len()).saturating_sub(self.tail_cap);
        self.tail.drain(..excess);
        self.tail.extend(bytes);
    }
}
