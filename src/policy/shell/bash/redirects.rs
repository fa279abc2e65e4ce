//! Redirects.

use super::words::{Place, is_name};
use super::{Kind, Parser, Redirect, Unreadable, Word};

/// The least descriptor that bash gives to one with a name.
const FIRST_NAMED: i32 = 10;

impl<'a> Parser<'a> {
    /// Reads a redirect if one comes next.
    pub(super) fn redirect(&mut self) -> Result<Option<Redirect<'a>>, Unreadable> {
        let at = self.source.at();
        let descriptor = self.descriptor()?;
        // Behind a sign that a process substitution begins with it is a word.
        let begins =
            matches!(self.source.peek(), Some('<' | '>')) && self.source.peek_second() != Some('(');
        let both = descriptor.is_none()
            && self.source.peek() == Some('&')
            && self.source.peek_second() == Some('>');
        if !begins && !both {
            self.source.go_to(at);
            return Ok(None);
        }
        let signs = [
            "&>>", "&>", "<<<", "<<-", "<<", "<&", "<>", "<", ">>", ">&", ">|", ">",
        ];
        let sign = signs.into_iter().find(|sign| self.source.eat(sign));
        let sign = sign.ok_or(Unreadable::Grammar)?;
        self.blanks()?;
        if matches!(sign, "<&" | ">&") && self.source.peek() == Some('-') {
            // Whatever touches it is another word.
            self.source.next();
            return Ok(Some(Redirect::Duplicate {
                descriptor,
                writes: sign == ">&",
                target: Word::default(),
            }));
        }
        let target = self.word(Place::default())?.ok_or(Unreadable::Grammar)?;
        self.no_case(&target)?;
        let kind = match sign {
            "&>>" | "&>" => return Ok(Some(Redirect::OutputAndError(target))),
            "<<<" => return Ok(Some(Redirect::Text(descriptor, target))),
            "<<-" | "<<" => {
                let document = self.document(&target, sign == "<<-")?;
                return Ok(Some(Redirect::Document(descriptor, document)));
            }
            "<&" | ">&" => {
                return Ok(Some(Redirect::Duplicate {
                    descriptor,
                    writes: sign == ">&",
                    target,
                }));
            }
            "<>" => Kind::ReadAndWrite,
            "<" => Kind::Read,
            _ => Kind::Write,
        };
        Ok(Some(Redirect::File {
            descriptor,
            kind,
            target,
        }))
    }

    /// Reads the number of a descriptor, or the name of the variable that is to have it, right before a redirect.
    fn descriptor(&mut self) -> Result<Option<i32>, Unreadable> {
        let begin = self.source.at();
        let mut text = String::new();
        while let Some(c) = self.source.peek() {
            if c.is_ascii_alphanumeric() || "_{}[]".contains(c) {
                text.push(c);
                self.source.next();
                continue;
            }
            if matches!(c, '<' | '>') {
                if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
                    match text.parse() {
                        Ok(number) => return Ok(Some(number)),
                        // Greater ones are words.
                        Err(_) => break,
                    }
                }
                let name = text
                    .strip_prefix('{')
                    .and_then(|text| text.strip_suffix('}'));
                if let Some(name) = name {
                    let (name, subscript) = name.split_once('[').unwrap_or((name, "]"));
                    if is_name(name)
                        && subscript.trim_start_matches(|c: char| c.is_ascii_digit()) == "]"
                    {
                        return Ok(Some(FIRST_NAMED));
                    }
                }
            }
            break;
        }
        self.source.go_to(begin);
        Ok(None)
    }
}

/// Whether it is `{name[…]}`.
pub(super) fn is_element(raw: &str) -> bool {
    let inner = raw.strip_prefix('{').and_then(|raw| raw.strip_suffix("]}"));
    let name = inner.and_then(|inner| inner.split_once('['));
    name.is_some_and(|(name, _)| is_name(name))
}
