//! Turns of calls that would undo each other's work: those that change the same file, each of which reads it, changes it
//! and puts it in place of what it has read, and those that make directories, which one that fails removes again.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::tools::files::{FileError, ShouldStop};

/// How often one that waits looks at whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Who has a turn and who waits for one, in the order in which they came: nothing is here but for calls that run.
static QUEUES: Mutex<Queues> = Mutex::new(Queues {
    waiting: None,
    came: 0,
});
static FREED: Condvar = Condvar::new();

struct Queues {
    waiting: Option<HashMap<Of, VecDeque<u64>>>,
    /// How many calls there were yet.
    came: u64,
}

/// What only one call does at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    /// To change the file that is really here.
    File(PathBuf),
    /// To make directories on this device (`st_dev`), until they are to stay.
    Directories(u64),
}

/// The turn of one call, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    of: Of,
    number: u64,
}

impl Turn {
    /// Waits until every call is done that came before.
    pub(crate) fn wait(of: Of, stop: ShouldStop<'_>) -> Result<Self, FileError> {
        let mut queues = QUEUES.lock();
        queues.came += 1;
        let turn = Self {
            of,
            number: queues.came,
        };
        queues.of(&turn).push_back(turn.number);
        while queues.of(&turn).front() != Some(&turn.number) {
            FREED.wait_for(&mut queues, LOOK);
            // Also when it has come meanwhile: nobody waits for what it is for.
            if stop() {
                // Which locks them to leave its queue.
                drop(queues);
                return Err(FileError::Stopped);
            }
        }
        drop(queues);
        Ok(turn)
    }
}

impl Queues {
    fn of(&mut self, turn: &Turn) -> &mut VecDeque<u64> {
        let waiting = self.waiting.get_or_insert_default();
        waiting.entry(turn.of.clone()).or_default()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queues = QUEUES.lock();
        let queue = queues.of(self);
        queue.retain(|number| *number != self.number);
        if queue.is_empty()
            && let Some(waiting) = &mut queues.waiting
        {
            waiting.remove(&self.of);
        }
        FREED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn of(name: &str) -> Of {
        Of::File(PathBuf::from("/turns").join(name))
    }

    #[test]
    fn one_that_is_stopped_waits_no_longer_and_leaves_nothing() {
        let first = Turn::wait(of("one"), &|| false).expect("nobody has it");
        let other = Turn::wait(of("other"), &|| true);
        assert!(other.is_ok(), "of another file");
        let second = Turn::wait(of("one"), &|| true);
        assert!(matches!(second, Err(FileError::Stopped)));
        drop((first, other));
        assert!(Turn::wait(of("one"), &|| true).is_ok());
        let queues = QUEUES.lock();
        for name in ["one", "other"] {
            let left = queues
                .waiting
                .iter()
                .any(|waiting| waiting.contains_key(&of(name)));
            assert!(!left, "{name}");
        }
    }

    /// Whoever asks again and again does not keep the others from it.
    #[test]
    fn it_is_had_in_the_order_in_which_it_was_asked_for() {
        let (sender, order) = mpsc::channel();
        let first = Turn::wait(of("in order"), &|| false).expect("nobody has it");
        let waiting = |count: usize| {
            while QUEUES
                .lock()
                .waiting
                .iter()
                .flat_map(|all| all.get(&of("in order")))
                .all(|queue| queue.len() < count)
            {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            for number in 0..5 {
                let sender = sender.clone();
                scope.spawn(move || {
                    let turn = Turn::wait(of("in order"), &|| false);
                    sender.send(number).expect("heard");
                    drop(turn);
                });
                waiting(number + 2);
            }
            drop((first, sender));
        });
        assert_eq!(order.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
