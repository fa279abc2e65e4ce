//! What happens, as it is told and kept.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Json;
use crate::domain::ExecutionId;

/// What has happened, for those who listen: events that follow one another and are about the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// The execution they are about.
    pub execution_id: Option<ExecutionId>,
    /// Its tool.
    pub tool: Option<String>,
    /// Its caller.
    pub caller_uid: Option<u32>,
    /// At least one; an execution has some fourteen in all.
    pub events: Vec<Event>,
}

impl Events {
    /// What happened to one execution and then happened further, as one.
    pub(super) fn joined(first: Option<Self>, then: Option<Self>) -> Option<Self> {
        match (first, then) {
            (Some(mut first), Some(then)) => {
                first.events.extend(then.events);
                Some(first)
            }
            (first, then) => first.or(then),
        }
    }
}

/// One thing that has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    #[serde(with = "super::time")]
    pub time: SystemTime,
    /// What: an object whose `type` is the type as it goes over the wire, such as
    /// `executionStarted`.
    pub body: Json,
}

/// Events with the numbers they were given.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberedEvents {
    /// The number of the first; the others follow. Numbers rise by time; one that was never
    /// written leaves a gap.
    pub first: u64,
    /// What happened.
    pub events: Events,
}

impl NumberedEvents {
    /// The number of the last.
    pub fn last(&self) -> u64 {
        self.first + (self.events.events.len() as u64).saturating_sub(1)
    }

    /// Those after a number that a filter lets through, one by one.
    pub fn pick(&self, after: u64, filter: &EventFilter) -> Vec<NumberedEvent> {
        let Events {
            execution_id,
            tool,
            caller_uid,
            events,
        } = &self.events;
        let is_asked = filter
            .execution_id
            .is_none_or(|id| *execution_id == Some(id))
            && (filter.tool.is_none() || filter.tool == *tool);
        let is_own = filter.caller_uid.is_none_or(|uid| *caller_uid == Some(uid));
        if !is_asked || (!is_own && filter.of_everybody.is_empty()) {
            return Vec::new();
        }
        let single = |(number, event): (u64, &Event)| {
            let mut body: Map<String, Value> = event.body.read()?;
            let Some(Value::String(kind)) = body.remove("type") else {
                return None;
            };
            let is_wanted = filter.kinds.is_empty() || filter.kinds.contains(&kind);
            let is_theirs = is_own || filter.of_everybody.contains(&kind);
            (is_wanted && is_theirs).then(|| NumberedEvent {
                number,
                execution_id: *execution_id,
                tool: tool.clone(),
                caller_uid: *caller_uid,
                time: event.time,
                kind,
                body,
            })
        };
        (self.first..)
            .zip(events)
            .filter(|(number, _)| *number > after)
            .filter_map(single)
            .collect()
    }
}

/// An event with all there is to know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberedEvent {
    /// Its number.
    pub number: u64,
    /// The execution it is about.
    pub execution_id: Option<ExecutionId>,
    /// Its tool.
    pub tool: Option<String>,
    /// Its caller.
    pub caller_uid: Option<u32>,
    /// When.
    pub time: SystemTime,
    /// Its type.
    pub kind: String,
    /// The rest.
    pub body: Map<String, Value>,
}

/// Which events to read.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Of this execution only.
    pub execution_id: Option<ExecutionId>,
    /// Of this tool only.
    pub tool: Option<String>,
    /// Of this user's executions only.
    pub caller_uid: Option<u32>,
    /// And of these types of everybody's.
    pub of_everybody: Vec<String>,
    /// Of these types only; empty for all.
    pub kinds: Vec<String>,
}

/// Some of the events that were asked for.
#[derive(Clone, Debug)]
pub struct EventPage {
    /// In their order.
    pub events: Vec<NumberedEvent>,
    /// The number up to which there are no others; the next page begins after it.
    pub through: u64,
    /// Whether there may be more.
    pub has_more: bool,
    /// The number of the first that is kept at all; those before it are forgotten.
    pub kept_from: u64,
}
