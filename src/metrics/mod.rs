//! What is counted and timed, for whoever watches the daemon: names, labels, and the text that
//! Prometheus reads. Knows the words of the house and nobody who says them. What belongs together
//! has a file of its own; what there is is told in docs/metrics.md.

mod bounded;
mod executions;
mod flow;
mod ledger;
mod now;
mod otlp;

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

pub use executions::Counted;
pub use flow::{FlowNow, ToolNow};
pub use now::Now;
pub use otlp::SpansNow;

use crate::domain::{Stage, Verdict};
use executions::Executions;
use ledger::LedgerTimes;
use now::Standing;

/// What the metrics are made of cannot be had, or not be written down. A defect of the program: the
/// names are all its own.
#[derive(Debug, thiserror::Error)]
#[error("cannot measure: {0}")]
pub struct MetricsError(#[from] prometheus::Error);

/// All metrics of one executor. Counting costs a few hundred nanoseconds for each execution and
/// waits for nothing.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    executions: Executions,
    ledger: LedgerTimes,
    standing: Standing,
}

impl Metrics {
    /// Counters that all begin with zero.
    ///
    /// # Errors
    /// When a name is none or there twice.
    pub fn new() -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let group = Group(&registry);
        Ok(Self {
            executions: Executions::new(&group)?,
            ledger: LedgerTimes::new(&group)?,
            standing: Standing::new(&group)?,
            registry,
        })
    }

    /// An execution has ended.
    pub fn ended(&self, execution: &Counted<'_>) {
        self.executions.ended(execution);
    }

    /// A call is tried once more.
    pub fn retried(&self) {
        self.executions.retried();
    }

    /// An execution has left a stage.
    pub fn left_stage(&self, stage: Stage, took: Duration) {
        self.executions.left_stage(stage, took);
    }

    /// The policy has judged a call, by a rule or by none.
    pub fn judged(&self, verdict: Verdict, rule: Option<&str>) {
        self.executions.judged(verdict, rule);
    }

    /// The ledger has committed what was queued for it.
    pub fn committed(&self, took: Duration) {
        self.ledger.committed(took);
    }

    /// The end of an execution is safe in the ledger, which its answer has waited for so long.
    pub fn recorded(&self, waited: Duration) {
        self.ledger.recorded(waited);
    }

    /// All of it in Prometheus' text format, version 0.0.4, with how things stand now.
    ///
    /// # Errors
    /// When something has no name or a name twice.
    pub fn text(&self, now: &Now<'_>) -> Result<String, MetricsError> {
        let families = self.standing.with(now, || self.registry.gather());
        Ok(TextEncoder::new().encode_to_string(&families)?)
    }
}

/// Makes metrics that the registry has.
struct Group<'a>(&'a Registry);

impl Group<'_> {
    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, MetricsError> {
        self.keep(IntCounter::new(name, help)?)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, MetricsError> {
        self.keep(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, MetricsError> {
        self.keep(IntGauge::new(name, help)?)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, MetricsError> {
        self.keep(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// `buckets`: upper bounds, in seconds, rising.
    fn times(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, MetricsError> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.keep(Histogram::with_opts(options)?)
    }

    fn times_by(
        &self,
        name: &str,
        help: &str,
        (label, buckets): (&str, &[f64]),
    ) -> Result<HistogramVec, MetricsError> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.keep(HistogramVec::new(options, &[label])?)
    }

    fn keep<M: Collector + Clone + 'static>(&self, metric: M) -> Result<M, MetricsError> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{RiskLevel, Status};

    fn text(metrics: &Metrics) -> String {
        let now = Now {
            running: 0,
            approvals_waiting: 0,
            sandboxes_ready: 0,
            problems: &[],
            flow: FlowNow::default(),
            spans: SpansNow::default(),
        };
        metrics.text(&now).expect("text")
    }

    #[test]
    fn what_must_not_happen_is_there_before_it_does() {
        let text = text(&Metrics::new().expect("names"));
        for line in [
            "shelly_kill_survivors_total 0",
            "shelly_outputs_truncated_total 0",
            "shelly_kills_total{reason=\"timeout\"} 0",
            "shelly_sandbox_starts_total{result=\"failed\"} 0",
            "shelly_egress_connections_total{result=\"refused\"} 0",
            "shelly_ledger_commit_duration_seconds_count 0",
            "shelly_stage_duration_seconds_count{stage=\"discovery\"} 0",
            "shelly_otlp_spans_total{result=\"dropped\"} 0",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }

    #[test]
    fn there_are_only_so_many_names() {
        let metrics = Metrics::new().expect("names");
        for number in 0..1000 {
            metrics.judged(Verdict::Ask, Some(&format!("bash(rule {number})")));
            metrics.ended(&Counted {
                tool: Some(&format!("tool-{number}")),
                risk: Some(RiskLevel::Trusted),
                status: Status::Success,
                failure: None,
                run: None,
            });
        }
        let text = text(&metrics);
        let of = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(of("shelly_verdicts_total{"), bounded::MOST + 1);
        assert_eq!(of("shelly_executions_total{"), bounded::MOST + 1);
        let rest = 1000 - bounded::MOST;
        let line = format!("shelly_verdicts_total{{rule=\"other\",verdict=\"ask\"}} {rest}");
        assert!(text.contains(&line), "{text}");
    }

    #[test]
    fn a_rule_is_shown_as_it_is_written_and_no_longer_than_a_line() {
        let metrics = Metrics::new().expect("names");
        metrics.judged(Verdict::Deny, Some("bash(rm \"*\"\n)"));
        metrics.judged(Verdict::Allow, Some(&"é".repeat(500)));
        metrics.judged(Verdict::Allow, None);
        let text = text(&metrics);
        assert!(text.contains(r#"rule="bash(rm \"*\"\n)",verdict="deny"} 1"#));
        assert!(text.contains(&format!("rule=\"{}…\"", "é".repeat(119))));
        assert!(text.contains(r#"rule="none",verdict="allow"} 1"#));
    }
}
