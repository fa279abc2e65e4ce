//! Words of the parser into text, as far as it is known before the script runs.

use brush_parser::word::{self, WordPiece, WordPieceWithSource};

use super::super::glob::{INNER_BLANK, UNKNOWN, UNKNOWN_WORDS};
use super::Unreadable;
use super::arithmetic::is_arithmetic;
use super::comments::ends_in_comment;
use super::cost::bound_openings;
use super::dialect::Apart;
use super::documents::{has_marks, marked, unmarked};
use super::loose::{Nested, options};

/// A word's text and the scripts in it.
#[derive(Default)]
pub(super) struct Flat {
    pub text: String,
    pub nested: Vec<Nested>,
    /// Who may have it otherwise.
    pub apart: Apart,
    /// Braces or patterns in parentheses: it may become any words.
    vague: bool,
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
pub(super) fn flatten(source: &str) -> Result<Flat, Unreadable> {
    let mut flat = Flat::default();
    let source = &*marked(source)?;
    let pieces = word::parse(source, &options()).map_err(|_| Unreadable::Grammar)?;
    flat.pieces(source, &pieces, false)?;
    if flat.vague {
        flat.nested.extend(hidden(&flat.text));
        flat.text = UNKNOWN_WORDS.to_string();
    }
    if source == "[" {
        // The command, and no pattern.
        flat.text = literal(source);
    }
    Ok(flat)
}

/// Reads text in which quotes mean nothing but expansions do: here-documents, arithmetic.
pub(super) fn flatten_unquoted(source: &str) -> Result<Flat, Unreadable> {
    let mut flat = Flat::default();
    let source = &*marked(source)?;
    let pieces = word::parse_heredoc(source, &options()).map_err(|_| Unreadable::Grammar)?;
    flat.pieces(source, &pieces, true)?;
    flat.quotes(source);
    Ok(flat)
}

impl Flat {
    fn pieces(
        &mut self,
        source: &str,
        pieces: &[WordPieceWithSource],
        quoted: bool,
    ) -> Result<(), Unreadable> {
        pieces
            .iter()
            .try_for_each(|piece| self.piece(source, piece, quoted))
    }

    fn piece(
        &mut self,
        source: &str,
        piece: &WordPieceWithSource,
        quoted: bool,
    ) -> Result<(), Unreadable> {
        self.arithmetic(source, piece);
        match &piece.piece {
            // An expansion that the parser does not know, or of which it finds no end.
            WordPiece::Text(text) if has_expansion(text, &source[piece.end_index..]) => {
                self.unknown();
            }
            WordPiece::Text(text) if quoted => self.push(text),
            WordPiece::Text(text) => self.unquoted(text),
            // Whether that is quoted, or a body in it, who knows.
            WordPiece::SingleQuotedText(text) | WordPiece::AnsiCQuotedText(text)
                if has_marks(text) =>
            {
                self.unknown();
            }
            WordPiece::SingleQuotedText(text) => self.push(text),
            WordPiece::AnsiCQuotedText(text) => {
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
            WordPiece::DoubleQuotedSequence(pieces)
            | WordPiece::GettextDoubleQuotedSequence(pieces) => {
                self.quotes(&source[piece.start_index..piece.end_index]);
                self.pieces(source, pieces, true)?;
            }
            WordPiece::TildeExpansion(_) => self.text.push(UNKNOWN),
            WordPiece::ParameterExpansion(_) => {
                let raw = source.get(piece.start_index..piece.end_index);
                let raw = raw.ok_or(Unreadable::Grammar)?;
                if has_marks(raw) {
                    self.unknown();
                    return Ok(());
                }
                let is_word = quoted && !may_be_words(raw);
                self.text
                    .push(if is_word { UNKNOWN } else { UNKNOWN_WORDS });
                self.expansion(raw)?;
            }
            WordPiece::CommandSubstitution(script) => self.substitution(script.clone(), quoted),
            WordPiece::BackquotedCommandSubstitution(script) if has_marks(script) => self.unknown(),
            WordPiece::BackquotedCommandSubstitution(script) => {
                self.substitution(unescaped(script, quoted), quoted);
            }
            WordPiece::EscapeSequence(text) => match text.strip_prefix('\\') {
                Some("\n") => {}
                Some(text) => self.push(text),
                None => self.push(text),
            },
            WordPiece::ArithmeticExpression(expression)
                if !source[piece.start_index..].starts_with("$[")
                    && !is_arithmetic(&expression.value) =>
            {
                self.unknown();
            }
            WordPiece::ArithmeticExpression(expression) => {
                self.text.push(UNKNOWN);
                let inner = flatten_unquoted(&expression.value)?;
                self.apart = self.apart.max(inner.apart);
                self.nested.extend(inner.nested);
            }
        }
        Ok(())
    }

    /// Looks for a quote in an expansion that is quoted as a whole: for POSIX it is a plain character.
    fn quotes(&mut self, source: &str) {
        if source.contains('\'')
            && source
                .match_indices("${")
                .any(|(at, _)| has_quote(&source[at..]))
        {
            self.apart = Apart::Posix;
        }
    }

    /// Looks for arithmetic that is none to others, or in which quotes mean something else, or nothing.
    fn arithmetic(&mut self, source: &str, piece: &WordPieceWithSource) {
        let rest = source.get(piece.start_index..).unwrap_or_default();
        let is_apart = match &piece.piece {
            WordPiece::SingleQuotedText(_)
            | WordPiece::AnsiCQuotedText(_)
            | WordPiece::EscapeSequence(_)
            | WordPiece::BackquotedCommandSubstitution(_)
            | WordPiece::TildeExpansion(_)
            | WordPiece::ParameterExpansion(_)
            | WordPiece::DoubleQuotedSequence(_)
            | WordPiece::GettextDoubleQuotedSequence(_) => false,
            WordPiece::ArithmeticExpression(expression) => {
                rest.starts_with("$[") || expression.value.contains(['\'', '"'])
            }
            // What the parser does not take for arithmetic may be that.
            WordPiece::Text(_) | WordPiece::CommandSubstitution(_) => {
                rest.starts_with("$[") || rest.starts_with("$((")
            }
        };
        if is_apart {
            self.apart = self.apart.max(Apart::Others);
        }
    }

    /// Nothing is known of a piece of it.
    fn unknown(&mut self) {
        self.text.push(UNKNOWN_WORDS);
        self.nested.push(unknown());
    }

    fn push(&mut self, text: &str) {
        self.text.extend(text.chars().map(literal_char));
    }

    fn unquoted(&mut self, text: &str) {
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '*' | '?' | '[' => self.text.push(UNKNOWN_WORDS),
                '(' => self.vague = true,
                '{' if text.contains(',') || text.contains("..") => self.vague = true,
                // Braces around something quoted.
                '{' if !chars.as_str().contains('}') => self.vague = true,
                '\\' => match chars.next() {
                    Some('\n') | None => {}
                    Some(c) => self.text.push(literal_char(c)),
                },
                c => self.text.push(literal_char(c)),
            }
        }
    }

    fn substitution(&mut self, script: String, quoted: bool) {
        self.text.push(if quoted { UNKNOWN } else { UNKNOWN_WORDS });
        let script = unmarked(&script);
        // The parser of words knows no comments: what it takes for the end may stand in one.
        let is_whole = !ends_in_comment(&script);
        self.nested.extend((!is_whole).then(unknown));
        self.nested.push(Nested::new(script, is_whole));
    }

    /// What stands between `${` and `}` has words in it, with scripts of their own.
    fn expansion(&mut self, raw: &str) -> Result<(), Unreadable> {
        let Some(inner) = raw.strip_prefix("${").and_then(|raw| raw.strip_suffix('}')) else {
            return Ok(());
        };
        let is_name = |name: &str| {
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_[]@*!".contains(&byte))
        };
        if inner.strip_suffix("@P").is_some_and(is_name) {
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
        let flat = flatten(inner).or_else(|_| flatten_unquoted(inner))?;
        self.apart = self.apart.max(flat.apart);
        self.nested.extend(flat.nested);
        self.nested.extend(hidden(&flat.text));
        Ok(())
    }
}

/// What stands for a variable that is not set, or for one that is, where nothing in that is known only when it runs.
fn instead(inner: &str) -> Option<&str> {
    let behind = inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let behind = behind.strip_prefix(':').unwrap_or(behind);
    let text = behind.strip_prefix(['-', '=', '+'])?;
    (!text.contains(['$', '`'])).then_some(text)
}

/// Whether what is expanded may be no words or many though it is quoted: `$@`, `${a[@]}`, `${!p@}`, or whatever
/// `${!x}` names.
fn may_be_words(raw: &str) -> bool {
    raw == "$@"
        || raw.starts_with("${@")
        || ["[@]", "$@", "{@", "${!"]
            .iter()
            .any(|sign| raw.contains(sign))
}

/// Whether an expansion begins in `text`, which is taken for plain, and goes on `behind` it, or there is a body in it
/// of what the parser takes for no script.
fn has_expansion(text: &str, behind: &str) -> bool {
    let begins =
        |sign: &str| text.contains(sign) || text.ends_with('$') && behind.starts_with(&sign[1..]);
    // Without an end it is an error to bash, too.
    begins("${")
        || begins("$(") && (text.contains(')') || behind.contains(')'))
        || text.contains('`')
        || has_marks(text)
}

/// Whether there is a single quote in the expansion at the beginning of `text`, but for a pattern that is taken away,
/// in which it is one to everybody.
fn has_quote(text: &str) -> bool {
    let inner = text.trim_start_matches("${");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '@' || c == '*';
    let behind = inner.trim_start_matches(is_name);
    if behind.len() < inner.len() && behind.starts_with(['#', '%']) {
        return false;
    }
    let mut depth = 0_usize;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '{' => depth += 1,
            '}' if depth == 1 => return false,
            '}' => depth -= 1,
            '\'' => return true,
            // Where that ends, who knows.
            '"' => return chars.as_str().contains('\''),
            _ => {}
        }
    }
    false
}

/// Whether so much is open at once that the parser, which tries each in several ways, would take long.
fn is_deep(text: &str) -> bool {
    const DEEP: usize = 10;
    let mut open = 0_usize;
    let (mut is_backquoted, mut is_escaped) = (false, false);
    text.bytes().any(|byte| {
        match byte {
            b'(' | b'{' => open += 1,
            b')' | b'}' => open = open.saturating_sub(1),
            // Escaped, it opens one within another.
            b'`' if is_escaped => open += 1,
            b'`' => {
                open = match is_backquoted {
                    true => open.saturating_sub(1),
                    false => open + 1,
                };
                is_backquoted = !is_backquoted;
            }
            _ => {}
        }
        is_escaped = byte == b'\\' && !is_escaped;
        open > DEEP
    })
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
    if !text.contains("$(") && !text.contains('`') && !text.contains("<(") {
        return Vec::new();
    }
    if is_deep(text) || bound_openings(text).is_err() {
        return vec![unknown()];
    }
    let Ok(flat) = flatten_unquoted(&plain(text)) else {
        // bash runs what stands before the error.
        return has_subscript(text).then(unknown).into_iter().collect();
    };
    let nested = flat.nested.into_iter();
    nested
        .map(|nested| Nested {
            certain: false,
            ..nested
        })
        .collect()
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
    use super::*;

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
                flatten(source).ok().map(|flat| flat.text).as_deref(),
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
            let nested = flatten(source)
                .ok()
                .map(|flat| flat.nested)
                .unwrap_or_default();
            assert!(
                nested.iter().any(|nested| nested.text.trim() == "marker"),
                "{source:?}"
            );
        }
        assert!(!hidden("a[$(marker)]").is_empty());
        assert!(!hidden("a[$(marker)] + `").is_empty());
        assert!(hidden("it`s (it)").is_empty());
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
