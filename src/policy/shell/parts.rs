//! Shapes of scripts in which the parser and bash are known to part ways: nothing with one in it is read.

use super::tokens::{behind_arithmetic, joined};

/// Signs behind which a parenthesis opens a pattern, to the parser always.
const EXTENDED: [char; 5] = ['?', '*', '+', '@', '!'];

/// Whether there may be one. In doubt there is.
pub(super) fn ways(text: &str) -> bool {
    let text = joined(text);
    // A dollar sign, or a process's number, and a quoted text of its own.
    ["\\$'", "$$'"].iter().any(|signs| text.contains(signs))
        || text.contains("<<") && (hides_document(&text) || hides_in_expansion(&text))
        || text.contains('#') && hides_comment(&text)
        || hides_in_pattern(&text)
        || hides_in_expression(&text)
}

/// Whether a here-document shares its line with an expansion, whose commands get lost then, its sign is in a subscript
/// or a pattern, or what ends a substitution may end it.
fn hides_document(text: &str) -> bool {
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
        ends.extend(end_of(behind));
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
    substitutes && text.lines().any(closes)
}

/// Whether a here-document is odd of which `line` stands behind the sign: the line goes on in the next one, where bash looks
/// for the text behind all of it, or the parser may take something else for the word that ends the text.
pub(super) fn is_odd_document(line: &str) -> bool {
    goes_on(line) || is_odd_end(line)
}

/// Whether a quote, or a parenthesis, that begins in `text` is not closed there.
fn goes_on(text: &str) -> bool {
    let mut quote = None;
    let mut open = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some('\''), '\'') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => drop(chars.next()),
            (Some(begun), c) if begun == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"' | '`') => quote = Some(c),
            (None, '(') => open += 1,
            (None, ')') => open -= 1,
            (None, _) => {}
        }
    }
    quote.is_some() || open > 0
}

/// Whether the word behind `<<` may be another to the parser: in substitutions a second blank is one, and in an expansion
/// whatever stands there.
fn is_odd_end(behind: &str) -> bool {
    let behind = behind.strip_prefix('-').unwrap_or(behind);
    let behind = behind.strip_prefix([' ', '\t']).unwrap_or(behind);
    let is_end = |c: char| c.is_whitespace() || ";|&()<>".contains(c);
    behind.starts_with(is_end)
        || behind
            .split(is_end)
            .next()
            .is_some_and(|word| word.contains(['$', '`']))
}

/// The word behind `<<`.
pub(super) fn end_of(behind: &str) -> Option<&str> {
    let behind = behind.trim_start_matches('-').trim_start();
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
    let (mut before, mut last) = (' ', ' ');
    for c in text.chars() {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        match c {
            '(' => {
                let is_second = last == '(' && !is_name(before);
                arithmetic += usize::from(is_second);
                parentheses.push(is_second);
            }
            ')' => arithmetic -= usize::from(parentheses.pop().unwrap_or(false)),
            '[' => brackets += usize::from(is_name(last) || last == '[' || last == '$'),
            ']' => brackets = brackets.saturating_sub(1),
            '\n' => brackets = 0,
            '#' if " \t\n([".contains(last) && (arithmetic > 0 || brackets > 0) => return true,
            _ => {}
        }
        (before, last) = (last, c);
    }
    false
}

/// Whether a pattern, to the parser, ends within quotes or behind the expansion that it stands in, or is a function's
/// name.
fn hides_in_pattern(text: &str) -> bool {
    let is_open = |inner: &str| {
        let mut opens = inner.match_indices('(');
        opens.any(|(at, _)| inner[..at].ends_with(EXTENDED) && !inner[at..].contains(')'))
    };
    if expansions(text).any(|inner| is_open(expanded(inner))) {
        return true;
    }
    let opens = text.match_indices('(').map(|(at, _)| at);
    let mut opens = opens.filter(|at| text[..*at].ends_with(EXTENDED));
    opens.any(|at| {
        let inner = text[at..].split(')').next().unwrap_or_default();
        if count(inner, "(") > 1 {
            // Where the outer one ends, its quotes decide.
            return closed(&text[at..]).contains(['\'', '"', '\\']);
        }
        let is_within = |quote: &&str| count(inner, quote) % 2 == 1;
        let name = text[..at].trim_end_matches(|c: char| !c.is_whitespace());
        ["'", "\""].iter().any(is_within)
            || inner.ends_with('\\')
            || name.trim_end().ends_with("function")
    })
}

/// What stands in the parentheses that `text` begins with, whatever is quoted in them.
fn closed(text: &str) -> &str {
    let mut open = 0;
    let ends = |(at, c): (usize, char)| {
        match c {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        (open == 0).then_some(at)
    };
    let end = text.char_indices().find_map(ends).unwrap_or(text.len());
    &text[..end]
}

/// Whether there is something in the parentheses of a regular expression that the parser takes for another part of the
/// script. Bash reads them as they are.
fn hides_in_expression(text: &str) -> bool {
    let tests = text
        .match_indices("=~")
        .filter(|(at, _)| text[..*at].contains("[["));
    let mut behind = tests.map(|(at, sign)| &text[at + sign.len()..]);
    behind.any(|behind| {
        let mut open = 0_usize;
        let mut last = ' ';
        let mut chars = behind.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => drop(chars.next()),
                '(' => open += 1,
                ')' => open = open.saturating_sub(1),
                '<' | '>' | '#' | '\n' | '\'' | '"' if open > 0 => return true,
                '\'' => drop(chars.find(|end| *end == c)),
                '"' => skip_quoted(&mut chars),
                // What ends a bracket expression stands behind something else.
                ']' if open == 0 && last.is_whitespace() && chars.as_str().starts_with(']') => {
                    return false;
                }
                _ => {}
            }
            last = c;
        }
        false
    })
}

/// Goes behind the end of a text in double quotes.
fn skip_quoted(chars: &mut std::str::Chars<'_>) {
    while let Some(c) = chars.next().filter(|c| *c != '"') {
        if c == '\\' {
            chars.next();
        }
    }
}

fn count(text: &str, signs: &str) -> usize {
    text.matches(signs).count()
}
