use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use prometheus::{IntGauge, IntGaugeVec};

use super::flow::{Flow, FlowNow};
use super::otlp::{Spans, SpansNow};
use super::{Group, MetricsError};
use crate::domain::Degradation;

/// How things stand when somebody asks.
#[derive(Clone, Debug)]
pub struct Now<'a> {
    /// How many executions are under way.
    pub running: usize,
    /// How many of them wait for an approval.
    pub approvals_waiting: usize,
    /// How many sandboxes wait for a call.
    pub sandboxes_ready: usize,
    /// What does not work as it should.
    pub problems: &'a [Degradation],
    /// Places, queues, refusals and circuits.
    pub flow: FlowNow<'a>,
    /// What has become of spans.
    pub spans: SpansNow,
}

/// What is not counted but looked at when somebody asks.
#[derive(Debug)]
pub(super) struct Standing {
    running: IntGauge,
    approvals_waiting: IntGauge,
    sandboxes_ready: IntGauge,
    problems: IntGaugeVec,
    flow: Flow,
    spans: Spans,
    /// Held while they are set and read, so that each who asks reads what was set for them.
    asking: Mutex<()>,
}

impl Standing {
    pub(super) fn new(group: &Group<'_>) -> Result<Self, MetricsError> {
        let build = group.gauges(
            "shelly_build_info",
            "Always 1; the label tells the version of the daemon.",
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let started = group.gauge(
            "shelly_start_time_seconds",
            "When the daemon was started, in seconds since 1970.",
        )?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        started.set(since.unwrap_or_default().as_secs().cast_signed());
        Ok(Self {
            running: group.gauge(
                "shelly_executions_running",
                "Executions that are under way, waiting ones among them.",
            )?,
            approvals_waiting: group.gauge(
                "shelly_approvals_waiting",
                "Executions that wait for an approver to decide.",
            )?,
            sandboxes_ready: group.gauge(
                "shelly_sandboxes_ready",
                "Sandboxes that wait for a call, or are being started for one that may come.",
            )?,
            problems: group.gauges(
                "shelly_problems",
                "What does not work as it should, by the code that GET /health has for it; what works has no line.",
                &["code"],
            )?,
            flow: Flow::new(group)?,
            spans: Spans::new(group)?,
            asking: Mutex::new(()),
        })
    }

    /// Reads while things are set to what they are.
    pub(super) fn with<T>(&self, now: &Now<'_>, read: impl FnOnce() -> T) -> T {
        let _asking = self.asking.lock();
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.running.set(number(now.running));
        self.approvals_waiting.set(number(now.approvals_waiting));
        self.sandboxes_ready.set(number(now.sandboxes_ready));
        self.problems.reset();
        for problem in now.problems {
            self.problems.with_label_values(&[problem.code]).inc();
        }
        self.flow.set(&now.flow);
        self.spans.set(now.spans);
        read()
    }
}
