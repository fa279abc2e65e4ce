//! History where there is no ledger: what a filter lets through of what is remembered.

use super::Record;
use crate::ledger::{Filter, LedgerError};

/// The records that a filter lets through, in their order. Of where its page begins and how long it is nothing is
/// asked.
///
/// # Errors
/// For a text without a word.
pub(super) fn fitting(
    mut records: Vec<Record>,
    filter: &Filter,
) -> Result<Vec<Record>, LedgerError> {
    let words = filter.text.as_deref().map(words).transpose()?;
    records.retain(|record| {
        filter.since.is_none_or(|since| record.created_at >= since)
            && filter.until.is_none_or(|until| record.created_at < until)
            && filter.tool.as_ref().is_none_or(|tool| record.tool == *tool)
            && filter.status.is_none_or(|status| record.status == status)
            && filter.caller_uid.is_none_or(|uid| record.caller_uid == uid)
            && filter
                .trace_id
                .as_ref()
                .is_none_or(|trace| record.trace_id.as_ref() == Some(trace))
            && words.as_ref().is_none_or(|words| has_all(record, words))
    });
    Ok(records)
}

/// What is looked for in one piece, as the ledger's text index does: its letters and digits, in lower case.
struct Word {
    tokens: Vec<String>,
    /// Whether the last is only the beginning of one.
    is_beginning: bool,
}

fn words(text: &str) -> Result<Vec<Word>, LedgerError> {
    let words = text.split_whitespace().map(|word| Word {
        tokens: tokens(word),
        is_beginning: word.ends_with('*'),
    });
    let words: Vec<Word> = words.filter(|word| !word.tokens.is_empty()).collect();
    if words.is_empty() {
        return Err(LedgerError::NoWords {
            text: text.chars().take(200).collect(),
        });
    }
    Ok(words)
}

fn tokens(text: &str) -> Vec<String> {
    let tokens = text.split(|c: char| !c.is_alphanumeric());
    let tokens = tokens.filter(|token| !token.is_empty());
    tokens.map(str::to_lowercase).collect()
}

/// Whether an execution that has ended has all words in its call or answer.
fn has_all(record: &Record, words: &[Word]) -> bool {
    let Some(finished) = &record.finished else {
        return false;
    };
    let call = tokens(&record.call.input.to_string());
    let mut others = words.iter().filter(|word| !has(&call, word)).peekable();
    let answer = match others.peek() {
        Some(_) => tokens(&finished.text()),
        None => Vec::new(),
    };
    others.all(|word| has(&answer, word))
}

fn has(text: &[String], word: &Word) -> bool {
    let fits = |(index, (found, wanted)): (usize, (&String, &String))| {
        let may_go_on = word.is_beginning && index + 1 == word.tokens.len();
        found == wanted || (may_go_on && found.starts_with(wanted.as_str()))
    };
    let pieces = text.windows(word.tokens.len());
    let mut pieces = pieces.map(|piece| piece.iter().zip(&word.tokens).enumerate().all(fits));
    pieces.any(|is_there| is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_as_the_ledger_finds_them() {
        let text = tokens("git -C /srv/app status --short; echo Über");
        for (word, is_there) in [
            ("git", true),
            ("GIT", true),
            ("über", true),
            ("gi", false),
            ("gi*", true),
            ("/srv/app", true),
            ("srv/ap*", true),
            ("srv/status", false),
            ("stat", false),
        ] {
            let words = words(word).expect("a word");
            assert_eq!(has(&text, &words[0]), is_there, "{word}");
        }
        assert!(words(" && || ").is_err());
    }
}
