//! Words of the parser into text, as far as it is known before the script runs.

use std::borrow::Cow;

use super::super::glob::{INNER_BLANK, UNKNOWN, UNKNOWN_WORDS};
use super::Unreadable;
use super::bash::{Piece, Signs, Word, parse_text};
use super::dialect::Apart;
use super::expansions::{
    has_parenthesis_within, has_quote, instead, is_swallowed, may_be_words, quotes_expansion,
    takes_pattern,
};
use super::loose::Nested;

/// A word's text and the scripts in it.
#[derive(Default)]
pub(super) struct Flat {
    pub text: String,
    pub nested: Vec<Nested>,
    /// Who may have it otherwise.
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
        flat.text = UNKNOWN_WORDS.to_string();
    }
    Ok(flat)
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

/// Whether something in it is an expansion once its double quotes are gone, as they are before it is expanded where it stands
/// in such itself, or in a here-document: `${x:-$"(rm y)"}`.
fn is_made_by_quotes(source: &str) -> bool {
    let bare = source.replace('"', "");
    let signs = ["$(", "${", "$["];
    signs
        .iter()
        .any(|sign| bare.matches(sign).count() > source.matches(sign).count())
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
        if let Some(instead) = instead(inner).filter(|text| text.contains(' ')) {
            // It may be what is run, wherever the value is.
            self.nested.push(Nested::new(instead.to_owned(), false));
        }
        if !inner.contains(['$', '`', '(', '\'']) {
            return Ok(());
        }
        self.inner(whole)
    }
}

/// A script of which nothing is known.
fn unknown() -> Nested {
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

/// The scripts in text that was quoted where it stands, and that something (arithmetic, a
/// prompt, a variable's subscript) may yet expand.
pub(super) fn hidden(text: &str) -> Vec<Nested> {
    let mut found = expanded(text);
    // Without `-r`, `read` takes backslashes away, and once more where it reads what it has read.
    let mut text = Cow::Borrowed(text);
    while text.contains('\\') {
        text = Cow::Owned(without_escapes(&text));
        found.extend(expanded(&text));
    }
    found
}

/// The scripts in text that is expanded as it is.
fn expanded(text: &str) -> Vec<Nested> {
    let has_subscript = has_subscript(text);
    if has_subscript && completes_sign(text) {
        return vec![unknown()];
    }
    if !may_run(text) {
        return Vec::new();
    }
    match flatten_unquoted(&plain(text)) {
        Ok(flat) => uncertain(flat).collect(),
        // bash runs what stands before the error.
        Err(Unreadable::Grammar) if !has_subscript => Vec::new(),
        Err(_) => vec![unknown()],
    }
}

/// Whether something would be run if the text were expanded, or once its backslashes are gone.
pub(super) fn may_run(text: &str) -> bool {
    let has_sign = |text: &str| ["$(", "`", "<("].iter().any(|sign| text.contains(sign));
    let is_escaped = || has_sign(&text.replace("\\\n", "").replace('\\', ""));
    has_sign(text) || text.contains('\\') && is_escaped()
}

/// Whether what is not known may be the `$` of `$(`.
fn completes_sign(text: &str) -> bool {
    let mut opens = text.match_indices('(');
    opens.any(|(at, _)| text[..at].ends_with([UNKNOWN, UNKNOWN_WORDS]))
}

/// The text with what is escaped in it as it is, and joined where a line's end is.
fn without_escapes(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => bare.extend(chars.next().filter(|next| *next != '\n')),
            c => bare.push(c),
        }
    }
    bare
}

/// What is run of a text, if it is expanded.
fn uncertain(flat: Flat) -> impl Iterator<Item = Nested> {
    let nested = flat.nested.into_iter();
    nested.map(|nested| Nested {
        certain: false,
        ..nested
    })
}

/// Whether there may be a subscript, in which arithmetic expands what it finds.
fn has_subscript(text: &str) -> bool {
    let is_name =
        |c: char| c.is_ascii_alphanumeric() || c == '_' || [UNKNOWN, UNKNOWN_WORDS].contains(&c);
    let mut opens = text.match_indices('[');
    opens.any(|(at, _)| text[..at].ends_with(is_name))
}

/// The text of `$'…'`, as bash has it: it ends at a NUL, and what is no text is U+FFFD. None where we do not know.
pub fn ansi_c(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first()?;
        rest = after;
        let byte = match escape {
            b'a' => 7,
            b'b' => 8,
            b'e' | b'E' => 27,
            b'f' => 12,
            b'n' => 10,
            b'r' => 13,
            b't' => 9,
            b'v' => 11,
            b'\\' | b'\'' | b'"' | b'?' => escape,
            b'c' => {
                let (&control, after) = rest.split_first()?;
                // A backslash is written twice there.
                let is_twice = control == b'\\' && after.first() == Some(&b'\\');
                rest = &after[usize::from(is_twice)..];
                match control {
                    b'?' => 0x7f,
                    control => control.to_ascii_uppercase() & 0x1f,
                }
            }
            b'0'..=b'7' => low_byte(number(&mut rest, 8, 2, u32::from(escape - b'0')).0),
            b'x' if rest.starts_with(b"{") => {
                rest = &rest[1..];
                let (value, _) = number(&mut rest, 16, usize::MAX, 0);
                rest = rest.strip_prefix(b"}").unwrap_or(rest);
                low_byte(value)
            }
            b'x' | b'u' | b'U' => {
                let most = match escape {
                    b'x' => 2,
                    b'u' => 4,
                    _ => 8,
                };
                match number(&mut rest, 16, most, 0) {
                    (_, 0) => {
                        bytes.extend([b'\\', escape]);
                        continue;
                    }
                    (value, _) if value < 0x80 || escape == b'x' => low_byte(value),
                    (value, _) => {
                        let c = char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER);
                        bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                        continue;
                    }
                }
            }
            other => {
                bytes.extend([b'\\', other]);
                continue;
            }
        };
        if byte == 0 {
            break;
        }
        bytes.push(byte);
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number that `rest` begins with, of so many digits at most, behind `first`; and how many digits it has.
fn number(rest: &mut &[u8], radix: u32, most: usize, first: u32) -> (u32, usize) {
    let digit = |byte: &u8| char::from(*byte).to_digit(radix);
    let digits = rest.iter().map_while(digit).take(most);
    let (value, count) = digits.fold((first, 0), |(value, count), digit| {
        (value.wrapping_mul(radix).wrapping_add(digit), count + 1)
    });
    *rest = &rest[count..];
    (value, count)
}

fn low_byte(value: u32) -> u8 {
    value.to_le_bytes()[0]
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
        assert!(!hidden("a[$(marker)]").is_empty());
        assert!(!hidden("a[$(marker)] + `").is_empty());
        assert!(hidden("it`s (it)").is_empty());
        for escaped in [
            r"a[\$(marker)]",
            r"a[$\(marker\)]",
            r"a[\\\`marker\\\`]",
            "a[$\\\n(marker)]",
        ] {
            assert!(may_run(escaped), "{escaped}");
            assert!(!hidden(escaped).is_empty(), "{escaped}");
        }
    }

    #[test]
    fn escapes_are_what_bash_makes_of_them() {
        for (source, expected) in [
            (r"a\x{24}(b)", "a$(b)"),
            (r"\x24(\x7b\x7D\x{7d", "$({}}"),
            (r"\x{124}\x2g\xg", "$\u{2}g\\xg"),
            (r"a+\z\d", r"a+\z\d"),
            (r"a\0b", "a"),
            (r"a\x00b", "a"),
            (r"a\u0b\u00000", "a\u{b}"),
            (r"\44\0441\777", "$$1\u{fffd}"),
            (r"\cI\c\\a\c?\ci", "\t\u{1c}a\u{7f}\t"),
            (r"\u24\U00000024\ug\u20ac", "$$\\ug€"),
            (r"a\xffb\xe2\x82\xac", "a\u{fffd}b€"),
            (r#"\'\"\?\\\e"#, "'\"?\\\u{1b}"),
        ] {
            assert_eq!(ansi_c(source).as_deref(), Some(expected), "{source}");
        }
        assert_eq!(ansi_c(r"a\c"), None);
    }
}
