//! Pieces to a tree, with Python's ranks. Everything it comes to is known here, so that a wrong
//! function or method is found when an expression is read and not when it is needed.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Fault;
use super::lexer::{Lexed, Token, lex};
use super::node::{Choice, Comparison, Kind, Node, Operator};

/// How deeply an expression may nest: nobody reads more, and a level takes some KiB of stack.
const DEPTH_LIMIT: usize = 64;

/// Words that are no names.
const WORDS: &[&str] = &[
    "and", "or", "not", "in", "is", "if", "else", "True", "False", "None", "true", "false", "none",
    "null", "for", "lambda", "await", "yield", "import", "from", "as", "with", "async",
];

pub(super) type Read<T> = Result<T, Fault>;

/// Whether `name` is a word of the language.
pub(super) fn is_word(name: &str) -> bool {
    WORDS.contains(&name)
}

/// The tree of `source` and the names it wants.
pub(super) fn parse(source: &str) -> Read<(Node, BTreeSet<String>)> {
    let mut parser = Parser {
        pieces: lex(source)?,
        next: 0,
        depth: 0,
        names: BTreeSet::new(),
    };
    let root = parser.expression()?;
    match parser.token() {
        Token::End => Ok((root, parser.names)),
        Token::Name(_) | Token::Literal(_) | Token::Sign(_) => {
            Err(parser.unexpected("an operator or the end"))
        }
    }
}

pub(super) struct Parser {
    pieces: Vec<Lexed>,
    next: usize,
    depth: usize,
    pub(super) names: BTreeSet<String>,
}

impl Parser {
    pub(super) fn token(&self) -> &Token {
        &self.pieces[self.next].token
    }

    pub(super) fn at(&self) -> usize {
        self.pieces[self.next].at
    }

    /// Goes on; never beyond the end.
    pub(super) fn advance(&mut self) -> Token {
        let piece = &mut self.pieces[self.next];
        if piece.token == Token::End {
            return Token::End;
        }
        self.next += 1;
        std::mem::replace(&mut piece.token, Token::End)
    }

    pub(super) fn sees(&self, sign: &str) -> bool {
        matches!(self.token(), Token::Sign(seen) if *seen == sign)
    }

    fn sees_word(&self, word: &str) -> bool {
        matches!(self.token(), Token::Name(seen) if seen == word)
    }

    pub(super) fn takes(&mut self, sign: &str) -> bool {
        let sees = self.sees(sign);
        self.next += usize::from(sees);
        sees
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let sees = self.sees_word(word);
        self.next += usize::from(sees);
        sees
    }

    pub(super) fn expect(&mut self, sign: &str) -> Read<()> {
        if self.takes(sign) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{sign}`")))
    }

    pub(super) fn unexpected(&self, expected: &str) -> Fault {
        let found = match self.token() {
            Token::Name(name) => format!("`{name}`"),
            Token::Literal(Value::String(_)) => "a text".to_owned(),
            Token::Literal(_) => "a number".to_owned(),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end".to_owned(),
        };
        let hint = match self.token() {
            Token::Sign("|") => ": there are no filters, write `x.strip()` for `x | trim`",
            Token::Sign("~") => ": texts are joined with `+`",
            Token::Sign("=") => ": values are compared with `==`",
            Token::Name(_) | Token::Literal(_) | Token::Sign(_) | Token::End => "",
        };
        Fault {
            at: self.at(),
            detail: format!("found {found}, expected {expected}{hint}"),
        }
    }

    /// Reads something one level deeper.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth == DEPTH_LIMIT {
            let detail = format!("the expression nests more than {DEPTH_LIMIT} levels deep");
            return Err(Fault {
                at: self.at(),
                detail,
            });
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    pub(super) fn expression(&mut self) -> Read<Node> {
        self.deeper(|parser| {
            let then = parser.or()?;
            if !parser.takes_word("if") {
                return Ok(then);
            }
            let test = parser.or()?;
            if !parser.takes_word("else") {
                return Err(parser.unexpected("`else`"));
            }
            let otherwise = parser.expression()?;
            let at = then.at;
            let choice = Choice {
                test,
                then,
                otherwise,
            };
            let kind = Kind::Choice(Box::new(choice));
            Ok(Node { at, kind })
        })
    }

    fn or(&mut self) -> Read<Node> {
        let first = self.and()?;
        if !self.sees_word("or") {
            return Ok(first);
        }
        let (at, mut all) = (first.at, vec![first]);
        while self.takes_word("or") {
            all.push(self.and()?);
        }
        let kind = Kind::Or(all);
        Ok(Node { at, kind })
    }

    fn and(&mut self) -> Read<Node> {
        let first = self.not()?;
        if !self.sees_word("and") {
            return Ok(first);
        }
        let (at, mut all) = (first.at, vec![first]);
        while self.takes_word("and") {
            all.push(self.not()?);
        }
        let kind = Kind::And(all);
        Ok(Node { at, kind })
    }

    fn not(&mut self) -> Read<Node> {
        let at = self.at();
        if !self.takes_word("not") {
            return self.compare();
        }
        let operand = self.deeper(Self::not)?;
        let kind = Kind::Not(Box::new(operand));
        Ok(Node { at, kind })
    }

    fn compare(&mut self) -> Read<Node> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let at = self.at();
            let Some(comparison) = self.comparison()? else {
                break;
            };
            let operand = self.sum()?;
            let is_constant = matches!(operand.kind, Kind::Literal(Value::Null | Value::Bool(_)));
            if matches!(comparison, Comparison::Is | Comparison::IsNot) && !is_constant {
                let detail = "`is` goes with None, True and False only: expected `==`".to_owned();
                return Err(Fault { at, detail });
            }
            rest.push((at, comparison, operand));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        let (at, kind) = (first.at, Kind::Compare(Box::new(first), rest));
        Ok(Node { at, kind })
    }

    fn comparison(&mut self) -> Read<Option<Comparison>> {
        let comparison = match self.token() {
            Token::Sign("==") => Comparison::Equal,
            Token::Sign("!=") => Comparison::Unequal,
            Token::Sign("<") => Comparison::Less,
            Token::Sign("<=") => Comparison::AtMost,
            Token::Sign(">") => Comparison::Greater,
            Token::Sign(">=") => Comparison::AtLeast,
            Token::Name(word) if word == "in" => Comparison::In,
            Token::Name(word) if word == "not" => Comparison::NotIn,
            Token::Name(word) if word == "is" => Comparison::Is,
            Token::Name(_) | Token::Literal(_) | Token::Sign(_) | Token::End => return Ok(None),
        };
        self.advance();
        if comparison == Comparison::NotIn && !self.takes_word("in") {
            return Err(self.unexpected("`in` after `not`"));
        }
        if comparison == Comparison::Is && self.takes_word("not") {
            return Ok(Some(Comparison::IsNot));
        }
        Ok(Some(comparison))
    }

    fn sum(&mut self) -> Read<Node> {
        self.chain(Self::product, |sign| match sign {
            "+" => Some(Operator::Add),
            "-" => Some(Operator::Subtract),
            _ => None,
        })
    }

    fn product(&mut self) -> Read<Node> {
        self.chain(Self::signed, |sign| match sign {
            "*" => Some(Operator::Multiply),
            "/" => Some(Operator::Divide),
            "//" => Some(Operator::FloorDivide),
            "%" => Some(Operator::Modulo),
            _ => None,
        })
    }

    /// Operands of one rank with the operators between them.
    fn chain(
        &mut self,
        operand: fn(&mut Self) -> Read<Node>,
        operator: fn(&str) -> Option<Operator>,
    ) -> Read<Node> {
        let first = operand(self)?;
        let mut rest = Vec::new();
        while let Token::Sign(sign) = self.token()
            && let Some(operator) = operator(sign)
        {
            let at = self.at();
            self.advance();
            rest.push((at, operator, operand(self)?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        let (at, kind) = (first.at, Kind::Arithmetic(Box::new(first), rest));
        Ok(Node { at, kind })
    }

    fn signed(&mut self) -> Read<Node> {
        let at = self.at();
        if self.takes("-") {
            let operand = self.deeper(Self::signed)?;
            let kind = Kind::Negate(Box::new(operand));
            return Ok(Node { at, kind });
        }
        if self.takes("+") {
            let operand = self.deeper(Self::signed)?;
            let kind = Kind::KeepSign(Box::new(operand));
            return Ok(Node { at, kind });
        }
        let base = self.access()?;
        let at = self.at();
        if !self.takes("**") {
            return Ok(base);
        }
        // The right one first: 2 ** 3 ** 2 is 512.
        let exponent = self.deeper(Self::signed)?;
        let rest = vec![(at, Operator::Power, exponent)];
        let (at, kind) = (base.at, Kind::Arithmetic(Box::new(base), rest));
        Ok(Node { at, kind })
    }
}
