//! `grpc-timeout`: when a client stops waiting.

use std::time::Duration;

use axum::http::HeaderMap;
use tokio::time::Instant;

use crate::api::{Code, Refusal};
use crate::domain::StopReason;

/// When a client stops waiting, and how long that was from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    pub(super) after: Duration,
}

impl Deadline {
    /// That of a call which has just come in; `None` of one that waits however long it takes.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>, Refusal> {
        let Some(value) = headers.get("grpc-timeout") else {
            return Ok(None);
        };
        let after = value.to_str().ok().and_then(parse).ok_or_else(|| {
            let detail = format!(
                "`grpc-timeout` is {value:?}: expected 1 to 8 digits and one of H, M, S, m, u, n"
            );
            Refusal::new(Code::MalformedRequest, detail)
        })?;
        // Eight digits of hours are beyond what a clock holds on some machines.
        let at = Instant::now().checked_add(after);
        Ok(at.map(|at| Self { at, after }))
    }

    /// Whether nobody waits any more.
    pub(super) fn is_past(self) -> bool {
        Instant::now() >= self.at
    }

    /// Whether a client that goes now goes because of it. Its clock began earlier and may be coarser than
    /// ours, so a little before counts.
    pub(super) fn is_due(self) -> bool {
        let little = (self.after / 16).clamp(Duration::from_millis(25), Duration::from_secs(1));
        Instant::now() + little >= self.at
    }

    /// Why an execution is stopped at it.
    pub(super) fn reason(self) -> StopReason {
        StopReason::Timeout(self.after)
    }
}

/// The standard's number and unit.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let usable = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| usable)?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_before_it_is_due() {
        let due = |left: u64, after: u64| {
            let deadline = Deadline {
                at: Instant::now() + Duration::from_secs(left),
                after: Duration::from_secs(after),
            };
            deadline.is_due()
        };
        assert!(due(0, 10));
        assert!(!due(5, 10));
        assert!(!due(2, 36_000));
    }

    #[test]
    fn the_units_of_the_standard_are_read_and_no_others() {
        for (text, expected) in [
            ("2H", Some(Duration::from_secs(7200))),
            ("3M", Some(Duration::from_secs(180))),
            ("10S", Some(Duration::from_secs(10))),
            ("250m", Some(Duration::from_millis(250))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("0n", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("1", None),
            ("+1S", None),
            ("1s", None),
            ("1 S", None),
            ("123456789S", None),
            ("1é", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
