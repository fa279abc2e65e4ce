//! Circuit breakers, one for each tool that has one. Pure: time is given.

use std::collections::HashMap;
use std::time::Duration;

use super::refusal::Open;
use crate::config::BreakerConfig;
use crate::domain::words;

/// What is waited for while a trial runs, which takes as long as it takes.
const TRIAL_WAIT: Duration = Duration::from_secs(1);

words! {
    /// Where a circuit stands.
    pub enum CircuitState {
        /// Calls go through.
        Closed = "closed",
        /// Calls are refused.
        Open = "open",
        /// One call is let through, and shows whether others may follow.
        HalfOpen = "half_open",
    }
}

/// What came of a call that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Success,
    Failure,
    /// It was stopped, which says nothing of the tool.
    Nothing,
}

/// That a call was let through, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Ordinary,
    Trial,
}

/// All circuits that are not as they began.
#[derive(Debug, Default)]
pub(super) struct Breakers {
    circuits: HashMap<String, Circuit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Circuit {
    Closed { failures: u32 },
    Open { until: Duration, failures: u32 },
    HalfOpen { has_trial: bool, failures: u32 },
}

impl Breakers {
    /// Whether a call would be let through now.
    pub(super) fn look(&self, tool: &str, now: Duration) -> Result<(), Open> {
        match self.circuits.get(tool) {
            None | Some(Circuit::Closed { .. }) => Ok(()),
            Some(Circuit::Open { until, .. }) if *until <= now => Ok(()),
            Some(Circuit::Open { until, .. }) => Err(Open {
                retry_after: *until - now,
            }),
            Some(Circuit::HalfOpen {
                has_trial: false, ..
            }) => Ok(()),
            Some(Circuit::HalfOpen { .. }) => Err(Open {
                retry_after: TRIAL_WAIT,
            }),
        }
    }

    /// Lets a call through, as the trial if it is time for one.
    pub(super) fn enter(&mut self, tool: &str, now: Duration) -> Result<Pass, Open> {
        self.look(tool, now)?;
        let Some(circuit) = self.circuits.get_mut(tool) else {
            return Ok(Pass::Ordinary);
        };
        if circuit.state() == CircuitState::Closed {
            return Ok(Pass::Ordinary);
        }
        *circuit = Circuit::HalfOpen {
            has_trial: true,
            failures: circuit.failures(),
        };
        Ok(Pass::Trial)
    }

    /// What came of a call; returns where the circuit stands then, if that is somewhere else.
    pub(super) fn record(
        &mut self,
        tool: &str,
        pass: Pass,
        verdict: Verdict,
        config: &BreakerConfig,
        now: Duration,
    ) -> Option<CircuitState> {
        let known = self.circuits.get(tool).copied();
        let circuit = known.unwrap_or(Circuit::Closed { failures: 0 });
        let open = |failures| Circuit::Open {
            until: now + config.open,
            failures,
        };
        let next = match (circuit, pass, verdict) {
            (Circuit::Closed { failures }, _, Verdict::Failure)
                if failures + 1 >= config.failures =>
            {
                open(failures + 1)
            }
            (Circuit::Closed { failures }, _, Verdict::Failure) => Circuit::Closed {
                failures: failures + 1,
            },
            (Circuit::Closed { .. }, _, Verdict::Success) => Circuit::Closed { failures: 0 },
            (Circuit::HalfOpen { .. }, Pass::Trial, Verdict::Success) => {
                Circuit::Closed { failures: 0 }
            }
            (Circuit::HalfOpen { failures, .. }, Pass::Trial, Verdict::Failure) => {
                open(failures.saturating_add(1))
            }
            (Circuit::HalfOpen { failures, .. }, Pass::Trial, Verdict::Nothing) => {
                Circuit::HalfOpen {
                    has_trial: false,
                    failures,
                }
            }
            // It began before the circuit opened, and says nothing of how the tool is now.
            (Circuit::Open { .. } | Circuit::HalfOpen { .. }, _, _)
            | (Circuit::Closed { .. }, _, Verdict::Nothing) => circuit,
        };
        if next == (Circuit::Closed { failures: 0 }) {
            self.circuits.remove(tool);
        } else {
            self.circuits.insert(tool.to_owned(), next);
        }
        (next.state() != circuit.state()).then(|| next.state())
    }

    /// Forgets the circuits of tools that have none any more.
    pub(super) fn retain(&mut self, has_breaker: impl Fn(&str) -> bool) {
        self.circuits.retain(|tool, _| has_breaker(tool));
    }

    /// Where each circuit stands that is not as it began, and how many failures in a row led there.
    pub(super) fn states(&self, now: Duration) -> impl Iterator<Item = (&str, CircuitState, u32)> {
        let circuits = self.circuits.iter();
        circuits.map(move |(tool, circuit)| {
            let state = match circuit {
                // The next call is the trial, whenever it comes.
                Circuit::Open { until, .. } if *until <= now => CircuitState::HalfOpen,
                Circuit::Closed { .. } | Circuit::Open { .. } | Circuit::HalfOpen { .. } => {
                    circuit.state()
                }
            };
            (tool.as_str(), state, circuit.failures())
        })
    }
}

impl Circuit {
    fn state(self) -> CircuitState {
        match self {
            Self::Closed { .. } => CircuitState::Closed,
            Self::Open { .. } => CircuitState::Open,
            Self::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    fn failures(self) -> u32 {
        match self {
            Self::Closed { failures }
            | Self::Open { failures, .. }
            | Self::HalfOpen { failures, .. } => failures,
        }
    }
}
