//! What is left of runs that are over: descriptors that the event loop still watches. To let go of them
//! takes six system calls, for which nobody's answer has to wait.

use std::fs::File;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;

/// How many runs may leave something, with three descriptors each, before the next has to wait all the
/// same.
const MANY: usize = 32;

/// What is left of one run.
#[derive(Debug)]
pub(super) struct Husk {
    pub _pipes: [Option<AsyncFd<File>>; 2],
    pub _pidfd: Option<AsyncFd<OwnedFd>>,
}

/// What is left of all of them.
#[derive(Debug, Default)]
pub(super) struct Husks(Mutex<Vec<Husk>>);

impl Husks {
    pub(super) fn put(&self, husk: Husk) {
        let mut husks = self.0.lock();
        if husks.len() >= MANY {
            husks.clear();
        }
        husks.push(husk);
    }

    /// Lets go of it.
    pub(super) fn clear(&self) {
        let husks = std::mem::take(&mut *self.0.lock());
        drop(husks);
    }
}
