//! What stands in for a match of a regular expression.

use std::collections::HashSet;

use regex::{Captures, Regex};

use super::FileError;
use crate::domain::Secrets;

/// A replacement as the regex crate reads it: `$name`, `$1`, `${name}`, and `$$` for a dollar sign. It is read by
/// ourselves because what it comes to has to be known before it is made: `$0` a thousand times is a thousand
/// copies of a match that may be the whole file. It is read at each match, for its parts may take far more room
/// than its text.
pub(super) struct Replacement(String);

impl Replacement {
    /// Refuses one that names a group which the pattern does not have: it would stand for nothing.
    pub(super) fn parse(regex: &Regex, text: String, secrets: &Secrets) -> Result<Self, FileError> {
        let names: HashSet<&str> = regex.capture_names().flatten().collect();
        for part in Parts::of(&text) {
            if let Part::Group(name) = part
                && !has_group(regex.captures_len(), &names, name)
            {
                return Err(no_group(&secrets.summarize(name)));
            }
        }
        Ok(Self(text))
    }

    /// How long it is for a match, in bytes.
    pub(super) fn bytes(&self, captures: &Captures<'_>) -> usize {
        self.texts(captures)
            .fold(0, |sum, text| sum.saturating_add(text.len()))
    }

    /// Puts it at the end of `to`.
    pub(super) fn expand(&self, captures: &Captures<'_>, to: &mut String) {
        self.texts(captures).for_each(|text| to.push_str(text));
    }

    /// Its pieces for a match. A group that is not part of that stands for nothing.
    fn texts<'a>(&'a self, captures: &'a Captures<'_>) -> impl Iterator<Item = &'a str> {
        Parts::of(&self.0).map(|part| match part {
            Part::Text(text) => text,
            Part::Group(name) => {
                let number = name.parse::<usize>();
                let group = number.map_or_else(|_| captures.name(name), |at| captures.get(at));
                group.map_or("", |group| group.as_str())
            }
        })
    }
}

enum Part<'a> {
    Text(&'a str),
    /// What has this name or number.
    Group(&'a str),
}

struct Parts<'a> {
    rest: &'a str,
    /// Whether there may be a `}` in the rest, which is not to be looked for at each `${`.
    may_close: bool,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            rest: text,
            may_close: true,
        }
    }

    /// The name in braces that `text` begins with, and what is behind it.
    fn braced(&mut self, text: &'a str) -> Option<(&'a str, &'a str)> {
        let text = text.strip_prefix('{').filter(|_| self.may_close)?;
        let found = text.split_once('}');
        self.may_close = found.is_some();
        found
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let Some(behind) = self.rest.strip_prefix('$') else {
            let end = self.rest.find('$').unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at(end);
            self.rest = rest;
            return (!text.is_empty()).then_some(Part::Text(text));
        };
        if let Some(rest) = behind.strip_prefix('$') {
            self.rest = rest;
            return Some(Part::Text("$"));
        }
        if let Some((name, rest)) = self.braced(behind) {
            self.rest = rest;
            return Some(Part::Group(name));
        }
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = behind.find(|c| !is_of_name(c)).unwrap_or(behind.len());
        let (name, rest) = behind.split_at(end);
        self.rest = rest;
        Some(match name {
            "" => Part::Text("$"),
            name => Part::Group(name),
        })
    }
}

fn has_group(count: usize, names: &HashSet<&str>, name: &str) -> bool {
    match name.parse::<usize>() {
        Ok(number) => number < count,
        Err(_) => names.contains(name),
    }
}

fn no_group(name: &str) -> FileError {
    let why = format!(
        "names a group `{name}`, which `search_pattern` does not have: expected one that it has, with text behind it as in ${{1}}_x, or $$ for a dollar sign"
    );
    FileError::input("replacement", why)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(regex: &Regex, text: String) -> Result<Replacement, FileError> {
        Replacement::parse(regex, text, &Secrets::default())
    }

    #[test]
    fn a_long_one_takes_no_longer_for_what_it_is_made_of() {
        let regex = Regex::new("x").expect("a pattern");
        let captures = regex.captures("x").expect("a match");
        for (unit, bytes) in [("$$", 1), ("${", 2), ("$0", 1), ("${0}", 1), ("$", 1)] {
            let count = (4 << 20) / unit.len();
            let text = unit.repeat(count);
            let replacement = parse(&regex, text).unwrap_or_else(|_| panic!("{unit}"));
            // By the square of its length, `${` would take an hour.
            let expected = if unit == "$" {
                count / 2
            } else {
                count * bytes
            };
            assert_eq!(replacement.bytes(&captures), expected, "{unit}");
        }
        let groups: String = (0..2000).map(|n| format!("(?<a{n}>x)?")).collect();
        let regex = Regex::new(&groups).expect("a pattern");
        let replacement = parse(&regex, "$a1999 ".repeat(1 << 19));
        let captures = regex.captures("").expect("a match");
        assert_eq!(
            replacement.map(|one| one.bytes(&captures)).ok(),
            Some(1 << 19)
        );
    }

    proptest! {
        #[test]
        fn it_is_what_the_regex_crate_makes_of_it(text in "([$]|[{]|[}]|[0-3]|[abx_+é]|[$][{][ab0-2][}]){0,12}") {
            let regex = Regex::new("(é)?(?P<a>.)(?P<b>.)|x").expect("a pattern");
            for haystack in ["éab", "ab", "x"] {
                let captures = regex.captures(haystack).expect("a match");
                let Ok(replacement) = parse(&regex, text.clone()) else {
                    continue;
                };
                let (mut expanded, mut expected) = (String::new(), String::new());
                replacement.expand(&captures, &mut expanded);
                captures.expand(&text, &mut expected);
                prop_assert_eq!(&expanded, &expected);
                prop_assert_eq!(replacement.bytes(&captures), expected.len());
            }
        }
    }
}
