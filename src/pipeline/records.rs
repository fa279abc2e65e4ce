use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::{Execution, Record};
use crate::domain::ExecutionId;

/// How much memory the texts of finished answers may take in all, in bytes, when there is no
/// spool to put them. Beyond it those of the oldest are let go of.
const TEXT_BYTES: usize = 32 << 20;

/// The executions that run, and the last that have finished.
#[derive(Debug)]
pub(super) struct Records {
    /// How many finished ones are remembered.
    max_count: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_id: HashMap<ExecutionId, Arc<Execution>>,
    /// Oldest first, each with the memory its text takes.
    finished: VecDeque<(ExecutionId, usize)>,
    /// How many of them, from the oldest on, have let go of theirs.
    textless: usize,
    text_bytes: usize,
    /// Those that are kept elsewhere by now. The ledger's thread says so, and the memory is that of
    /// those who begin executions: they let go of it, or one thread would wait for the other at every
    /// piece of it.
    forgotten: Vec<Arc<Execution>>,
}

impl Inner {
    /// Lets go of the oldest texts until the others are few enough. What became of an execution is known all the
    /// same, here and maybe nowhere else.
    fn lose_texts(&mut self) {
        while self.text_bytes > TEXT_BYTES
            && let Some((id, bytes)) = self.finished.get_mut(self.textless)
        {
            // A text that takes no memory is somewhere else.
            if let (1.., Some(execution)) = (*bytes, self.by_id.get(id))
                && let Some(finished) = execution.finished()
            {
                finished.lose_text();
            }
            self.text_bytes -= std::mem::take(bytes);
            self.textless += 1;
        }
    }
}

impl Records {
    pub(super) fn new(max_count: u64) -> Self {
        Self {
            max_count: usize::try_from(max_count).unwrap_or(usize::MAX),
            inner: Mutex::default(),
        }
    }

    pub(super) fn open(&self, execution: Arc<Execution>) {
        let mut inner = self.lock();
        inner.by_id.insert(execution.id, execution);
        // Two are let go of for each that is added, so that their number shrinks.
        let forgotten = [inner.forgotten.pop(), inner.forgotten.pop()];
        drop(inner);
        drop(forgotten);
    }

    /// Lets go of what was forgotten. For a while in which nothing begins.
    pub(super) fn tidy(&self) {
        let forgotten = std::mem::take(&mut self.lock().forgotten);
        drop(forgotten);
    }

    /// Moves an execution to the finished ones, of which the oldest may have to go.
    pub(super) fn close(&self, id: ExecutionId, text_bytes: usize) {
        // Forgetting removes files: not under the lock.
        let mut forgotten = Vec::new();
        let mut inner = self.lock();
        if !inner.by_id.contains_key(&id) {
            return;
        }
        inner.finished.push_back((id, text_bytes));
        inner.text_bytes += text_bytes;
        while inner.finished.len() > self.max_count {
            let Some((oldest, bytes)) = inner.finished.pop_front() else {
                break;
            };
            inner.text_bytes -= bytes;
            inner.textless = inner.textless.saturating_sub(1);
            forgotten.extend(inner.by_id.remove(&oldest));
        }
        inner.lose_texts();
        drop(inner);
        drop(forgotten);
    }

    pub(super) fn find(&self, id: ExecutionId) -> Option<Arc<Execution>> {
        self.lock().by_id.get(&id).cloned()
    }

    /// Forgets one that is kept elsewhere.
    pub(super) fn forget(&self, id: ExecutionId) {
        let mut inner = self.lock();
        let forgotten = inner.by_id.remove(&id);
        inner.forgotten.extend(forgotten);
    }

    /// Forgets all that have finished, and says how many.
    pub(super) fn clear(&self) -> usize {
        let mut inner = self.lock();
        let finished = std::mem::take(&mut inner.finished);
        (inner.text_bytes, inner.textless) = (0, 0);
        let forgotten: Vec<_> = finished
            .iter()
            .filter_map(|(id, _)| inner.by_id.remove(id))
            .collect();
        drop(inner);
        forgotten.len()
    }

    /// All of them, newest first.
    pub(super) fn all(&self) -> Vec<Record> {
        let mut all: Vec<Arc<Execution>> = self.lock().by_id.values().cloned().collect();
        all.sort_by_key(|execution| std::cmp::Reverse(execution.id));
        all.iter().map(|execution| execution.record()).collect()
    }

    pub(super) fn running(&self) -> Vec<Arc<Execution>> {
        let all: Vec<Arc<Execution>> = self.lock().by_id.values().cloned().collect();
        all.into_iter()
            .filter(|execution| execution.finished().is_none())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}
