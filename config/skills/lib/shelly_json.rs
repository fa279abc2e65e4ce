//! As much of JSON as a skill in Rust needs that does without crates: reading its input, and writing
//! texts. Put a copy beside your program and say `mod shelly_json;`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A value. A number stays as it is written.
#[allow(dead_code)]
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// The member `name`, if this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.get(name),
            _ => None,
        }
    }

    /// The text, if this is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// `text` as JSON, quotes included.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => _ = write!(out, "\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}

/// What `text` says; else why it is no JSON.
pub fn parse(text: &str) -> Result<Json, String> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.wrong("expected the end")),
    }
}

/// How deep values may be in one another, so that no input exhausts the stack.
const DEEPEST: usize = 100;

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self, why: &str) -> String {
        format!("no JSON at byte {}: {why}", self.at)
    }

    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        let blanks = rest.iter().take_while(|byte| b" \t\r\n".contains(byte));
        self.at += blanks.count();
        self.text.as_bytes().get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.peek() != Some(byte) {
            return Err(self.wrong(&format!("expected {:?}", byte as char)));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > DEEPEST {
            return Err(self.wrong("too deep"));
        }
        match self.peek() {
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'{') => {
                let mut members = BTreeMap::new();
                self.items(b'{', b'}', |reader| {
                    reader.peek();
                    let name = reader.string()?;
                    reader.expect(b':')?;
                    members.insert(name, reader.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(Json::Object(members))
            }
            Some(b'[') => {
                let mut items = Vec::new();
                self.items(b'[', b']', |reader| {
                    items.push(reader.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(Json::List(items))
            }
            _ => self.word(),
        }
    }

    fn items(
        &mut self,
        open: u8,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect(open)?;
        if self.peek() == Some(close) {
            return self.expect(close);
        }
        loop {
            item(self)?;
            if self.peek() != Some(b',') {
                return self.expect(close);
            }
            self.at += 1;
        }
    }

    fn word(&mut self) -> Result<Json, String> {
        let rest = &self.text[self.at..];
        let is_end = |c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c));
        let word = &rest[..rest.find(is_end).unwrap_or(rest.len())];
        let value = match word {
            "null" => Json::Null,
            "true" | "false" => Json::Bool(word == "true"),
            // What Rust reads as a number and JSON does not begins with another letter or a plus.
            number if number.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && number.parse::<f64>().is_ok() => {
                Json::Number(number.to_owned())
            }
            _ => return Err(self.wrong("expected a value")),
        };
        self.at += word.len();
        Ok(value)
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect(b'"')?;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let run = rest.find(['"', '\\']).ok_or_else(|| self.wrong("a text without an end"))?;
            out.push_str(&rest[..run]);
            self.at += run + 1;
            if rest.as_bytes()[run] == b'"' {
                return Ok(out);
            }
            out.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let kind = self.text.as_bytes().get(self.at).copied();
        self.at += 1;
        Ok(match kind {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'u') => {
                let mut code = self.hex()?;
                // A character beyond 65535 is two of these.
                if (0xd800..0xdc00).contains(&code) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    code = 0x10000 + ((code - 0xd800) << 10) + (self.hex()?.wrapping_sub(0xdc00) & 0x3ff);
                }
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            Some(c @ (b'"' | b'\\' | b'/')) => c as char,
            _ => return Err(self.wrong("an escape that JSON does not have")),
        })
    }

    fn hex(&mut self) -> Result<u32, String> {
        let digits = self.text.get(self.at..self.at + 4);
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += 4;
        code.ok_or_else(|| self.wrong("expected four hexadecimal digits"))
    }
}
