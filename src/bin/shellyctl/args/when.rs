//! Times as people type them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What can be said, for who said something else.
const EXPECTED: &str = "expected a time such as 2026-11-22T09:00:00Z, a local date such as 2026-11-22 or \
    \"2026-11-22 09:00\", `now`, `today`, `yesterday`, `tomorrow`, or a span back from now such as `1h` or \"30min ago\"";

/// A time: RFC 3339, a local date with or without a time of day, a word as in systemd.time(7), or a span back
/// from now.
pub fn when(text: &str) -> Result<SystemTime, String> {
    let text = text.trim();
    let found = match text {
        "now" => Some(SystemTime::now()),
        "today" => midnight(0),
        "yesterday" => midnight(-1),
        "tomorrow" => midnight(1),
        _ if text.is_ascii() => ago(text).or_else(|| rfc3339(text)).or_else(|| local(text)),
        _ => None,
    };
    found.ok_or_else(|| EXPECTED.to_owned())
}

/// The beginning of today or of a day so many days after it, by this machine's clock.
fn midnight(days: libc::c_int) -> Option<SystemTime> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let now = libc::time_t::try_from(now).ok()?;
    // SAFETY: as in `local`.
    let seconds = unsafe {
        let mut broken_down: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const now, &raw mut broken_down);
        (broken_down.tm_hour, broken_down.tm_min, broken_down.tm_sec) = (0, 0, 0);
        // A day before the first of a month is understood.
        broken_down.tm_mday += days;
        broken_down.tm_isdst = -1;
        libc::mktime(&raw mut broken_down)
    };
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

fn ago(text: &str) -> Option<SystemTime> {
    let span = text.strip_suffix("ago").unwrap_or(text).trim_end();
    let span = humantime::parse_duration(span).ok()?;
    SystemTime::now().checked_sub(span)
}

/// With `Z` or an offset; humantime knows no other offset than none.
fn rfc3339(text: &str) -> Option<SystemTime> {
    let (time, zone) = match text.strip_suffix(['Z', 'z']) {
        Some(time) => (time, "+00:00"),
        None => text.split_at_checked(text.len().checked_sub("+00:00".len())?)?,
    };
    let time = humantime::parse_rfc3339_weak(time).ok()?;
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let offset = Duration::from_secs((hours * 60 + minutes) * 60);
    match zone.as_bytes()[0] {
        b'+' => time.checked_sub(offset),
        b'-' => time.checked_add(offset),
        _ => None,
    }
}

/// `2026-11-22`, `2026-11-22 09:00`, `2026-11-22 09:00:30`, by this machine's clock.
fn local(text: &str) -> Option<SystemTime> {
    let whole = match text.len() {
        10 => format!("{text} 00:00:00"),
        16 => format!("{text}:00"),
        _ => text.to_owned(),
    };
    let as_if_utc = humantime::parse_rfc3339_weak(&whole).ok()?;
    let seconds = as_if_utc.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let seconds = libc::time_t::try_from(seconds).ok()?;
    // SAFETY: `tm` is plain data for which zeroes are a value, and both functions are given memory
    // that lives longer than the call; nothing in this program changes the environment's TZ.
    let seconds = unsafe {
        let mut broken_down: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&raw const seconds, &raw mut broken_down);
        broken_down.tm_isdst = -1;
        libc::mktime(&raw mut broken_down)
    };
    let seconds = u64::try_from(seconds).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> String {
        humantime::format_rfc3339_millis(when(text).expect("a time")).to_string()
    }

    #[test]
    fn rfc3339_with_any_offset() {
        for (text, expected) in [
            ("2026-11-22T09:00:00Z", "2026-11-22T09:00:00.000Z"),
            ("2026-11-22T09:00:00.25Z", "2026-11-22T09:00:00.250Z"),
            ("2026-11-22T09:00:00+01:30", "2026-11-22T07:30:00.000Z"),
            ("2026-11-22 09:00:00.5-02:00", "2026-11-22T11:00:00.500Z"),
        ] {
            assert_eq!(utc(text), expected, "{text}");
        }
    }

    #[test]
    fn spans_count_back_from_now() {
        for (text, seconds) in [("1h", 3600), ("30min ago", 1800), ("1day 2h ago", 93600)] {
            let back = SystemTime::now()
                .duration_since(when(text).expect("a time"))
                .expect("the past");
            assert!(back.as_secs().abs_diff(seconds) < 60, "{text}: {back:?}");
        }
    }

    #[test]
    fn local_dates_may_leave_out_what_is_small() {
        let day = when("2026-11-22").expect("a time");
        let minute = when("2026-11-22 09:30").expect("a time");
        let second = when("2026-11-22 09:30:05").expect("a time");
        let after = |later: SystemTime| later.duration_since(day).expect("later").as_secs();
        assert_eq!((after(minute), after(second)), (34_200, 34_205));
    }

    #[test]
    fn days_have_names() {
        let day = |name| when(name).expect("a day");
        let now = SystemTime::now();
        assert!(day("yesterday") < day("today") && day("today") <= now);
        assert!(now < day("tomorrow") || day("today") > now);
        let since = |one: SystemTime, other: SystemTime| {
            one.duration_since(other).expect("later").as_secs() / 3600
        };
        // Days on which clocks are changed have an hour more or less.
        for hours in [
            since(day("today"), day("yesterday")),
            since(day("tomorrow"), day("today")),
        ] {
            assert!((23..=25).contains(&hours), "{hours}");
        }
    }

    #[test]
    fn anything_else_is_no_time() {
        for text in [
            "",
            "ago",
            "yesterdayish",
            "2026-13-01",
            "2026-11-22T09:00:00+1",
            "ü",
        ] {
            let told = when(text).expect_err(text);
            for form in [
                "T09:00:00Z",
                "date such as 2026-11-22",
                "`yesterday`",
                "`1h`",
            ] {
                assert!(told.contains(form), "{text}: {told}");
            }
        }
    }
}
