//! What the signs between values do: Python's rules for numbers, texts, lists and dicts.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::budget::Budget;
use super::callable::kind;
use super::measure::{ITEM_BYTES, MEMBER_BYTES, OBJECT_BYTES, TEXT_BYTES, check_depth, cost};
use super::node::{Comparison, Operator};

/// A number to compute with: wide enough for what two whole ones of 64 bits come to.
#[derive(Clone, Copy)]
pub(super) enum Numeric {
    Whole(i128),
    Real(f64),
}

impl Numeric {
    /// The number that `value` is; True is 1.
    pub(super) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(bool) => Some(Self::Whole(i128::from(*bool))),
            Value::Number(number) => Some(match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => Self::Whole(i128::from(whole)),
                (None, Some(whole)) => Self::Whole(i128::from(whole)),
                (None, None) => Self::Real(number.as_f64().unwrap_or(f64::NAN)),
            }),
            Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    pub(super) fn real(self) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "as Python does")]
            Self::Whole(whole) => whole as f64,
            Self::Real(real) => real,
        }
    }

    pub(super) fn value(self) -> Result<Value, String> {
        match self {
            Self::Whole(whole) => {
                let number = i64::try_from(whole).map(Number::from);
                let number = number.or_else(|_| u64::try_from(whole).map(Number::from));
                let number = number.map_err(|_| "the number is beyond 64 bits".to_owned());
                number.map(Value::Number)
            }
            Self::Real(real) => {
                let number = Number::from_f64(real).map(Value::Number);
                number.ok_or_else(|| "the number is infinite or none".to_owned())
            }
        }
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a.cmp(&b),
            (Self::Whole(a), Self::Real(b)) => whole_to_real(a, b),
            (Self::Real(a), Self::Whole(b)) => whole_to_real(b, a).reverse(),
            (Self::Real(a), Self::Real(b)) => of_reals(a, b),
        }
    }
}

/// To the last digit, as Python compares: beyond 53 bits a whole number has neighbours that are the
/// same as a real one.
fn whole_to_real(whole: i128, real: f64) -> Ordering {
    // Saturates beyond 128 bits, where no whole number is.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the fraction is compared behind it"
    )]
    let truncated = real.trunc() as i128;
    whole
        .cmp(&truncated)
        .then_with(|| of_reals(0.0, real.fract()))
}

/// Neither is NaN: JSON has none.
fn of_reals(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

/// Whether it counts as true.
pub(super) fn truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(bool) => *bool,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

pub(super) fn negate(value: &Value) -> Result<Value, String> {
    match Numeric::of(value) {
        Some(Numeric::Whole(whole)) => Numeric::Whole(-whole).value(),
        Some(Numeric::Real(real)) => Numeric::Real(-real).value(),
        None => Err(format!("{} cannot be negated", kind(value))),
    }
}

/// `+value`.
pub(super) fn keep_sign(value: &Value) -> Result<Value, String> {
    match Numeric::of(value) {
        Some(number) => number.value(),
        None => Err(format!("{} has no sign", kind(value))),
    }
}

/// `left operator right`.
pub(super) fn compute(
    operator: Operator,
    (left, right): (&Value, &Value),
    budget: &mut Budget,
) -> Result<Value, String> {
    if let (Some(a), Some(b)) = (Numeric::of(left), Numeric::of(right)) {
        return arithmetic(operator, a, b)?.value();
    }
    match (operator, left, right) {
        (Operator::Add, Value::String(a), Value::String(b)) => {
            budget.make(TEXT_BYTES + a.len() + b.len())?;
            Ok(Value::String(format!("{a}{b}")))
        }
        (Operator::Add, Value::Array(a), Value::Array(b)) => {
            budget.make(cost(left)?.saturating_add(cost(right)?))?;
            Ok(Value::Array(a.iter().chain(b).cloned().collect()))
        }
        (Operator::Multiply, repeated @ (Value::String(_) | Value::Array(_)), count)
        | (Operator::Multiply, count, repeated @ (Value::String(_) | Value::Array(_)))
            if matches!(Numeric::of(count), Some(Numeric::Whole(_))) =>
        {
            repeat(repeated, count, budget)
        }
        (Operator::Add, Value::String(_), _) | (Operator::Add, _, Value::String(_)) => {
            Err(format!(
                "`+` does not go with {} and {}: expected two texts, as of `str(x)`",
                kind(left),
                kind(right)
            ))
        }
        _ => Err(format!(
            "`{}` does not go with {} and {}",
            operator.sign(),
            kind(left),
            kind(right)
        )),
    }
}

fn repeat(value: &Value, count: &Value, budget: &mut Budget) -> Result<Value, String> {
    let count = match Numeric::of(count) {
        Some(Numeric::Whole(count)) => usize::try_from(count.max(0)).unwrap_or(usize::MAX),
        Some(Numeric::Real(_)) | None => 0,
    };
    budget.make(
        cost(value)?
            .saturating_mul(count)
            .saturating_add(ITEM_BYTES),
    )?;
    Ok(match value {
        Value::String(text) => Value::String(text.repeat(count)),
        Value::Array(items) => {
            let all = std::iter::repeat_n(items, count).flatten();
            Value::Array(all.cloned().collect())
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            other.clone()
        }
    })
}

fn arithmetic(operator: Operator, left: Numeric, right: Numeric) -> Result<Numeric, String> {
    let is_division = matches!(
        operator,
        Operator::Divide | Operator::FloorDivide | Operator::Modulo
    );
    if is_division && right.real() == 0.0 {
        return Err("nothing can be divided by zero".to_owned());
    }
    let (Numeric::Whole(a), Numeric::Whole(b)) = (left, right) else {
        return Ok(Numeric::Real(real(operator, left.real(), right.real())));
    };
    let whole = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::FloorDivide => Some(floor_divide(a, b)),
        Operator::Modulo => Some(a - floor_divide(a, b) * b),
        Operator::Power if b >= 0 => power(a, b),
        Operator::Power if a == 0 => {
            return Err("nothing can be divided by zero".to_owned());
        }
        Operator::Divide | Operator::Power => {
            return Ok(Numeric::Real(real(operator, left.real(), right.real())));
        }
    };
    let whole = whole.ok_or_else(|| "the number is beyond 64 bits".to_owned());
    whole.map(Numeric::Whole)
}

/// Rounded down, as Python does. What 64 bits hold cannot overflow here.
fn floor_divide(a: i128, b: i128) -> i128 {
    let quotient = a / b;
    quotient - i128::from(a % b != 0 && (a < 0) != (b < 0))
}

fn power(base: i128, exponent: i128) -> Option<i128> {
    match base {
        0 | 1 => Some(if exponent == 0 { 1 } else { base }),
        -1 => Some(if exponent % 2 == 0 { 1 } else { -1 }),
        _ => base.checked_pow(u32::try_from(exponent).ok()?),
    }
}

fn real(operator: Operator, a: f64, b: f64) -> f64 {
    match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        Operator::FloorDivide => divide_with_rest(a, b).0,
        Operator::Modulo => divide_with_rest(a, b).1,
        Operator::Power => a.powf(b),
    }
}

/// The quotient rounded down and what is left, which has the sign of `b`, as Python has them: the rest is exact where the
/// quotient is not, so that the rest comes first.
fn divide_with_rest(a: f64, b: f64) -> (f64, f64) {
    let toward_zero = a % b;
    // All but a whole number already.
    let mut quotient = (a - toward_zero) / b;
    let rest = if toward_zero == 0.0 {
        0.0_f64.copysign(b)
    } else if (toward_zero < 0.0) == (b < 0.0) {
        toward_zero
    } else {
        quotient -= 1.0;
        toward_zero + b
    };
    let floor = if quotient == 0.0 {
        0.0_f64.copysign(a / b)
    } else if quotient - quotient.floor() > 0.5 {
        // It fell just short of the whole number that it is.
        quotient.floor() + 1.0
    } else {
        quotient.floor()
    };
    (floor, rest)
}

/// Whether `left comparison right` holds.
pub(super) fn compare(
    comparison: Comparison,
    (left, right): (&Value, &Value),
    budget: &mut Budget,
) -> Result<bool, String> {
    Ok(match comparison {
        Comparison::Equal => equal(left, right, budget)?,
        Comparison::Unequal => !equal(left, right, budget)?,
        Comparison::In => contains(left, right, budget)?,
        Comparison::NotIn => !contains(left, right, budget)?,
        // The right one is None, True or False.
        Comparison::Is => left == right,
        Comparison::IsNot => left != right,
        Comparison::Less => order(comparison, left, right, budget)?.is_lt(),
        Comparison::AtMost => order(comparison, left, right, budget)?.is_le(),
        Comparison::Greater => order(comparison, left, right, budget)?.is_gt(),
        Comparison::AtLeast => order(comparison, left, right, budget)?.is_ge(),
    })
}

/// Equality as Python has it: 1, 1.0 and True are equal, a text and a number never.
pub(super) fn equal(left: &Value, right: &Value, budget: &mut Budget) -> Result<bool, String> {
    budget.work(0)?;
    same(left, right, 0, budget)
}

/// Pays for what it looks at, which ends with the first difference. To measure both beforehand would be work that
/// nobody pays for, once for each item of a list that is searched.
fn same(left: &Value, right: &Value, depth: usize, budget: &mut Budget) -> Result<bool, String> {
    check_depth(depth)?;
    match (left, right) {
        (Value::Array(a), Value::Array(b)) => {
            budget.look(TEXT_BYTES)?;
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b) {
                if !same(a, b, depth + 1, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Object(a), Value::Object(b)) => {
            budget.look(OBJECT_BYTES)?;
            if a.len() != b.len() {
                return Ok(false);
            }
            for (name, a) in a {
                budget.look(MEMBER_BYTES + name.len())?;
                let Some(b) = b.get(name) else {
                    return Ok(false);
                };
                if !same(a, b, depth + 1, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::String(a), Value::String(b)) => {
            budget.look(TEXT_BYTES + a.len().min(b.len()))?;
            Ok(a == b)
        }
        (left, right) => {
            budget.look(ITEM_BYTES)?;
            Ok(match (Numeric::of(left), Numeric::of(right)) {
                (Some(a), Some(b)) => a.compare(b).is_eq(),
                _ => left == right,
            })
        }
    }
}

fn contains(part: &Value, whole: &Value, budget: &mut Budget) -> Result<bool, String> {
    match (whole, part) {
        (Value::String(text), Value::String(part)) => {
            budget.work(text.len())?;
            Ok(memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some())
        }
        (Value::Array(items), part) => {
            budget.work(0)?;
            for item in items {
                if same(item, part, 1, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (Value::Object(members), Value::String(name)) => Ok(members.contains_key(name)),
        (whole, part) => Err(format!("{} cannot be in {}", kind(part), kind(whole))),
    }
}

/// How two values stand to each other.
pub(super) fn order(
    comparison: Comparison,
    left: &Value,
    right: &Value,
    budget: &mut Budget,
) -> Result<Ordering, String> {
    if let (Some(a), Some(b)) = (Numeric::of(left), Numeric::of(right)) {
        return Ok(a.compare(b));
    }
    match (left, right) {
        (Value::String(a), Value::String(b)) => {
            budget.work(a.len().min(b.len()))?;
            Ok(a.cmp(b))
        }
        (Value::Array(a), Value::Array(b)) => {
            budget.work(0)?;
            for (a, b) in a.iter().zip(b) {
                if !same(a, b, 1, budget)? {
                    return order(comparison, a, b, budget);
                }
            }
            Ok(a.len().cmp(&b.len()))
        }
        _ => Err(format!(
            "`{}` does not go with {} and {}: expected two numbers or two texts, as of `int(x)`",
            comparison.sign(),
            kind(left),
            kind(right)
        )),
    }
}
