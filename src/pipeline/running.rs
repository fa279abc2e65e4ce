use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the executions under way, and what was done. `none` wakes when the last one ends; nobody is told of single
/// ones, and nothing else depends on the order in which the counters are seen to change.
#[derive(Debug, Default)]
pub(super) struct Running {
    now: AtomicUsize,
    changes: AtomicU64,
    none: Notify,
}

impl Running {
    /// One more has begun.
    pub(super) fn enter(self: &Arc<Self>) -> One {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.now.fetch_add(1, Ordering::AcqRel);
        One(Arc::clone(self))
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.now.load(Ordering::Acquire)
    }

    /// Something was done that is no execution and took memory.
    pub(super) fn stir(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// How often one has begun or ended so far, or something else was done.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Waits until there are none.
    pub(super) async fn none(&self) {
        loop {
            // It hears of what happens from here on.
            let told = self.none.notified();
            if self.count() == 0 {
                return;
            }
            told.await;
        }
    }
}

/// It ends when this is dropped, so that not even a defect in between holds up those who wait for none.
#[must_use]
pub(super) struct One(Arc<Running>);

impl Drop for One {
    fn drop(&mut self) {
        let Running { now, changes, none } = &*self.0;
        changes.fetch_add(1, Ordering::Relaxed);
        if now.fetch_sub(1, Ordering::AcqRel) == 1 {
            none.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_none_is_told_of_the_last() {
        let running = Arc::new(Running::default());
        running.none().await;
        let (first, second) = (running.enter(), running.enter());
        let waiting = tokio::spawn({
            let running = Arc::clone(&running);
            async move { running.none().await }
        });
        tokio::task::yield_now().await;
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "one runs");
        assert_eq!((running.count(), running.changes()), (1, 3));
        let defect = tokio::spawn(async move {
            let _one = second;
            panic!("a defect");
        });
        assert!(defect.await.is_err());
        waiting.await.expect("told");
        assert_eq!((running.count(), running.changes()), (0, 4));
        running.stir();
        assert_eq!((running.count(), running.changes()), (0, 5));
    }
}
