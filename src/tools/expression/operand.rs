//! The innermost of an expression: names, literals, lists and dicts, and what is asked of them.

use serde_json::Value;

use super::lexer::Token;
use super::node::{Kind, Node, Step};
use super::parser::{Parser, Read, is_word};
use super::{Fault, functions, methods};

impl Parser {
    pub(super) fn access(&mut self) -> Read<Node> {
        let base = self.primary()?;
        let mut steps = Vec::new();
        loop {
            let at = self.at();
            if self.takes(".") {
                steps.push((at, self.dotted()?));
            } else if self.takes("[") {
                let step = self.subscript()?;
                self.expect("]")?;
                steps.push((at, step));
            } else if self.sees("(") {
                let detail = "only functions and methods are called".to_owned();
                return Err(Fault { at, detail });
            } else {
                break;
            }
        }
        if steps.is_empty() {
            return Ok(base);
        }
        let (at, kind) = (base.at, Kind::Access(Box::new(base), steps));
        Ok(Node { at, kind })
    }

    /// What stands behind a dot: a member or a method.
    fn dotted(&mut self) -> Read<Step> {
        let at = self.at();
        let Token::Name(name) = self.token().clone() else {
            return Err(self.unexpected("a name after `.`"));
        };
        self.advance();
        if !self.takes("(") {
            return Ok(Step::Member(name));
        }
        let args = self.items(")")?;
        match methods::check(&name, args.len()) {
            Ok(()) => Ok(Step::Method(name, args)),
            Err(detail) => Err(Fault { at, detail }),
        }
    }

    /// What stands in brackets behind something, up to the closing one.
    fn subscript(&mut self) -> Read<Step> {
        let mut parts = [None, None, None];
        let mut count = 0;
        loop {
            if !self.sees(":") && !self.sees("]") {
                parts[count] = Some(self.expression()?);
            }
            if count == 2 || !self.takes(":") {
                break;
            }
            count += 1;
        }
        match (count, parts) {
            (0, [Some(index), ..]) => Ok(Step::Index(index)),
            (0, _) => Err(self.unexpected("an expression")),
            (_, parts) => Ok(Step::Slice(Box::new(parts))),
        }
    }

    /// Expressions with commas between them, up to and with `end`.
    fn items(&mut self, end: &str) -> Read<Vec<Node>> {
        let mut items = Vec::new();
        while !self.takes(end) {
            items.push(self.expression()?);
            if !self.takes(",") {
                self.expect(end)
                    .map_err(|_| self.unexpected(&format!("`,` or `{end}`")))?;
                break;
            }
        }
        Ok(items)
    }

    fn primary(&mut self) -> Read<Node> {
        let at = self.at();
        let kind = match self.token() {
            Token::Literal(_) => self.literal(),
            Token::Name(_) => self.named()?,
            Token::Sign("(") => {
                self.advance();
                return self.parenthesised(at);
            }
            Token::Sign("[") => {
                self.advance();
                Kind::List(self.items("]")?)
            }
            Token::Sign("{") => {
                self.advance();
                self.dict()?
            }
            Token::Sign(_) | Token::End => return Err(self.unexpected("an expression")),
        };
        Ok(Node { at, kind })
    }

    /// A number, or texts side by side, which are one.
    fn literal(&mut self) -> Kind {
        let Token::Literal(mut value) = self.advance() else {
            return Kind::Literal(Value::Null);
        };
        while let Value::String(text) = &mut value
            && let Token::Literal(Value::String(next)) = self.token()
        {
            text.push_str(next);
            self.advance();
        }
        Kind::Literal(value)
    }

    fn named(&mut self) -> Read<Kind> {
        let at = self.at();
        let Token::Name(name) = self.token().clone() else {
            return Err(self.unexpected("a name"));
        };
        match name.as_str() {
            "True" | "true" => return Ok(self.constant(Value::Bool(true))),
            "False" | "false" => return Ok(self.constant(Value::Bool(false))),
            "None" | "none" | "null" => return Ok(self.constant(Value::Null)),
            word if is_word(word) => return Err(self.unexpected("an expression")),
            _ => {}
        }
        self.advance();
        if !self.takes("(") {
            self.names.insert(name.clone());
            return Ok(Kind::Name(name));
        }
        let args = self.items(")")?;
        let function = functions::find(&name).ok_or_else(|| {
            format!(
                "there is no function `{name}`: expected {}",
                functions::names()
            )
        });
        let checked = function.and_then(|function| function.check(args.len()).map(|()| function));
        match checked {
            Ok(function) => Ok(Kind::Call(function, args)),
            Err(detail) => Err(Fault { at, detail }),
        }
    }

    fn constant(&mut self, value: Value) -> Kind {
        self.advance();
        Kind::Literal(value)
    }

    /// What stands in parentheses: an expression, or a list when there is a comma.
    fn parenthesised(&mut self, at: usize) -> Read<Node> {
        if self.takes(")") {
            let kind = Kind::List(Vec::new());
            return Ok(Node { at, kind });
        }
        let first = self.expression()?;
        if self.takes(")") {
            return Ok(first);
        }
        if !self.takes(",") {
            return Err(self.unexpected("`,` or `)`"));
        }
        let mut items = vec![first];
        items.extend(self.items(")")?);
        let kind = Kind::List(items);
        Ok(Node { at, kind })
    }

    fn dict(&mut self) -> Read<Kind> {
        let mut members = Vec::new();
        while !self.takes("}") {
            let name = self.expression()?;
            self.expect(":")?;
            members.push((name, self.expression()?));
            if !self.takes(",") {
                self.expect("}")
                    .map_err(|_| self.unexpected("`,` or `}`"))?;
                break;
            }
        }
        Ok(Kind::Dict(members))
    }
}
