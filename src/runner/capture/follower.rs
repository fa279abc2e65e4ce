//! Whoever reads a stream while it grows.

use std::sync::Arc;

use super::{Capture, Head, Inner};
use crate::runner::spool::SpoolFile;

/// Somebody who reads a stream while it grows. A slow one costs nothing: it reads from what is
/// kept for the answer anyway.
#[derive(Debug)]
pub struct Follower {
    capture: Arc<Capture>,
    offset: usize,
    cap: usize,
}

/// What of a stream comes after an offset.
#[derive(Debug)]
pub enum Ahead {
    /// These bytes, and maybe more.
    Memory(Vec<u8>),
    /// What the file has.
    File(Arc<SpoolFile>),
    /// Nothing: it has ended, or is not kept any further.
    End,
    /// What would come was given up for newer outputs, or for want of disk space.
    GivenUp,
}

impl Capture {
    /// Waits for what of the stream, as it is kept, comes after `offset`. Cancel-safe.
    async fn ahead(&self, offset: u64) -> Ahead {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let found = self.lock().ahead(offset);
            match found {
                Some(ahead) => return ahead,
                None => changed.await,
            }
        }
    }

    /// Follows the stream from its beginning while it grows, up to `cap` bytes.
    pub fn follow(self: &Arc<Self>, cap: usize) -> Follower {
        self.lock().followers += 1;
        Follower {
            capture: Arc::clone(self),
            offset: 0,
            cap,
        }
    }

    /// Whether the file of it was given up.
    pub fn is_given_up(&self) -> bool {
        let inner = self.lock();
        inner.file.as_ref().is_some_and(|file| file.is_evicted())
    }

    /// Up to `limit` bytes from `offset` of the first `cap`, and whether there is nothing more.
    fn piece(&self, offset: usize, limit: usize, cap: usize) -> (Vec<u8>, bool) {
        let inner = self.lock();
        let head = inner.head.bytes();
        let head = &head[..head.len().min(cap)];
        let end = head.len().min(offset.saturating_add(limit));
        let piece = head.get(offset..end).unwrap_or_default().to_vec();
        let sealed = matches!(inner.head, Head::Sealed(_));
        (piece, sealed || head.len() == cap)
    }
}

impl Inner {
    /// What comes after `offset`; `None` while there is nothing yet.
    fn ahead(&self, offset: u64) -> Option<Ahead> {
        let is_over = matches!(self.head, Head::Sealed(_));
        if let Some(file) = self.file.as_ref().filter(|_| !(is_over && self.is_apart)) {
            let has_room = file.has_room();
            return match file.is_evicted() {
                true if is_over && offset >= self.total => Some(Ahead::End),
                true => Some(Ahead::GivenUp),
                false if file.len() > offset => Some(Ahead::File(Arc::clone(file))),
                false if !is_over && has_room => None,
                false => Some(Ahead::End),
            };
        }
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        match self.head.bytes().get(from..) {
            Some(bytes) if !bytes.is_empty() => {
                let end = bytes.len().min(Follower::PIECE);
                Some(Ahead::Memory(bytes[..end].to_vec()))
            }
            Some(_) | None if is_over => Some(Ahead::End),
            Some(_) | None => None,
        }
    }
}

impl Follower {
    /// The most that is handed out at once, in bytes.
    const PIECE: usize = 64 * 1024;

    /// The next piece of the stream; `None` at its end, or when `cap` bytes were handed out.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let changed = self.capture.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (piece, ended) = self.capture.piece(self.offset, Self::PIECE, self.cap);
            if !piece.is_empty() {
                self.offset += piece.len();
                return Some(piece);
            }
            if ended {
                return None;
            }
            changed.await;
        }
    }

    /// Waits for what of the whole stream, as it is kept, comes after `offset`, whatever the cap.
    /// Cancel-safe.
    pub async fn ahead(&self, offset: u64) -> Ahead {
        self.capture.ahead(offset).await
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut inner = self.capture.lock();
        inner.followers -= 1;
        let release = inner.release;
        drop(inner);
        if let Some(what) = release {
            self.capture.release(what);
        }
    }
}
