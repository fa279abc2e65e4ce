//! Times as people type them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shelly_executor::client::parse_timestamp;

/// What can be said, for who said something else.
const EXPECTED: &str = "expected a time such as 2026-11-22T09:00:00Z, a local date such as 2026-11-22 or \
    \"2026-11-22 09:00\", `now`, `today`, `yesterday`, `tomorrow`, or a span back from now such as `1h` or \"30min ago\"";

/// Where RFC 3339 ends: the year 10000, in seconds.
const END: u64 = 253_402_300_800;

/// A time: RFC 3339, a local date with or without a time of day, a word as in systemd.time(7), or a span back
/// from now. What would be before 1970 is 1970: nothing was executed before.
pub fn when(text: &str) -> Result<SystemTime, String> {
    let text = text.trim();
    let found = match text {
        "now" => Some(SystemTime::now()),
        "today" => midnight(0),
        "yesterday" => midnight(-1),
        "tomorrow" => midnight(1),
        _ if text.is_ascii() => ago(text)
            .or_else(|| parse_timestamp(text))
            .or_else(|| local(text)),
        _ => None,
    };
    let found = found.map(|time| time.max(UNIX_EPOCH));
    found
        .filter(|time| *time < UNIX_EPOCH + Duration::from_secs(END))
        .ok_or_else(|| EXPECTED.to_owned())
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
    Some(SystemTime::now().checked_sub(span).unwrap_or(UNIX_EPOCH))
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
            ("2026-11-22t09:00:00+01:30", "2026-11-22T07:30:00.000Z"),
        ] {
            assert_eq!(utc(text), expected, "{text}");
        }
    }

    /// They are sent as RFC 3339.
    #[test]
    fn what_is_out_of_reach_is_the_first_time_there_is_or_none() {
        for text in [
            "60y",
            "57 years",
            "99999999999h",
            "500000000000years ago",
            "1970-01-01T00:00:00+01:00",
        ] {
            assert_eq!(when(text), Ok(UNIX_EPOCH), "{text}");
        }
        assert_eq!(utc("9999-12-31T23:59:59Z"), "9999-12-31T23:59:59.000Z");
        for text in ["9999-12-31T23:59:59-00:01", "99999999999999999999y"] {
            when(text).expect_err(text);
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
