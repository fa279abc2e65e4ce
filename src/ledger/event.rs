//! What happens, as it is told and kept.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::time::{from_micros, micros};
use crate::domain::{ExecutionId, JsonSink, Stage, nearest_micros};

/// What has happened, for those who listen: events that follow one another and are about the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// The execution they are about.
    pub execution_id: Option<ExecutionId>,
    /// Its tool.
    pub tool: Option<String>,
    /// Its caller.
    pub caller_uid: Option<u32>,
    /// What happened: at least one thing.
    #[serde(skip)]
    pub happened: Happened,
}

impl Events {
    /// What of them may be long, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.happened.things.len() + self.tool.as_ref().map_or(0, String::len)
    }

    /// What happened to one execution and then happened further, as one.
    pub(super) fn joined(first: Option<Self>, then: Option<Self>) -> Option<Self> {
        match (first, then) {
            (Some(mut first), Some(then)) => {
                first.happened.append(&then.happened);
                Some(first)
            }
            (first, then) => first.or(then),
        }
    }

    /// Without the first ones, so many. There has to be an end behind them.
    pub(super) fn behind(mut self, first: usize) -> Self {
        self.happened = self.happened.behind(first);
        self
    }
}

/// Things that have happened, one after another, in the text that is kept of them: an array of arrays, the
/// first of each the microseconds since 1970. An execution has some fourteen; each is written once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Happened {
    count: u64,
    /// The array without its brackets.
    things: Vec<u8>,
}

/// A thing in the array. Of an execution's, twelve say that a stage was entered or left: numbers, for in
/// words they would be most of what is kept of it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kept {
    /// A stage's number, and how long it took in microseconds.
    Left(i64, u8, u64),
    /// A stage's number.
    Entered(i64, u8),
    /// Anything else.
    Told(i64, Map<String, Value>),
}

impl Kept {
    /// When it was, and what it was as it goes over the wire.
    fn told(self) -> (i64, Value) {
        match self {
            Self::Told(time, body) => (time, Value::Object(body)),
            Self::Entered(time, stage) => {
                let stage = Stage::from_number(stage);
                (time, json!({"type": "stageStarted", "stage": stage}))
            }
            Self::Left(time, stage, took) => {
                let stage = Stage::from_number(stage);
                // Some exact thousandths: 53 bits are 285 years.
                let duration_ms = took as f64 / 1e3;
                (
                    time,
                    json!({"type": "stageCompleted", "stage": stage, "duration_ms": duration_ms}),
                )
            }
        }
    }
}

impl Happened {
    /// Adds something: an object whose `type` is the type as it goes over the wire, such as
    /// `executionStarted`. What has no JSON has not happened.
    pub fn push(&mut self, time: SystemTime, body: &impl Serialize) {
        self.add(&(micros(time), body));
    }

    /// Adds that a stage was entered: `stageStarted`.
    pub fn enter(&mut self, time: SystemTime, stage: Stage) {
        self.add_numbers(&[micros(time), stage.number().into()]);
    }

    /// Adds that a stage was left after so long, to the microsecond: `stageCompleted`.
    pub fn leave(&mut self, time: SystemTime, stage: Stage, took: Duration) {
        let took = i64::try_from(nearest_micros(took)).unwrap_or(i64::MAX);
        self.add_numbers(&[micros(time), stage.number().into(), took]);
    }

    fn add_numbers(&mut self, numbers: &[i64]) {
        self.make_room();
        let mut digits = itoa::Buffer::new();
        let mut before = b'[';
        for number in numbers {
            self.things.push(before);
            self.things
                .extend_from_slice(digits.format(*number).as_bytes());
            before = b',';
        }
        self.things.push(b']');
        self.count += 1;
    }

    fn add(&mut self, thing: &impl Serialize) {
        let before = self.things.len();
        self.make_room();
        match serde_json::to_writer(JsonSink(&mut self.things), thing) {
            Ok(()) => self.count += 1,
            Err(_) => self.things.truncate(before),
        }
    }

    /// For one more.
    fn make_room(&mut self) {
        /// About what an execution takes.
        const ROOM: usize = 512;
        if self.things.is_empty() {
            self.things.reserve(ROOM);
        } else {
            self.things.push(b',');
        }
    }

    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The array.
    pub(super) fn to_json(&self) -> String {
        let mut array = Vec::with_capacity(self.things.len() + 2);
        self.write_json(&mut array);
        String::from_utf8(array).unwrap_or_default()
    }

    /// Adds the array to a text.
    pub(super) fn write_json(&self, text: &mut Vec<u8>) {
        text.push(b'[');
        text.extend_from_slice(&self.things);
        text.push(b']');
    }

    /// What an array says; nothing if it is not one.
    pub(super) fn from_json(array: &[u8]) -> Self {
        let things: Vec<&RawValue> = serde_json::from_slice(array).unwrap_or_default();
        let text = array.trim_ascii().strip_prefix(b"[");
        let text = text.and_then(|text| text.strip_suffix(b"]"));
        Self {
            count: things.len() as u64,
            things: text
                .filter(|_| !things.is_empty())
                .map_or_else(Vec::new, <[u8]>::to_vec),
        }
    }

    /// All of them in their order; `None` for what a newer program may have put there.
    fn read(&self) -> Vec<Option<(i64, Value)>> {
        let array = self.to_json();
        let things: Vec<&RawValue> = serde_json::from_str(&array).unwrap_or_default();
        let things = things.into_iter();
        things
            .map(|thing| serde_json::from_str(thing.get()).ok().map(Kept::told))
            .collect()
    }

    /// Without the first ones.
    fn behind(&self, first: usize) -> Self {
        let array = self.to_json();
        let things: Vec<&RawValue> = serde_json::from_str(&array).unwrap_or_default();
        let mut left = Self::default();
        for thing in things.into_iter().skip(first) {
            left.add(&thing);
        }
        left
    }

    fn append(&mut self, then: &Self) {
        if !self.is_empty() && !then.is_empty() {
            self.things.push(b',');
        }
        self.things.extend_from_slice(&then.things);
        self.count += then.count;
    }
}

/// From single events, in the order in which they happened.
impl<T: Serialize> FromIterator<(SystemTime, T)> for Happened {
    fn from_iter<I: IntoIterator<Item = (SystemTime, T)>>(things: I) -> Self {
        let mut happened = Self::default();
        for (time, body) in things {
            happened.push(time, &body);
        }
        happened
    }
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
        self.first + self.events.happened.count.saturating_sub(1)
    }

    /// Those after a number that a filter lets through, one by one.
    pub fn pick(&self, after: u64, filter: &EventFilter) -> Vec<NumberedEvent> {
        let Events {
            execution_id,
            tool,
            caller_uid,
            happened,
        } = &self.events;
        let is_asked = filter
            .execution_id
            .is_none_or(|id| *execution_id == Some(id))
            && (filter.tool.is_none() || filter.tool == *tool);
        let is_own = filter.caller_uid.is_none_or(|uid| *caller_uid == Some(uid));
        if !is_asked || (!is_own && filter.of_everybody.is_empty()) {
            return Vec::new();
        }
        let single = |(number, thing): (u64, Option<(i64, Value)>)| {
            let Some((time, Value::Object(mut body))) = thing else {
                return None;
            };
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
                time: from_micros(time),
                kind,
                body,
            })
        };
        (self.first..)
            .zip(happened.read())
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::*;

    fn happened(numbers: &[u64]) -> Happened {
        let body = |number: &u64| (from_micros(7), json!({"type": "x", "number": number}));
        numbers.iter().map(body).collect()
    }

    #[test]
    fn what_is_added_is_an_array_however_it_was_added() {
        for (first, then) in [
            (&[][..], &[][..]),
            (&[1], &[]),
            (&[], &[2]),
            (&[1, 2], &[3, 4]),
        ] {
            let mut all = happened(first);
            all.append(&happened(then));
            let expected = happened(&[first, then].concat());
            assert_eq!(all, expected);
            assert_eq!(Happened::from_json(all.to_json().as_bytes()), expected);
            assert_eq!(all.read().len() as u64, all.count);
        }
    }

    #[test]
    fn stages_are_numbers_that_are_told_in_words() {
        let mut all = Happened::default();
        all.enter(from_micros(7), Stage::Permission);
        all.leave(
            from_micros(9),
            Stage::Permission,
            Duration::from_nanos(1_234_567),
        );
        assert_eq!(all.to_json(), "[[7,2],[9,2,1235]]");
        let told = [
            (7, json!({"type": "stageStarted", "stage": "permission"})),
            (
                9,
                json!({"type": "stageCompleted", "stage": "permission", "duration_ms": 1.235}),
            ),
        ];
        assert_eq!(all.read(), told.clone().map(Some));
        assert_eq!(Happened::from_json(all.to_json().as_bytes()), all);
        // As they were kept before version 7.
        let once: Happened = told
            .into_iter()
            .map(|(time, body)| (from_micros(time), body))
            .collect();
        assert_eq!(once.read(), all.read());
    }

    #[test]
    fn what_is_not_known_has_its_number_and_hides_nothing_else() {
        let events = NumberedEvents {
            first: 5,
            events: Events {
                execution_id: None,
                tool: None,
                caller_uid: None,
                happened: Happened::from_json(
                    br#"[1,[7,{"type":"x"}],[7,99,"y",{}],[8,{"type":"z"}]]"#,
                ),
            },
        };
        let picked = events.pick(0, &EventFilter::default()).into_iter();
        let picked: Vec<_> = picked.map(|event| (event.number, event.kind)).collect();
        assert_eq!(picked, [(6, "x".to_owned()), (8, "z".to_owned())]);
        assert_eq!(events.last(), 8);
    }

    #[test]
    fn what_is_no_json_has_not_happened() {
        let mut one = happened(&[1]);
        one.push(from_micros(8), &HashMap::from([((1, 2), 3)]));
        assert_eq!(one, happened(&[1]));
        for text in ["", "[", "[[7,{}]", r#"[[7,{}],[8,{}"#] {
            assert!(Happened::from_json(text.as_bytes()).is_empty(), "{text}");
        }
    }
}
