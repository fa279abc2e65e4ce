//! The spans of executions, sent to an OpenTelemetry collector: OTLP over HTTP, in protobuf. Takes what
//! is told of an execution that has ended, holds up nobody, and counts what becomes of every span.
//! What there is in a span is told in docs/tracing.md.

mod collector;
mod message;
mod queue;
mod sender;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::TracingConfig;
use collector::Collector;
use queue::{BATCH, MOST, Queue};
use sender::{Sender, Told};

pub(crate) use span::ExecutionSpan;

/// How long the end of the daemon is put off for spans that have not been sent. It is part of what
/// systemd is asked for beyond the drain, and a collector that is there takes milliseconds.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Sends spans, in a task of its own that there is as long as there are any to be sent.
#[derive(Debug)]
pub(crate) struct Exporter {
    shared: Arc<Shared>,
}

/// How many spans have come to what, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanCounts {
    /// The collector has taken them.
    pub(crate) sent: u64,
    /// There was no room for them, or the collector could not be reached for too long.
    pub(crate) dropped: u64,
    /// The collector did not want them.
    pub(crate) refused: u64,
}

#[derive(Debug)]
struct Shared {
    orders: watch::Sender<Orders>,
    waiting: Mutex<Waiting>,
    /// There is something to wait for, or enough to be sent.
    news: Notify,
    counts: Counters,
    /// Whether it was said that there is no room.
    is_full: AtomicBool,
    /// What was said of the collector.
    told: Mutex<Told>,
}

/// What the sender goes by.
#[derive(Clone, Debug, Default)]
struct Orders {
    config: TracingConfig,
    /// Where to send, if anywhere.
    collector: Option<Arc<Collector>>,
    /// When it has to be done, once it is the end.
    end_by: Option<Instant>,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: Queue,
    /// The task, as long as it has not found that there is nothing more to do.
    sender: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
}

impl Exporter {
    /// `instance`: the name of this daemon among others.
    pub(crate) fn new(config: &TracingConfig, instance: Option<&str>) -> Self {
        let exporter = Self {
            shared: Arc::new(Shared {
                orders: watch::Sender::default(),
                waiting: Mutex::default(),
                news: Notify::new(),
                counts: Counters::default(),
                is_full: AtomicBool::new(false),
                told: Mutex::default(),
            }),
        };
        exporter.configure(config, instance);
        exporter
    }

    /// Has spans sent elsewhere from now on, those that wait as well; nowhere drops them.
    pub(crate) fn configure(&self, config: &TracingConfig, instance: Option<&str>) {
        if self.shared.orders.borrow().config == *config {
            return;
        }
        let collector = Collector::of(config, instance)
            .inspect_err(|error| tracing::error!(%error, "spans cannot be sent"));
        self.shared.orders.send_modify(|orders| {
            orders.config = config.clone();
            orders.collector = collector.ok().flatten().map(Arc::new);
        });
    }

    /// Whether spans are sent at all.
    pub(crate) fn is_on(&self) -> bool {
        self.shared.orders.borrow().collector.is_some()
    }

    /// Has a span sent, with those of its stages, or drops them where there is no room. Must be called
    /// inside a tokio runtime; waits for nothing.
    pub(crate) fn tell(&self, span: ExecutionSpan) {
        let shared = &self.shared;
        let count = span.count();
        let mut waiting = shared.lock();
        let Some(length) = waiting.queue.push(span) else {
            drop(waiting);
            shared.counts.dropped(count);
            if !shared.is_full.swap(true, Ordering::Relaxed) {
                tracing::warn!("{MOST} spans wait to be sent: there is no room for more of them");
            }
            return;
        };
        let is_new = waiting.sender.as_ref().is_none_or(JoinHandle::is_finished);
        if is_new {
            let sender = Sender::new(Arc::clone(shared));
            waiting.sender = Some(tokio::spawn(sender.run()));
        }
        drop(waiting);
        // The first has it look at the clock, enough of them has it send.
        if length == count || length >= BATCH {
            shared.news.notify_one();
        }
    }

    /// What has become of spans.
    pub(crate) fn counts(&self) -> SpanCounts {
        let counts = &self.shared.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        SpanCounts {
            sent: read(&counts.sent),
            dropped: read(&counts.dropped),
            refused: read(&counts.refused),
        }
    }

    /// Sends what waits, as far as that takes a few seconds at the most, and drops the rest. For the
    /// very end.
    pub(crate) async fn end(&self) {
        let before = self.counts();
        let end_by = Instant::now() + LAST_WORDS;
        self.shared
            .orders
            .send_modify(|orders| orders.end_by = Some(end_by));
        let sender = self.shared.lock().sender.take();
        if let Some(sender) = sender {
            // It keeps to the time by itself; a panic of it is in the log.
            let _ = sender.await;
        }
        let lost = self.counts().dropped - before.dropped;
        if lost > 0 {
            tracing::warn!(lost, "ended before all spans were sent");
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.shared.orders.send_modify(|orders| {
            orders.collector = None;
            orders.end_by = Some(Instant::now());
        });
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

impl Counters {
    fn sent(&self, spans: usize) {
        self.sent.fetch_add(spans as u64, Ordering::Relaxed);
    }

    fn dropped(&self, spans: usize) {
        self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }

    fn refused(&self, spans: usize) {
        self.refused.fetch_add(spans as u64, Ordering::Relaxed);
    }
}
