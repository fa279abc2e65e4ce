//! What is called by its name alone. Python's, and two of Jinja's for JSON.

use std::cmp::Ordering;
use std::io::{self, Write};

use serde_json::{Number, Value};

use super::budget::Budget;
use super::callable::{Callable, Function, kind, text_of, whole};
use super::measure::{ITEM_BYTES, TEXT_BYTES, cost, cost_of_json};
use super::node::Comparison;
use super::operators::{self, Numeric};

type Made = Result<Value, String>;

/// Every function there is.
#[rustfmt::skip]
static FUNCTIONS: &[Function] = &[
    Callable { name: "abs",      least: 1, most: 1, run: abs },
    Callable { name: "all",      least: 1, most: 1, run: all },
    Callable { name: "any",      least: 1, most: 1, run: any },
    Callable { name: "bool",     least: 0, most: 1, run: bool },
    Callable { name: "float",    least: 1, most: 1, run: float },
    Callable { name: "fromjson", least: 1, most: 1, run: fromjson },
    Callable { name: "int",      least: 1, most: 2, run: int },
    Callable { name: "len",      least: 1, most: 1, run: len },
    Callable { name: "max",      least: 1, most: usize::MAX, run: max },
    Callable { name: "min",      least: 1, most: usize::MAX, run: min },
    Callable { name: "quote",    least: 1, most: 1, run: quote },
    Callable { name: "round",    least: 1, most: 2, run: round },
    Callable { name: "sorted",   least: 1, most: 1, run: sorted },
    Callable { name: "str",      least: 0, most: 1, run: str },
    Callable { name: "sum",      least: 1, most: 1, run: sum },
    Callable { name: "tojson",   least: 1, most: 1, run: tojson },
];

/// The function of that name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// All names, for errors.
pub(super) fn names() -> String {
    let names: Vec<&str> = FUNCTIONS.iter().map(|function| function.name).collect();
    names.join(", ")
}

/// The text of a value, as `str()` and templates have it.
pub(super) fn to_text(value: &Value, budget: &mut Budget) -> Result<String, String> {
    let text = match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(real) => repr(real),
            None => number.to_string(),
        },
        Value::String(text) => {
            budget.make(TEXT_BYTES + text.len())?;
            return Ok(text.clone());
        }
        Value::Array(_) | Value::Object(_) => return json(value, budget),
    };
    budget.make(TEXT_BYTES + text.len())?;
    Ok(text)
}

/// A real number as Python shows it. Rust has the same digits, and an exponent for the same numbers, without a `+` and a
/// second digit.
fn repr(real: f64) -> String {
    let shown = format!("{real:?}");
    let Some((digits, exponent)) = shown.split_once('e') else {
        return shown;
    };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

/// The JSON of a value, paid for as it is written: escapes make it longer than the value.
fn json(value: &Value, budget: &mut Budget) -> Result<String, String> {
    struct Paid<'b>(Vec<u8>, &'b mut Budget);
    impl Write for Paid<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Twice: the buffer doubles as it grows.
            self.1.make(2 * bytes.len()).map_err(io::Error::other)?;
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    // Refuses what nests too deeply to be written.
    budget.work(cost(value)?)?;
    let mut paid = Paid(Vec::new(), budget);
    serde_json::to_writer(&mut paid, value).map_err(|error| error.to_string())?;
    String::from_utf8(paid.0).map_err(|error| error.to_string())
}

/// The items of what can be gone through.
pub(super) fn items<'v>(value: &'v Value, budget: &mut Budget) -> Result<&'v [Value], String> {
    budget.work(cost(value)?)?;
    let items = value.as_array().map(Vec::as_slice);
    items.ok_or_else(|| {
        format!(
            "{} has no items to go through: expected a list",
            kind(value)
        )
    })
}

fn abs(_: &(), args: &[&Value], _: &mut Budget) -> Made {
    match Numeric::of(args[0]) {
        Some(Numeric::Whole(whole)) => Numeric::Whole(whole.abs()).value(),
        Some(Numeric::Real(real)) => Numeric::Real(real.abs()).value(),
        None => Err(format!("abs() of {}: expected a number", kind(args[0]))),
    }
}

fn all(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    Ok(items(args[0], budget)?.iter().all(operators::truth).into())
}

fn any(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    Ok(items(args[0], budget)?.iter().any(operators::truth).into())
}

fn bool(_: &(), args: &[&Value], _: &mut Budget) -> Made {
    Ok(args
        .first()
        .is_some_and(|value| operators::truth(value))
        .into())
}

/// A number as Python reads it from text: blanks around it and single `_` between digits.
fn written(text: &str) -> String {
    let text = text.trim();
    let is_grouped = !text.starts_with('_') && !text.ends_with('_') && !text.contains("__");
    match is_grouped {
        true => text.replace('_', ""),
        false => String::new(),
    }
}

fn float(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    if let Value::String(text) = args[0] {
        budget.work(text.len())?;
        let real = written(text).parse::<f64>().ok();
        let number = real.and_then(Number::from_f64).map(Value::Number);
        return number.ok_or_else(|| "float() of a text that is no number".to_owned());
    }
    match Numeric::of(args[0]) {
        Some(number) => Numeric::Real(number.real()).value(),
        None => Err(format!(
            "float() of {}: expected a number or a text",
            kind(args[0])
        )),
    }
}

fn int(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    if let Value::String(text) = args[0] {
        budget.work(text.len())?;
        let base = args.get(1).map_or(Ok(10), |base| whole("the base", base))?;
        let base = u32::try_from(base)
            .ok()
            .filter(|base| (2..=36).contains(base));
        let base = base.ok_or("the base of int() is expected to be 2 to 36")?;
        let number = i128::from_str_radix(&written(text), base).ok();
        let number = number.ok_or("int() of a text that is no whole number")?;
        return Numeric::Whole(number).value();
    }
    if args.len() > 1 {
        return Err(format!(
            "int() of {} with a base: expected a text",
            kind(args[0])
        ));
    }
    match Numeric::of(args[0]) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "what does not fit is refused by value()"
        )]
        Some(Numeric::Real(real)) => Numeric::Whole(real.trunc() as i128).value(),
        Some(number @ Numeric::Whole(_)) => number.value(),
        None => Err(format!(
            "int() of {}: expected a number or a text",
            kind(args[0])
        )),
    }
}

fn len(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    let length = match args[0] {
        Value::String(text) => {
            budget.work(text.len())?;
            text.chars().count()
        }
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => {
            return Err(format!("{} has no length", kind(other)));
        }
    };
    Ok(length.into())
}

fn max(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    extreme(Comparison::Greater, args, budget)
}

fn min(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    extreme(Comparison::Less, args, budget)
}

/// The first of all arguments, or of the one list, to which no other stands so.
fn extreme(comparison: Comparison, args: &[&Value], budget: &mut Budget) -> Made {
    let mut best: Option<&Value> = None;
    let list;
    let candidates = match args {
        [only] => {
            list = items(only, budget)?.iter().collect::<Vec<_>>();
            &list[..]
        }
        several => several,
    };
    for candidate in candidates {
        let is_better = match best {
            None => true,
            Some(best) => operators::compare(comparison, (candidate, best), budget)?,
        };
        if is_better {
            best = Some(candidate);
        }
    }
    let best = best.ok_or("an empty list has no least or greatest item")?;
    budget.copy(best)
}

fn round(_: &(), args: &[&Value], _: &mut Budget) -> Made {
    let digits = args
        .get(1)
        .map(|digits| whole("the digits", digits))
        .transpose()?;
    match (Numeric::of(args[0]), digits) {
        (Some(number @ Numeric::Whole(_)), None | Some(0..)) => number.value(),
        (Some(number), None) => {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "what does not fit is refused by value()"
            )]
            let whole = number.real().round_ties_even() as i128;
            Numeric::Whole(whole).value()
        }
        // As it is written: 0.15 is a little less than it looks.
        (Some(number), Some(digits @ 0..=300)) => {
            let digits = usize::try_from(digits).unwrap_or_default();
            let rounded = format!("{:.digits$}", number.real()).parse();
            Numeric::Real(rounded.unwrap_or(f64::NAN)).value()
        }
        (Some(_), Some(_)) => Err("round() is expected to keep 0 to 300 digits".to_owned()),
        (None, _) => Err(format!("round() of {}: expected a number", kind(args[0]))),
    }
}

fn sorted(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    let list: Vec<&Value> = items(args[0], budget)?.iter().collect();
    budget.make(cost(args[0])?)?;
    let sorted = merge_sort(&list, budget)?;
    Ok(Value::Array(sorted.into_iter().cloned().collect()))
}

/// Sorts, and keeps the order of equals. `sort_by` may panic where a comparison fails, for what it is told then is no
/// order of the whole.
fn merge_sort<'v>(list: &[&'v Value], budget: &mut Budget) -> Result<Vec<&'v Value>, String> {
    if list.len() < 2 {
        return Ok(list.to_vec());
    }
    let (first, second) = list.split_at(list.len() / 2);
    let (first, second) = (merge_sort(first, budget)?, merge_sort(second, budget)?);
    let mut is_before = |a: &Value, b: &Value| {
        let order = operators::order(Comparison::Less, a, b, budget)?;
        Ok::<bool, String>(order == Ordering::Less)
    };
    // A list that is in order already is compared once from end to end.
    if let (Some(last), Some(next)) = (first.last(), second.first())
        && !is_before(next, last)?
    {
        return Ok([first, second].concat());
    }
    let mut merged = Vec::with_capacity(list.len());
    let (mut first, mut second) = (first.as_slice(), second.as_slice());
    while let ([a, rest_a @ ..], [b, rest_b @ ..]) = (first, second) {
        if is_before(b, a)? {
            merged.push(*b);
            second = rest_b;
        } else {
            merged.push(*a);
            first = rest_a;
        }
    }
    merged.extend(first);
    merged.extend(second);
    Ok(merged)
}

fn str(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    let text = args
        .first()
        .map(|value| to_text(value, budget))
        .transpose()?;
    Ok(Value::String(text.unwrap_or_default()))
}

/// As `shlex.quote` does: one word of a shell command, whatever is in it.
fn quote(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    let text = to_text(args[0], budget)?;
    // Of a text of quotes each becomes five.
    budget.make(TEXT_BYTES + 5 * text.len())?;
    match shlex::try_quote(&text) {
        Ok(quoted) => Ok(Value::String(quoted.into_owned())),
        Err(_) => Err("`quote` of text with a NUL character, which no command can hold".to_owned()),
    }
}

fn sum(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    let mut sum = Value::from(0);
    for item in items(args[0], budget)? {
        sum = operators::compute(super::node::Operator::Add, (&sum, item), budget)?;
    }
    Ok(sum)
}

fn fromjson(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    let text = text_of("what fromjson() reads", args[0])?;
    budget.work(text.len())?;
    budget.make(cost_of_json(text))?;
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("fromjson() of a text that is no JSON from its line {line}, column {column} on")
    })
}

fn tojson(_: &(), args: &[&Value], budget: &mut Budget) -> Made {
    budget.make(ITEM_BYTES)?;
    json(args[0], budget).map(Value::String)
}
