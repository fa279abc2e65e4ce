//! Times as RFC 3339 writes them.

use std::time::{Duration, SystemTime};

/// Writes one: UTC, with milliseconds.
pub(crate) fn timestamp(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// Reads a time with `Z` or an offset, `T` and `Z` in either case. humantime knows no offset.
pub fn parse_timestamp(text: &str) -> Option<SystemTime> {
    let text = text.to_ascii_uppercase();
    let (time, zone) = match text.strip_suffix('Z') {
        Some(time) => (time, "+00:00"),
        None => text.split_at_checked(text.len().checked_sub("+00:00".len())?)?,
    };
    // It would let a `Z` pass before the offset.
    if time.ends_with('Z') {
        return None;
    }
    let time = humantime::parse_rfc3339_weak(time).ok()?;
    let [sign, h1, h2, b':', m1, m2] = *zone.as_bytes() else {
        return None;
    };
    let number = |tens: u8, ones: u8| {
        let digits = [tens, ones].map(|digit| char::from(digit).to_digit(10));
        Some(u64::from(digits[0]? * 10 + digits[1]?))
    };
    let (hours, minutes) = (number(h1, h2)?, number(m1, m2)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let offset = Duration::from_secs((hours * 60 + minutes) * 60);
    match sign {
        b'+' => time.checked_sub(offset),
        b'-' => time.checked_add(offset),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_have_any_offset() {
        for (text, expected) in [
            ("2026-11-22T09:00:00Z", "2026-11-22T09:00:00.000Z"),
            ("2026-11-22t09:00:00.25z", "2026-11-22T09:00:00.250Z"),
            ("2026-11-22T09:00:00+01:30", "2026-11-22T07:30:00.000Z"),
            ("2026-11-22 09:00:00.5-02:00", "2026-11-22T11:00:00.500Z"),
        ] {
            let time = parse_timestamp(text).expect(text);
            let told = timestamp(time);
            assert_eq!(told, expected, "{text}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        for text in [
            "",
            "Z",
            "ü",
            "2026-11-22",
            "2026-11-22T09:00:00",
            "2026-11-22T09:00:00+1",
            "2026-11-22T09:00:00Z+01:00",
            "2026-11-22T09:00:00+24:00",
            "2026-11-22T09:00:00+01:60",
            "2026-11-22T09:00:00++1:00",
            "2026-11-22T09:00:00 01:00",
            "2026-13-22T09:00:00Z",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }
}
