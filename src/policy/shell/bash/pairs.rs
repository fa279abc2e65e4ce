//! Where what is opened by a sign ends.

use super::super::text::joined;
use super::words::inner;
use super::{MAX_LEVELS, Parser, Unreadable};

/// How something is closed that was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    open: char,
    close: char,
    /// Whether the first one that is not quoted closes it.
    first: bool,
    /// Whether what is expanded in it is parsed, and not only counted.
    expands: bool,
    /// Whether commands in it are.
    substitutes: bool,
}

pub(super) const PARENTHESES: Pair = Pair {
    open: '(',
    close: ')',
    first: false,
    expands: false,
    substitutes: false,
};
pub(super) const BRACKETS: Pair = Pair {
    open: '[',
    close: ']',
    ..PARENTHESES
};
pub(super) const SUBSCRIPT: Pair = Pair {
    expands: true,
    ..BRACKETS
};
pub(super) const BRACES: Pair = Pair {
    open: '{',
    close: '}',
    first: true,
    expands: true,
    substitutes: false,
};

impl<'a> Parser<'a> {
    /// Reads what may be arithmetic to the end of the pair, whose sign was read, and answers what stands before that. Of
    /// commands in it some versions of bash look for the end, others count their signs.
    pub(super) fn expression(&mut self, pair: Pair) -> Result<&'a str, Unreadable> {
        let start = self.source.at();
        self.pair(pair)?;
        let expression = self.source.since(start);
        if joined(expression).contains("$(") {
            let end = self.source.at();
            self.source.go_to(start);
            let parsed = self.pair(Pair {
                substitutes: true,
                ..pair
            });
            match parsed {
                Ok(()) if self.source.at() == end => {}
                Ok(()) | Err(Unreadable::Grammar) => return Err(Unreadable::Ambiguous),
                Err(unreadable) => return Err(unreadable),
            }
        }
        let expression = inner(expression, "", pair.close);
        self.has_shift |= expression.contains("<<");
        // Some take that for a comment where it stands in quotes.
        let mut signs = expression.match_indices('#');
        match signs.any(|(at, _)| {
            expression[..at].is_empty() || expression[..at].ends_with([' ', '\t', '\n'])
        }) {
            true => Err(Unreadable::Ambiguous),
            false => Ok(expression),
        }
    }

    /// Looks at a text that bash has looked through for the end of an expression, and reads again because it is none: what
    /// was quoted in some way is written otherwise by then, and the lines of here-documents are others.
    pub(super) fn read_again(&self, text: &str) -> Result<(), Unreadable> {
        let signs = ["$'", "$\"", "<<", "#"];
        let joined = joined(text);
        let is_other = signs.iter().any(|sign| joined.contains(sign));
        match is_other || !self.pending.is_empty() && text.contains('\n') {
            true => Err(Unreadable::Ambiguous),
            false => Ok(()),
        }
    }

    /// Reads to the end of what was opened, whose sign was read.
    pub(super) fn pair(&mut self, pair: Pair) -> Result<(), Unreadable> {
        self.deeper(|parser| parser.pair_here(pair))
    }

    fn pair_here(&mut self, pair: Pair) -> Result<(), Unreadable> {
        let mut open = 1_usize;
        let (mut behind_dollar, mut behind_angle) = (false, false);
        while let Some(c) = self.source.next() {
            self.source.bound()?;
            if c == pair.close {
                open -= 1;
            } else if c == pair.open && !pair.first {
                open += 1;
            }
            if open == 0 {
                return Ok(());
            }
            if open > MAX_LEVELS {
                return Err(Unreadable::TooDeep);
            }
            match c {
                '\\' => drop(self.source.next_raw()),
                '\'' => drop(self.single(behind_dollar)?),
                '"' | '`' => self.quotes(c)?,
                '(' if pair.expands && (behind_dollar || behind_angle)
                    || pair.substitutes && behind_dollar =>
                {
                    // It was counted.
                    open -= usize::from(pair.open == '(');
                    self.substitution()?;
                }
                '{' if pair.expands && behind_dollar => self.pair(BRACES)?,
                '[' if pair.expands && behind_dollar => {
                    // It was counted.
                    open -= usize::from(pair.open == '[');
                    self.pair(BRACKETS)?;
                }
                _ => {}
            }
            behind_angle = matches!(c, '<' | '>') && !behind_angle;
            behind_dollar = c == '$' && !behind_dollar;
        }
        Err(Unreadable::Grammar)
    }

    /// Reads to the end of what `quote` has begun, in something else that is only looked through.
    pub(super) fn quotes(&mut self, quote: char) -> Result<(), Unreadable> {
        self.deeper(|parser| parser.quotes_here(quote))
    }

    fn quotes_here(&mut self, quote: char) -> Result<(), Unreadable> {
        let mut behind_dollar = false;
        while let Some(c) = self.source.next() {
            self.source.bound()?;
            match c {
                c if c == quote => return Ok(()),
                '\\' => drop(self.source.next_raw()),
                _ if quote == '`' => {}
                '`' => self.quotes('`')?,
                '(' if behind_dollar => drop(self.substitution()?),
                '{' if behind_dollar => self.pair(BRACES)?,
                '[' if behind_dollar => self.pair(BRACKETS)?,
                _ => {}
            }
            behind_dollar = c == '$' && !behind_dollar;
        }
        Err(Unreadable::Grammar)
    }

    /// Reads the expression of `((`, which was read. `None` where that is two subshells.
    pub(super) fn arithmetic(&mut self) -> Result<Option<&'a str>, Unreadable> {
        let expression = self.expression(PARENTHESES)?;
        let is_closed = self.source.peek_raw() == Some(')');
        if is_closed {
            self.source.next();
        }
        Ok(is_closed.then_some(expression))
    }
}

/// The expression where what stands in `$(…)` is one: its first parenthesis is closed by the last.
///
/// # Errors
/// When that depends on what is quoted and expanded.
pub(super) fn arithmetic(inside: &str) -> Result<Option<&str>, Unreadable> {
    let expression = inside
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'));
    let Some(expression) = expression else {
        return Ok(None);
    };
    let balances = is_balanced(unquoted(expression, true));
    // What is expanded in double quotes has parentheses of its own.
    let expands = expression.contains('"') && expression.contains(['$', '`']);
    match expands && balances != is_balanced(unquoted(expression, false)) {
        true => Err(Unreadable::Ambiguous),
        false => Ok(balances.then_some(expression)),
    }
}

/// Whether each parenthesis that is closed was open, and none is left open.
fn is_balanced(mut text: impl Iterator<Item = char>) -> bool {
    let open = text.try_fold(0_usize, |open, c| match c {
        '(' => Some(open + 1),
        ')' => open.checked_sub(1),
        _ => Some(open),
    });
    open == Some(0)
}

/// The characters that are neither escaped nor in single quotes, nor in double ones where those `count`.
fn unquoted(text: &str, count: bool) -> impl Iterator<Item = char> {
    let mut chars = text.chars();
    std::iter::from_fn(move || {
        loop {
            match chars.next()? {
                '\\' => drop(chars.next()),
                '\'' => drop(chars.find(|c| *c == '\'')),
                '"' if count => while !matches!(chars.next(), Some('"') | None) {},
                c => return Some(c),
            }
        }
    })
}
