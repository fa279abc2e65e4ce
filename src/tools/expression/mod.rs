//! Conditions and templates: Python's expressions over given values, without names of their own,
//! statements, imports or attributes of the machine. What is read is a tree, what it may make and
//! look at is counted (`budget.rs`), and what goes beyond is refused.
//!
//! As in Python: `and or not in is`, chained comparisons, `a if b else c`, arithmetic, slices,
//! lists, dicts, the functions and methods of `functions.rs`, `text.rs` and `containers.rs`. Else:
//! - numbers are JSON's: 64 bits, no NaN; tuples are lists; keys of dicts are text;
//! - `x.name` is the member `name` of `x`, and `str()` of a list or dict is JSON;
//! - members of dicts are in the order of their names, not in that in which they were put there;
//! - `true`, `false`, `none` and `null` are words for `True`, `False` and `None`;
//! - `quote(x)` makes one word of a shell command of `x`, as `shlex.quote` does;
//! - a text has no items: it is looked at by slices and methods, and `max`, `sorted` and `join` take lists;
//! - numbers may begin with zeros, and `round` takes places behind the point only;
//! - no keyword arguments, comprehensions, lambdas, f-strings or `%` on text.

mod budget;
mod callable;
mod containers;
mod evaluate;
mod functions;
mod lexer;
mod measure;
mod methods;
mod node;
mod operand;
mod operators;
mod parser;
mod scope;
mod template;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

pub use scope::{Saved, Scope, Values};
pub use template::Template;

use budget::Budget;
use node::Node;

/// The longest expression that is read, in bytes. A condition is a line; this is what a program
/// that writes one may come to, and bounds the tree that is made of it to some MiB.
pub const SOURCE_LIMIT: usize = 64 << 10;

/// How much of an expression an error repeats at the most.
const SHOWN_CHARS: usize = 60;

/// An expression, read once.
#[derive(Clone, Debug)]
pub struct Expression {
    source: String,
    /// The line of a longer text on which it begins, counted from 1.
    line: usize,
    root: Node,
    names: BTreeSet<String>,
}

impl Expression {
    /// Reads `source`.
    ///
    /// # Errors
    /// What is no expression, is too long or nests too deeply.
    pub fn parse(source: &str) -> Result<Self, ExpressionError> {
        if source.len() > SOURCE_LIMIT {
            let detail = format!(
                "the expression is {} bytes long: expected at most {SOURCE_LIMIT}",
                source.len()
            );
            return Err(Fault { at: 0, detail }.locate(source));
        }
        let (root, names) = parser::parse(source).map_err(|fault| fault.locate(source))?;
        Ok(Self {
            source: source.to_owned(),
            line: 1,
            root,
            names,
        })
    }

    /// The line on which it begins: of a template's text, else 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The names it wants from a scope.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// What it amounts to in `scope`.
    ///
    /// # Errors
    /// What cannot be done with these values, or takes more than it may.
    pub fn value(&self, scope: &dyn Scope) -> Result<Value, ExpressionError> {
        self.value_within(scope, &mut Budget::default())
    }

    /// Whether that is true as Python has it: not zero, empty, None or False.
    ///
    /// # Errors
    /// As for [`Self::value`].
    pub fn truth(&self, scope: &dyn Scope) -> Result<bool, ExpressionError> {
        self.value(scope).map(|value| operators::truth(&value))
    }

    fn value_within(
        &self,
        scope: &dyn Scope,
        budget: &mut Budget,
    ) -> Result<Value, ExpressionError> {
        evaluate::value(&self.root, scope, budget).map_err(|fault| {
            let error = fault.locate(&self.source);
            error.on_line(self.line)
        })
    }
}

/// What `check_condition` does: whether `condition` holds in `context`, and what it amounts to.
///
/// # Errors
/// What is no expression, or cannot be done with these values.
pub fn check(
    condition: &str,
    context: &Map<String, Value>,
) -> Result<(bool, Value), ExpressionError> {
    let value = Expression::parse(condition)?.value(context)?;
    Ok((operators::truth(&value), value))
}

/// Whether an expression can use `name` for a value.
pub fn is_name(name: &str) -> bool {
    lexer::is_name(name) && !parser::is_word(name) && functions::find(name).is_none()
}

/// What is wrong, and where. It repeats the expression, and never a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// Where in a template the expression stands (RFC 6901); empty for one by itself.
    pub pointer: String,
    /// The line of the expression, counted from 1.
    pub line: usize,
    /// The character of that line, counted from 1.
    pub column: usize,
    /// That line, cut.
    pub text: String,
    /// What is wrong and what was expected.
    pub detail: String,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line, column, text, ..
        } = self;
        write!(f, "{} (line {line}, column {column}", self.detail)?;
        if text.is_empty() {
            return f.write_str(")");
        }
        write!(f, " of `{text}`)")
    }
}

impl ExpressionError {
    /// The same in a text on whose line `first` the expression begins.
    fn on_line(mut self, first: usize) -> Self {
        self.line += first - 1;
        self
    }
}

impl std::error::Error for ExpressionError {}

/// An error before it is known which text it is in.
#[derive(Debug)]
struct Fault {
    /// The byte of the source.
    at: usize,
    detail: String,
}

impl Fault {
    fn locate(self, source: &str) -> ExpressionError {
        let at = source.floor_char_boundary(self.at);
        let start = source[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = source[start..].lines().next().unwrap_or_default();
        ExpressionError {
            pointer: String::new(),
            line: source[..at].matches('\n').count() + 1,
            column: source[start..at].chars().count() + 1,
            text: shown(line),
            detail: self.detail,
        }
    }
}

/// The characters of `text` that are in none of its texts in quotes, each with where it is.
fn outside_texts(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quote = None;
    let mut chars = text.char_indices();
    std::iter::from_fn(move || {
        while let Some((at, c)) = chars.next() {
            match (quote, c) {
                (Some(_), '\\') => drop(chars.next()),
                (Some(open), c) if open == c => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(c),
                (None, c) => return Some((at, c)),
            }
        }
        None
    })
}

/// What is shown of a line: of a long one no word and no text in quotes in part. Secrets are masked in errors later on,
/// and nobody would recognise what a cut leaves of one.
fn shown(line: &str) -> String {
    let Some((most, _)) = line.char_indices().nth(SHOWN_CHARS) else {
        return line.to_owned();
    };
    let shown = outside_texts(line).take_while(|(at, _)| *at <= most);
    let blanks = shown.filter(|(_, c)| c.is_whitespace());
    let end = blanks.last().map_or(0, |(at, _)| at);
    format!("{}…", &line[..end])
}
