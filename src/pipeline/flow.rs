//! Where the flow of calls meets executions: what is taken from a rate, and what is waited for before
//! a tool runs. The limits themselves are kept in `flow`.

use super::Execution;
use super::event::Event;
use super::executor::Inner;
use crate::config::{FlowConfig, RetryConfig};
use crate::domain::{Call, ExecutorError, FailureKind, RiskLevel, Status, ToolOutput};
use crate::flow::{
    Charge, CircuitState, Entry, Flow, FlowSnapshot, NoPlace, Open, Origin, Party, Passage, Place,
    Verdict,
};
use crate::pipeline::Executor;

/// What an execution runs under.
#[derive(Default)]
pub(super) struct Held {
    /// Its place, until the tool has run.
    pub(super) place: Option<Place>,
    pub(super) watch: Watch,
    pub(super) retries: Option<RetryConfig>,
}

/// What is to be told of its end to the circuit that let it through.
#[derive(Default)]
pub(super) struct Watch {
    passage: Option<Passage>,
    exit_codes: bool,
    /// Whether failing to start may be the call's own doing: it named a directory or an environment, or it ran
    /// in a sandbox, whose inside can fake such a failure.
    misleads: bool,
    /// Whether it has said that it is to take less time than others may.
    is_hurried: bool,
}

/// What keeps the limits of a new executor.
pub(super) fn begin(config: &FlowConfig) -> Flow {
    let host = nix::unistd::gethostname().unwrap_or_default();
    Flow::new(config, host.to_string_lossy().into_owned())
}

impl Executor {
    /// How the flow of calls stands: places, queues, refusals and circuits. Takes microseconds.
    pub fn flow(&self) -> FlowSnapshot {
        self.inner.flow.snapshot()
    }
}

impl Inner {
    /// Takes a call that the policy lets through from the rates it concerns: once, however often a
    /// hook has it begin anew.
    pub(super) async fn charge(
        &self,
        execution: &Execution,
        call: &Call,
    ) -> Result<(), ExecutorError> {
        if !self.flow.is_limited() || !execution.charge_once() {
            return Ok(());
        }
        let (party, origin) = (party(execution, call), origin(execution));
        let charged = self.flow.charge(&call.tool, &party, origin).await;
        charged.map_err(|limited| ExecutorError::RateLimited {
            tool_name: call.tool.clone(),
            input_summary: execution.summary(),
            rate: may(&limited.charge),
            retry_after: limited.retry_after,
        })
    }

    /// Waits for all that a tool needs to run. Nothing is written or asked where nothing is limited.
    pub(super) async fn take_place(
        &self,
        execution: &Execution,
        call: &Call,
    ) -> Result<Held, ExecutorError> {
        if !self.flow.is_limited() {
            return Ok(Held::default());
        }
        let tool = call.tool.as_str();
        let refused = |open: Open| ExecutorError::CircuitOpen {
            tool_name: tool.to_owned(),
            input_summary: execution.summary(),
            retry_after: open.retry_after,
        };
        // Not after a long wait, if it is known now.
        self.flow.look(tool).map_err(refused)?;
        let place = self.wait_for_place(execution, call).await?;
        let passage = self.flow.pass(tool).map_err(refused)?;
        if passage.as_ref().is_some_and(Passage::is_trial) {
            execution.note(Event::CircuitHalfOpened);
        }
        let config = self.flow.config().tool(tool);
        let is_watched = passage.is_some();
        Ok(Held {
            place: Some(place),
            watch: Watch {
                passage,
                exit_codes: config.breaker.is_some_and(|breaker| breaker.exit_codes),
                misleads: call.options.working_dir.is_some()
                    || !call.options.env.is_empty()
                    || execution.risk() == Some(RiskLevel::Untrusted),
                is_hurried: is_watched && self.is_hurried(call),
            },
            retries: config.retries,
        })
    }

    /// Whether a call is given less time than its tool usually gets.
    fn is_hurried(&self, call: &Call) -> bool {
        let Some(limit) = call.options.timeout else {
            return false;
        };
        let version = call.options.tool_version.as_deref();
        let tool = self.registry().find(&call.tool, version);
        tool.is_none_or(|tool| limit < tool.implementation.details(&self.config()).timeout)
    }

    async fn wait_for_place(
        &self,
        execution: &Execution,
        call: &Call,
    ) -> Result<Place, ExecutorError> {
        let full = |detail, retry_after| ExecutorError::QueueFull {
            tool_name: call.tool.clone(),
            input_summary: execution.summary(),
            detail,
            retry_after,
        };
        let refused = |no_place| match no_place {
            NoPlace::QueueFull {
                queue_max: 0,
                retry_after,
            } => full("as many calls run as may at once".to_owned(), retry_after),
            NoPlace::QueueFull {
                queue_max,
                retry_after,
            } => full(
                format!(
                    "as many calls run as may at once, and the queue of {queue_max} behind them is full"
                ),
                retry_after,
            ),
            NoPlace::TooLong {
                waited,
                retry_after,
            } => full(
                format!(
                    "it waited {}s for other calls to end, which is as long as one may",
                    waited.as_secs_f64()
                ),
                retry_after,
            ),
        };
        let entered = self
            .flow
            .enter(&call.tool, party(execution, call), origin(execution));
        let waiting = match entered.map_err(refused)? {
            Entry::Placed(place) => return Ok(place),
            Entry::Waits(waiting) => waiting,
        };
        let summary = execution.summary();
        execution.note(Event::ExecutionQueued { summary });
        execution.set_queued(true);
        let live = execution.live();
        let told = tokio::select! {
            biased;
            reason = live.stop_requested() => Err(execution.stopped(reason)),
            told = waiting.wait() => told.map_err(refused),
        };
        execution.set_queued(false);
        told
    }
}

impl Execution {
    /// It waits for a place, or does not any more.
    fn set_queued(&self, queued: bool) {
        self.show_queued(queued);
        if let Some(entry) = &self.entry {
            entry.set_status(if queued {
                Status::Queued
            } else {
                Status::Running
            });
            // Nobody has to wait for it to be written.
            drop(entry.write(self));
        }
    }
}

impl Watch {
    /// Tells the circuit what came of the call that it let through.
    pub(super) fn settle(self, execution: &Execution, result: Result<&ToolOutput, &ExecutorError>) {
        let verdict = self.verdict(result);
        let Some(passage) = self.passage else { return };
        match passage.record(verdict) {
            Some(CircuitState::Open) => {
                tracing::warn!(
                    TOOL_NAME = execution.tool,
                    "calls of `{}` have failed one after the other: it is left alone for a while",
                    execution.tool
                );
                execution.note(Event::CircuitOpened);
            }
            Some(CircuitState::Closed) => {
                tracing::info!(
                    TOOL_NAME = execution.tool,
                    "a call of `{}` went well: it is called again",
                    execution.tool
                );
                execution.note(Event::CircuitClosed);
            }
            Some(CircuitState::HalfOpen) | None => {}
        }
    }

    /// What a result says of its tool. Callers' own mistakes say nothing: nobody may have a tool left
    /// alone for all others.
    fn verdict(&self, result: Result<&ToolOutput, &ExecutorError>) -> Verdict {
        let kind = match result {
            Ok(output) if output.is_error && self.exit_codes => return Verdict::Failure,
            Ok(_) => return Verdict::Success,
            Err(error) => FailureKind::of(error),
        };
        let is_mistaken = (self.is_hurried && kind == FailureKind::Timeout)
            || (self.misleads && kind == FailureKind::SpawnFailed);
        // A sandbox that cannot be had is not the tool's fault: trusted calls of it need none.
        let is_of_another = is_mistaken || kind == FailureKind::SandboxUnavailable;
        match kind == FailureKind::Timeout || kind.is_of_the_tool() {
            true if !is_of_another => Verdict::Failure,
            // Or somebody stopped it, or it was refused.
            true | false => Verdict::Nothing,
        }
    }
}

fn party(execution: &Execution, call: &Call) -> Party {
    Party {
        uid: execution.caller.uid,
        tenant: call.options.tenant_id.clone(),
    }
}

fn origin(execution: &Execution) -> Origin {
    match execution.family.lineage() {
        Some(_) => Origin::Within,
        None => Origin::Outside,
    }
}

/// A rate in words.
fn may(Charge { whose, rate }: &Charge) -> String {
    format!(
        "calls of {whose} may be {} in {}s, and {} at once",
        rate.calls,
        rate.per.as_secs_f64(),
        rate.burst
    )
}
