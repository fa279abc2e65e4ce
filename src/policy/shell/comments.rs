//! Comments where the parser knows none: in words, and in what it takes for the script of a substitution.

use brush_parser::Token;

use super::tokens::{is_body, tokenized};

/// Whether `text` ends in a comment: what is put behind it is lost.
pub(super) fn ends_in_comment(text: &str) -> bool {
    let last = text.rsplit('\n').next().unwrap_or_default();
    let count = |text: &str| tokenized(text).map(|tokens| tokens.len());
    last.contains('#')
        && match (count(text), count(&format!("{text} x"))) {
            (Ok(count), Ok(more)) => count == more,
            (_, _) => false,
        }
}

/// Whether what bash takes for a comment is within one of the words, to the parser: there it knows none behind more
/// than one blank, and what stands in it may begin or end something.
pub(super) fn is_hidden_in_word(text: &str, tokens: &[Token]) -> bool {
    let words: Vec<(usize, usize)> = (tokens.iter())
        .filter(|token| !is_body(token) && expands(token.to_str()))
        .map(|token| (token.location().start.index, token.location().end.index))
        .collect();
    if words.is_empty() || !text.contains('#') {
        return false;
    }
    let chars: Vec<char> = text.chars().collect();
    let begins = |at: usize| {
        let before = |back: usize| at.checked_sub(back).map(|at| chars[at]);
        let is_blank = |c: char| matches!(c, ' ' | '\t');
        chars[at] == '#'
            && before(1).is_some_and(is_blank)
            && before(2).is_none_or(|c| is_blank(c) || "\n;&|()<>`".contains(c))
    };
    let means = |at: usize| {
        let mut line = chars[at..].iter().take_while(|c| **c != '\n');
        line.any(|c| "<'\"`()\\${".contains(*c))
    };
    words.iter().any(|(start, end)| {
        let end = (*end).min(chars.len());
        (*start..end).any(|at| begins(at) && means(at))
    })
}

/// Whether there may be a script in it.
fn expands(word: &str) -> bool {
    ["$(", "<(", ">(", "`", "${"]
        .iter()
        .any(|sign| word.contains(sign))
}
