//! Shapes of scripts in which the parser and bash are known to part ways: nothing with one in it is read.

use super::tokens::joined;

/// Signs behind which a parenthesis opens a pattern, to the parser always.
const EXTENDED: [char; 5] = ['?', '*', '+', '@', '!'];

/// Whether there may be one. In doubt there is.
pub(super) fn ways(text: &str) -> bool {
    let text = joined(text);
    // The latter are a process's number, or a dollar sign, and a quoted text of its own.
    ["\\$'", "\\$\"", "$$'", "$$\""]
        .iter()
        .any(|signs| text.contains(signs))
        || text.contains("<<") && (hides_document(&text) || hides_in_expansion(&text))
        || text.contains('#') && hides_comment(&text)
        || hides_in_pattern(&text)
}

/// Whether a here-document shares its line with an expansion, whose commands get lost then, its sign is in a subscript
/// or a pattern, or what ends a substitution may end it.
fn hides_document(text: &str) -> bool {
    let text = without_shifts(&text.replace("<<<", "   "));
    text.lines().any(|line| {
        line.split_once("<<").is_some_and(|(before, behind)| {
            let expands = behind.contains("$(") || expansions(behind).next().is_some();
            expands || count(before, "[") > count(before, "]") || may_close(&text, behind)
        })
    })
}

/// Whether a line of `text` begins with the word behind `<<` and something that ends a substitution.
fn may_close(text: &str, behind: &str) -> bool {
    let behind = behind.trim_start_matches('-').trim_start();
    let behind = behind.trim_start_matches(['\'', '"', '\\']);
    let end = behind.find(|c: char| c.is_whitespace() || "'\"\\;|&()<>".contains(c));
    let word = &behind[..end.unwrap_or(behind.len())];
    let closes = |line: &str| {
        let after = line.trim_start_matches('\t').strip_prefix(word);
        after.is_some_and(|after| after.starts_with([')', '`']))
    };
    !word.is_empty() && text.lines().any(closes)
}

/// Without arithmetic of the simplest form.
fn without_shifts(text: &str) -> String {
    let mut parts = text.split("((");
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(['(', ')', '`', '\'', '"', '\\', '\n']);
        match end.and_then(|end| part[end..].strip_prefix("))")) {
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
    expansions(text).any(|inner| {
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
        inner[..end].contains("<<")
    })
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
    let begins = |at: &usize| text[..*at].ends_with([' ', '\t', '\n', '(', '[']);
    let comments = text.match_indices('#').map(|(at, _)| at).filter(begins);
    comments.into_iter().any(|at| {
        let before = &text[..at];
        let line = before.rsplit('\n').next().unwrap_or_default();
        let commands = before.match_indices("((");
        let commands = commands.filter(|(at, _)| !ends_with_name(&before[..*at]));
        let arithmetic =
            commands.count() > count(before, "))") || count(before, "$[") > count(before, "]");
        arithmetic || count(line, "[") > count(line, "]")
    })
}

/// Whether there is a quoted part in what is a pattern to the parser, or a function's name.
fn hides_in_pattern(text: &str) -> bool {
    let parts = text
        .match_indices('(')
        .filter(|(at, _)| text[..*at].ends_with(EXTENDED));
    parts.into_iter().any(|(at, _)| {
        let inner = text[at..].split(')').next().unwrap_or_default();
        text.contains("function") || inner.contains(['\'', '"', '\\'])
    })
}

fn count(text: &str, signs: &str) -> usize {
    text.matches(signs).count()
}

/// Whether what follows is the arguments of a function, in another language.
fn ends_with_name(text: &str) -> bool {
    text.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}
