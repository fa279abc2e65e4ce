//! Bodies of here-documents within a word, as in `"$(cat <<'E' …)"`. To the parser of words there are none: their
//! parentheses and quotes would end what is around them, or keep it open. So they are marked before it reads a word,
//! and as they were in what it takes for a script, which is read anew.

use std::borrow::Cow;

use super::Unreadable;
use super::parts::end_of;

/// What means something to the parser of words, and what stands for it: of the private use area, in the same order.
const SIGNS: [char; 9] = ['(', ')', '{', '}', '\'', '"', '`', '$', '\\'];
const MARKS: std::ops::RangeInclusive<char> = '\u{f8e0}'..='\u{f8e8}';

/// `word` with all bodies marked of which the end is known.
///
/// # Errors
/// When it has a mark of its own.
pub(super) fn marked(word: &str) -> Result<Cow<'_, str>, Unreadable> {
    if has_marks(word) {
        return Err(Unreadable::Ambiguous);
    }
    if !(word.contains("<<") && word.contains("$(")) {
        return Ok(Cow::Borrowed(word));
    }
    /// More would take long, as each is looked for to the end.
    const DOCUMENTS: usize = 64;
    let mut text = String::with_capacity(word.len());
    let (mut rest, mut begun) = (word, 0);
    while let Some((line, after)) = rest.split_once('\n') {
        text.push_str(line);
        text.push('\n');
        rest = after;
        begun += usize::from(line.contains("<<"));
        if begun > DOCUMENTS {
            return Err(Unreadable::Ambiguous);
        }
        if let Some(body) = body_length(line, after) {
            text.extend(after[..body].chars().map(mark));
            rest = &after[body..];
        }
    }
    text.push_str(rest);
    Ok(Cow::Owned(text))
}

/// `text` as it was.
pub(super) fn unmarked(text: &str) -> String {
    let sign = |mark: char| SIGNS.into_iter().zip(MARKS).find(|(_, of)| *of == mark);
    text.chars()
        .map(|c| sign(c).map_or(c, |(sign, _)| sign))
        .collect()
}

pub(super) fn has_marks(text: &str) -> bool {
    text.contains(|c| MARKS.contains(&c))
}

fn mark(c: char) -> char {
    let mark = SIGNS.into_iter().zip(MARKS).find(|(sign, _)| *sign == c);
    mark.map_or(c, |(_, mark)| mark)
}

/// How long the body is of the only here-document that begins in `line`, in what stands behind that.
fn body_length(line: &str, behind: &str) -> Option<usize> {
    let line = line.replace("<<<", "   ");
    let (_, begun) = line.split_once("<<")?;
    if begun.contains("<<") {
        return None;
    }
    let end = end_of(begun)?;
    let mut length = 0;
    for line in behind.split_inclusive('\n') {
        let text = line.strip_suffix('\n')?;
        let text = match begun.starts_with('-') {
            true => text.trim_start_matches('\t'),
            false => text,
        };
        if text == end {
            return Some(length);
        }
        length += line.len();
    }
    None
}
