//! What of executions goes into the metrics, and how those are asked for.

use std::sync::Arc;

use super::termination::Termination;
use super::{Execution, Executor};
use crate::domain::Degradation;
use crate::flow::{CircuitState, FlowSnapshot};
use crate::metrics::{Counted, FlowNow, Metrics, MetricsError, Now, SpansNow, ToolNow};
use crate::otlp::SpanCounts;

/// Why there are no metrics to be read.
#[derive(Debug, thiserror::Error)]
pub enum NoMetrics {
    /// The configuration says so.
    #[error("nothing is measured: an operator sets `enabled = true` in [metrics] of executor.toml")]
    Off,
    /// They cannot be had.
    #[error("nothing can be measured; the log says why")]
    Broken,
    /// They cannot be written down.
    #[error(transparent)]
    Unreadable(#[from] MetricsError),
}

impl Executor {
    /// What was counted and timed so far, in Prometheus' text format, version 0.0.4. `problems`:
    /// what does not work as it should, the executor's own and what whoever asks knows besides.
    ///
    /// # Errors
    /// See [`NoMetrics`].
    pub fn metrics(&self, problems: &[Degradation]) -> Result<String, NoMetrics> {
        if !self.config().metrics {
            return Err(NoMetrics::Off);
        }
        let metrics = self.inner.metrics.as_ref().ok_or(NoMetrics::Broken)?;
        let flow = self.flow();
        let text = metrics.text(&Now {
            running: self.running(),
            approvals_waiting: self.inner.waiters.count(),
            sandboxes_ready: self.sandbox().ready,
            problems,
            flow: flow_now(&flow),
            spans: spans_now(self.inner.spans.counts()),
        });
        Ok(text?)
    }
}

/// What is told of the flow of calls.
fn flow_now(flow: &FlowSnapshot) -> FlowNow<'_> {
    let tools = flow.tools.iter().map(|(tool, now)| ToolNow {
        tool,
        running: now.running,
        queued: now.queued,
        refuses: now.circuit.map(|state| state == CircuitState::Open),
    });
    let refused = &flow.refused;
    FlowNow {
        running: flow.running,
        tools: tools.collect(),
        refused: vec![
            ("tool_rate", refused.tool_rate),
            ("caller_rate", refused.caller_rate),
            ("tenant_rate", refused.tenant_rate),
            ("queue_full", refused.queue_full),
            ("circuit_open", refused.circuit_open),
        ],
        server_up: flow.server_up,
    }
}

/// What is told of spans.
fn spans_now(counts: SpanCounts) -> SpansNow {
    let SpanCounts {
        sent,
        dropped,
        refused,
    } = counts;
    SpansNow {
        sent,
        dropped,
        refused,
    }
}

/// Counters; without them everything else works.
pub(super) fn begin() -> Option<Arc<Metrics>> {
    let metrics = Metrics::new();
    metrics
        .inspect_err(|error| tracing::error!(%error, "there are no metrics"))
        .map(Arc::new)
        .ok()
}

/// Counts an execution that has ended.
pub(super) fn count(execution: &Execution, ended: &Termination<'_>) {
    let Some(metrics) = &execution.metrics else {
        return;
    };
    let tool = execution.tool_found();
    metrics.ended(&Counted {
        tool: tool.as_ref().map(|tool| tool.name()),
        risk: execution.risk(),
        status: ended.status,
        failure: ended.failure(),
        run: ended.run,
    });
}
