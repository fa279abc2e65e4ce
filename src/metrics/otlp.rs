use prometheus::IntCounterVec;

use super::{Group, MetricsError};

/// What has become of spans since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpansNow {
    /// The collector has taken them.
    pub sent: u64,
    /// There was no room for them, or the collector could not be reached for too long.
    pub dropped: u64,
    /// The collector did not want them.
    pub refused: u64,
}

/// What becomes of spans.
#[derive(Debug)]
pub(super) struct Spans(IntCounterVec);

impl Spans {
    pub(super) fn new(group: &Group<'_>) -> Result<Self, MetricsError> {
        let spans = Self(group.counters(
            "shelly_otlp_spans_total",
            "Spans that were to be sent to the collector, by what became of them.",
            &["result"],
        )?);
        spans.set(SpansNow::default());
        Ok(spans)
    }

    /// Sets all to what it is.
    pub(super) fn set(&self, now: SpansNow) {
        for (result, count) in [
            ("sent", now.sent),
            ("dropped", now.dropped),
            ("refused", now.refused),
        ] {
            let counter = self.0.with_label_values(&[result]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }
}
