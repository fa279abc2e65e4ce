//! Shapes of scripts in which the parser and bash are known to part ways: nothing with one in it is read.

use super::quoting::skip_quoted;
use super::tokens::{behind_arithmetic, joined};

/// Signs behind which a parenthesis opens a pattern, to the parser always.
const EXTENDED: [char; 5] = ['?', '*', '+', '@', '!'];

/// Whether there may be one. In doubt there is.
pub(super) fn ways(text: &str) -> bool {
    let written = text;
    let text = joined(text);
    // A dollar sign, or a process's number, and what looks like an expansion with that.
    ["\\$'", "$$'", "$$[", "$${"]
        .iter()
        .any(|signs| text.contains(signs))
        || text.contains("<<") && (hides_document(written, &text) || hides_in_expansion(&text))
        || text.contains('#') && hides_comment(&text)
        || hides_in_pattern(&text)
}

/// Whether a here-document shares its line with an expansion, whose commands get lost then, its sign is in a subscript
/// or a pattern, or what ends a substitution may end it.
fn hides_document(written: &str, text: &str) -> bool {
    /// More would take long.
    const DOCUMENTS: usize = 64;
    let unshifted = without_shifts(&text.replace("<<<", "   "));
    let documents = unshifted.lines().filter_map(|line| line.split_once("<<"));
    let mut ends = Vec::new();
    for (before, behind) in documents {
        let expands = behind.contains("$(") || behind.contains("${");
        if expands || count(before, "[") > count(before, "]") || ends.len() > DOCUMENTS {
            return true;
        }
        ends.extend(behind.split("<<").filter_map(end_of));
    }
    let closes = |line: &str| {
        let line = line.trim_start_matches('\t');
        let mut after = ends.iter().filter_map(|end| line.strip_prefix(end));
        // Bash takes the line for the end of the text, whatever stands in between.
        after.any(|after| after.contains([')', '`']))
    };
    let substitutes = ["$(", "<(", ">(", "`"]
        .iter()
        .any(|sign| text.contains(sign));
    // In a quoted text no line goes on in the next.
    substitutes && text.lines().chain(written.lines()).any(closes)
}

/// The word behind `<<`.
pub(super) fn end_of(behind: &str) -> Option<&str> {
    let behind = behind.strip_prefix('-').unwrap_or(behind).trim_start();
    let behind = behind.trim_start_matches(['\'', '"', '\\']);
    let end = behind.find(|c: char| c.is_whitespace() || "'\"\\;|&()<>".contains(c));
    Some(&behind[..end.unwrap_or(behind.len())]).filter(|word| !word.is_empty())
}

/// Without arithmetic of the simplest form.
fn without_shifts(text: &str) -> String {
    let mut parts = text.split("((");
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match behind_arithmetic(part) {
            Some(behind) => rest.push_str(behind),
            None => {
                rest.push_str("((");
                rest.push_str(part);
            }
        }
    }
    rest
}

/// Whether there is one in `${…}`.
fn hides_in_expansion(text: &str) -> bool {
    expansions(text).any(|inner| expanded(inner).contains("<<"))
}

/// What stands between `${` and its `}`, at the beginning of `inner`.
fn expanded(inner: &str) -> &str {
    let mut depth = 1;
    let ends = |(at, c): (usize, char)| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    };
    let end = inner.char_indices().find_map(ends).unwrap_or(inner.len());
    &inner[..end]
}

/// What follows each `${` that is more than a name in braces.
fn expansions(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let behind = text
        .match_indices("${")
        .map(|(at, open)| &text[at + open.len()..]);
    behind.filter(move |inner| !inner.trim_start_matches(is_name).starts_with('}'))
}

/// Whether what looks like a comment is in arithmetic, a subscript or a pattern, and none.
fn hides_comment(text: &str) -> bool {
    // What is open: parentheses, how many of them are the second of a `((`, and the brackets of this line that stand
    // behind a name or another bracket.
    let (mut parentheses, mut arithmetic, mut brackets) = (Vec::new(), 0, 0_usize);
    // Where one of these ends, its quotes and brackets decide.
    let mut has_expression = false;
    let (mut before, mut last) = (0, ' ');
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let behind = &text[at + c.len_utf8()..];
        match c {
            '(' => {
                let is_second = last == '(' && !is_called(&text[..before]);
                arithmetic += usize::from(is_second);
                parentheses.push(is_second);
            }
            ')' => arithmetic -= usize::from(parentheses.pop().unwrap_or(false)),
            '$' if arithmetic > 0 && behind.starts_with('\'') => return true,
            '\'' | '"' | '\\' if arithmetic > 0 => {
                let mut chars = behind.chars();
                let is_closed = skip_quoted(&mut chars, c) == Some(true);
                let inner = behind.len() - chars.as_str().len();
                // What closes it is quoted.
                if !is_closed || behind[..inner].contains(')') {
                    return true;
                }
                at += inner;
            }
            '[' if last == '$' => has_expression = true,
            '[' => brackets += usize::from(is_of_name(last) || last == '['),
            ']' => brackets = brackets.saturating_sub(1),
            '\n' => brackets = 0,
            '#' if " \t\n([&;|<>)".contains(last)
                && (has_expression || arithmetic + brackets > 0) =>
            {
                return true;
            }
            _ => {}
        }
        if c != '(' || last != '(' {
            before = at;
        }
        last = c;
        at += c.len_utf8();
    }
    false
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether what begins with a parenthesis behind `before` is a call, or a list of one, in another language: there is a name
/// before it, none of the shell's own, and none that the shell takes there.
fn is_called(before: &str) -> bool {
    let is_end = |c: char| c.is_whitespace() || ";&|()<>".contains(c);
    let words = before.trim_end_matches(|c| !is_end(c));
    let name = &before[words.len()..];
    let opens = [
        "if", "elif", "else", "for", "while", "until", "then", "do", "time", "coproc",
    ];
    let takes = ["function", "coproc", "time"];
    !name.is_empty()
        && name.chars().all(is_of_name)
        && !opens.contains(&name)
        && !takes.iter().any(|word| words.trim_end().ends_with(word))
}

/// Whether a pattern, to the parser, ends behind the expansion that it stands in, or is a function's name.
fn hides_in_pattern(text: &str) -> bool {
    let is_open = |inner: &str| {
        let mut opens = inner.match_indices('(');
        opens.any(|(at, _)| inner[..at].ends_with(EXTENDED) && !inner[at..].contains(')'))
    };
    if expansions(text).any(|inner| is_open(expanded(inner))) {
        return true;
    }
    let opens = text.match_indices('(').map(|(at, _)| &text[..at]);
    let mut patterns = opens.filter(|before| before.ends_with(EXTENDED));
    patterns.any(|before| {
        let before = before.trim_end_matches(|c: char| !c.is_whitespace());
        before.trim_end().ends_with("function")
    })
}

fn count(text: &str, signs: &str) -> usize {
    text.matches(signs).count()
}
