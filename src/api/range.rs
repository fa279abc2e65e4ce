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

/// What a range says by itself.
enum Spec {
    From { first: u64, last: Option<u64> },
    Last(u64),
}

/// The last byte of a range without one, of what grows: the largest number that all clients read alike, as RFC 8673
/// recommends.
const NO_END: u64 = (1 << 53) - 1;

/// Reads `Range`: one range of bytes is served, anything else ignored, as
/// the standard allows.
pub(super) fn wanted(header: Option<&HeaderValue>, length: u64) -> Wanted {
    match read(header) {
        None => Wanted::Whole,
        Some(Spec::Last(0)) => Wanted::Unsatisfiable,
        // The last of nothing is all of it (section 14.1.2).
        Some(Spec::Last(_)) if length == 0 => Wanted::Whole,
        Some(Spec::Last(suffix)) => Wanted::Part(ByteRange {
            first: length.saturating_sub(suffix),
            last: length - 1,
        }),
        Some(Spec::From { first, .. }) if first >= length => Wanted::Unsatisfiable,
        Some(Spec::From { first, last }) => Wanted::Part(ByteRange {
            first,
            last: last.map_or(length - 1, |last| last.min(length - 1)),
        }),
    }
}

/// The same of what grows: no byte is too far away for it. Where its end is nobody knows yet, and what
/// counts from there is ignored.
pub(super) fn wanted_of_growing(header: Option<&HeaderValue>) -> Option<ByteRange> {
    match read(header)? {
        Spec::From { first, last } => Some(ByteRange {
            first,
            last: last.unwrap_or(NO_END.max(first)),
        }),
        Spec::Last(_) => None,
    }
}

fn read(header: Option<&HeaderValue>) -> Option<Spec> {
    let (unit, spec) = header?.to_str().ok()?.trim().split_once('=')?;
    let spec = spec.trim();
    // Numbers are digits only, and more than one range is not served.
    let is_one = spec.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if !unit.eq_ignore_ascii_case("bytes") || !is_one {
        return None;
    }
    let (first, last) = spec.split_once('-')?;
    match (number(first), number(last)) {
        (None, Some(suffix)) if first.is_empty() => Some(Spec::Last(suffix)),
        (Some(first), Some(last)) if first > last => None,
        (Some(_), None) if !last.is_empty() => None,
        (Some(first), last) => Some(Spec::From { first, last }),
        (None, _) => None,
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

    #[test]
    fn of_what_grows_nothing_is_beyond_the_end() {
        let range = |first, last| Some(ByteRange { first, last });
        for (spec, expected) in [
            ("bytes=0-3", range(0, 3)),
            ("bytes=4-", range(4, 9_007_199_254_740_991)),
            ("bytes=4-99999999999999999999", range(4, u64::MAX)),
            ("bytes=99999999999999999999-", range(u64::MAX, u64::MAX)),
            ("bytes=-3", None),
            ("bytes=5-2", None),
            ("bytes=0-1,3-4", None),
        ] {
            let header = HeaderValue::from_static(spec);
            assert_eq!(wanted_of_growing(Some(&header)), expected, "{spec}");
        }
        assert_eq!(wanted_of_growing(None), None);
    }
}
