use serde::Deserialize;
use serde_json::Value;

use crate::domain::{Ending, Exit, Secrets, StopReason, mask_secrets, summarize, unique};
use crate::runner::{Captured, Outcome};

/// The longest answer, in bytes. It holds an input at the most; what is longer than this is data
/// rather than a call, and of no use to whoever approves it.
pub(super) const ANSWER_BYTES: usize = 1 << 20;

/// The longest reason that is passed on, in bytes: a paragraph.
const REASON_BYTES: usize = 1000;

/// How much of the end of the last line of standard error is looked at for a summary, in bytes.
const LAST_WORDS_BYTES: usize = 1024;

/// What a hook says of a call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    tag = "decision",
    rename_all = "lowercase",
    deny_unknown_fields,
    expecting = "an object such as {\"decision\": \"allow\"}"
)]
pub(super) enum Answer {
    /// It may go on.
    Allow {},
    /// It may not. A reason is asked for; without one it is no less a refusal.
    Deny { reason: Option<String> },
    /// It goes on with this input, once that was judged.
    Change {
        #[serde(deserialize_with = "unique::value")]
        input: Value,
    },
}

/// What came of asking.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Came {
    /// An answer.
    Answer(Answer),
    /// None that counts: why.
    Failure(String),
    /// Whoever waited for it does not any more.
    Stopped(StopReason),
}

impl Came {
    /// What the end of its process comes to. What is cut of its words is masked before.
    pub(super) fn of(outcome: &Outcome, secrets: &Secrets) -> Self {
        let how = match outcome.ending {
            Ending::Itself(Exit::Code(0)) => match &outcome.capture_error {
                None => return Self::read(&outcome.stdout, secrets),
                Some(error) => format!("its answer cannot be read: {error}"),
            },
            Ending::Itself(Exit::Code(code)) => format!("it ended with exit code {code}"),
            Ending::Itself(Exit::Signal(signal)) => format!("{} ended it", signal.name()),
            Ending::Stopped {
                reason: StopReason::Timeout(limit),
                ..
            } => format!("it gave no answer within {}s", limit.as_secs_f64()),
            Ending::Stopped { reason, .. } => return Self::Stopped(reason),
        };
        Self::Failure(match last_words(&outcome.stderr, secrets) {
            Some(words) => format!("{how}: {words}"),
            None => how,
        })
    }

    fn read(stdout: &Captured, secrets: &Secrets) -> Self {
        if stdout.total > ANSWER_BYTES as u64 {
            return Self::Failure(format!("its answer is longer than {ANSWER_BYTES} bytes"));
        }
        match parse(&stdout.head, secrets) {
            Ok(answer) => Self::Answer(answer),
            Err(why) => Self::Failure(why),
        }
    }
}

/// Reads an answer.
fn parse(bytes: &[u8], secrets: &Secrets) -> Result<Answer, String> {
    if bytes.trim_ascii().is_empty() {
        return Err("it said nothing".to_owned());
    }
    // Serde would take an array's first member for the decision.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        let expected = "expected an object such as {\"decision\": \"allow\"}";
        return Err(format!("its answer is none: {expected}"));
    }
    let answer =
        serde_json::from_slice(bytes).map_err(|error| format!("its answer is none: {error}"))?;
    Ok(match answer {
        Answer::Deny {
            reason: Some(reason),
        } => Answer::Deny {
            reason: shortened(&secrets.mask_start(reason.trim(), REASON_BYTES + 1)),
        },
        answer @ (Answer::Allow {} | Answer::Deny { reason: None } | Answer::Change { .. }) => {
            answer
        }
    })
}

fn shortened(reason: &str) -> Option<String> {
    let cut = &reason[..reason.floor_char_boundary(REASON_BYTES)];
    let ellipsis = if cut.len() < reason.len() { "…" } else { "" };
    (!cut.is_empty()).then(|| format!("{cut}{ellipsis}"))
}

/// The last line of standard error with anything in it; of a long one, its end.
fn last_words(stderr: &Captured, secrets: &Secrets) -> Option<String> {
    let text = String::from_utf8_lossy(&stderr.head);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    let masked = mask_secrets(&secrets.mask_end(line, LAST_WORDS_BYTES));
    let begin = masked.ceil_char_boundary(masked.len().saturating_sub(LAST_WORDS_BYTES));
    Some(summarize(&masked[begin..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn parse(bytes: &[u8]) -> Result<Answer, String> {
        super::parse(bytes, &Secrets::default())
    }

    fn deny(reason: Option<&str>) -> Answer {
        Answer::Deny {
            reason: reason.map(str::to_owned),
        }
    }

    #[test]
    fn the_three_answers_are_read() {
        for (text, answer) in [
            (r#"{"decision":"allow"}"#, Answer::Allow {}),
            ("\n {\"decision\" : \"allow\"}\n", Answer::Allow {}),
            (r#"{"decision":"deny","reason":" no "}"#, deny(Some("no"))),
            // A refusal does not become a failure for want of words.
            (r#"{"decision":"deny"}"#, deny(None)),
            (r#"{"decision":"deny","reason":null}"#, deny(None)),
            (r#"{"decision":"deny","reason":" "}"#, deny(None)),
            (
                r#"{"decision":"change","input":{"command":"id"}}"#,
                Answer::Change {
                    input: json!({"command": "id"}),
                },
            ),
        ] {
            assert_eq!(parse(text.as_bytes()), Ok(answer), "{text}");
        }
        let long = format!(
            r#"{{"decision":"deny","reason":"{}"}}"#,
            "é".repeat(REASON_BYTES)
        );
        let Ok(Answer::Deny {
            reason: Some(reason),
        }) = parse(long.as_bytes())
        else {
            panic!("a refusal");
        };
        assert!(reason.len() <= REASON_BYTES + "…".len() && reason.ends_with('…'));
    }

    #[test]
    fn of_a_secret_in_a_long_reason_no_part_is_told() {
        let mut secrets = Secrets::default();
        secrets.add("correct-horse-battery");
        let filler = "x".repeat(REASON_BYTES - 10);
        let text = format!(r#"{{"decision":"deny","reason":"{filler} correct-horse-battery"}}"#);
        let told = format!("{filler} ***");
        assert_eq!(
            super::parse(text.as_bytes(), &secrets),
            Ok(deny(Some(&told)))
        );
    }

    #[test]
    fn what_is_no_answer_is_told_in_the_words_of_the_documentation() {
        let why = parse(b"5").expect_err("a number");
        assert!(why.contains("an object such as {\"decision\""), "{why}");
    }

    #[test]
    fn what_is_no_answer_counts_for_nothing() {
        for text in [
            "",
            " \n",
            "allow",
            "\"allow\"",
            "null",
            "[]",
            r#"["allow"]"#,
            r#"["change",{"command":"id"}]"#,
            "{}",
            r#"{"decision":"maybe"}"#,
            r#"{"decision":"Allow"}"#,
            r#"{"decision":null}"#,
            r#"{"decision":"allow","reason":"x"}"#,
            r#"{"decision":"allow","input":{}}"#,
            r#"{"decision":"deny","reason":3}"#,
            r#"{"decision":"deny","colour":"red"}"#,
            r#"{"decision":"change"}"#,
            r#"{"decision":"change","input":{"command":"id","command":"ls"}}"#,
            r#"{"decision":"change","input":{},"reason":"x"}"#,
            r#"{"decision":"allow","decision":"deny"}"#,
            r#"{"decision":"deny","decision":"allow"}"#,
            r#"{"decision":"allow"}{"decision":"deny"}"#,
            r#"{"decision":"allow"} x"#,
            r#"{"decision":"allow""#,
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(b"{\"decision\":\"allow\"}\xff").is_err());
        let deep = "[".repeat(100_000);
        assert!(parse(format!(r#"{{"decision":"change","input":{deep}"#).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn only_what_says_allow_allows(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just("{"), Just("}"), Just(":"), Just(","), Just("\"decision\""), Just("\"allow\""),
                    Just("\"deny\""), Just("\"change\""), Just("\"reason\""), Just("\"input\""),
                    Just("null"), Just(" "), Just("\"\""), Just("1e999"), Just("["), Just("]"),
                ],
                0..12,
            ),
        ) {
            let text = pieces.concat();
            if parse(text.as_bytes()) == Ok(Answer::Allow {}) {
                let bare: String = text.split_whitespace().collect();
                prop_assert_eq!(bare, r#"{"decision":"allow"}"#);
            }
        }
    }
}
