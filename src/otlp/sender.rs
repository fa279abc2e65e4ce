//! The task that sends what waits, until nothing does: batch by batch, each until it is taken, refused or
//! given up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::collector::{Answer, Collector};
use super::queue::MOST;
use super::{ExecutionSpan, Orders, Shared};
use crate::domain::backoff;

/// For how long a batch is tried again: longer than it takes to start a collector anew. After that
/// newer spans are worth more.
const GIVE_UP: Duration = Duration::from_secs(300);

/// How long it is waited before a batch is tried again: so long at first, then twice that.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Sends what waits.
pub(super) struct Sender {
    shared: Arc<Shared>,
    orders: watch::Receiver<Orders>,
}

/// What was last said of the collector.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Told {
    #[default]
    Nothing,
    Works,
    /// Why not.
    Fails(String),
}

impl Sender {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            orders: shared.orders.subscribe(),
            shared,
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(batch) = self.next().await {
            self.deliver(batch).await;
        }
    }

    /// What is to be sent next, once it is time. `None` when nothing waits any more, or not to be sent.
    async fn next(&mut self) -> Option<Vec<ExecutionSpan>> {
        loop {
            let (is_on, is_end) = {
                let orders = self.orders.borrow_and_update();
                (orders.collector.is_some(), orders.end_by.is_some())
            };
            let due = {
                let mut waiting = self.shared.lock();
                let Some(due) = waiting.queue.due().filter(|_| is_on) else {
                    self.shared.counts.dropped(waiting.queue.clear());
                    // Under the lock: whoever comes next finds that there is no task.
                    waiting.sender = None;
                    return None;
                };
                if is_end || due <= Instant::now() {
                    return Some(waiting.queue.take());
                }
                due
            };
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.shared.news.notified() => {}
                // There are orders as long as there is what is shared.
                _ = self.orders.changed() => {}
            }
        }
    }

    /// Sends a batch, as often as it takes and has a chance.
    async fn deliver(&mut self, batch: Vec<ExecutionSpan>) {
        let count = batch.iter().map(ExecutionSpan::count).sum();
        let (batch, counts) = (Arc::new(batch), &self.shared.counts);
        let mut encoded: Option<(Arc<Collector>, Bytes)> = None;
        let (began, mut tries) = (Instant::now(), 0);
        loop {
            let Orders {
                collector, end_by, ..
            } = self.orders.borrow_and_update().clone();
            let Some(collector) = collector else {
                return counts.dropped(count);
            };
            let known = encoded.filter(|(whose, _)| Arc::ptr_eq(whose, &collector));
            let body = match known {
                Some((_, body)) => body,
                None => match encode(&collector, &batch).await {
                    Some(body) => body,
                    None => return counts.dropped(count),
                },
            };
            let answer = tokio::select! {
                answer = collector.post(body.clone()) => answer,
                () = over(self.orders.clone()) => return counts.dropped(count),
            };
            tries += 1;
            match answer {
                Answer::Taken { refused, why } => {
                    let refused = refused.min(count);
                    counts.sent(count - refused);
                    counts.refused(refused);
                    self.shared.is_full.store(false, Ordering::Relaxed);
                    return match refused {
                        0 => self.works(&collector),
                        _ => self.is_refused(&collector, &format!("it does not take all: {why}")),
                    };
                }
                Answer::Refused(why) => {
                    counts.refused(count);
                    return self.is_refused(&collector, &why);
                }
                Answer::Later { why, after } => {
                    self.fails(&collector, &why);
                    if end_by.is_some() || began.elapsed() >= GIVE_UP {
                        return counts.dropped(count);
                    }
                    let wait = after.map_or_else(|| jittered(tries), |after| after.min(GIVE_UP));
                    tokio::select! {
                        () = sleep(wait) => {}
                        // It may be another collector now, or the last chance.
                        _ = self.orders.changed() => {}
                    }
                    encoded = Some((collector, body));
                }
            }
        }
    }

    fn works(&self, collector: &Collector) {
        if self.tell(Told::Works) {
            tracing::info!("spans are sent to {}", collector.uri());
        }
    }

    fn fails(&self, collector: &Collector, why: &str) {
        if self.tell(Told::Fails(why.to_owned())) {
            let uri = collector.uri();
            tracing::warn!("spans cannot be sent to {uri}: {why}; up to {MOST} of them wait");
        }
    }

    fn is_refused(&self, collector: &Collector, why: &str) {
        if self.tell(Told::Fails(why.to_owned())) {
            tracing::warn!("spans are refused by {}: {why}", collector.uri());
        }
    }

    /// Whether this is to be said: not what was said last.
    fn tell(&self, news: Told) -> bool {
        let mut told = self.shared.told.lock();
        let is_new = *told != news;
        *told = news;
        is_new
    }
}

/// Not on the event loop: a batch may take a millisecond. `None` when that panicked, of which the log
/// tells.
async fn encode(collector: &Arc<Collector>, batch: &Arc<Vec<ExecutionSpan>>) -> Option<Bytes> {
    let (collector, batch) = (Arc::clone(collector), Arc::clone(batch));
    let encoding = tokio::task::spawn_blocking(move || collector.body(&batch));
    encoding.await.ok()
}

/// Completes when the time for the last words is over.
async fn over(mut orders: watch::Receiver<Orders>) {
    let end_by = match orders.wait_for(|orders| orders.end_by.is_some()).await {
        Ok(orders) => orders.end_by,
        Err(_) => None,
    };
    if let Some(end_by) = end_by {
        sleep_until(end_by).await;
    }
}

/// A wait that doubles with each try, up to a half of it left to chance: daemons that have lost the same
/// collector do not come back all at once.
fn jittered(tries: u32) -> Duration {
    backoff::doubled(FIRST_WAIT, tries, LONGEST_WAIT).mul_f64(0.5 + 0.5 * backoff::share())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_are_not_all_the_same() {
        for (tries, secs) in [(1, 1), (2, 2), (5, 16), (6, 30), (100, 30)] {
            let longest = Duration::from_secs(secs);
            let waits: Vec<Duration> = (0..50).map(|_| jittered(tries)).collect();
            assert!(
                waits
                    .iter()
                    .all(|wait| *wait <= longest && *wait >= longest / 2)
            );
            assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        }
    }
}
