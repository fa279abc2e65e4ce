//! Methods found by what they are called on, and slices.

use serde_json::Value;

use super::budget::Budget;
use super::callable::{Callable, kind};
use super::containers::{DICT, LIST};
use super::measure::TEXT_BYTES;
use super::text::TEXT;

/// What is wrong with a call of `name` with so many arguments, whatever it is called on.
pub(super) fn check(name: &str, given: usize) -> Result<(), String> {
    let rows = [
        TEXT.iter()
            .find(|row| row.name == name)
            .map(|row| row.check(given)),
        LIST.iter()
            .find(|row| row.name == name)
            .map(|row| row.check(given)),
        DICT.iter()
            .find(|row| row.name == name)
            .map(|row| row.check(given)),
    ];
    let checks: Vec<Result<(), String>> = rows.into_iter().flatten().collect();
    if checks.is_empty() {
        let mut names: Vec<&str> = TEXT.iter().map(|row| row.name).collect();
        names.extend(LIST.iter().map(|row| row.name));
        names.extend(DICT.iter().map(|row| row.name));
        names.sort_unstable();
        names.dedup();
        return Err(format!(
            "there is no method `{name}`: expected {}",
            names.join(", ")
        ));
    }
    // One kind of value that takes it so will do.
    checks.into_iter().reduce(Result::or).unwrap_or(Ok(()))
}

/// `subject.name(args)`.
pub(super) fn call(
    subject: &Value,
    name: &str,
    args: &[&Value],
    budget: &mut Budget,
) -> Result<Value, String> {
    let made = match subject {
        Value::String(text) => run(TEXT, text.as_str(), name, args, budget),
        Value::Array(items) => run(LIST, items.as_slice(), name, args, budget),
        Value::Object(members) => run(DICT, members, name, args, budget),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    };
    made.unwrap_or_else(|| Err(format!("{} has no method `{name}`", kind(subject))))
}

fn run<S: ?Sized>(
    table: &[Callable<S>],
    subject: &S,
    name: &str,
    args: &[&Value],
    budget: &mut Budget,
) -> Option<Result<Value, String>> {
    let row = table.iter().find(|row| row.name == name)?;
    let checked = row.check(args.len());
    Some(checked.and_then(|()| (row.run)(subject, args, budget)))
}

/// Where the item `index` is of so many; negative ones count from the end.
pub(super) fn position(index: i64, length: usize) -> Result<usize, String> {
    let from_end = || length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?);
    let at = match usize::try_from(index) {
        Ok(at) => Some(at),
        Err(_) => from_end(),
    };
    at.filter(|at| *at < length)
        .ok_or_else(|| format!("there is no item {index}: there are {length}"))
}

/// `value[start:stop:step]`.
pub(super) fn slice(
    value: &Value,
    bounds: [Option<i64>; 3],
    budget: &mut Budget,
) -> Result<Value, String> {
    match value {
        Value::String(text) => {
            budget.work(text.len())?;
            let picks = Picks::new(bounds, text.chars().count())?;
            if picks.step == 1 {
                let count = usize::try_from((picks.stop - picks.at).max(0)).unwrap_or_default();
                budget.make(TEXT_BYTES + text.len().min(count.saturating_mul(4)))?;
                let from = usize::try_from(picks.at).unwrap_or_default();
                return Ok(Value::String(text.chars().skip(from).take(count).collect()));
            }
            // Four bytes for each character while they are picked, and each once more.
            budget.make(TEXT_BYTES + text.len().saturating_mul(8))?;
            let chars: Vec<char> = text.chars().collect();
            Ok(Value::String(
                picks.filter_map(|at| chars.get(at)).collect(),
            ))
        }
        Value::Array(items) => {
            budget.make(TEXT_BYTES)?;
            let items = Picks::new(bounds, items.len())?.filter_map(|at| items.get(at));
            let copies: Result<_, _> = items.map(|item| budget.copy(item)).collect();
            copies.map(Value::Array)
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            Err(format!("{} has no items", kind(other)))
        }
    }
}

/// The places that a slice picks, as Python counts them.
struct Picks {
    at: i128,
    stop: i128,
    step: i128,
}

impl Picks {
    fn new([start, stop, step]: [Option<i64>; 3], length: usize) -> Result<Self, String> {
        let (length, step) = (length as i128, i128::from(step.unwrap_or(1)));
        if step == 0 {
            return Err("a slice cannot go on by zero".to_owned());
        }
        let (least, most) = if step > 0 {
            (0, length)
        } else {
            (-1, length - 1)
        };
        let bound = |bound: Option<i64>, default: i128| match bound.map(i128::from) {
            None => default,
            Some(bound) if bound < 0 => (bound + length).clamp(least, most),
            Some(bound) => bound.clamp(least, most),
        };
        let (first, last) = if step > 0 {
            (least, most)
        } else {
            (most, least)
        };
        Ok(Self {
            at: bound(start, first),
            stop: bound(stop, last),
            step,
        })
    }
}

impl Iterator for Picks {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let is_over = if self.step > 0 {
            self.at >= self.stop
        } else {
            self.at <= self.stop
        };
        if is_over {
            return None;
        }
        let at = usize::try_from(self.at).ok();
        self.at += self.step;
        at
    }
}
