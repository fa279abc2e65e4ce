//! What reading a script may cost: some shapes take the parser time that doubles with each level of them, and
//! stack with each level of anything.

use brush_parser::Token;

use super::Unreadable;

/// The most openings of anything in one script: each may be a level of recursion, and the time
/// for some shapes grows with the square of it.
pub(super) const MAX_OPENINGS: usize = 400;

/// Steps that the parser may take, roughly. A token inside `n` constructs that are tried in
/// several ways is looked at up to 4^n times.
const MAX_STEPS: u64 = 400_000;

/// Refuses a text with more openings than may be.
pub(super) fn bound_openings(text: &str) -> Result<(), Unreadable> {
    let openings = text
        .bytes()
        .filter(|byte| matches!(byte, b'(' | b'{' | b'`'));
    let expressions = text.matches("$[").count();
    match openings.count() + expressions > MAX_OPENINGS {
        true => Err(Unreadable::TooDeep),
        false => Ok(()),
    }
}

/// Refuses tokens that the parser could take too long for.
pub(super) fn bound_parsing(tokens: &[Token]) -> Result<(), Unreadable> {
    let mut cost = Cost::default();
    tokens.iter().try_for_each(|token| cost.add(token))
}

/// What is open, of which the parser tries several readings.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    Parenthesis,
    Case,
    /// Has no end of its own; nothing closes what stands before it either.
    Coprocess,
}

/// An upper bound of what the parser does with tokens. What may close something does so only
/// where it must, so that the bound is never too low.
#[derive(Default)]
struct Cost {
    open: Vec<Open>,
    keywords: usize,
    steps: u64,
    after_word: bool,
}

impl Cost {
    fn add(&mut self, token: &Token) -> Result<(), Unreadable> {
        let text = token.to_str();
        let is_word = matches!(token, Token::Word(..));
        match text {
            "(" | "<(" | ">(" if !is_word => self.open.push(Open::Parenthesis),
            ")" if !is_word && self.open.last() == Some(&Open::Parenthesis) => {
                self.open.pop();
            }
            "esac" if !self.after_word && self.open.last() == Some(&Open::Case) => {
                self.open.pop();
            }
            "case" => self.open.push(Open::Case),
            "coproc" => self.open.push(Open::Coprocess),
            "if" | "for" | "while" | "until" | "{" | "[[" | "function" | "!" | "elif" => {
                self.keywords += 1;
            }
            _ => {}
        }
        self.after_word = is_word;
        let branching = self.open.len().min(20);
        self.steps += 1 << (2 * branching);
        if self.steps > MAX_STEPS || self.keywords > MAX_OPENINGS {
            return Err(Unreadable::TooDeep);
        }
        Ok(())
    }
}
