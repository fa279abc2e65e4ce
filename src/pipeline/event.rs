use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

use super::{Execution, Finished};
use crate::domain::{
    ApprovalId, Correlation, ExecutionId, ExecutorError, Lineage, Stage, Status, ToolOutput, When,
    nearest_micros, whole_millis,
};
use crate::ledger::Happened;

/// What happens, for those who listen. A type goes over the wire
/// as its name, the rest as its body.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "snake_case"
)]
pub enum Event {
    /// A call came in.
    ExecutionStarted {
        /// What it is, in a line.
        summary: String,
    },
    /// It entered a stage.
    StageStarted {
        /// Which.
        stage: Stage,
    },
    /// It left a stage.
    StageCompleted {
        /// Which.
        stage: Stage,
        /// How long it was in it; in JSON as `duration_ms`, in milliseconds and fractions.
        #[serde(rename = "duration_ms", serialize_with = "as_fractional_millis")]
        took: Duration,
    },
    /// A hook was asked about it, or told of it.
    HookCompleted {
        /// Its name.
        hook: String,
        /// The stage it stands beside.
        stage: Stage,
        /// On which side.
        when: When,
        /// What it said: `allow`, `deny` or `change`; else `failed` or `stopped`.
        decision: &'static str,
        /// How long it took, in milliseconds and fractions.
        duration_ms: f64,
        /// Why, or how it failed; empty where there is nothing to say.
        detail: String,
    },
    /// A tool made the call.
    #[serde(rename = "skill_call")]
    SkillCall {
        /// The tool that was called.
        skill: String,
        /// The execution that called it.
        parent_id: ExecutionId,
        /// Nesting depth: how many tool calls enclose it.
        depth: u32,
        /// What it is, in a line.
        summary: String,
    },
    /// A call that a tool made has come to an end.
    #[serde(rename = "skill_result")]
    SkillResult {
        /// The tool that was called.
        skill: String,
        /// The execution that called it.
        parent_id: ExecutionId,
        /// Nesting depth: how many tool calls enclose it.
        depth: u32,
        /// From the call to its end, in milliseconds.
        duration_ms: u64,
        /// Whether it failed.
        is_error: bool,
    },
    /// It ran to its end by itself.
    ExecutionCompleted {
        /// How it ended.
        status: Status,
        /// What it was, in a line.
        summary: String,
        /// From the start of the process to its end, in milliseconds.
        duration_ms: u64,
        /// An exit code or a signal's name.
        exit: String,
    },
    /// It was refused, or could not be done, or ran into its time limit.
    ExecutionFailed {
        /// How it ended.
        status: Status,
        /// What it was, in a line.
        summary: String,
        /// What went wrong.
        detail: String,
    },
    /// It was stopped.
    ExecutionAborted {
        /// How it ended.
        status: Status,
        /// What it was, in a line.
        summary: String,
        /// By whom or what.
        detail: String,
    },
    /// Somebody is asked whether it may run.
    ConfirmationRequired {
        /// The question.
        approval_id: ApprovalId,
        /// What it is, in a line.
        summary: String,
        /// Until when there is an answer to be given (RFC 3339).
        expires_at: String,
    },
    /// Somebody has answered.
    ConfirmationDecided {
        /// The question.
        approval_id: ApprovalId,
        /// `approved`, `denied` or `withdrawn`.
        decision: String,
        /// Who.
        by: Option<u32>,
    },
    /// Nobody has answered in time.
    ConfirmationExpired {
        /// The question.
        approval_id: ApprovalId,
    },
    /// As many run as may: it waits for a place.
    ExecutionQueued {
        /// What it is, in a line.
        summary: String,
    },
    /// Another try is made of what could not be done, as the tool may run twice.
    ExecutionRetried {
        /// The number of the try that failed, from 1 on.
        attempt: u32,
        /// How long it waits before the next, in milliseconds and fractions.
        delay_ms: f64,
        /// What went wrong.
        detail: String,
    },
    /// The tool has failed too often in a row: calls of it are refused for a while.
    CircuitOpened,
    /// A call of the tool is let through, as a trial.
    CircuitHalfOpened,
    /// The trial went well: calls of the tool go through again.
    CircuitClosed,
    /// A changed configuration is in force.
    ConfigurationReloaded,
    /// A changed configuration was refused.
    ConfigurationRefused {
        /// Why.
        detail: String,
    },
    /// A changed policy is in force.
    PolicyReloaded {
        /// How many rules it has.
        rules: usize,
    },
    /// A changed policy was refused.
    PolicyRefused {
        /// Why.
        detail: String,
    },
}

/// An event with what it belongs to.
#[derive(Serialize)]
struct Correlated<'a> {
    #[serde(flatten)]
    event: &'a Event,
    #[serde(flatten)]
    correlation: &'a Correlation,
}

/// To the microsecond.
pub(super) fn fractional_millis(duration: Duration) -> f64 {
    nearest_micros(duration) as f64 / 1e3
}

fn as_fractional_millis<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(fractional_millis(*duration))
}

impl Event {
    /// That a tool made this call.
    pub(super) fn skill_call(execution: &Execution, lineage: &Lineage) -> Self {
        Self::SkillCall {
            skill: execution.tool.clone(),
            parent_id: lineage.parent,
            depth: lineage.depth,
            summary: execution.summary(),
        }
    }

    /// What came of a call that a tool made.
    pub(super) fn skill_result(
        execution: &Execution,
        lineage: &Lineage,
        result: &Result<ToolOutput, ExecutorError>,
    ) -> Self {
        let took = execution.created_at.elapsed().unwrap_or_default();
        Self::SkillResult {
            skill: execution.tool.clone(),
            parent_id: lineage.parent,
            depth: lineage.depth,
            duration_ms: whole_millis(took),
            is_error: result.as_ref().map_or(true, |output| output.is_error),
        }
    }

    /// How an execution ended.
    pub(super) fn of_ending(finished: &Finished, summary: &str) -> Self {
        let (status, summary) = (finished.status, summary.to_owned());
        let Some(failure) = &finished.failure else {
            let display = finished.ran.as_ref().map(|ran| &ran.display);
            return Self::ExecutionCompleted {
                status,
                summary,
                duration_ms: display.map_or(0, |display| display.duration_ms),
                exit: display
                    .map(|display| display.exit.clone())
                    .unwrap_or_default(),
            };
        };
        let detail = failure.detail.clone();
        match failure.kind.status() {
            Status::Cancelled | Status::Lost => Self::ExecutionAborted {
                status,
                summary,
                detail,
            },
            Status::Queued
            | Status::Waiting
            | Status::Running
            | Status::Success
            | Status::Error
            | Status::Timeout
            | Status::Denied
            | Status::Failed => Self::ExecutionFailed {
                status,
                summary,
                detail,
            },
        }
    }

    /// Adds it to what has happened.
    pub(super) fn tell(
        &self,
        correlation: &Correlation,
        time: SystemTime,
        happened: &mut Happened,
    ) {
        if correlation.is_empty() {
            // In a third of the time and less.
            if let Self::StageStarted { stage } = *self {
                happened.enter(time, stage);
            } else if let Self::StageCompleted { stage, took } = *self {
                happened.leave(time, stage, took);
            } else {
                happened.push(time, self);
            }
            return;
        }
        let correlated = Correlated {
            event: self,
            correlation,
        };
        happened.push(time, &correlated);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::domain::EVENT_TYPES;
    use crate::ledger::{EventFilter, Events, NumberedEvents};

    /// The first of the enum without one, else the one behind it.
    fn behind(event: Option<&Event>) -> Option<Event> {
        let text = String::new;
        let stage = Stage::Discovery;
        let status = Status::Success;
        let (execution, approval) = (ExecutionId::new(), ApprovalId::new());
        Some(match event {
            None => Event::ExecutionStarted { summary: text() },
            Some(Event::ExecutionStarted { .. }) => Event::StageStarted { stage },
            Some(Event::StageStarted { .. }) => Event::StageCompleted {
                stage,
                took: Duration::ZERO,
            },
            Some(Event::StageCompleted { .. }) => Event::HookCompleted {
                hook: text(),
                stage,
                when: When::Before,
                decision: "allow",
                duration_ms: 0.0,
                detail: text(),
            },
            Some(Event::HookCompleted { .. }) => Event::SkillCall {
                skill: text(),
                parent_id: execution,
                depth: 1,
                summary: text(),
            },
            Some(Event::SkillCall { .. }) => Event::SkillResult {
                skill: text(),
                parent_id: execution,
                depth: 1,
                duration_ms: 0,
                is_error: false,
            },
            Some(Event::SkillResult { .. }) => Event::ExecutionCompleted {
                status,
                summary: text(),
                duration_ms: 0,
                exit: text(),
            },
            Some(Event::ExecutionCompleted { .. }) => Event::ExecutionFailed {
                status,
                summary: text(),
                detail: text(),
            },
            Some(Event::ExecutionFailed { .. }) => Event::ExecutionAborted {
                status,
                summary: text(),
                detail: text(),
            },
            Some(Event::ExecutionAborted { .. }) => Event::ConfirmationRequired {
                approval_id: approval,
                summary: text(),
                expires_at: text(),
            },
            Some(Event::ConfirmationRequired { .. }) => Event::ConfirmationDecided {
                approval_id: approval,
                decision: text(),
                by: None,
            },
            Some(Event::ConfirmationDecided { .. }) => Event::ConfirmationExpired {
                approval_id: approval,
            },
            Some(Event::ConfirmationExpired { .. }) => Event::ExecutionQueued { summary: text() },
            Some(Event::ExecutionQueued { .. }) => Event::ExecutionRetried {
                attempt: 1,
                delay_ms: 0.0,
                detail: text(),
            },
            Some(Event::ExecutionRetried { .. }) => Event::CircuitOpened,
            Some(Event::CircuitOpened) => Event::CircuitHalfOpened,
            Some(Event::CircuitHalfOpened) => Event::CircuitClosed,
            Some(Event::CircuitClosed) => Event::ConfigurationReloaded,
            Some(Event::ConfigurationReloaded) => Event::ConfigurationRefused { detail: text() },
            Some(Event::ConfigurationRefused { .. }) => Event::PolicyReloaded { rules: 0 },
            Some(Event::PolicyReloaded { .. }) => Event::PolicyRefused { detail: text() },
            Some(Event::PolicyRefused { .. }) => return None,
        })
    }

    #[test]
    fn what_is_kept_as_numbers_is_told_as_what_it_is() {
        let took = Duration::from_nanos(1_234_567);
        let stages = Stage::ALL.into_iter().flat_map(|stage| {
            let completed = Event::StageCompleted { stage, took };
            [Event::StageStarted { stage }, completed]
        });
        let stages: Vec<_> = stages.collect();
        let mut happened = Happened::default();
        for event in &stages {
            event.tell(&Correlation::default(), SystemTime::now(), &mut happened);
        }
        let events = NumberedEvents {
            first: 1,
            events: Events {
                execution_id: None,
                tool: None,
                caller_uid: None,
                happened,
            },
        };
        let told = events.pick(0, &EventFilter::default()).into_iter();
        let told = told.map(|event| {
            let mut body = event.body;
            body.insert("type".to_owned(), event.kind.into());
            Value::Object(body)
        });
        let expected = stages
            .iter()
            .map(|event| serde_json::to_value(event).expect("JSON"));
        assert!(told.eq(expected), "{stages:?}");
    }

    #[test]
    fn every_type_is_listed_and_no_other() {
        let all = std::iter::successors(behind(None), |event| behind(Some(event)));
        let types: Vec<_> = all
            .map(|event| serde_json::to_value(event).expect("JSON")["type"].clone())
            .collect();
        assert_eq!(types, EVENT_TYPES);
    }
}
