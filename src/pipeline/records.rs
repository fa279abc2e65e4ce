use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Execution;
use crate::domain::ExecutionId;

/// How many finished executions are remembered.
const FINISHED: usize = 1000;

/// How much memory the texts of finished answers may take in all, in bytes, when there is no
/// spool to put them. Beyond it the oldest are forgotten.
const TEXT_BYTES: usize = 32 << 20;

/// The executions that run, and the last that have finished.
#[derive(Debug, Default)]
pub(super) struct Records {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_id: HashMap<ExecutionId, Arc<Execution>>,
    /// Oldest first, each with the memory its text takes.
    finished: VecDeque<(ExecutionId, usize)>,
    text_bytes: usize,
}

impl Records {
    pub(super) fn open(&self, execution: Arc<Execution>) {
        self.lock().by_id.insert(execution.id, execution);
    }

    /// Moves an execution to the finished ones, of which the oldest may have to go.
    pub(super) fn close(&self, id: ExecutionId, text_bytes: usize) {
        // Forgetting removes files: not under the lock.
        let mut forgotten = Vec::new();
        let mut inner = self.lock();
        inner.finished.push_back((id, text_bytes));
        inner.text_bytes += text_bytes;
        while inner.finished.len() > FINISHED || inner.text_bytes > TEXT_BYTES {
            let Some((oldest, bytes)) = inner.finished.pop_front() else {
                break;
            };
            inner.text_bytes -= bytes;
            forgotten.extend(inner.by_id.remove(&oldest));
        }
        drop(inner);
        drop(forgotten);
    }

    pub(super) fn find(&self, id: ExecutionId) -> Option<Arc<Execution>> {
        self.lock().by_id.get(&id).cloned()
    }

    pub(super) fn running(&self) -> Vec<Arc<Execution>> {
        let all: Vec<Arc<Execution>> = self.lock().by_id.values().cloned().collect();
        all.into_iter()
            .filter(|execution| execution.finished().is_none())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
