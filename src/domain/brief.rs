//! What is said of a mistake goes into answers, records and logs: without the megabytes it may be about.

use super::{Judgement, Violation};

/// The longest text about a mistake, in bytes, and some more for the mark where it is cut.
const LONGEST: usize = 4096;

/// How many violations of one input are told.
const MOST_VIOLATIONS: usize = 1000;

/// Its beginning, which says what is wrong, and its end, which says what was expected.
pub(crate) fn brief(text: String) -> String {
    if text.len() <= LONGEST {
        return text;
    }
    let head = &text[..text.floor_char_boundary(LONGEST / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - LONGEST / 2)..];
    format!("{head} … {tail}")
}

/// The first of them, and how many there are besides.
pub(super) fn brief_violations(violations: &[Violation]) -> Vec<Violation> {
    let told = violations.iter().take(MOST_VIOLATIONS);
    let mut told: Vec<Violation> = told
        .map(|violation| Violation {
            pointer: brief(violation.pointer.clone()),
            detail: brief(violation.detail.clone()),
        })
        .collect();
    if let Some(more @ 1..) = violations.len().checked_sub(MOST_VIOLATIONS) {
        told.push(Violation::of_all(format!("and {more} violations more")));
    }
    told
}

/// The rules that it offers stay whole: a part of a rule is another rule.
pub(super) fn brief_judgement(judgement: &Judgement) -> Judgement {
    let Judgement {
        segment, reason, ..
    } = judgement.clone();
    Judgement {
        segment: segment.map(brief),
        reason: brief(reason),
        would_change: brief(judgement.would_change.clone()),
        ..judgement.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        assert_eq!(brief("short".into()), "short");
        let whole = "é".repeat(LONGEST / 2);
        assert_eq!(brief(whole.clone()), whole);
        let cut = brief(format!(
            "unknown field `{}`, expected one",
            "é".repeat(9_000_000)
        ));
        assert!(cut.len() <= LONGEST + 8, "{}", cut.len());
        assert!(cut.starts_with("unknown field `é") && cut.ends_with("é`, expected one"));
    }

    #[test]
    fn of_many_violations_the_first_are_told() {
        let one = |at: usize| Violation {
            pointer: format!("/{at}"),
            detail: "is no number".into(),
        };
        let all: Vec<Violation> = (0..MOST_VIOLATIONS + 2).map(one).collect();
        assert_eq!(
            brief_violations(&all[..MOST_VIOLATIONS]),
            all[..MOST_VIOLATIONS]
        );
        let told = brief_violations(&all);
        assert_eq!(told[..MOST_VIOLATIONS], all[..MOST_VIOLATIONS]);
        assert_eq!(
            told[MOST_VIOLATIONS..],
            [Violation::of_all("and 2 violations more".into())]
        );
    }
}
