//! Where quotes, expansions and parentheses end, to bash.

use std::str::Chars;

/// How deeply something may be within something else before it is in doubt where that ends: people do not go so far.
const MAX_DEPTH: usize = 64;

/// Goes behind the `end` of what has just begun. False where there is none, or in doubt.
pub(super) fn skip_to(chars: &mut Chars<'_>, end: char) -> bool {
    skip_within(chars, end, 0)
}

fn skip_within(chars: &mut Chars<'_>, end: char, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    while let Some(c) = chars.next() {
        if c == end {
            return true;
        }
        if !skip_piece(chars, c, end, depth + 1) {
            return false;
        }
    }
    false
}

/// Goes behind what begins with `c`, within what `end` ends. False where nothing ends it, or in doubt.
fn skip_piece(chars: &mut Chars<'_>, c: char, end: char, depth: usize) -> bool {
    let is_quoted = end == '"';
    match c {
        '\\' => {
            chars.next();
            true
        }
        // Within braces that are quoted themselves it is none.
        '\'' if end == '}' => false,
        '\'' if !is_quoted => chars.any(|c| c == '\''),
        '"' if !is_quoted => skip_within(chars, '"', depth),
        '`' => skip_within(chars, '`', depth),
        '$' => skip_expansion(chars, is_quoted, depth),
        // What they open is closed before `end` is.
        '(' if end == ')' => skip_within(chars, ')', depth),
        '[' if end == ']' => skip_within(chars, ']', depth),
        // A comment, or the end of a case's pattern: who knows where that ends.
        '#' | ';' | '<' if end == ')' => false,
        'c' if end == ')' && chars.as_str().starts_with("ase") => false,
        _ => true,
    }
}

/// Goes behind an expansion whose dollar sign was read.
fn skip_expansion(chars: &mut Chars<'_>, is_quoted: bool, depth: usize) -> bool {
    let end = match chars.as_str().chars().next() {
        Some('(') => ')',
        Some('{') => '}',
        Some('[') => ']',
        Some('\'') if !is_quoted => {
            chars.next();
            return skip_escaped(chars);
        }
        _ => return true,
    };
    chars.next();
    skip_within(chars, end, depth)
}

/// Goes behind the end of `$'…'`.
fn skip_escaped(chars: &mut Chars<'_>) -> bool {
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '\'' => return true,
            _ => {}
        }
    }
    false
}

/// Goes behind a quoted text, an escaped character or an expansion that begins with `c`. `None` where none begins with it,
/// false where it has no end, or in doubt.
pub(super) fn skip_quoted(chars: &mut Chars<'_>, c: char) -> Option<bool> {
    matches!(c, '\\' | '\'' | '"' | '`' | '$').then(|| skip_piece(chars, c, ' ', 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_begun_is_gone_behind() {
        for (text, end, rest) in [
            ("a]=x", ']', Some("=x")),
            ("\"$k\"]=x", ']', Some("=x")),
            ("\"${a}_${b[1]}\"]=x", ']', Some("=x")),
            ("$(stat -c '%s' \"$f\")]=x", ']', Some("=x")),
            ("`date +%s`]=x", ']', Some("=x")),
            ("']'|2]=x", ']', Some("=x")),
            ("$'\\']|x'|2]=x", ']', Some("=x")),
            ("\\]|2]=x", ']', Some("=x")),
            ("a[1]+b[$x]]=x", ']', Some("=x")),
            ("it's\" b", '"', Some(" b")),
            ("$(a \")\")\" b", '"', Some(" b")),
            ("a", ']', None),
            ("$(case x in x) ;; esac)]", ']', None),
            ("${x-'}'}]", ']', None),
            ("\"a]", ']', None),
        ] {
            let mut chars = text.chars();
            let found = skip_to(&mut chars, end).then_some(chars.as_str());
            assert_eq!(found, rest, "{text}");
        }
    }
}
