//! Words of the parser into text, as far as it is known before the script runs.

use std::borrow::Cow;

use super::super::glob::{INNER_BLANK, UNKNOWN, UNKNOWN_WORDS};
use super::Unreadable;
use super::bash::{Piece, Signs, Word, parse_text};
use super::dialect::Apart;
use super::escapes::ansi_c;
use super::expansions::{
    has_parenthesis_within, has_quote, instead, is_swallowed, may_be_words, quotes_expansion,
    takes_pattern,
};
use super::hidden::{hidden, is_made_by_quotes, may_run, uncertain};
use super::loose::Nested;
use super::told::expanded;

/// A word's text and the scripts in it.
#[derive(Default)]
pub(super) struct Flat {
    pub text: String,
    pub nested: Vec<Nested>,
    /// What braces and variables in it may become, words with blanks between.
    pub lists: Vec<String>,
    /// Which shells may read it differently from bash.
    pub apart: Apart,
    /// Braces or patterns in parentheses: it may become any words.
    vague: bool,
    /// Braces, which put what stands in it together anew.
    braced: bool,
}

/// `text` as part of a word: a blank in it separates nothing.
pub(super) fn literal(text: &str) -> String {
    text.chars().map(literal_char).collect()
}

fn literal_char(c: char) -> char {
    match c {
        ' ' => INNER_BLANK,
        // What would pass for one of our marks.
        c if u32::from(c) < 8 => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

/// The text behind [`literal`].
pub(super) fn plain(text: &str) -> String {
    text.replace(INNER_BLANK, " ")
}

/// Whether all of it is known.
pub(super) fn is_known(text: &str) -> bool {
    !text.contains([UNKNOWN, UNKNOWN_WORDS])
}

/// Reads a word.
pub(super) fn flatten(word: &Word<'_>) -> Result<Flat, Unreadable> {
    let mut flat = flatten_pieces(&word.pieces)?;
    if word.raw == "[" {
        // The command, and no pattern.
        flat.text = literal(&word.raw);
    }
    Ok(flat)
}

/// Reads a word, or the value in one.
pub(super) fn flatten_pieces(pieces: &[Piece<'_>]) -> Result<Flat, Unreadable> {
    let mut flat = Flat::default();
    match pieces {
        [Piece::Text(text), rest @ ..] if text.starts_with('~') => {
            // Somebody's directory.
            flat.text.push(UNKNOWN);
            flat.unquoted(text.find('/').map_or("", |name| &text[name..]));
            flat.pieces(rest, false)?;
        }
        pieces => flat.pieces(pieces, false)?,
    }
    if flat.vague {
        flat.nested.extend(hidden(&flat.text));
        let has = |signs: &[char]| flat.text.contains(signs);
        if flat.braced && (has(&['`']) || has(&['$', '<', '>']) && has(&['('])) {
            // `let {a[\$,b[}"(rm y)"]`.
            flat.nested.push(unknown());
        }
        let may_be_option = |sign: &str| flat.text.contains(sign);
        if flat.braced
            && (flat.text.starts_with('-') || ["{-", ",-", "="].into_iter().any(may_be_option))
        {
            flat.nested.extend(pieces_of_list(&flat.text));
            match expanded(&flat.text) {
                Some(words) => flat.lists.push(words.join(" ")),
                None => flat.nested.push(unknown()),
            }
        }
        flat.text = UNKNOWN_WORDS.to_string();
    }
    Ok(flat)
}

/// What may be the program of an option in the words that braces make: `tar {-I,program,-cf}`, `git {-c,alias.x=!program}`.
fn pieces_of_list(text: &str) -> Vec<Nested> {
    /// More of them are any words.
    const MAX_PIECES: usize = 64;
    let pieces = text.split(['{', '}', ',']);
    // Behind a letter, or behind a name.
    let values = pieces.flat_map(|piece| {
        let letter = piece
            .strip_prefix('-')
            .filter(|group| !group.starts_with('-'));
        let attached =
            letter.map(|group| group.trim_start_matches(|c: char| c.is_ascii_uppercase()));
        [piece.rsplit('=').next(), attached]
    });
    let mut values = values
        .flatten()
        .map(|value| plain(value.trim_start_matches('!')));
    let looked_at = values.by_ref().take(MAX_PIECES);
    // A variable of such a program's shell is nothing that these words say.
    let is_said = |value: &String| is_known(value) && (value.contains(' ') || !value.contains('$'));
    let looked_at = looked_at.filter(|value| !value.is_empty() && is_said(value));
    let mut found: Vec<Nested> = looked_at.map(|value| Nested::new(value, false)).collect();
    found.extend(values.next().map(|_| unknown()));
    found
}

/// Reads text in which quotes mean nothing but expansions do: here-documents, arithmetic.
pub(super) fn flatten_unquoted(source: &str) -> Result<Flat, Unreadable> {
    let mut flat = Flat::default();
    flat.pieces(&parse_text(source, Signs::Expansions)?, true)?;
    Ok(flat)
}

/// Reads arithmetic.
pub(super) fn flatten_arithmetic(source: &str) -> Result<Flat, Unreadable> {
    if joined(source).contains("$'") {
        // What that comes to is expanded.
        return Ok(Flat::unknown());
    }
    match flatten_unquoted(source) {
        Ok(mut flat) => {
            flat.nested.extend(hidden(&flat.text));
            Ok(flat)
        }
        // What stands before the error is run, and whether that is one depends on what is quoted.
        Err(Unreadable::Grammar) => Ok(Flat::unknown()),
        Err(unreadable) => Err(unreadable),
    }
}

/// Reads text of which a word is made that is not parted: what stands in an expansion, in a pattern, in brackets.
pub(super) fn flatten_inner(source: &str) -> Result<Flat, Unreadable> {
    let mut flat = Flat::default();
    // It was looked through once, in which other things end it.
    let pieces = parse_text(source, Signs::All).map_err(in_doubt)?;
    flat.pieces(&pieces, false)?;
    // What is quoted may be expanded all the same, and what stands before an error is run.
    match flatten_unquoted(&plain(&flat.text)) {
        Ok(quoted) if may_run(&flat.text) => flat.nested.extend(uncertain(quoted)),
        Ok(_) => {}
        Err(Unreadable::TooSlow) => return Err(Unreadable::TooSlow),
        Err(_) => flat.nested.push(unknown()),
    }
    if is_made_by_quotes(&joined(source)) {
        flat.nested.push(unknown());
    }
    Ok(flat)
}

/// What is read for the second time, and was in the grammar before.
fn in_doubt(unreadable: Unreadable) -> Unreadable {
    match unreadable {
        Unreadable::Grammar | Unreadable::Ambiguous => Unreadable::Ambiguous,
        Unreadable::TooLong
        | Unreadable::TooDeep
        | Unreadable::TooMuch
        | Unreadable::TooSlow
        | Unreadable::Busy
        | Unreadable::Died => unreadable,
    }
}

/// Without the ends of lines that go on in the next, of which the shell sees nothing at all.
pub(super) fn joined(text: &str) -> Cow<'_, str> {
    if !text.contains("\\\n") {
        return Cow::Borrowed(text);
    }
    let mut joined = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some('\n')) => drop(chars.next()),
            // One that is escaped itself.
            ('\\', Some(next)) => {
                joined.extend([c, next]);
                chars.next();
            }
            (c, _) => joined.push(c),
        }
    }
    Cow::Owned(joined)
}

impl Flat {
    /// Something of which nothing is known.
    pub(super) fn unknown() -> Self {
        Self {
            text: UNKNOWN_WORDS.to_string(),
            nested: vec![unknown()],
            ..Self::default()
        }
    }

    fn pieces(&mut self, pieces: &[Piece<'_>], quoted: bool) -> Result<(), Unreadable> {
        pieces
            .iter()
            .try_for_each(|piece| self.piece(piece, quoted))
    }

    fn piece(&mut self, piece: &Piece<'_>, quoted: bool) -> Result<(), Unreadable> {
        match piece {
            Piece::Text(text) if quoted => self.push(text),
            Piece::Text(text) => self.unquoted(text),
            Piece::Quoted(text) => self.push(text),
            Piece::Escaped(text) => {
                self.apart = self.apart.max(Apart::Others);
                match ansi_c(text) {
                    Some(text) => {
                        let known = text.split(char::REPLACEMENT_CHARACTER).enumerate();
                        for (at, text) in known {
                            // A byte that is no text.
                            self.text.extend((at > 0).then_some(UNKNOWN));
                            self.push(text);
                        }
                    }
                    None => {
                        self.text.push(UNKNOWN);
                        self.nested.push(unknown());
                    }
                }
            }
            Piece::Double(pieces) => self.pieces(pieces, true)?,
            Piece::Translated(pieces) => {
                self.apart = self.apart.max(Apart::Others);
                self.pieces(pieces, true)?;
            }
            Piece::Parameter(raw) => {
                let whole = *raw;
                let raw = joined(raw);
                if is_swallowed(&raw) {
                    self.apart = self.apart.max(Apart::Others);
                }
                if quoted && has_quote(&raw) {
                    // For POSIX it is a plain character there.
                    self.apart = Apart::Posix;
                    // To bash it is one when the word is expanded, but not when it is looked for the end of it.
                    let differs = quotes_expansion(&raw) && !takes_pattern(&raw);
                    self.nested.extend(differs.then(unknown));
                }
                let is_word = quoted && !may_be_words(&raw);
                self.text
                    .push(if is_word { UNKNOWN } else { UNKNOWN_WORDS });
                self.expansion(whole)?;
            }
            Piece::Command(script) => {
                if script.starts_with('(') {
                    // To others that is arithmetic.
                    self.apart = self.apart.max(Apart::Others);
                }
                self.substitution((*script).to_owned(), quoted);
            }
            Piece::Backquoted(script) => {
                let script = joined(script);
                if script.contains("\\\"") {
                    // Right in double quotes that is a quote; further in it depends on the shell.
                    let other = unescaped(&script, !quoted);
                    self.nested.push(Nested::new(other, false));
                }
                self.substitution(unescaped(&script, quoted), quoted);
            }
            Piece::Arithmetic(expression) if has_parenthesis_within(expression) => {
                self.arithmetic(expression, true)?;
            }
            Piece::Arithmetic(expression) => {
                self.arithmetic(expression, expression.contains(['\'', '"']))?
            }
            Piece::Bracketed(expression) => self.arithmetic(expression, true)?,
            Piece::Process(script) => {
                self.text.push(UNKNOWN_WORDS);
                self.nested.push(Nested::new((*script).to_owned(), true));
            }
            Piece::Pattern(text) => {
                self.vague = true;
                self.inner(text)?;
            }
            Piece::Subscript(text) => {
                self.text.push(UNKNOWN_WORDS);
                if text.contains(|c: char| c.is_whitespace() || ";|&<>()".contains(c)) {
                    // To others it ends a word.
                    self.apart = self.apart.max(Apart::Others);
                }
                self.inner(text)?;
            }
            Piece::Array(words) => {
                self.vague = true;
                for word in words {
                    let flat = flatten(word)?;
                    self.text.push_str(&flat.text);
                    self.add(flat);
                }
            }
        }
        Ok(())
    }

    /// Arithmetic, in which quotes mean something else to others, or which is none to them.
    fn arithmetic(&mut self, expression: &str, is_apart: bool) -> Result<(), Unreadable> {
        self.text.push(UNKNOWN);
        if is_apart {
            self.apart = self.apart.max(Apart::Others);
        }
        self.add(flatten_arithmetic(expression)?);
        Ok(())
    }

    /// What stands in something of which the text is not known.
    fn inner(&mut self, text: &str) -> Result<(), Unreadable> {
        self.add(flatten_inner(text)?);
        Ok(())
    }

    /// What another runs, and who has that otherwise.
    fn add(&mut self, other: Self) {
        self.apart = self.apart.max(other.apart);
        self.nested.extend(other.nested);
        self.lists.extend(other.lists);
    }

    fn push(&mut self, text: &str) {
        self.text.extend(text.chars().map(literal_char));
    }

    fn unquoted(&mut self, text: &str) {
        let lists = text.contains(',') || text.contains("..");
        let last = text.rfind('}');
        for (at, c) in text.char_indices() {
            match c {
                '*' | '?' | '[' => self.text.push(UNKNOWN_WORDS),
                // Also around something quoted, of which the other brace is another piece.
                '{' if lists || last.is_none_or(|last| last < at) => {
                    (self.vague, self.braced) = (true, true);
                    self.text.push(c);
                }
                c => self.text.push(literal_char(c)),
            }
        }
    }

    fn substitution(&mut self, script: String, quoted: bool) {
        self.text.push(if quoted { UNKNOWN } else { UNKNOWN_WORDS });
        self.nested.push(Nested::new(script, true));
    }

    /// What stands between `${` and `}` has words in it, with scripts of their own.
    fn expansion(&mut self, raw: &str) -> Result<(), Unreadable> {
        let mut behind = raw.strip_prefix('$').unwrap_or(raw);
        while let Some(next_line) = behind.strip_prefix("\\\n") {
            behind = next_line;
        }
        let Some(whole) = behind
            .strip_prefix('{')
            .and_then(|raw| raw.strip_suffix('}'))
        else {
            return Ok(());
        };
        // Lines are joined in it but for what is a comment there, or the text of a here-document.
        let inner = &*joined(whole);
        if inner.ends_with("@P") {
            // Its value is expanded once more, as a prompt.
            self.nested.push(unknown());
        }
        if inner.contains("<(") || inner.contains(">(") {
            self.nested.push(unknown());
        }
        if let Some(instead) = instead(inner) {
            if let Ok(flat) = flatten_inner(instead) {
                self.lists.push(plain(&flat.text));
            }
            if instead.contains(' ') {
                // It may be what is run, wherever the value is.
                self.nested.push(Nested::new(instead.to_owned(), false));
            }
        }
        if !inner.contains(['$', '`', '(', '\'']) {
            return Ok(());
        }
        self.inner(whole)
    }
}

/// A script of which nothing is known.
pub(super) fn unknown() -> Nested {
    Nested::new(UNKNOWN_WORDS.to_string(), false)
}

/// What stands between backquotes, as it is run.
fn unescaped(script: &str, quoted: bool) -> String {
    let mut text = String::new();
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        let is_escaped = |next: &char| matches!(next, '`' | '\\' | '$') || quoted && *next == '"';
        match chars.next_if(|next| c == '\\' && is_escaped(next)) {
            Some(next) => text.push(next),
            None => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::bash::{Command, Item, Lines};
    use super::*;

    /// The only word of a script.
    fn word(script: &str) -> Option<Flat> {
        let line = Lines::new(script).next().ok()??;
        let Command::Simple(simple) = line.list.first()?.commands.first()? else {
            return None;
        };
        match &simple.items[..] {
            [Item::Word(word)] => flatten(word).ok(),
            _ => None,
        }
    }

    #[test]
    fn words_become_what_the_shell_makes_of_them() {
        for (source, expected) in [
            ("a", "a"),
            ("m'ar'k\\er", "marker"),
            ("\"a b\"", "a\u{1}b"),
            ("$'\\x6d\\141\\u0072k'er", "marker"),
            ("ma\\\nrker", "marker"),
            ("$x", "\u{3}"),
            ("\"a$x\"", "a\u{2}"),
            ("\"$@\"", "\u{3}"),
            ("\"${a[@]}\"", "\u{3}"),
            ("\"${!p@}\"", "\u{3}"),
            ("\"${!x}\"", "\u{3}"),
            ("\"$*\"", "\u{2}"),
            ("a*", "a\u{3}"),
            ("{a,b}", "\u{3}"),
            ("{}", "{}"),
            ("~/x", "\u{2}/x"),
            ("\"\\m\"", "\\m"),
            ("\"\\$x\"", "$x"),
        ] {
            assert_eq!(
                word(source).map(|flat| flat.text).as_deref(),
                Some(expected),
                "{source:?}"
            );
        }
    }

    #[test]
    fn scripts_in_words_are_found() {
        for source in [
            "$(marker)",
            "\"$(marker)\"",
            "`marker`",
            "\"`marker`\"",
            "${x:-$(marker)}",
            "\"${x:-$(marker)}\"",
            "${x:-`marker`}",
            "${a[$(marker)]}",
            "$((1+$(marker)))",
            "${x/$(marker)/b}",
            "a${x:-${y:-$(marker)}}b",
            "${x:-\"$(marker)\"}",
            "${x:$(marker)}",
            "ä\"ö${x:-$(marker)}\"",
        ] {
            let nested = word(source).map(|flat| flat.nested).unwrap_or_default();
            assert!(
                nested.iter().any(|nested| nested.text.trim() == "marker"),
                "{source:?}"
            );
        }
    }
}
