//! An expression's text in pieces.

use serde_json::{Number, Value};

use super::Fault;

/// A piece, and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lexed {
    pub at: usize,
    pub token: Token,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name or a word of the language.
    Name(String),
    /// A number or a text.
    Literal(Value),
    Sign(&'static str),
    End,
}

/// The longer ones first.
const SIGNS: &[&str] = &[
    "**", "//", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]", "{",
    "}", ",", ":", ".", "|", "~", "=", "&", "^", "@", ";", "!", "?",
];

/// Cuts `source` into its pieces; the last is the end.
pub(super) fn lex(source: &str) -> Result<Vec<Lexed>, Fault> {
    let mut lexer = Lexer { source, at: 0 };
    let mut all = Vec::new();
    loop {
        let lexed = lexer.next()?;
        let is_end = lexed.token == Token::End;
        all.push(lexed);
        if is_end {
            return Ok(all);
        }
    }
}

/// Whether it is written as names are.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(begins_name) && text.chars().all(continues_name)
}

fn begins_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn continues_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    /// Takes characters as long as they are wanted.
    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn next(&mut self) -> Result<Lexed, Fault> {
        self.take(char::is_whitespace);
        let at = self.at;
        let token = match self.rest().chars().next() {
            None => Token::End,
            Some(quote @ ('"' | '\'')) => self.text(quote, Escapes::Read)?,
            Some(c) if c.is_ascii_digit() || self.begins_fraction() => self.number()?,
            Some(c) if begins_name(c) => {
                let name = self.take(continues_name);
                match self.rest().chars().next() {
                    Some(quote @ ('"' | '\'')) => self.prefixed(at, name, quote)?,
                    _ => Token::Name(name.to_owned()),
                }
            }
            Some(c) => {
                let sign = SIGNS.iter().find(|sign| self.rest().starts_with(**sign));
                let sign = sign.ok_or_else(|| Fault {
                    at,
                    detail: format!("{c:?} has no meaning here: expected an expression"),
                })?;
                self.at += sign.len();
                Token::Sign(sign)
            }
        };
        Ok(Lexed { at, token })
    }

    fn begins_fraction(&self) -> bool {
        let mut bytes = self.rest().bytes();
        bytes.next() == Some(b'.') && bytes.next().is_some_and(|byte| byte.is_ascii_digit())
    }

    fn number(&mut self) -> Result<Token, Fault> {
        let at = self.at;
        let mut text = self.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if !text.starts_with("0x")
            && text.ends_with(['e', 'E'])
            && self.rest().starts_with(['+', '-'])
        {
            self.at += 1;
            self.take(|c| c.is_ascii_digit() || c == '_');
            text = &self.source[at..self.at];
        }
        let digits = text.replace('_', "");
        let hexadecimal = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
        let number = match hexadecimal {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(Number::from),
            None => decimal(&digits),
        };
        let number = number.ok_or_else(|| Fault {
            at,
            detail: format!("`{text}` is no number of at most 64 bits"),
        })?;
        Ok(Token::Literal(Value::Number(number)))
    }

    /// A text with a letter before it, of which there is one.
    fn prefixed(&mut self, at: usize, prefix: &str, quote: char) -> Result<Token, Fault> {
        if prefix.eq_ignore_ascii_case("r") {
            return self.text(quote, Escapes::Keep);
        }
        let detail = format!(
            "a text with `{prefix}` before it is not known: expected `{quote}` or `r{quote}`"
        );
        Err(Fault { at, detail })
    }

    fn text(&mut self, quote: char, escapes: Escapes) -> Result<Token, Fault> {
        let begin = self.at;
        let mut text = String::new();
        let mut chars = self.source[begin + 1..].char_indices();
        while let Some((offset, c)) = chars.next() {
            let at = begin + 1 + offset;
            match c {
                c if c == quote => {
                    self.at = at + 1;
                    return Ok(Token::Literal(Value::String(text)));
                }
                '\\' => {
                    let Some((_, escaped)) = chars.next() else {
                        break;
                    };
                    match escapes {
                        Escapes::Keep => text.extend(['\\', escaped]),
                        Escapes::Read => {
                            unescape(escaped, &mut chars, &mut text).ok_or_else(|| {
                                let detail = format!("`\\{escaped}` stands for no character here");
                                Fault { at, detail }
                            })?
                        }
                    }
                }
                c => text.push(c),
            }
        }
        let detail = format!("the text has no end: expected {quote}");
        Err(Fault { at: begin, detail })
    }
}

#[derive(Clone, Copy)]
enum Escapes {
    Read,
    Keep,
}

/// Adds what stands after a backslash.
fn unescape(escaped: char, chars: &mut std::str::CharIndices<'_>, text: &mut String) -> Option<()> {
    let mut hexadecimal = |digits: usize| {
        let mut code = 0;
        for _ in 0..digits {
            code = code * 16 + chars.next()?.1.to_digit(16)?;
        }
        char::from_u32(code)
    };
    match escaped {
        '\n' => {}
        'n' => text.push('\n'),
        't' => text.push('\t'),
        'r' => text.push('\r'),
        '0' => text.push('\0'),
        'x' => text.push(hexadecimal(2)?),
        'u' => text.push(hexadecimal(4)?),
        'U' => text.push(hexadecimal(8)?),
        '\\' | '\'' | '"' => text.push(escaped),
        // As Python does.
        other => text.extend(['\\', other]),
    }
    Some(())
}

fn decimal(digits: &str) -> Option<Number> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return digits.parse::<u64>().ok().map(Number::from);
    }
    Number::from_f64(digits.parse().ok()?)
}
