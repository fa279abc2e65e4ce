//! The characters of a script.

use super::super::fence::in_time;
use super::{MAX_STEPS, Unreadable};

/// Where in a script something is read. A backslash before the end of a line is no character, and neither is that end,
/// but for what is read [raw](Source::next_raw).
#[derive(Debug)]
pub(super) struct Source<'a> {
    text: &'a str,
    at: usize,
    steps: usize,
    /// At how many of them the clock is looked at again.
    next_look: usize,
}

impl<'a> Source<'a> {
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            steps: 0,
            next_look: 0,
        }
    }

    /// Where it is, in bytes.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Goes back to where it was.
    pub fn go_to(&mut self, at: usize) {
        self.at = at;
    }

    /// What was read since it was at `start`.
    pub fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// All that stands before it.
    pub fn before(&self) -> &'a str {
        self.text.get(..self.at).unwrap_or_default()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub fn peek_raw(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub fn next_raw(&mut self) -> Option<char> {
        let next = self.peek_raw()?;
        self.at += next.len_utf8();
        self.steps += 1;
        Some(next)
    }

    pub fn peek(&mut self) -> Option<char> {
        while self.rest().starts_with("\\\n") {
            self.at += 2;
            self.steps += 2;
        }
        self.peek_raw()
    }

    pub fn next(&mut self) -> Option<char> {
        self.peek()?;
        self.next_raw()
    }

    /// Goes behind the next character.
    pub fn skip(&mut self) {
        self.next();
    }

    /// The character behind the next one.
    pub fn peek_second(&mut self) -> Option<char> {
        let at = self.at;
        self.next();
        let second = self.peek();
        self.at = at;
        second
    }

    /// Reads `text` if it comes next.
    pub fn eat(&mut self, text: &str) -> bool {
        let at = self.at;
        let is_next = text.chars().all(|c| self.next() == Some(c));
        if !is_next {
            self.at = at;
        }
        is_next
    }

    /// # Errors
    /// When more was looked at than may be, or for longer.
    pub fn bound(&mut self) -> Result<(), Unreadable> {
        /// So many take a few microseconds, but for words that are long.
        const STEPS: usize = 256;
        if self.steps > MAX_STEPS {
            return Err(Unreadable::TooMuch);
        }
        if self.steps < self.next_look {
            return Ok(());
        }
        self.next_look = self.steps + STEPS;
        in_time()
    }
}
