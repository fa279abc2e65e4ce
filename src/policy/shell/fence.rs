//! The bounds of the loose reader. The parser behind it recurses and backtracks, so that short
//! texts can take all stack and all time (`((((…` doubles its work twice with each level): it
//! gets a thread of its own with a large stack, and is not waited for beyond a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use super::loose::Reader;
use super::{Reading, Setting, Unreadable};

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

/// Stack of the reading thread, of which only what is touched takes memory: for
/// [`super::cost::MAX_OPENINGS`] levels of grammar, also in a build without optimisation.
const STACK_BYTES: usize = 64 << 20;

/// How many threads may still be reading what nobody waits for any more. They end by
/// themselves, for the work is bounded as well, if less tightly.
const MAX_ABANDONED: usize = 16;

/// How many there are.
static ABANDONED: AtomicUsize = AtomicUsize::new(0);

const READING: u8 = 0;
const LEFT: u8 = 1;
const DONE: u8 = 2;

/// One reading, of which either side says when it is through with it.
struct Watch(AtomicU8);

impl Watch {
    fn leave(&self) {
        // Counted beforehand: the other side may take it back at once.
        ABANDONED.fetch_add(1, Ordering::AcqRel);
        let left = self
            .0
            .compare_exchange(READING, LEFT, Ordering::AcqRel, Ordering::Acquire);
        if left.is_err() {
            ABANDONED.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Says so however the thread ends.
struct Done(Arc<Watch>);

impl Drop for Done {
    fn drop(&mut self) {
        if self.0.0.swap(DONE, Ordering::AcqRel) == LEFT {
            ABANDONED.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

pub(super) fn read(
    script: &str,
    setting: Setting<'_>,
    fence: &Fence,
) -> Result<Reading, Unreadable> {
    let variables = setting.variables.iter();
    let variables: usize = variables
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if script.len() + variables > fence.max_bytes {
        return Err(Unreadable::TooLong);
    }
    // A shell that reads what is not known here is asked about in any case.
    let input = setting.input;
    let setting = Setting {
        input: input.filter(|input| input.len() <= fence.max_bytes),
        ..setting
    };
    if let Some(reading) = Reader::new(setting).read_simple(script) {
        return Ok(reading);
    }
    if ABANDONED.load(Ordering::Acquire) >= MAX_ABANDONED {
        return Err(Unreadable::Busy);
    }
    let watch = Arc::new(Watch(AtomicU8::new(READING)));
    let done = Done(Arc::clone(&watch));
    let (answer, answered) = sync_channel(1);
    let script = script.to_owned();
    let reader = Reader::new(setting);
    let started = thread::Builder::new()
        .name("shell-reader".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let _done = done;
            // The parser logs what it reads, and that may be secret.
            let silent = tracing::subscriber::NoSubscriber::new();
            let reading = tracing::subscriber::with_default(silent, || reader.read(&script));
            // Where nobody waits for it any more, it is for nobody.
            let _ = answer.send(reading);
        });
    if started.is_err() {
        return Err(Unreadable::Busy);
    }
    match answered.recv_timeout(fence.time_limit) {
        Ok(reading) => reading,
        Err(RecvTimeoutError::Timeout) => {
            watch.leave();
            Err(Unreadable::TooSlow)
        }
        // It panicked.
        Err(RecvTimeoutError::Disconnected) => Err(Unreadable::Grammar),
    }
}
