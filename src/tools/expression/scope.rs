//! Where names get their values from.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

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

/// Saved values by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(BTreeMap<String, Saved>);

impl Values {
    /// Keeps `saved` as `name`, in the place of what was there.
    pub fn insert(&mut self, name: impl Into<String>, saved: impl Into<Saved>) {
        self.0.insert(name.into(), saved.into());
    }

    /// What is kept as `name`.
    pub fn get(&self, name: &str) -> Option<&Saved> {
        self.0.get(name)
    }
}

impl Scope for Values {
    fn find(&self, name: &str) -> Option<(&Value, Option<&Map<String, Value>>)> {
        let saved = self.0.get(name)?;
        Some((&saved.value, Some(&saved.members)))
    }

    fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
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
