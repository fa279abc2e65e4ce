//! Patterns as text: what is refused in one, and how a text is made one.

use super::glob::{INNER_BLANK, Kind};

/// Characters that the shell takes out of a command before anything is compared: what joins
/// commands, what redirects, what quotes.
const JOINING: [char; 4] = ['&', '|', ';', '\n'];
const REDIRECTING: [char; 2] = ['<', '>'];
const QUOTING: [char; 2] = ['\'', '"'];

/// Refuses the pattern of a command that hardly any command matches, though it looks as if many
/// did: a rule that is passed over in silence is worse than none.
pub(super) fn refuse_unmatchable(pattern: &str) -> Result<(), String> {
    let first = pattern.split(' ').next().unwrap_or_default();
    if let Some((name, _)) = first.split_once('=').filter(|(name, _)| is_variable(name)) {
        return Err(format!(
            "`{name}=` before a command sets a variable, and is no part of it: expected the command alone"
        ));
    }
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '*' if chars.peek() == Some(&'*') => {
                return Err("`**` means no more than `*` in a command: expected `*`".to_owned());
            }
            c if JOINING.contains(&c) => {
                let shown = if c == '\n' {
                    "a newline".to_owned()
                } else {
                    format!("`{c}`")
                };
                return Err(format!(
                    "{shown} joins commands, and each is judged by itself: expected a rule for each, or `\\` before a character that is part of a word"
                ));
            }
            c if REDIRECTING.contains(&c) => {
                return Err(format!(
                    "`{c}` is a redirect, which is no part of a command: expected a rule `write_file(file_path:…)` on the file, or `\\{c}` for the character in a word"
                ));
            }
            c if QUOTING.contains(&c) => {
                return Err(format!(
                    "`{c}` is gone when commands are compared: expected the text without quotes, `\\ ` for a blank within a word, or `\\{c}` for the character itself"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether it is the name of a variable (POSIX.1-2024, 3.216).
fn is_variable(name: &str) -> bool {
    let is_of_it = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_of_it) && !name.as_bytes()[0].is_ascii_digit()
}

/// Refuses what looks like space between words and is not: a blank too many stands beside an empty word, and a tab
/// is part of a word.
pub(super) fn refuse_blanks(pattern: &str) -> Result<(), String> {
    let mut chars = pattern.chars();
    let mut written = String::with_capacity(pattern.len());
    while let Some(c) = chars.next() {
        if c == '\\' {
            // Whatever it is, it is part of a word.
            chars.next();
        }
        written.push(c);
    }
    if written.contains('\t') {
        return Err(format!(
            "{pattern:?} has a tab, which would match only a tab within a word: expected a blank between words, or `\\` before a tab that is part of a word"
        ));
    }
    if written.split(' ').any(str::is_empty) {
        return Err(format!(
            "{pattern:?} has a blank too many, and would match only a command with an empty word there: expected one blank between two words and none at either end, or `\\ ` for one within a word"
        ));
    }
    Ok(())
}

/// `text` as a pattern of this kind that matches it and nothing else.
pub(super) fn escape(text: &str, kind: Kind) -> String {
    let mut pattern = String::with_capacity(text.len());
    let taken_out = JOINING.iter().chain(&REDIRECTING).chain(&QUOTING);
    for c in text.chars() {
        match c {
            '*' | '?' | '\\' | '[' | '{' => pattern.extend(['\\', c]),
            INNER_BLANK => pattern.push_str("\\ "),
            '\t' if kind == Kind::Command => pattern.extend(['\\', c]),
            c if kind == Kind::Command && taken_out.clone().any(|taken| *taken == c) => {
                pattern.extend(['\\', c]);
            }
            _ => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::super::glob::Glob;
    use super::*;

    #[test]
    fn blanks_stand_between_words() {
        for pattern in [
            "rm -rf /",
            "git *",
            "echo a\\ \\ b",
            "\\ x\\ ",
            "x \\ y",
            "echo a\\\tb",
            "echo \\\t",
        ] {
            assert_eq!(refuse_blanks(pattern), Ok(()), "{pattern:?}");
        }
        for (pattern, why) in [
            ("rm  -rf /", "an empty word"),
            (" shutdown", "an empty word"),
            ("reboot ", "an empty word"),
            ("git  *", "an empty word"),
            ("x\\  ", "an empty word"),
            ("a\tb", "a tab within a word"),
            ("a \tb", "a tab within a word"),
        ] {
            let refused = refuse_blanks(pattern).expect_err(pattern);
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn what_sets_a_variable_is_no_command() {
        for pattern in ["FOO=bar ls", "LD_PRELOAD=*", "x= make"] {
            let refused = refuse_unmatchable(pattern).expect_err(pattern);
            assert!(refused.contains("sets a variable"), "{refused}");
        }
        for pattern in ["env FOO=bar ls", "dd * of=/dev/sd*", "1=2", "*=x", "--a=b"] {
            assert_eq!(refuse_unmatchable(pattern), Ok(()), "{pattern}");
        }
    }

    /// What is said of them is so.
    #[test]
    fn blanks_match_what_is_said() {
        for (pattern, text, expected) in [
            ("rm  -rf", "rm -rf", false),
            ("rm  -rf", "rm  -rf", true),
            ("a\tb", "a b", false),
            ("a\tb", "a\tb", true),
            ("a\\\tb", "a\tb", true),
        ] {
            let glob = Glob::new(pattern, Kind::Command).expect("a pattern");
            assert_eq!(glob.matches(text), expected, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn an_escaped_text_matches_itself_only() {
        let text = "echo a*\\b[c]\u{1}{d} ?\t a;b&&c|d>e'f\"g\nh";
        let glob = Glob::new(&escape(text, Kind::Command), Kind::Command).expect("a pattern");
        assert!(glob.is_literal() && glob.matches(text));
        assert_eq!(refuse_blanks(&escape(text, Kind::Command)), Ok(()));
        assert!(!glob.matches("echo ax\\b[c]\u{1}{d} ?"));
    }
}
