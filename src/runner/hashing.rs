//! The hash of a stream while it is read: of a long one on a thread of its own, for whoever writes
//! it would wait for the hashing as well as for the reading.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread;

use bytes::Bytes;

use crate::domain::{Hasher, PendingDigest};

/// How many pieces of a stream may wait to be hashed.
const AHEAD: usize = 2;

/// How long a piece is at the most, in bytes: what waits is memory, whatever one read of a pipe gave.
/// Half of it, and the threads wake each other twice as often.
const PIECE_BYTES: usize = 256 * 1024;

/// Of all that a stream has said so far.
#[derive(Debug)]
pub(super) enum Hashing {
    /// Done by whoever reads.
    Here(Hasher),
    /// Done on a thread, which ends when nothing more can come.
    Beside {
        pieces: SyncSender<Bytes>,
        done: Arc<OnceLock<Hasher>>,
    },
}

impl Hashing {
    /// Leaves what is still to come to a thread. Where there can be none, all stays as it is.
    pub(super) fn move_beside(&mut self) {
        if let Self::Here(hasher) = self
            && let Ok(beside) = Self::beside(hasher.clone())
        {
            *self = beside;
        }
    }

    fn beside(mut hasher: Hasher) -> io::Result<Self> {
        /// It calls nothing deep.
        const STACK_BYTES: usize = 64 * 1024;
        let (pieces, coming) = mpsc::sync_channel::<Bytes>(AHEAD);
        let done = Arc::new(OnceLock::new());
        let told = Arc::clone(&done);
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        thread.name("digest".to_owned()).spawn(move || {
            for piece in coming {
                hasher.update(&piece);
            }
            // Nobody else sets it.
            let _ = told.set(hasher);
        })?;
        Ok(Self::Beside { pieces, done })
    }

    /// Takes in what comes next. Waits while too much of it is still to be hashed.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Here(hasher) => hasher.update(bytes),
            Self::Beside { pieces, .. } => {
                for piece in bytes.chunks(PIECE_BYTES) {
                    // The thread is there for as long as this.
                    let _ = pieces.send(Bytes::copy_from_slice(piece));
                }
            }
        }
    }

    /// The digest of what was taken in and of `rest`, which was not.
    pub(super) fn finish(self, rest: Bytes) -> PendingDigest {
        match self {
            Self::Here(hasher) => PendingDigest::new(hasher, rest),
            Self::Beside { done, .. } => PendingDigest::beside(done, rest),
        }
    }
}

impl Default for Hashing {
    fn default() -> Self {
        Self::Here(Hasher::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Digest;

    #[test]
    fn wherever_it_is_hashed_the_digest_is_that_of_the_whole() {
        let stream: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let (first, rest) = stream.split_at(1000);
        let (middle, last) = rest.split_at(700_000);
        for is_long in [false, true] {
            let mut hashing = Hashing::default();
            hashing.update(first);
            if is_long {
                hashing.move_beside();
                assert!(matches!(hashing, Hashing::Beside { .. }));
            }
            // More pieces than may wait, given as many and as one.
            let (many, one) = middle.split_at(100_000);
            many.chunks(7000).for_each(|piece| hashing.update(piece));
            hashing.update(one);
            let pending = hashing.finish(Bytes::copy_from_slice(last));
            assert_eq!(pending.digest(), Digest::of(&stream), "{is_long}");
        }
    }

    #[test]
    fn what_waits_to_be_hashed_is_bounded_whatever_is_read_at_once() {
        let (pieces, coming) = mpsc::sync_channel(AHEAD);
        let done = Arc::default();
        let mut hashing = Hashing::Beside { pieces, done };
        let reading = thread::spawn(move || hashing.update(&[b'x'; 1 << 20]));
        let lengths: Vec<usize> = coming.iter().map(|piece| piece.len()).collect();
        reading.join().expect("it is taken in");
        assert_eq!(lengths.iter().sum::<usize>(), 1 << 20);
        assert!(
            lengths.iter().all(|length| *length <= PIECE_BYTES),
            "{lengths:?}"
        );
    }
}
