//! The commands found in a script. Behind a wrapper, each word may begin one: all of them share a text.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::super::glob::{UNKNOWN, UNKNOWN_WORDS};

/// One command that a script may run.
#[derive(Clone)]
pub struct Command {
    whole: Arc<str>,
    range: Range<usize>,
    known: bool,
    /// Whether this is what the script says. Otherwise it is what it may amount to: an argument
    /// that something else may take for a command.
    pub certain: bool,
}

impl Command {
    pub(super) fn new(text: String, certain: bool) -> Self {
        Self {
            range: 0..text.len(),
            known: !text.contains([UNKNOWN, UNKNOWN_WORDS]),
            whole: text.into(),
            certain,
        }
    }

    /// The words joined by blanks. A blank within a word is U+0001; U+0002 stands for a part of
    /// a word that is known only when it runs, U+0003 for words of which that holds.
    pub fn text(&self) -> &str {
        &self.whole[self.range.clone()]
    }

    /// Whether nothing in it is known only when it runs.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Whether it is the last words of `longer`, or all of them.
    pub(in crate::policy) fn ends(&self, longer: &Self) -> bool {
        Arc::ptr_eq(&self.whole, &longer.whole)
            && self.range.end == longer.range.end
            && self.range.start >= longer.range.start
    }
}

impl PartialEq for Command {
    fn eq(&self, other: &Self) -> bool {
        self.certain == other.certain && self.text() == other.text()
    }
}

impl Eq for Command {}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("text", &self.text())
            .field("certain", &self.certain)
            .finish()
    }
}

/// Words as one text, of which any that follow one another may be a command.
pub(super) struct Joined {
    text: Arc<str>,
    /// Where each word begins, and where one more would.
    starts: Vec<usize>,
    /// Where something is that is known only when it runs.
    unknown: Vec<usize>,
}

impl Joined {
    pub(super) fn new(words: &[String]) -> Self {
        let text = words.join(" ");
        let unknown = text.match_indices([UNKNOWN, UNKNOWN_WORDS]);
        let mut starts = vec![0];
        let mut at = 0;
        starts.extend(words.iter().map(|word| {
            at += word.len() + 1;
            at
        }));
        Self {
            unknown: unknown.map(|(at, _)| at).collect(),
            starts,
            text: text.into(),
        }
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// The command of the words from `first` to before `end`; none where there are no such words.
    pub(super) fn command(&self, first: usize, end: usize, certain: bool) -> Option<Command> {
        if first >= end {
            return None;
        }
        let range = *self.starts.get(first)?..self.starts.get(end)? - 1;
        let next = self.unknown.partition_point(|at| *at < range.start);
        let known = self.unknown.get(next).is_none_or(|at| *at >= range.end);
        Some(Command {
            whole: Arc::clone(&self.text),
            range,
            known,
            certain,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_share_the_text_they_stand_in() {
        let words = ["nice", "a\u{2}", "", "b"].map(str::to_owned);
        let joined = Joined::new(&words);
        let command = |first, end| joined.command(first, end, false).expect("words");
        for (first, end, text, known) in [
            (0, 4, "nice a\u{2}  b", false),
            (0, 1, "nice", true),
            (1, 2, "a\u{2}", false),
            (2, 3, "", true),
            (2, 4, " b", true),
        ] {
            let found = command(first, end);
            assert_eq!((found.text(), found.is_known()), (text, known));
            assert_eq!(found, Command::new(text.to_owned(), false));
        }
        assert!(command(2, 4).ends(&command(0, 4)) && command(0, 4).ends(&command(0, 4)));
        assert!(!command(0, 4).ends(&command(2, 4)) && !command(1, 2).ends(&command(0, 4)));
        assert!(joined.command(4, 4, false).is_none() && joined.command(5, 9, false).is_none());
        assert!(Joined::new(&[]).command(0, 0, true).is_none());
    }
}
