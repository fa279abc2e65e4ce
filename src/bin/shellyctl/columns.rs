//! Text by the columns of a terminal that it takes, which are two for each of many scripts' characters.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many columns a line takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// At most `columns` of a line, the last of them an ellipsis where something is missing.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (kept, _) = split(text, columns.saturating_sub(1));
    kept.trim_end().to_owned() + "…"
}

/// A line as pieces of so many columns at the most.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    loop {
        let (line, behind) = match split(rest, columns) {
            // A character that is wider than all of it stands alone.
            ("", _) => rest.split_at(rest.chars().next().map_or(0, char::len_utf8)),
            pieces => pieces,
        };
        lines.push(line.to_owned());
        if behind.is_empty() {
            return lines;
        }
        rest = behind;
    }
}

/// A line with blanks behind it, so that it takes so many columns.
pub fn pad(text: &str, columns: usize) -> String {
    let blanks = columns.saturating_sub(width(text));
    format!("{text}{:blanks$}", "")
}

/// As much of a line as so many columns hold, and the rest.
fn split(text: &str, columns: usize) -> (&str, &str) {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, character)| {
        taken += character.width().unwrap_or_default();
        taken > columns
    });
    text.split_at(end.map_or(text.len(), |(at, _)| at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(pad("日本", 6), "日本  ");
        assert_eq!(wrap("日本語x", 4), ["日本", "語x"]);
        assert_eq!(wrap("a日本", 2), ["a", "日", "本"]);
        assert_eq!(wrap("日本", 1), ["日", "本"]);
        assert_eq!(wrap("e\u{301}e\u{301}", 1), ["e\u{301}", "e\u{301}"]);
        assert_eq!(wrap("", 3), [""]);
    }
}
