//! Members of an object taken one by one, with everything that is wrong with them.

use std::collections::BTreeSet;
use std::time::Duration;

use semver::Version;
use serde_json::{Map, Value};

use super::document::{Fault, member};
use crate::domain::or_meant;

/// The longest time limit, in seconds: a week, as in the configuration.
const TIMEOUT_LIMIT: f64 = 604_800.0;

/// An object of which members are taken.
pub(super) struct Fields<'v> {
    pub pointer: String,
    members: &'v Map<String, Value>,
    taken: BTreeSet<&'static str>,
    pub faults: Vec<Fault>,
}

impl<'v> Fields<'v> {
    /// The members of `value`, which is at `pointer`.
    pub(super) fn of(pointer: &str, value: &'v Value) -> Result<Self, Fault> {
        let fault = || Fault {
            pointer: pointer.to_owned(),
            detail: "is no object".to_owned(),
        };
        Ok(Self {
            pointer: pointer.to_owned(),
            members: value.as_object().ok_or_else(fault)?,
            taken: BTreeSet::new(),
            faults: Vec::new(),
        })
    }

    /// Where a member is.
    pub(super) fn at(&self, name: &str) -> String {
        member(&self.pointer, name)
    }

    /// Something is wrong with a member.
    pub(super) fn wrong(&mut self, name: &str, detail: impl Into<String>) {
        let fault = Fault {
            pointer: self.at(name),
            detail: format!("`{name}` {}", detail.into()),
        };
        self.faults.push(fault);
    }

    /// Whether a member is that word; it is not taken.
    pub(super) fn says(&self, name: &str, word: &str) -> bool {
        self.members.get(name).and_then(Value::as_str) == Some(word)
    }

    /// A member that may be missing.
    pub(super) fn take(&mut self, name: &'static str) -> Option<&'v Value> {
        self.taken.insert(name);
        self.members.get(name)
    }

    /// A member that may not.
    pub(super) fn need(&mut self, name: &'static str) -> Option<&'v Value> {
        let value = self.take(name);
        if value.is_none() {
            self.wrong(name, "is missing");
        }
        value
    }

    /// A text with something in it, that may be missing.
    pub(super) fn text(&mut self, name: &'static str) -> Option<&'v str> {
        let value = self.take(name)?;
        self.as_text(name, value)
    }

    /// A text with something in it.
    pub(super) fn need_text(&mut self, name: &'static str) -> Option<&'v str> {
        let value = self.need(name)?;
        self.as_text(name, value)
    }

    fn as_text(&mut self, name: &str, value: &'v Value) -> Option<&'v str> {
        let text = value.as_str().filter(|text| !text.trim().is_empty());
        if text.is_none() {
            self.wrong(
                name,
                format!("is {}: expected a text that is not empty", shown(value)),
            );
        }
        text
    }

    /// One of some words; the first when it is missing.
    pub(super) fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let Some(value) = self.take(name) else {
            return choices.first().map(|(_, choice)| *choice);
        };
        let found = choices
            .iter()
            .find(|(word, _)| value.as_str() == Some(word));
        if found.is_none() {
            let words: Vec<String> = choices
                .iter()
                .map(|(word, _)| format!("{word:?}"))
                .collect();
            self.wrong(
                name,
                format!("is {}: expected {}", shown(value), words.join(" or ")),
            );
        }
        found.map(|(_, choice)| *choice)
    }

    pub(super) fn list(&mut self, name: &'static str) -> Option<&'v [Value]> {
        let value = self.take(name)?;
        if !value.is_array() {
            self.wrong(name, format!("is {}: expected a list", shown(value)));
        }
        value.as_array().map(Vec::as_slice)
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, name: &'static str) -> Option<Vec<String>> {
        let items = self.list(name)?;
        let texts: Option<Vec<String>> = items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect();
        if texts.is_none() {
            self.wrong(name, "holds other things than texts");
        }
        texts
    }

    /// A number within bounds, both included.
    pub(super) fn number(&mut self, name: &'static str, (least, most): (f64, f64)) -> Option<f64> {
        let value = self.take(name)?;
        let number = value
            .as_f64()
            .filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.wrong(
                name,
                format!(
                    "is {}: expected a number from {least} to {most}",
                    shown(value)
                ),
            );
        }
        number
    }

    /// A time limit, in seconds.
    pub(super) fn timeout(&mut self) -> Option<Duration> {
        let name = "timeout_secs";
        let value = self.take(name)?;
        let secs = value
            .as_f64()
            .filter(|secs| *secs > 0.0 && *secs <= TIMEOUT_LIMIT);
        if secs.is_none() {
            let detail = format!(
                "is {}: expected a number above 0, at most {TIMEOUT_LIMIT}",
                shown(value)
            );
            self.wrong(name, detail);
        }
        secs.map(Duration::from_secs_f64)
    }

    /// What a version says.
    pub(super) fn version(&mut self, name: &'static str, text: &str) -> Option<Version> {
        let version = Version::parse(text).ok();
        if version.is_none() {
            self.wrong(
                name,
                format!("is {text:?}: expected a version such as \"1.0.0\""),
            );
        }
        version
    }

    /// Everything wrong, what nobody took included. `what` is what the object is.
    pub(super) fn finish(mut self, what: &str) -> Vec<Fault> {
        let unknown: Vec<&String> = self
            .members
            .keys()
            .filter(|name| !self.taken.contains(name.as_str()))
            .collect();
        let expected: Vec<&str> = self.taken.iter().copied().collect();
        for name in unknown {
            let meant = or_meant(name, expected.iter().copied());
            let detail = format!(
                "is no member of {what}{meant}: expected {}",
                expected.join(", ")
            );
            self.wrong(name, detail);
        }
        self.faults
    }
}

/// A value as an error repeats it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) if text.len() > 60 => "a long text".to_owned(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
