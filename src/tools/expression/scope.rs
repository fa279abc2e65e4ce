//! Where names get their values from.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::measure::cost;

/// Values by name.
pub trait Scope {
    /// What `name` stands for, with the members it has besides.
    fn find(&self, name: &str) -> Option<(&Value, Option<&Map<String, Value>>)>;

    /// The names there are, in order.
    fn names(&self) -> Vec<&str>;
}

/// What a step left: a value to compute with, and members besides, so that
/// `output.strip()` and `output.return_code` both work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// What the name stands for.
    pub value: Value,
    /// What `name.member` finds when the value itself has no such member.
    pub members: Map<String, Value>,
}

impl From<Value> for Saved {
    fn from(value: Value) -> Self {
        Self {
            value,
            members: Map::new(),
        }
    }
}

impl Saved {
    fn bytes(&self) -> usize {
        let members = self.members.values().chain([&self.value]);
        // What nests too deep for an expression is none that one looks into.
        members.map(|value| cost(value).unwrap_or(0)).sum()
    }
}

/// Saved values by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    saved: BTreeMap<String, Saved>,
    bytes: usize,
}

impl Values {
    /// Keeps `saved` as `name`, in the place of what was there.
    pub fn insert(&mut self, name: impl Into<String>, saved: impl Into<Saved>) {
        let saved = saved.into();
        self.bytes += saved.bytes();
        let before = self.saved.insert(name.into(), saved);
        self.bytes -= before.map_or(0, |before| before.bytes());
    }

    /// How much memory they take, about, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is kept as `name`.
    pub fn get(&self, name: &str) -> Option<&Saved> {
        self.saved.get(name)
    }
}

impl Scope for Values {
    fn find(&self, name: &str) -> Option<(&Value, Option<&Map<String, Value>>)> {
        let saved = self.saved.get(name)?;
        Some((&saved.value, Some(&saved.members)))
    }

    fn names(&self) -> Vec<&str> {
        self.saved.keys().map(String::as_str).collect()
    }
}

impl Scope for Map<String, Value> {
    fn find(&self, name: &str) -> Option<(&Value, Option<&Map<String, Value>>)> {
        self.get(name).map(|value| (value, None))
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}
