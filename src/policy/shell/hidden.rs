//! Scripts in text that was quoted where it stands, and that something (arithmetic, a prompt, a variable's subscript) may yet
//! expand.

use std::borrow::Cow;

use super::super::glob::{UNKNOWN, UNKNOWN_WORDS};
use super::Unreadable;
use super::escapes::ansi_c;
use super::loose::Nested;
use super::text::{Flat, flatten_unquoted, literal, plain, unknown};

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

/// The same in a word of echo or printf, which take escapes for what they stand for: `printf -v x 'a[\44(rm y)]'`.
pub(super) fn hidden_by_escapes(word: &str) -> Vec<Nested> {
    if !word.contains('\\') {
        return Vec::new();
    }
    // A zero may stand before three digits.
    let forms = [plain(word), plain(word).replace("\\0", "\\")];
    let meant = forms.iter().filter_map(|form| ansi_c(form));
    meant.flat_map(|text| hidden(&literal(&text))).collect()
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
pub(super) fn uncertain(flat: Flat) -> impl Iterator<Item = Nested> {
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

/// Whether something in it is an expansion once its double quotes are gone, as they are before it is expanded where it stands
/// in such itself, or in a here-document: `${x:-$"(rm y)"}`.
pub(super) fn is_made_by_quotes(source: &str) -> bool {
    let bare = source.replace('"', "");
    let signs = ["$(", "${", "$["];
    signs
        .iter()
        .any(|sign| bare.matches(sign).count() > source.matches(sign).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_in_what_may_yet_be_expanded_are_found() {
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
}
