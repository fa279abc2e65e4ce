//! Words of the parser into text, as far as it is known before the script runs.

use brush_parser::word::{self, WordPiece, WordPieceWithSource};

use super::super::glob::{INNER_BLANK, UNKNOWN, UNKNOWN_WORDS};
use super::Unreadable;
use super::dialect::Apart;
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
            WordPiece::Text(text) if quoted => self.push(text),
            WordPiece::Text(text) => self.unquoted(text),
            WordPiece::SingleQuotedText(text) => self.push(text),
            WordPiece::AnsiCQuotedText(text) => {
                self.apart = self.apart.max(Apart::Others);
                match ansi_c(text) {
                    Some(text) => self.push(&text),
                    None => {
                        self.text.push(UNKNOWN);
                        self.nested.extend(hidden(text));
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
                let is_word = quoted && !may_be_words(raw);
                self.text
                    .push(if is_word { UNKNOWN } else { UNKNOWN_WORDS });
                self.expansion(raw)?;
            }
            WordPiece::CommandSubstitution(script) => self.substitution(script.clone(), quoted),
            WordPiece::BackquotedCommandSubstitution(script) => {
                self.substitution(unescaped(script, quoted), quoted);
            }
            WordPiece::EscapeSequence(text) => match text.strip_prefix('\\') {
                Some("\n") => {}
                Some(text) => self.push(text),
                None => self.push(text),
            },
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
        self.nested.push(Nested::new(script, true));
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

/// Whether what is expanded may be no words or many though it is quoted: `$@`, `${a[@]}`, `${!p@}`, or whatever
/// `${!x}` names.
fn may_be_words(raw: &str) -> bool {
    raw.contains('@') || raw.contains("${!")
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
    text.bytes().any(|byte| {
        match byte {
            b'(' | b'{' | b'`' => open += 1,
            b')' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
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
    if is_deep(text) {
        return vec![unknown()];
    }
    let Ok(flat) = flatten_unquoted(&plain(text)) else {
        return Vec::new();
    };
    let nested = flat.nested.into_iter();
    nested
        .map(|nested| Nested {
            certain: false,
            ..nested
        })
        .collect()
}

/// The text of `$'…'`; none where it has what we do not know.
pub fn ansi_c(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut chars = text.chars().peekable();
    let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
                  radix: u32,
                  most: usize,
                  first: u32| {
        let (mut value, mut count) = (first, 0);
        while let Some(digit) = chars
            .peek()
            .and_then(|c| c.to_digit(radix))
            .filter(|_| count < most)
        {
            value = value * radix + digit;
            count += 1;
            chars.next();
        }
        value
    };
    while let Some(c) = chars.next() {
        if c != '\\' {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let value = match chars.next()? {
            'a' => 7,
            'b' => 8,
            'e' | 'E' => 27,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            c @ ('\\' | '\'' | '"' | '?') => u32::from(c),
            'c' => u32::from(chars.next()?) & 0x1f,
            c @ '0'..='7' => number(&mut chars, 8, 2, c.to_digit(8)?),
            'x' => number(&mut chars, 16, 2, 0),
            c @ ('u' | 'U') => {
                let most = if c == 'u' { 4 } else { 8 };
                let c = char::from_u32(number(&mut chars, 16, most, 0)).filter(|&c| c != '\0')?;
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return None,
        };
        bytes.push(u8::try_from(value & 0xff).ok().filter(|&byte| byte != 0)?);
    }
    String::from_utf8(bytes).ok()
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
    }
}
