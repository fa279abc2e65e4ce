//! What stands in for a match of a regular expression.

use regex::{Captures, Regex};

use super::FileError;

/// A replacement as the regex crate reads it: `$name`, `$1`, `${name}`, and `$$` for a dollar sign. It is read by
/// ourselves because what it comes to has to be known before it is made: `$0` a thousand times is a thousand
/// copies of a match that may be the whole file.
pub(super) struct Replacement(Vec<Part>);

enum Part {
    Text(String),
    Group(usize),
}

impl Replacement {
    /// Refuses one that names a group which the pattern does not have: it would stand for nothing.
    pub(super) fn parse(regex: &Regex, text: &str) -> Result<Self, FileError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('$') {
            parts.push(Part::Text(before.to_owned()));
            if let Some(behind) = behind.strip_prefix('$') {
                parts.push(Part::Text("$".to_owned()));
                rest = behind;
                continue;
            }
            let braced = behind
                .strip_prefix('{')
                .and_then(|text| text.split_once('}'));
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = behind.find(|c| !is_of_name(c)).unwrap_or(behind.len());
            let (name, behind) = braced.unwrap_or_else(|| behind.split_at(end));
            rest = behind;
            parts.push(match name {
                "" if braced.is_none() => Part::Text("$".to_owned()),
                _ => Part::Group(group(regex, name)?),
            });
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
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
        self.0.iter().map(|part| match part {
            Part::Text(text) => text,
            Part::Group(number) => captures.get(*number).map_or("", |group| group.as_str()),
        })
    }
}

fn group(regex: &Regex, name: &str) -> Result<usize, FileError> {
    let number = match name.parse::<usize>() {
        Ok(number) => Some(number).filter(|number| *number < regex.captures_len()),
        Err(_) => regex.capture_names().position(|one| one == Some(name)),
    };
    number.ok_or_else(|| {
        let why = format!(
            "names a group `{name}`, which `search_pattern` does not have: expected one that it has, with text behind it as in ${{1}}_x, or $$ for a dollar sign"
        );
        FileError::input("replacement", why)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_what_the_regex_crate_makes_of_it(text in "([$]|[{]|[}]|[0-3]|[abx_+é]|[$][{][ab0-2][}]){0,12}") {
            let regex = Regex::new("(é)?(?P<a>.)(?P<b>.)|x").expect("a pattern");
            for haystack in ["éab", "ab", "x"] {
                let captures = regex.captures(haystack).expect("a match");
                let Ok(replacement) = Replacement::parse(&regex, &text) else {
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
