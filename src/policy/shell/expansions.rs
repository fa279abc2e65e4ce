//! What stands in `${…}`: its form, and whether shells have it otherwise.

/// What stands for a variable that is not set, or for one that is, where nothing in that is known only when it runs.
pub(super) fn instead(inner: &str) -> Option<&str> {
    let name = inner.strip_prefix('!').unwrap_or(inner);
    let behind = name.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_@*".contains(c));
    let behind = match behind
        .strip_prefix('[')
        .and_then(|index| index.split_once(']'))
    {
        Some((_, behind)) => behind,
        None => behind,
    };
    let behind = behind.strip_prefix(':').unwrap_or(behind);
    let text = behind.strip_prefix(['-', '=', '+'])?;
    (!text.contains(['$', '`'])).then_some(text)
}

/// Whether what is expanded may be no words or many though it is quoted: `$@`, `${a[@]}`, `${!p@}`, or whatever
/// `${!x}` names.
pub(super) fn may_be_words(raw: &str) -> bool {
    raw == "$@"
        || raw.starts_with("${@")
        || ["[@]", "$@", "{@", "${!"]
            .iter()
            .any(|sign| raw.contains(sign))
}

/// Whether there is a sign in the expansion that dash takes for another part of it, or passes over: right behind a name, or
/// behind `${x:` or `${#`.
pub(super) fn is_swallowed(raw: &str) -> bool {
    let mut begun = raw.match_indices("${");
    begun.any(|(at, sign)| swallows(&raw[at + sign.len()..]))
}

fn swallows(inner: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(length) = inner.strip_prefix('#') {
        let length = &length[..length.find('}').unwrap_or(length.len())];
        return !length.chars().all(|c| is_of_name(c) || "@*[]".contains(c));
    }
    let name = inner.strip_prefix('!').unwrap_or(inner);
    let behind = match name.strip_prefix(['@', '*', '?', '-', '$']) {
        Some(behind) => behind,
        None => name.trim_start_matches(is_of_name),
    };
    match behind.strip_prefix(':') {
        Some(behind) => !behind.starts_with(|c: char| is_of_name(c) || "-=?+ ".contains(c)),
        None => behind.starts_with(['\'', '"', '`', '\\', '$']),
    }
}

/// Whether there is a parenthesis in an expansion in arithmetic, which dash does not count.
pub(super) fn has_parenthesis_within(expression: &str) -> bool {
    let mut within = expression.split("${").skip(1);
    within.any(|text| {
        let end = text.find('}').unwrap_or(text.len());
        text[..end].contains(['(', ')'])
    })
}

/// Whether something in single quotes would be expanded that may go on behind them.
pub(super) fn quotes_expansion(raw: &str) -> bool {
    let expands = |text: &str| {
        let signs = ["$(", "${", "$[", "`"];
        signs.iter().any(|sign| text.contains(sign))
    };
    let mut quoted = raw.split('\'').skip(1).step_by(2);
    // Behind one that is escaped it is another that ends them.
    let is_escaped = raw.contains("\\'") && raw.get(2..).is_some_and(expands);
    is_escaped || quoted.any(expands)
}

/// Whether an expansion holds a pattern, in which quotes are quotes.
pub(super) fn takes_pattern(raw: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '@' || c == '*';
    let behind = raw.trim_start_matches("${").trim_start_matches(is_name);
    behind.starts_with(['#', '%', '/', '^', ','])
}

/// Whether there is a single quote in the expansion at the beginning of `text`, but for a pattern that is taken away,
/// in which it is one to everybody.
pub(super) fn has_quote(text: &str) -> bool {
    let inner = text.trim_start_matches("${");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '@' || c == '*';
    let behind = inner.trim_start_matches(is_name);
    if behind.len() < inner.len() && behind.starts_with(['#', '%']) {
        // But for another expansion in that, whichever it is.
        return behind.contains("${") && behind.contains('\'');
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
