use std::sync::LazyLock;

use regex::Regex;

use super::secrets::{SHAPES, Shape};

/// The longest summary of a command or an input, in characters.
pub const SUMMARY_CHARS: usize = 200;

/// How much of a text is looked at for its summary, in characters. A secret that starts inside
/// the summary and is longer than the rest of this would be cut before it is recognised; none of
/// the shapes below needs more than eighty characters to be recognised.
const LOOKED_AT_CHARS: usize = 1000;

/// What stands in for a secret.
pub const MASK: &str = "***";

/// Shapes of secrets: `name=value` and `--name value` with a telling name, credentials in a URL,
/// authorization headers, and the well-known prefixes of providers' tokens.
static SECRETS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let name = r"[A-Za-z0-9_.-]*(?:[Pp][Aa][Ss][Ss][Ww](?:[Oo][Rr])?[Dd]|[Pp]assphrase|PASSPHRASE|[Ss][Ee][Cc][Rr][Ee][Tt]|[Tt][Oo][Kk][Ee][Nn]|[Aa][Pp][Ii][_-]?[Kk][Ee][Yy]|[Aa][Cc][Cc][Ee][Ss][Ss][_-]?[Kk][Ee][Yy]|[Cc]redential|CREDENTIAL)[A-Za-z0-9_-]*";
    let value = r#"(?:"[^"]*"?|'[^']*'?|[^\s"'&;|]+)"#;
    let shapes = [
        format!(r#"(?P<assigned>{name}["']?\s*[=:]\s*){value}"#),
        format!(r"(?P<option>--{name}\s+){value}"),
        r"(?P<header>[Aa]uthorization:?\s*(?:[Bb]earer|[Bb]asic|[Tt]oken)?\s+)[^\s\x22']+"
            .to_owned(),
        r"(?P<bearer>[Bb]earer\s+)[A-Za-z0-9._~+/-]{8,}=*".to_owned(),
        r"(?P<url>[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+@".to_owned(),
        r"\b(?:pk|rk)-[A-Za-z0-9_-]{16,}".to_owned(),
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*".to_owned(),
    ];
    let tokens = SHAPES.iter().map(Shape::pattern);
    let all: Vec<String> = shapes.into_iter().chain(tokens).collect();
    Regex::new(&all.join("|")).ok()
});

/// Compiles the patterns now rather than at the first use, which takes milliseconds and a few
/// hundred KiB.
pub fn prepare_masking() {
    LazyLock::force(&SECRETS);
}

/// Replaces what has the shape of a secret by `***`.
pub fn mask_secrets(text: &str) -> String {
    let Some(secrets) = SECRETS.as_ref() else {
        // The pattern is a constant and a test compiles it; without it nothing may pass.
        return MASK.to_owned();
    };
    if !looks_secret(text) {
        // Most have none, and captures take memory.
        return text.to_owned();
    }
    let masked = secrets.replace_all(text, |found: &regex::Captures<'_>| {
        let kept = ["assigned", "option", "header", "bearer", "url"]
            .iter()
            .find_map(|name| found.name(name));
        match kept {
            Some(prefix) if found.name("url").is_some() => format!("{}{MASK}@", prefix.as_str()),
            Some(prefix) => format!("{}{MASK}", prefix.as_str()),
            None => MASK.to_owned(),
        }
    });
    masked.into_owned()
}

/// Whether there is anything in `text` that [`mask_secrets`] replaces: in a time that grows with its length only.
pub fn looks_secret(text: &str) -> bool {
    SECRETS
        .as_ref()
        .is_none_or(|secrets| secrets.is_match(text))
}

/// Whether a character begins another line, or makes others stand elsewhere than they are (UAX #9): people decide by
/// what they see.
pub fn misleads(character: char) -> bool {
    let turns_around = matches!(
        character,
        '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || turns_around
}

/// The first [`SUMMARY_CHARS`] characters of `text` with secrets masked and control characters
/// made blanks, so that a summary is one line of a log whatever it summarizes.
pub fn summarize(text: &str) -> String {
    let end = text
        .char_indices()
        .nth(LOOKED_AT_CHARS)
        .map_or(text.len(), |(at, _)| at);
    let masked = mask_secrets(&text[..end]);
    let mut summary = String::with_capacity(masked.len().min(SUMMARY_CHARS));
    let mut chars = masked.chars();
    for c in chars.by_ref().take(SUMMARY_CHARS) {
        summary.push(if misleads(c) { ' ' } else { c });
    }
    if (chars.next().is_some() || end < text.len()) && summary.chars().count() == SUMMARY_CHARS {
        summary.pop();
        summary.push('…');
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_the_rest_is_kept() {
        for (text, expected) in [
            ("df -h", "df -h"),
            ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
            ("x --api-key abc123 y", "x --api-key *** y"),
            ("x --token='a b' y", "x --token=*** y"),
            (
                r#"{"password": "hunter2", "a": 1}"#,
                r#"{"password": ***, "a": 1}"#,
            ),
            (
                "curl -H 'Authorization: Bearer abcdefghi'",
                "curl -H 'Authorization: Bearer ***'",
            ),
            (
                "git clone https://me:hunter2@host/x",
                "git clone https://me:***@host/x",
            ),
            ("echo sk-ant-api03-abcdefghijklmn", "echo ***"),
            ("echo AKIAIOSFODNN7EXAMPLE", "echo ***"),
            ("cat /etc/passwd", "cat /etc/passwd"),
        ] {
            assert_eq!(mask_secrets(text), expected);
        }
    }

    #[test]
    fn a_summary_is_short_and_one_line() {
        let summary = summarize(&format!("echo a\n{}", "é".repeat(5000)));
        assert_eq!(summary.chars().count(), SUMMARY_CHARS);
        assert!(summary.starts_with("echo a é") && summary.ends_with('…'));
        assert_eq!(summarize("x"), "x");
        // Neither for those who read from right to left, nor for those who know more ends of lines.
        assert_eq!(summarize("rm \u{202e}x\u{2028}y\u{85}z"), "rm  x y z");
        assert_eq!(
            summarize(&"y".repeat(SUMMARY_CHARS)),
            "y".repeat(SUMMARY_CHARS)
        );
    }

    #[test]
    fn a_secret_across_the_cut_is_masked() {
        let text = format!("{}TOKEN={}", "x ".repeat(96), "s".repeat(3000));
        assert!(!summarize(&text).contains("ss"));
    }
}
