//! The bounds of the loose reader. The parser behind it recurses and backtracks, so that short
//! texts can take all stack and all time (`((((…` doubles its work twice with each level): it
//! gets a thread of its own with a large stack, and is not waited for beyond a limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use super::loose::Reader;
use super::{Reading, Unreadable};

/// Bounds for reading one script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The longest script, in bytes. What people and models write is far below; the stack and
    /// the time needed grow with it.
    pub max_bytes: usize,
    /// How long it is waited for. A script of a few KiB takes about a millisecond.
    pub time_limit: Duration,
}

impl Default for Fence {
    fn default() -> Self {
        Self {
            max_bytes: 64 * 1024,
            time_limit: Duration::from_millis(50),
        }
    }
}

/// Stack of the reading thread, of which only what is touched takes memory. At most
/// [`super::loose::MAX_OPENINGS`] levels of grammar stand on it, some 60 KiB each, as measured
/// without optimisation.
const STACK_BYTES: usize = 256 << 20;

/// How many threads may still be reading what nobody waits for any more. They end by
/// themselves, for the work is bounded as well, if less tightly.
const MAX_ABANDONED: usize = 4;

static READING: AtomicUsize = AtomicUsize::new(0);

/// Counts a reader for as long as it lives.
struct Slot;

impl Slot {
    fn take(most: usize) -> Option<Self> {
        let taken = READING.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
            (count < most).then_some(count + 1)
        });
        taken.ok().map(|_| Self)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        READING.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(super) fn read(script: &str, fence: &Fence) -> Result<Reading, Unreadable> {
    if script.len() > fence.max_bytes {
        return Err(Unreadable::TooLong);
    }
    if let Some(reading) = Reader::new().read_simple(script) {
        return Ok(reading);
    }
    // Those that are waited for are as many as callers, and short-lived.
    let most = MAX_ABANDONED + thread::available_parallelism().map_or(1, usize::from);
    let slot = Slot::take(most).ok_or(Unreadable::Busy)?;
    let (answer, answered) = sync_channel(1);
    let script = script.to_owned();
    let started = thread::Builder::new()
        .name("shell-reader".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let _slot = slot;
            // Nobody waits for it any more: then it is for nobody.
            let _ = answer.send(Reader::new().read(&script));
        });
    if started.is_err() {
        return Err(Unreadable::Busy);
    }
    match answered.recv_timeout(fence.time_limit) {
        Ok(reading) => reading,
        Err(RecvTimeoutError::Timeout) => Err(Unreadable::TooSlow),
        // It panicked.
        Err(RecvTimeoutError::Disconnected) => Err(Unreadable::Grammar),
    }
}
