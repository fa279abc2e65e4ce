use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Shared;
use super::breaker::CircuitState;
use super::refusal::Whose;

/// How the flow of calls stands: what there is to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowSnapshot {
    /// How many calls from outside have a place. Counted only while anything is limited.
    pub running: u32,
    /// The tools that anything is known of, by name.
    pub tools: BTreeMap<String, ToolFlowSnapshot>,
    /// Whether the server that several daemons share can be asked; `None` where there is none.
    pub server_up: Option<bool>,
    /// What was refused since the start.
    pub refused: Refusals,
}

/// How the flow of one tool's calls stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFlowSnapshot {
    /// How many calls have a place. Counted only while anything is limited.
    pub running: u32,
    /// How many wait for one.
    pub queued: u32,
    /// Where its circuit stands; `None` where there is no breaker, or nothing has failed.
    pub circuit: Option<CircuitState>,
    /// How many failures in a row led there.
    pub failures: u32,
}

/// How many calls were refused, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// By the rate of a tool.
    pub tool_rate: u64,
    /// By the rate of a caller.
    pub caller_rate: u64,
    /// By the rate of a tenant.
    pub tenant_rate: u64,
    /// For want of a place.
    pub queue_full: u64,
    /// By an open circuit.
    pub circuit_open: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    tool_rate: AtomicU64,
    caller_rate: AtomicU64,
    tenant_rate: AtomicU64,
    queue_full: AtomicU64,
    circuit_open: AtomicU64,
}

impl Counters {
    pub(super) fn limited(&self, whose: &Whose) {
        let counter = match whose {
            Whose::Tool(_) => &self.tool_rate,
            Whose::Caller(_) => &self.caller_rate,
            Whose::Tenant(_) => &self.tenant_rate,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn no_place(&self) {
        self.queue_full.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn open(&self) {
        self.circuit_open.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> Refusals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Refusals {
            tool_rate: read(&self.tool_rate),
            caller_rate: read(&self.caller_rate),
            tenant_rate: read(&self.tenant_rate),
            queue_full: read(&self.queue_full),
            circuit_open: read(&self.circuit_open),
        }
    }
}

impl FlowSnapshot {
    pub(super) fn of(shared: &Shared) -> Self {
        let mut tools = BTreeMap::<String, ToolFlowSnapshot>::new();
        let queues = shared.queues.lock();
        for (name, running, queued) in queues.places.tools() {
            let tool = tools.entry(name.to_owned()).or_default();
            (tool.running, tool.queued) = (running, queued);
        }
        let running = queues.places.running();
        drop(queues);
        for (name, circuit, failures) in shared.breakers.lock().states(shared.now()) {
            let tool = tools.entry(name.to_owned()).or_default();
            (tool.circuit, tool.failures) = (Some(circuit), failures);
        }
        Self {
            running,
            tools,
            server_up: shared.server_up(),
            refused: shared.refused.read(),
        }
    }
}
