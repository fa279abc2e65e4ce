use prometheus::{IntCounterVec, IntGauge, IntGaugeVec};

use super::bounded::Bounded;
use super::{Group, MetricsError};

/// How the flow of calls stands when somebody asks.
#[derive(Clone, Debug, Default)]
pub struct FlowNow<'a> {
    /// How many calls from outside have a place.
    pub running: u32,
    /// The tools of which anything is known.
    pub tools: Vec<ToolNow<'a>>,
    /// How many calls were refused since the start, by why.
    pub refused: Vec<(&'static str, u64)>,
    /// Whether the server that several daemons share can be asked; `None` where none does.
    pub server_up: Option<bool>,
}

/// How the flow of one tool's calls stands.
#[derive(Clone, Copy, Debug)]
pub struct ToolNow<'a> {
    /// Its name.
    pub tool: &'a str,
    /// How many calls have a place.
    pub running: u32,
    /// How many wait for one.
    pub queued: u32,
    /// Whether it is left alone; `None` where it has no breaker, or nothing has failed.
    pub refuses: Option<bool>,
}

/// Places, queues, refusals and circuits.
#[derive(Debug)]
pub(super) struct Flow {
    tools: Bounded,
    running: IntGauge,
    tool_running: IntGaugeVec,
    queued: IntGaugeVec,
    circuits: IntGaugeVec,
    refused: IntCounterVec,
    servers: IntGaugeVec,
}

impl Flow {
    pub(super) fn new(group: &Group<'_>) -> Result<Self, MetricsError> {
        Ok(Self {
            tools: Bounded::default(),
            running: group.gauge(
                "shelly_flow_running",
                "Calls from outside that have a place, where any are limited.",
            )?,
            tool_running: group.gauges(
                "shelly_flow_tool_running",
                "Calls that have a place, by tool, where any are limited.",
                &["tool"],
            )?,
            queued: group.gauges(
                "shelly_flow_queued",
                "Calls that wait for a place, by tool.",
                &["tool"],
            )?,
            circuits: group.gauges(
                "shelly_flow_circuit_open",
                "1 for a tool that is left alone because it has failed, 0 once a call of it may come again.",
                &["tool"],
            )?,
            refused: group.counters(
                "shelly_flow_refused_total",
                "Calls that were refused because there were too many or a tool has failed, by why.",
                &["reason"],
            )?,
            servers: group.gauges(
                "shelly_flow_backend_up",
                "Whether the server that several daemons share can be asked; no line where none does.",
                &["backend"],
            )?,
        })
    }

    /// Sets all to what it is.
    pub(super) fn set(&self, now: &FlowNow<'_>) {
        self.running.set(i64::from(now.running));
        for gauges in [
            &self.tool_running,
            &self.queued,
            &self.circuits,
            &self.servers,
        ] {
            gauges.reset();
        }
        for tool in &now.tools {
            // After a hundred names the rest are one, with what they have together.
            let label = self.tools.label(tool.tool);
            let add = |gauges: &IntGaugeVec, count: i64| {
                gauges.with_label_values(&[label.as_ref()]).add(count);
            };
            add(&self.tool_running, i64::from(tool.running));
            add(&self.queued, i64::from(tool.queued));
            if let Some(refuses) = tool.refuses {
                add(&self.circuits, i64::from(refuses));
            }
        }
        for (reason, count) in &now.refused {
            let counter = self.refused.with_label_values(&[*reason]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        if let Some(is_up) = now.server_up {
            let server = self.servers.with_label_values(&["redis"]);
            server.set(i64::from(is_up));
        }
    }
}
