//! JSON values with expressions in their texts: `{{ … }}`. A text that is one expression and
//! nothing else stands for its value, of whatever type; any other takes the texts of its
//! expressions in, as `str()` makes them. `{{ '{{' }}` writes two braces.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::budget::Budget;
use super::functions::to_text;
use super::measure::{self, ITEM_BYTES, MEMBER_BYTES, OBJECT_BYTES, TEXT_BYTES};
use super::{Expression, ExpressionError, Fault, Scope, outside_texts};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// A JSON value with expressions in it, read once.
#[derive(Clone, Debug)]
pub struct Template(Part);

#[derive(Clone, Debug)]
enum Part {
    Constant(Value),
    Whole(Expression),
    Text(Vec<Piece>),
    List(Vec<Part>),
    Object(Vec<(String, Part)>),
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Value(Expression),
}

impl Template {
    /// Reads the texts of `value`. The names of members are as they are.
    ///
    /// # Errors
    /// Everything in it that is no expression, by pointer.
    pub fn parse(value: &Value) -> Result<Self, Vec<ExpressionError>> {
        // Refuses what nests too deeply to be gone through.
        let root = Place::default();
        measure::cost(value).map_err(|detail| vec![unlocated(detail, &root)])?;
        let mut errors = Vec::new();
        let part = read(value, &mut Place::default(), &mut errors);
        if errors.is_empty() {
            Ok(Self(part))
        } else {
            Err(errors)
        }
    }

    /// A template of one text.
    ///
    /// # Errors
    /// The first thing in it that is no expression.
    pub fn text(text: &str) -> Result<Self, ExpressionError> {
        read_text(text).map(Self)
    }

    /// The value with the values of its expressions, all together within the bounds of one.
    ///
    /// # Errors
    /// The first expression that has none, by pointer.
    pub fn render(&self, scope: &dyn Scope) -> Result<Value, ExpressionError> {
        let mut budget = Budget::default();
        let mut place = Place::default();
        let value = render(&self.0, scope, &mut budget, &mut place)?;
        measure::cost(&value).map_err(|detail| unlocated(detail, &Place::default()))?;
        Ok(value)
    }

    /// The value when there is no expression in it.
    pub fn constant(&self) -> Option<&Value> {
        match &self.0 {
            Part::Constant(value) => Some(value),
            Part::Whole(_) | Part::Text(_) | Part::List(_) | Part::Object(_) => None,
        }
    }

    /// The names that its expressions want from a scope.
    pub fn names(&self) -> BTreeSet<&str> {
        let expressions = self.expressions().into_iter();
        expressions
            .flat_map(|(_, expression)| expression.names())
            .map(String::as_str)
            .collect()
    }

    /// Its expressions, each with the pointer to the text it stands in.
    pub fn expressions(&self) -> Vec<(String, &Expression)> {
        let mut found = Vec::new();
        collect(&self.0, &mut Place::default(), &mut found);
        found
    }
}

/// Where in a value one is.
#[derive(Default)]
struct Place(Vec<String>);

impl Place {
    fn within<T>(&mut self, step: impl ToString, f: impl FnOnce(&mut Self) -> T) -> T {
        self.0.push(step.to_string());
        let result = f(self);
        self.0.pop();
        result
    }

    fn pointer(&self) -> String {
        let escape = |step: &String| format!("/{}", step.replace('~', "~0").replace('/', "~1"));
        self.0.iter().map(escape).collect()
    }

    fn of(&self, mut error: ExpressionError) -> ExpressionError {
        error.pointer = self.pointer();
        error
    }
}

fn unlocated(detail: String, place: &Place) -> ExpressionError {
    place.of(Fault { at: 0, detail }.locate(""))
}

fn read(value: &Value, place: &mut Place, errors: &mut Vec<ExpressionError>) -> Part {
    match value {
        Value::String(text) => read_text(text).unwrap_or_else(|error| {
            errors.push(place.of(error));
            Part::Constant(Value::Null)
        }),
        Value::Array(items) => {
            let read_item = |(at, item)| place.within(at, |place| read(item, place, errors));
            let parts: Vec<Part> = items.iter().enumerate().map(read_item).collect();
            if !parts.iter().all(Part::is_constant) {
                return Part::List(parts);
            }
            let constants = parts.into_iter().filter_map(Part::into_constant);
            Part::Constant(Value::Array(constants.collect()))
        }
        Value::Object(members) => {
            let read_member = |(name, member): (&String, &Value)| {
                let part = place.within(name, |place| read(member, place, errors));
                (name.clone(), part)
            };
            let parts: Vec<(String, Part)> = members.iter().map(read_member).collect();
            if !parts.iter().all(|(_, part)| part.is_constant()) {
                return Part::Object(parts);
            }
            let constants = parts.into_iter();
            let constants =
                constants.filter_map(|(name, part)| Some((name, part.into_constant()?)));
            Part::Constant(Value::Object(constants.collect()))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Part::Constant(value.clone()),
    }
}

impl Part {
    fn is_constant(&self) -> bool {
        matches!(self, Self::Constant(_))
    }

    fn into_constant(self) -> Option<Value> {
        match self {
            Self::Constant(value) => Some(value),
            Self::Whole(_) | Self::Text(_) | Self::List(_) | Self::Object(_) => None,
        }
    }
}

fn read_text(text: &str) -> Result<Part, ExpressionError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find(OPEN) {
        if open > 0 {
            pieces.push(Piece::Text(rest[..open].to_owned()));
        }
        let inside = &rest[open + OPEN.len()..];
        let close = closing(inside).ok_or_else(|| {
            let at = text.len() - inside.len() - OPEN.len();
            let detail = format!("`{OPEN}` has no end: expected `{CLOSE}` behind an expression");
            Fault { at, detail }.locate(text)
        })?;
        let line = text[..text.len() - inside.len()].matches('\n').count() + 1;
        let expression =
            Expression::parse(&inside[..close]).map_err(|error| error.on_line(line))?;
        pieces.push(Piece::Value(Expression { line, ..expression }));
        rest = &inside[close + CLOSE.len()..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    match pieces.len() {
        0 => return Ok(Part::Constant(Value::String(String::new()))),
        1 => {}
        _ => return Ok(Part::Text(pieces)),
    }
    Ok(match pieces.swap_remove(0) {
        Piece::Text(text) => Part::Constant(Value::String(text)),
        Piece::Value(expression) => Part::Whole(expression),
    })
}

/// Where the expression at the start of `text` ends: at braces that neither are in a text nor
/// close others.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in outside_texts(text) {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            '}' if text[at..].starts_with(CLOSE) => return Some(at),
            _ => {}
        }
    }
    None
}

fn render(
    part: &Part,
    scope: &dyn Scope,
    budget: &mut Budget,
    place: &mut Place,
) -> Result<Value, ExpressionError> {
    let pay =
        |paid: Result<(), String>, place: &Place| paid.map_err(|detail| unlocated(detail, place));
    match part {
        Part::Constant(value) => budget
            .copy(value)
            .map_err(|detail| unlocated(detail, place)),
        Part::Whole(expression) => expression
            .value_within(scope, budget)
            .map_err(|error| place.of(error)),
        Part::Text(pieces) => {
            let mut text = String::new();
            for piece in pieces {
                let made = match piece {
                    Piece::Text(text) => text.clone(),
                    Piece::Value(expression) => {
                        let value = expression.value_within(scope, budget);
                        let value = value.map_err(|error| place.of(error))?;
                        to_text(&value, budget).map_err(|detail| unlocated(detail, place))?
                    }
                };
                // Twice: the text doubles as it grows.
                pay(budget.make(TEXT_BYTES + 2 * made.len()), place)?;
                text.push_str(&made);
            }
            Ok(Value::String(text))
        }
        Part::List(parts) => {
            pay(budget.make(ITEM_BYTES * (1 + parts.len())), place)?;
            let items = parts.iter().enumerate();
            let items = items
                .map(|(at, part)| place.within(at, |place| render(part, scope, budget, place)));
            items.collect::<Result<_, _>>().map(Value::Array)
        }
        Part::Object(parts) => {
            pay(budget.make(OBJECT_BYTES), place)?;
            let mut members = Map::new();
            for (name, part) in parts {
                pay(budget.make(MEMBER_BYTES + name.len()), place)?;
                let value = place.within(name, |place| render(part, scope, budget, place))?;
                members.insert(name.clone(), value);
            }
            Ok(Value::Object(members))
        }
    }
}

fn collect<'t>(part: &'t Part, place: &mut Place, found: &mut Vec<(String, &'t Expression)>) {
    match part {
        Part::Constant(_) => {}
        Part::Whole(expression) => found.push((place.pointer(), expression)),
        Part::Text(pieces) => found.extend(pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Value(expression) => Some((place.pointer(), expression)),
        })),
        Part::List(parts) => {
            for (at, part) in parts.iter().enumerate() {
                place.within(at, |place| collect(part, place, found));
            }
        }
        Part::Object(parts) => {
            for (name, part) in parts {
                place.within(name, |place| collect(part, place, found));
            }
        }
    }
}
