//! The bounds of the loose reader: how long a script may be and may take to read, and how many are read at once.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::loose::Reader;
use super::{Reading, Setting, Unreadable};
use crate::domain::thread_time;

/// Bounds for reading one script.
#[derive(Clone, Debug)]
pub struct Fence {
    /// The longest script, in bytes, with the variables that it finds set. What people and models write is far below; the
    /// memory and the time needed grow with it.
    pub max_bytes: usize,
    /// How long a processor may work on it once it is its turn: how busy the machine is decides nothing. A script of a few
    /// KiB takes a millisecond or two, one of 64 KiB some 20.
    pub time_limit: Duration,
}

impl Default for Fence {
    fn default() -> Self {
        Self {
            max_bytes: 64 * 1024,
            time_limit: Duration::from_millis(100),
        }
    }
}

/// Stack to read a script with, in bytes, of which only what is touched takes memory: for sixteen scripts in one another, each
/// as deep as may be, also in a build without optimisation.
const STACK_BYTES: usize = 64 << 20;

/// How many scripts are read at once: enough that one which takes all its time keeps no other waiting. More would only share
/// the processors.
const MAX_AT_ONCE: usize = 4;

/// How many may wait for their turn. The last of so many comes to its turn within some seconds if each takes all its
/// time, and in a tenth of one if they are such as people write.
const MAX_WAITING: usize = 256;

/// Whose turn it is.
struct Turns {
    taken: Mutex<Taken>,
    given_back: Condvar,
}

struct Taken {
    reading: usize,
    waiting: usize,
}

static TURNS: Turns = Turns {
    taken: Mutex::new(Taken {
        reading: 0,
        waiting: 0,
    }),
    given_back: Condvar::new(),
};

/// Given back when it goes.
struct Turn(&'static Turns);

impl Turns {
    /// Waits for a turn; `None` where too many do.
    fn take(&'static self) -> Option<Turn> {
        let mut taken = self.taken.lock();
        if taken.waiting >= MAX_WAITING {
            return None;
        }
        taken.waiting += 1;
        self.given_back
            .wait_while(&mut taken, |taken| taken.reading >= MAX_AT_ONCE);
        taken.waiting -= 1;
        taken.reading += 1;
        Some(Turn(self))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.taken.lock().reading -= 1;
        self.0.given_back.notify_one();
    }
}

thread_local! {
    /// That of the thread, if it was made to read a script. Whatever goes through a text looks at it.
    static LIMIT: Cell<Option<TimeLimit>> = const { Cell::new(None) };
}

/// # Errors
/// When the script takes too long.
pub(super) fn in_time() -> Result<(), Unreadable> {
    match LIMIT.get().is_some_and(TimeLimit::is_passed) {
        true => Err(Unreadable::TooSlow),
        false => Ok(()),
    }
}

/// For how long the thread that makes it may run from then on.
#[derive(Clone, Copy)]
struct TimeLimit {
    end: Duration,
    /// No thread runs for longer than it is there, which is quicker to see.
    earliest: Instant,
}

impl TimeLimit {
    fn new(limit: Duration) -> Self {
        Self {
            end: thread_time() + limit,
            earliest: Instant::now() + limit,
        }
    }

    fn is_passed(self) -> bool {
        Instant::now() > self.earliest && thread_time() > self.end
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
    let _turn = TURNS.take().ok_or(Unreadable::Busy)?;
    let read = || {
        LIMIT.set(Some(TimeLimit::new(fence.time_limit)));
        Reader::new(setting).read(script)
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("script-reader".to_owned());
        match thread.stack_size(STACK_BYTES).spawn_scoped(scope, read) {
            Ok(thread) => thread.join().unwrap_or(Err(Unreadable::Died)),
            Err(_) => Err(Unreadable::Busy),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_takes_nothing_of_the_time_limit() {
        let limit = TimeLimit::new(Duration::from_millis(100));
        // Off the processor, as behind others that are on it.
        thread::sleep(Duration::from_millis(300));
        assert!(!limit.is_passed());
        while !limit.is_passed() {}
    }

    #[test]
    fn so_many_read_at_once_and_so_many_wait() {
        static TURNS: Turns = Turns {
            taken: Mutex::new(Taken {
                reading: 0,
                waiting: 0,
            }),
            given_back: Condvar::new(),
        };
        let mut turns: Vec<Turn> = (0..MAX_AT_ONCE).filter_map(|_| TURNS.take()).collect();
        assert_eq!(turns.len(), MAX_AT_ONCE);
        thread::scope(|scope| {
            let take = || drop(TURNS.take().expect("not too many wait"));
            let waiting: Vec<_> = (0..MAX_WAITING).map(|_| scope.spawn(take)).collect();
            while TURNS.taken.lock().waiting < MAX_WAITING {
                thread::yield_now();
            }
            assert!(TURNS.take().is_none());
            // One comes behind the other.
            turns.truncate(1);
            for thread in waiting {
                thread.join().expect("it has had its turn");
            }
        });
        drop(turns);
        let taken = TURNS.taken.lock();
        assert_eq!((taken.reading, taken.waiting), (0, 0));
    }
}
