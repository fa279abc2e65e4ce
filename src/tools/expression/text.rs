//! The methods of texts, as Python has them. Whatever grows is measured before it is made.

use memchr::memmem;
use serde_json::Value;

use super::budget::Budget;
use super::callable::{Callable, text_of, whole};
use super::functions;
use super::measure::TEXT_BYTES;

type Made = Result<Value, String>;

#[rustfmt::skip]
pub(super) static TEXT: &[Callable<str>] = &[
    Callable { name: "capitalize",   least: 0, most: 0, run: capitalize },
    Callable { name: "count",        least: 1, most: 1, run: count },
    Callable { name: "endswith",     least: 1, most: 1, run: |text, args, budget| affix(text, args[0], budget, |text, part| text.ends_with(part)) },
    Callable { name: "find",         least: 1, most: 1, run: |text, args, budget| find(text, args[0], budget, memmem::find) },
    Callable { name: "isalnum",      least: 0, most: 0, run: |text, _, budget| every(text, budget, char::is_alphanumeric) },
    Callable { name: "isalpha",      least: 0, most: 0, run: |text, _, budget| every(text, budget, char::is_alphabetic) },
    Callable { name: "isdigit",      least: 0, most: 0, run: |text, _, budget| every(text, budget, |c| c.is_ascii_digit()) },
    Callable { name: "islower",      least: 0, most: 0, run: |text, _, budget| cased(text, budget, char::is_lowercase, char::is_uppercase) },
    Callable { name: "isspace",      least: 0, most: 0, run: |text, _, budget| every(text, budget, is_space) },
    Callable { name: "isupper",      least: 0, most: 0, run: |text, _, budget| cased(text, budget, char::is_uppercase, char::is_lowercase) },
    Callable { name: "join",         least: 1, most: 1, run: join },
    Callable { name: "lower",        least: 0, most: 0, run: |text, _, budget| changed(text, budget, str::to_lowercase) },
    Callable { name: "lstrip",       least: 0, most: 1, run: |text, args, budget| strip(text, args, budget, Ends::Start) },
    Callable { name: "partition",    least: 1, most: 1, run: partition },
    Callable { name: "removeprefix", least: 1, most: 1, run: |text, args, budget| removed(text, args[0], budget, |text, part| text.strip_prefix(part)) },
    Callable { name: "removesuffix", least: 1, most: 1, run: |text, args, budget| removed(text, args[0], budget, |text, part| text.strip_suffix(part)) },
    Callable { name: "replace",      least: 2, most: 3, run: replace },
    Callable { name: "rfind",        least: 1, most: 1, run: |text, args, budget| find(text, args[0], budget, memmem::rfind) },
    Callable { name: "rsplit",       least: 0, most: 2, run: |text, args, budget| split(text, args, budget, Ends::End) },
    Callable { name: "rstrip",       least: 0, most: 1, run: |text, args, budget| strip(text, args, budget, Ends::End) },
    Callable { name: "split",        least: 0, most: 2, run: |text, args, budget| split(text, args, budget, Ends::Start) },
    Callable { name: "splitlines",   least: 0, most: 0, run: splitlines },
    Callable { name: "startswith",   least: 1, most: 1, run: |text, args, budget| affix(text, args[0], budget, |text, part| text.starts_with(part)) },
    Callable { name: "strip",        least: 0, most: 1, run: |text, args, budget| strip(text, args, budget, Ends::Both) },
    Callable { name: "upper",        least: 0, most: 0, run: |text, _, budget| changed(text, budget, str::to_uppercase) },
];

/// Which ends of a text something is about.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    Start,
    End,
    Both,
}

/// What Python takes for white space: four separators more than Unicode does.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

fn every(text: &str, budget: &mut Budget, is: fn(char) -> bool) -> Made {
    budget.work(text.len())?;
    Ok((!text.is_empty() && text.chars().all(is)).into())
}

fn cased(text: &str, budget: &mut Budget, is: fn(char) -> bool, is_not: fn(char) -> bool) -> Made {
    budget.work(text.len())?;
    Ok((text.contains(is) && !text.contains(is_not)).into())
}

/// The text changed by something that makes three bytes of one, at most.
fn changed(text: &str, budget: &mut Budget, change: fn(&str) -> String) -> Made {
    let most = if text.is_ascii() { 1 } else { 3 };
    budget.make(TEXT_BYTES + text.len().saturating_mul(most))?;
    Ok(Value::String(change(text)))
}

fn capitalize(text: &str, _: &[&Value], budget: &mut Budget) -> Made {
    budget.make(TEXT_BYTES + text.len().saturating_mul(6))?;
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    let capital: String = first.collect();
    Ok(Value::String(capital + &chars.as_str().to_lowercase()))
}

fn count(text: &str, args: &[&Value], budget: &mut Budget) -> Made {
    budget.work(text.len())?;
    let part = text_of("what is counted", args[0])?;
    Ok(occurrences(text, part).into())
}

/// How often `part` is in `text`; an empty one is between all characters.
fn occurrences(text: &str, part: &str) -> usize {
    if part.is_empty() {
        return text.chars().count() + 1;
    }
    memmem::find_iter(text.as_bytes(), part.as_bytes()).count()
}

fn find(
    text: &str,
    part: &Value,
    budget: &mut Budget,
    find: fn(&[u8], &[u8]) -> Option<usize>,
) -> Made {
    budget.work(text.len())?;
    let part = text_of("what is looked for", part)?;
    let at = find(text.as_bytes(), part.as_bytes());
    Ok(at.map_or(Value::from(-1), |at| text[..at].chars().count().into()))
}

/// Whether it begins or ends with a text, or one of a list.
fn affix(text: &str, part: &Value, budget: &mut Budget, has: fn(&str, &str) -> bool) -> Made {
    let parts = part.as_array().map(Vec::as_slice);
    let parts = parts.unwrap_or(std::slice::from_ref(part));
    for part in parts {
        let part = text_of("what it begins or ends with", part)?;
        budget.work(part.len().min(text.len()))?;
        if has(text, part) {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

fn removed(
    text: &str,
    part: &Value,
    budget: &mut Budget,
    strip: for<'t> fn(&'t str, &str) -> Option<&'t str>,
) -> Made {
    let part = text_of("what is removed", part)?;
    budget.text(strip(text, part).unwrap_or(text))
}

fn strip(text: &str, args: &[&Value], budget: &mut Budget, ends: Ends) -> Made {
    let stripped = match args.first() {
        None | Some(Value::Null) => trimmed(text, ends, is_space),
        Some(chars) => {
            let chars = text_of("what is stripped", chars)?;
            // Each character is looked for among them, one by one.
            budget.work(text.len().saturating_mul(3 + chars.len()))?;
            trimmed(text, ends, |c| chars.contains(c))
        }
    };
    budget.text(stripped)
}

fn trimmed(text: &str, ends: Ends, unwanted: impl Fn(char) -> bool) -> &str {
    let text = match ends {
        Ends::Start | Ends::Both => text.trim_start_matches(&unwanted),
        Ends::End => text,
    };
    match ends {
        Ends::End | Ends::Both => text.trim_end_matches(&unwanted),
        Ends::Start => text,
    }
}

fn join(text: &str, args: &[&Value], budget: &mut Budget) -> Made {
    let items = functions::items(args[0], budget)?;
    let parts: Result<Vec<&str>, _> = items
        .iter()
        .map(|item| text_of("what is joined", item))
        .collect();
    let parts = parts.map_err(|error| format!("{error}, as of `str(x)`"))?;
    let between = text.len().saturating_mul(parts.len().saturating_sub(1));
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    budget.make(TEXT_BYTES + length.saturating_add(between))?;
    Ok(Value::String(parts.join(text)))
}

fn partition(text: &str, args: &[&Value], budget: &mut Budget) -> Made {
    let part = separator(args[0])?;
    budget.work(text.len())?;
    let (before, found, after) = match text.split_once(part) {
        Some((before, after)) => (before, part, after),
        None => (text, "", ""),
    };
    let parts: Result<_, _> = [before, found, after]
        .map(|part| budget.text(part))
        .into_iter()
        .collect();
    parts.map(Value::Array)
}

fn replace(text: &str, args: &[&Value], budget: &mut Budget) -> Made {
    let old = text_of("what is replaced", args[0])?;
    let new = text_of("the replacement", args[1])?;
    let most = limit(args.get(2))?;
    budget.work(text.len())?;
    let count = occurrences(text, old).min(most);
    let length = text.len() - count * old.len();
    budget.make(TEXT_BYTES + length.saturating_add(count.saturating_mul(new.len())))?;
    Ok(Value::String(text.replacen(old, new, count)))
}

/// How often, at most; negative ones and none set no limit.
fn limit(given: Option<&&Value>) -> Result<usize, String> {
    let given = given.map(|given| whole("how often", given)).transpose()?;
    Ok(given.map_or(usize::MAX, |most| {
        usize::try_from(most).unwrap_or(usize::MAX)
    }))
}

fn separator(value: &Value) -> Result<&str, String> {
    let text = text_of("the separator", value)?;
    if text.is_empty() {
        return Err("the separator is empty".to_owned());
    }
    Ok(text)
}

fn split(text: &str, args: &[&Value], budget: &mut Budget, from: Ends) -> Made {
    budget.work(text.len())?;
    let most = limit(args.get(1))?;
    let separator = match args.first() {
        None | Some(Value::Null) => None,
        Some(given) => Some(separator(given)?),
    };
    let mut parts = Vec::new();
    let mut rest = match separator {
        Some(_) => Some(text),
        None => worded(trimmed(
            text,
            if from == Ends::End {
                Ends::End
            } else {
                Ends::Start
            },
            is_space,
        )),
    };
    while let Some(text) = rest {
        let cut = if parts.len() < most {
            cut(text, separator, from)
        } else {
            None
        };
        let (part, left) = match cut {
            Some((part, left)) => (part, Some(left)),
            None => (text, None),
        };
        rest = match separator {
            Some(_) => left,
            None => left.and_then(worded),
        };
        // What is split no further keeps its blanks, except those at the far end of the last word.
        parts.push(budget.text(part)?);
    }
    if from == Ends::End {
        parts.reverse();
    }
    Ok(Value::Array(parts))
}

/// A text without blanks at one end with a word in it, which is there unless there is nothing.
fn worded(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// The part at one end, and what is left behind what separates them.
fn cut<'t>(text: &'t str, separator: Option<&str>, from: Ends) -> Option<(&'t str, &'t str)> {
    match (separator, from) {
        (Some(separator), Ends::End) => {
            text.rsplit_once(separator).map(|(left, part)| (part, left))
        }
        (Some(separator), Ends::Start | Ends::Both) => text.split_once(separator),
        (None, Ends::End) => {
            let (left, part) = text.rsplit_once(is_space)?;
            Some((part, trimmed(left, Ends::End, is_space)))
        }
        (None, Ends::Start | Ends::Both) => {
            let (part, left) = text.split_once(is_space)?;
            Some((part, trimmed(left, Ends::Start, is_space)))
        }
    }
}

fn splitlines(text: &str, _: &[&Value], budget: &mut Budget) -> Made {
    const BREAKS: &[char] = &[
        '\n', '\r', '\x0b', '\x0c', '\x1c', '\x1d', '\x1e', '\u{85}', '\u{2028}', '\u{2029}',
    ];
    budget.work(text.len())?;
    let (mut lines, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (line, after) = rest.find(BREAKS).map_or((rest, ""), |at| {
            let length = match rest[at..].strip_prefix("\r\n") {
                Some(_) => 2,
                None => rest[at..].chars().next().map_or(0, char::len_utf8),
            };
            (&rest[..at], &rest[at + length..])
        });
        lines.push(budget.text(line)?);
        rest = after;
    }
    Ok(Value::Array(lines))
}
