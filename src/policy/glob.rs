//! Patterns. `*` is any text, `?` any one character, `\` takes a meaning away; `[` and `{` are
//! kept for later and need it. In a command, a blank between words is not a blank within one
//! (`\ ` is that), and ` *` at the end also stands for no further words. In a path, `*` and `?`
//! do not cross `/`; `**` between slashes is any number of directories, at the end also none.

use super::pattern;

/// A blank inside a word of a command: no pattern takes it for the end of the word.
pub(super) const INNER_BLANK: char = '\u{1}';
/// A part of a word that is known only when the script runs.
pub(super) const UNKNOWN: char = '\u{2}';
/// The same where it may also be several words or none.
pub(super) const UNKNOWN_WORDS: char = '\u{3}';

/// What a pattern is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The words of a command.
    Command,
    /// An absolute path.
    Path,
    /// Any other text.
    Text,
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Glob {
    shape: Shape,
    literal: bool,
    /// What every match begins with. Most texts are told apart by it.
    prefix: String,
}

#[derive(Clone, Debug)]
enum Shape {
    Text(Vec<Token>),
    Command(Vec<Token>),
    Path(Vec<Component>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    One,
    Many,
}

#[derive(Clone, Debug)]
enum Component {
    Name(Vec<Token>),
    Deep,
}

impl Glob {
    /// Compiles `pattern`.
    ///
    /// # Errors
    /// What is wrong with it and what was expected, as a sentence without its beginning.
    pub(super) fn new(pattern: &str, kind: Kind) -> Result<Self, String> {
        if pattern.is_empty() {
            return Err("the pattern is empty: expected text, `*` for any".to_owned());
        }
        let shape = match kind {
            Kind::Text => Shape::Text(tokens(pattern, ' ')?),
            Kind::Command => {
                pattern::refuse_unmatchable(pattern)?;
                Shape::Command(tokens(pattern, INNER_BLANK)?)
            }
            Kind::Path => Shape::Path(components(pattern)?),
        };
        let literal = match &shape {
            Shape::Text(tokens) | Shape::Command(tokens) => is_literal(tokens),
            Shape::Path(components) => components.iter().all(|component| match component {
                Component::Name(tokens) => is_literal(tokens),
                Component::Deep => false,
            }),
        };
        let prefix = match &shape {
            Shape::Text(tokens) | Shape::Command(tokens) => prefix(tokens),
            Shape::Path(_) => String::new(),
        };
        Ok(Self {
            shape,
            literal,
            prefix,
        })
    }

    /// Whether it stands for one text only.
    pub(super) fn is_literal(&self) -> bool {
        self.literal
    }

    /// The first words of a command's pattern, as far as they are written out.
    pub(super) fn literal_words(&self) -> Vec<String> {
        let Shape::Command(tokens) = &self.shape else {
            return Vec::new();
        };
        let words = tokens.split(|token| *token == Token::Char(' '));
        let words = words.take_while(|word| is_literal(word));
        words
            .map(|word| prefix(word).replace(INNER_BLANK, " "))
            .collect()
    }

    /// Whether what it matches begins with the name of a program, or the beginning of one, and no path.
    pub(super) fn names_program(&self) -> bool {
        let Shape::Command(tokens) = &self.shape else {
            return false;
        };
        let mut first = tokens
            .iter()
            .take_while(|token| **token != Token::Char(' '))
            .peekable();
        matches!(first.peek(), Some(Token::Char(_)))
            && !first.any(|token| *token == Token::Char('/'))
    }

    /// Whether it begins with `*`: then it matches what ends in a text that it matches.
    pub(super) fn begins_with_any(&self) -> bool {
        match &self.shape {
            Shape::Text(tokens) | Shape::Command(tokens) => tokens.first() == Some(&Token::Many),
            Shape::Path(_) => false,
        }
    }

    /// Whether `text` begins as what matches does, for some value of its unknown parts. That is soon said.
    pub(super) fn may_begin(&self, text: &str) -> bool {
        let near = text.char_indices().take(self.prefix.len() + 1);
        let unknown = near.filter(|(_, c)| [UNKNOWN, UNKNOWN_WORDS].contains(c));
        match unknown.map(|(at, _)| at).next() {
            // Words that may be none take the blank before them along.
            Some(at) => {
                let known = text[..at].trim_end_matches(' ');
                self.prefix.starts_with(known) || known.starts_with(&self.prefix)
            }
            None => text.starts_with(&self.prefix),
        }
    }

    /// Whether `text` matches, whatever its unknown parts are.
    pub(super) fn matches(&self, text: &str) -> bool {
        if !text.starts_with(&self.prefix) {
            return false;
        }
        match &self.shape {
            Shape::Text(tokens) => matches(tokens, text),
            Shape::Command(tokens) => {
                matches(tokens, text)
                    || matches!(tokens.as_slice(), [words @ .., Token::Char(' '), Token::Many]
                        if matches(words, text))
            }
            Shape::Path(components) => {
                let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty()).collect();
                matches_path(components, &names)
            }
        }
    }

    /// Whether `text` would match for some value of its unknown parts.
    pub(super) fn may_match(&self, text: &str) -> bool {
        if !text.contains([UNKNOWN, UNKNOWN_WORDS]) {
            return self.matches(text);
        }
        match &self.shape {
            Shape::Text(tokens) => may_match(tokens, text),
            Shape::Command(tokens) => {
                may_match(tokens, text)
                    || matches!(tokens.as_slice(), [words @ .., Token::Char(' '), Token::Many]
                        if may_match(words, text))
            }
            Shape::Path(_) => true,
        }
    }
}

fn is_literal(tokens: &[Token]) -> bool {
    tokens.iter().all(|token| matches!(token, Token::Char(_)))
}

fn prefix(tokens: &[Token]) -> String {
    let chars = tokens.iter().map_while(|token| match token {
        Token::Char(c) => Some(*c),
        Token::One | Token::Many => None,
    });
    // Of ` *` at the end, nothing need be there.
    chars.collect::<String>().trim_end_matches(' ').to_owned()
}

fn tokens(pattern: &str, escaped_blank: char) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let token = match c {
            '*' if tokens.last() == Some(&Token::Many) => continue,
            '*' => Token::Many,
            '?' => Token::One,
            '\\' => match chars.next() {
                Some(' ') => Token::Char(escaped_blank),
                Some(c) => Token::Char(c),
                None => {
                    return Err("the pattern ends in `\\`: expected a character after it".into());
                }
            },
            '[' | '{' => {
                return Err(format!(
                    "`{c}` has no meaning in a pattern: expected `\\{c}` for the character itself"
                ));
            }
            c if u32::from(c) < 8 => {
                return Err(format!("the pattern holds the control character {c:?}"));
            }
            c => Token::Char(c),
        };
        tokens.push(token);
    }
    Ok(tokens)
}

fn components(pattern: &str) -> Result<Vec<Component>, String> {
    if !pattern.starts_with('/') && !pattern.starts_with("**") {
        return Err(format!(
            "{pattern:?} can match no absolute path: expected it to begin with `/` or `**`"
        ));
    }
    let mut components = Vec::new();
    for name in pattern.split('/').filter(|name| !name.is_empty()) {
        components.push(match name {
            "**" => Component::Deep,
            "." | ".." => return Err(format!("`{name}` in a path: expected it without")),
            name if name.contains("**") => {
                return Err(format!(
                    "`**` in {name:?} does not stand alone: expected it between slashes, or `*`"
                ));
            }
            name => Component::Name(tokens(name, ' ')?),
        });
    }
    Ok(components)
}

/// Greedy with one point to return to: at worst the product of the lengths.
fn matches(tokens: &[Token], text: &str) -> bool {
    let (mut token, mut rest) = (0, text.chars());
    let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        let mut after = rest.clone();
        let next = after.next();
        match (tokens.get(token), next) {
            (None, None) => return true,
            // Nothing need be looked at that any text is good for.
            (Some(Token::Many), _) if token + 1 == tokens.len() => return true,
            (Some(Token::Many), _) => {
                token += 1;
                retry = Some((token, rest.clone()));
                continue;
            }
            (Some(Token::Char(wanted)), Some(c)) if *wanted == c => {
                (token, rest) = (token + 1, after);
                continue;
            }
            (Some(Token::One), Some(c)) if c != UNKNOWN && c != UNKNOWN_WORDS => {
                (token, rest) = (token + 1, after);
                continue;
            }
            _ => {}
        }
        let Some((again, from)) = &mut retry else {
            return false;
        };
        if from.next().is_none() {
            return false;
        }
        (token, rest) = (*again, from.clone());
    }
}

/// All places in the pattern at once, one step for each character.
fn may_match(tokens: &[Token], text: &str) -> bool {
    let mut at = vec![false; tokens.len() + 1];
    at[0] = true;
    spread(tokens, &mut at);
    let mut chars = text.chars().peekable();
    // Whether there may be no word so far.
    let mut begins = true;
    while let Some(c) = chars.next() {
        begins &= c == UNKNOWN_WORDS || c == ' ';
        if c == UNKNOWN_WORDS {
            let first = at.iter().position(|&here| here).unwrap_or(at.len());
            at[first..].fill(true);
            continue;
        }
        if c == UNKNOWN {
            // It ends no word.
            for (place, token) in tokens.iter().enumerate() {
                at[place + 1] |= at[place] && *token != Token::Char(' ');
            }
            continue;
        }
        let mut next = vec![false; at.len()];
        for (place, token) in tokens.iter().enumerate() {
            if !at[place] {
                continue;
            }
            match token {
                Token::Many => next[place] = true,
                Token::One => next[place + 1] = true,
                Token::Char(wanted) if *wanted == c => next[place + 1] = true,
                Token::Char(_) => {}
            }
        }
        // Words that may be none take the blank before them along, or behind them where there is none before.
        if c == ' ' && (begins || chars.peek() == Some(&UNKNOWN_WORDS)) {
            next.iter_mut().zip(&at).for_each(|(next, at)| *next |= at);
        }
        at = next;
        spread(tokens, &mut at);
        if !at.contains(&true) {
            return false;
        }
    }
    at[tokens.len()]
}

fn spread(tokens: &[Token], at: &mut [bool]) {
    for (place, token) in tokens.iter().enumerate() {
        if at[place] && *token == Token::Many {
            at[place + 1] = true;
        }
    }
}

fn matches_path(components: &[Component], names: &[&str]) -> bool {
    let (mut component, mut name) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match (components.get(component), names.get(name)) {
            (None, None) => return true,
            (Some(Component::Deep), _) => {
                component += 1;
                retry = Some((component, name));
                continue;
            }
            (Some(Component::Name(tokens)), Some(text)) if matches(tokens, text) => {
                (component, name) = (component + 1, name + 1);
                continue;
            }
            _ => {}
        }
        match &mut retry {
            Some((again, from)) if *from < names.len() => {
                *from += 1;
                (component, name) = (*again, *from);
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(pattern: &str, kind: Kind) -> Glob {
        Glob::new(pattern, kind).expect(pattern)
    }

    #[test]
    fn a_star_in_a_command_is_anything_but_no_blank_is_faked() {
        for (pattern, text, expected) in [
            ("git status*", "git status", true),
            ("git status*", "git status --short; x", true),
            ("git status*", "git\u{1}status", false),
            ("git status*", "git stat", false),
            ("git log *", "git log", true),
            ("git log *", "git log -1", true),
            ("git log *", "git logs", false),
            ("*", "", true),
            ("*a*b*c", "xaxxbxbxc", true),
            ("*a*b*c", "xaxxbxbx", false),
            ("a\\ b", "a\u{1}b", true),
            ("a?c", "aäc", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
        ] {
            assert_eq!(
                glob(pattern, Kind::Command).matches(text),
                expected,
                "{pattern:?} {text:?}"
            );
        }
    }

    #[test]
    fn a_star_in_a_path_stays_in_its_directory() {
        for (pattern, text, expected) in [
            ("/etc/**", "/etc/a/b", true),
            ("/etc/**", "/etc", true),
            ("/etc/**", "/etcetera", false),
            ("/etc/*", "/etc/a/b", false),
            ("/etc/*", "/etc/a", true),
            ("/**/.ssh/**", "/root/.ssh/id", true),
            ("/**/.ssh/**", "/.ssh", true),
            ("**/.env", "/srv/a/.env", true),
            ("**/*.pem", "/srv/a/x.pem", true),
            ("**/*.pem", "/srv/a/x.pem/b", false),
            ("/a/**/b/**/c", "/a/b/x/b/y/c", true),
            ("/a/**/b/**/c", "/a/x/c", false),
        ] {
            assert_eq!(
                glob(pattern, Kind::Path).matches(text),
                expected,
                "{pattern:?} {text:?}"
            );
        }
    }

    #[test]
    fn what_is_unknown_may_be_anything() {
        for (pattern, text, expected) in [
            ("rm*", "\u{3}", true),
            ("rm*", "\u{3} rm", true),
            ("rm*", "r\u{2}", true),
            ("rm*", "ls \u{3}", false),
            ("rm -rf*", "rm \u{3} -rf", true),
            ("rm -rf*", "rm \u{2} -rf", true),
            ("rm x", "rm x \u{3}", true),
            ("rm x", "rm x \u{2}", false),
            ("git push *", "git \u{3}", true),
            ("rm x", "\u{3} rm x", true),
            ("rm x", "\u{3} \u{3} rm x", true),
            ("rm x", "\u{2} rm x", false),
            ("rm x", "\u{3} ls rm x", false),
            ("rm x", "ls \u{3} rm xy", false),
        ] {
            let pattern = glob(pattern, Kind::Command);
            assert_eq!(pattern.may_match(text), expected, "{pattern:?} {text:?}");
            assert!(pattern.may_begin(text) || !expected, "{pattern:?} {text:?}");
        }
        for (pattern, text) in [
            ("rm -rf *", "rm"),
            ("rm -rf *", "rm -r"),
            ("rm -rf *", "rm -rfx"),
            ("rm -rf *", "ls \u{2}"),
            ("rm -rf *", "rm -rv\u{2}"),
        ] {
            let pattern = glob(pattern, Kind::Command);
            let may_begin = text == "rm -rfx";
            assert_eq!(pattern.may_begin(text), may_begin, "{pattern:?} {text:?}");
            assert!(!pattern.may_match(text), "{pattern:?} {text:?}");
        }
        assert!(glob("rm *", Kind::Command).matches("rm \u{3}"));
        assert!(!glob("rm ?", Kind::Command).matches("rm \u{3}"));
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        for (pattern, kind) in [
            ("", Kind::Text),
            ("a\\", Kind::Command),
            ("[ab]", Kind::Command),
            ("{a,b}", Kind::Text),
            ("etc/**", Kind::Path),
            ("~/x", Kind::Path),
            ("/a**/b", Kind::Path),
            ("/a/../b", Kind::Path),
            ("a\u{2}", Kind::Command),
            ("a && b", Kind::Command),
            ("a\nb", Kind::Command),
            ("a > /etc/*", Kind::Command),
            ("a \"b c\"", Kind::Command),
            ("cat /srv/**", Kind::Command),
        ] {
            assert!(Glob::new(pattern, kind).is_err(), "{pattern:?}");
        }
    }
}
