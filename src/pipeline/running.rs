use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the executions under way. `none` wakes when the last one ends; nobody is told of single ones, and
/// nothing else depends on the order in which the counters are seen to change.
#[derive(Debug, Default)]
pub(super) struct Running {
    now: AtomicUsize,
    changes: AtomicU64,
    none: Notify,
}

impl Running {
    pub(super) fn begin(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.now.fetch_add(1, Ordering::AcqRel);
    }

    /// For each that has begun.
    pub(super) fn end(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if self.now.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.none.notify_waiters();
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.now.load(Ordering::Acquire)
    }

    /// How often one has begun or ended so far.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn who_waits_for_none_is_told_of_the_last() {
        let running = Arc::new(Running::default());
        running.none().await;
        running.begin();
        running.begin();
        let waiting = tokio::spawn({
            let running = Arc::clone(&running);
            async move { running.none().await }
        });
        tokio::task::yield_now().await;
        running.end();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "one runs");
        assert_eq!((running.count(), running.changes()), (1, 3));
        running.end();
        waiting.await.expect("told");
        assert_eq!((running.count(), running.changes()), (0, 4));
    }
}
