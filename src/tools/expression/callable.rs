//! Functions and methods, as rows of tables.

use std::fmt;

use serde_json::Value;

use super::budget::Budget;

/// A row: a name, how many arguments it takes, and what it does with a subject and them.
pub(super) struct Callable<S: ?Sized> {
    pub name: &'static str,
    pub least: usize,
    pub most: usize,
    pub run: fn(&S, &[&Value], &mut Budget) -> Result<Value, String>,
}

/// What is called by its name alone: its subject is all its arguments.
pub(super) type Function = Callable<()>;

impl<S: ?Sized> fmt::Debug for Callable<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<S: ?Sized> Callable<S> {
    /// What is wrong with so many arguments.
    pub(super) fn check(&self, given: usize) -> Result<(), String> {
        let Self {
            name, least, most, ..
        } = self;
        if (*least..=*most).contains(&given) {
            return Ok(());
        }
        let expected = match (least, most) {
            (least, most) if least == most => least.to_string(),
            (least, &usize::MAX) => format!("at least {least}"),
            (least, most) => format!("{least} to {most}"),
        };
        Err(format!(
            "`{name}` is given {given} arguments: expected {expected}"
        ))
    }
}

/// The text that an argument is.
pub(super) fn text_of<'v>(what: &str, value: &'v Value) -> Result<&'v str, String> {
    let text = value.as_str();
    text.ok_or_else(|| format!("{what} is {}: expected a text", kind(value)))
}

/// The whole number that an argument is.
pub(super) fn whole(what: &str, value: &Value) -> Result<i64, String> {
    let number = match value {
        Value::Bool(bool) => Some(i64::from(*bool)),
        Value::Number(number) => number
            .as_i64()
            .or_else(|| number.is_u64().then_some(i64::MAX)),
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.ok_or_else(|| format!("{what} is {}: expected a whole number", kind(value)))
}

/// What a value is, in words: the value itself may be secret.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "None",
        Value::Bool(true) => "True",
        Value::Bool(false) => "False",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a dict",
    }
}
