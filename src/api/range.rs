//! One range of bytes out of a representation (RFC 9110, section 14).

use axum::http::HeaderValue;

/// A range of bytes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteRange {
    pub first: u64,
    pub last: u64,
}

/// What a `Range` header asks for of a representation of a certain length.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Whole,
    Part(ByteRange),
    Unsatisfiable,
}

/// Reads `Range`: one range of bytes is served, anything else ignored, as
/// the standard allows.
pub(super) fn wanted(header: Option<&HeaderValue>, length: u64) -> Wanted {
    let Some(spec) = header
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.trim().split_once('='))
        .filter(|(unit, _)| unit.eq_ignore_ascii_case("bytes"))
        .map(|(_, spec)| spec.trim())
        // Numbers are digits only, and more than one range is not served.
        .filter(|spec| spec.bytes().all(|b| b.is_ascii_digit() || b == b'-'))
    else {
        return Wanted::Whole;
    };
    let Some((first, last)) = spec.split_once('-') else {
        return Wanted::Whole;
    };
    match (number(first), number(last)) {
        (None, Some(0)) if first.is_empty() => Wanted::Unsatisfiable,
        // The last of nothing is all of it (section 14.1.2).
        (None, Some(_)) if first.is_empty() && length == 0 => Wanted::Whole,
        (None, Some(suffix)) if first.is_empty() => Wanted::Part(ByteRange {
            first: length.saturating_sub(suffix),
            last: length - 1,
        }),
        (Some(first), Some(last)) if first > last => Wanted::Whole,
        (Some(_), None) if !last.is_empty() => Wanted::Whole,
        (Some(first), _) if first >= length => Wanted::Unsatisfiable,
        (Some(first), last) => Wanted::Part(ByteRange {
            first,
            last: last.map_or(length - 1, |last| last.min(length - 1)),
        }),
        (None, _) => Wanted::Whole,
    }
}

/// Digits; more of them than any length has are as good as the largest number.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        let part = |first, last| Wanted::Part(ByteRange { first, last });
        for (spec, expected) in [
            ("bytes=0-3", part(0, 3)),
            ("bytes=4-", part(4, 9)),
            ("bytes=4-400", part(4, 9)),
            ("bytes=-3", part(7, 9)),
            ("bytes=-30", part(0, 9)),
            ("bytes=4-99999999999999999999", part(4, 9)),
            ("bytes=-99999999999999999999", part(0, 9)),
            ("bytes=99999999999999999999-", Wanted::Unsatisfiable),
            ("bytes=1-2-3", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=10-", Wanted::Unsatisfiable),
            ("bytes=10-20", Wanted::Unsatisfiable),
            ("bytes=-0", Wanted::Unsatisfiable),
            ("bytes=5-2", Wanted::Whole),
            ("bytes=0-1,3-4", Wanted::Whole),
            ("lines=0-1", Wanted::Whole),
            ("bytes=x-1", Wanted::Whole),
            ("bytes=1-x", Wanted::Whole),
            ("bytes=", Wanted::Whole),
            ("bytes=+1-+2", Wanted::Whole),
            ("bytes=0 - 1", Wanted::Whole),
            ("Bytes=0-3", part(0, 3)),
        ] {
            assert_eq!(
                wanted(Some(&HeaderValue::from_static(spec)), 10),
                expected,
                "{spec}"
            );
        }
        assert_eq!(wanted(None, 10), Wanted::Whole);
        for (spec, of_nothing) in [
            ("bytes=0-", Wanted::Unsatisfiable),
            ("bytes=-0", Wanted::Unsatisfiable),
            ("bytes=-100", Wanted::Whole),
        ] {
            let header = HeaderValue::from_static(spec);
            assert_eq!(wanted(Some(&header), 0), of_nothing, "{spec}");
        }
    }
}
