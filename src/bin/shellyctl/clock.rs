//! Times and spans as people read them: by this machine's clock, as systemctl and journalctl have
//! them. What the daemon sends is RFC 3339; what is not is shown as it came.

use std::ffi::CStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::print;

/// `2026-11-22 09:01:02`.
pub fn stamp(time: &str) -> String {
    local(time, c"%Y-%m-%d %H:%M:%S")
}

/// `Nov 22 09:01:02`.
pub fn log(time: &str) -> String {
    local(time, c"%b %d %H:%M:%S")
}

/// `Sun 2026-11-22 09:01:02 UTC; 3min ago`.
pub fn full(time: &str) -> String {
    let text = local(time, c"%a %Y-%m-%d %H:%M:%S %Z");
    match parse(time).map(|time| SystemTime::now().duration_since(time)) {
        Some(Ok(past)) => format!("{text}; {} ago", rough(past)),
        Some(Err(ahead)) => format!("{text}; in {}", rough(ahead.duration())),
        None => text,
    }
}

/// How long it is until `time`, and nothing where that is over.
pub fn left(time: &str) -> String {
    let left = parse(time).map(|time| time.duration_since(SystemTime::now()).unwrap_or_default());
    left.map(rough).unwrap_or_default()
}

/// How long it is since `time`.
pub fn since(time: &str) -> String {
    let past = parse(time).map(|time| SystemTime::now().duration_since(time).unwrap_or_default());
    past.map(rough).unwrap_or_default()
}

/// How long it was from one time to another.
pub fn between(from: Option<&str>, to: Option<&str>) -> Option<String> {
    let passed = parse(to?)?.duration_since(parse(from?)?).ok()?;
    u64::try_from(passed.as_millis()).ok().map(span)
}

/// `12ms`, `1.5s`, `3m 20s`.
pub fn span(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds}ms"),
        1_000..60_000 => format!("{}.{}s", milliseconds / 1_000, milliseconds % 1_000 / 100),
        _ => rough(Duration::from_millis(milliseconds)),
    }
}

/// As [`span`], and finer for what takes less than ten milliseconds.
pub fn fine(milliseconds: f64) -> String {
    if milliseconds < 10.0 && milliseconds.fract() != 0.0 {
        return format!("{milliseconds:.2}ms");
    }
    let whole = Duration::try_from_secs_f64(milliseconds.round() / 1e3).unwrap_or_default();
    span(u64::try_from(whole.as_millis()).unwrap_or(u64::MAX))
}

/// Its two largest units.
fn rough(span: Duration) -> String {
    let text = humantime::format_duration(Duration::from_secs(span.as_secs())).to_string();
    let mut units = text.split(' ');
    match (units.next(), units.next()) {
        (Some(first), Some(second)) => format!("{first} {second}"),
        (Some(first), None) => first.to_owned(),
        (None, _) => text,
    }
}

fn parse(time: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(time).ok()
}

fn local(time: &str, format: &CStr) -> String {
    parse(time)
        .and_then(|time| formatted(time, format))
        .unwrap_or_else(|| print::one_line(time))
}

fn formatted(time: SystemTime, format: &CStr) -> Option<String> {
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let seconds = libc::time_t::try_from(seconds).ok()?;
    let mut text = [0u8; 64];
    // SAFETY: `tm` is plain data for which zeroes are a value, both functions are given memory that
    // lives longer than the call and its true size, and nothing in this program changes TZ.
    let written = unsafe {
        let mut broken_down: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&raw const seconds, &raw mut broken_down).is_null() {
            return None;
        }
        libc::strftime(
            text.as_mut_ptr().cast(),
            text.len(),
            format.as_ptr(),
            &raw const broken_down,
        )
    };
    String::from_utf8(text[..written].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_local_and_others_are_left_as_they_are() {
        let time = "2026-11-22T09:01:02.003Z";
        let shown = stamp(time);
        assert_eq!(shown.len(), "2026-11-22 09:01:02".len(), "{shown}");
        assert!(shown.ends_with(":02"), "{shown}");
        assert!(log(time).starts_with("Nov 2"), "{}", log(time));
        assert_eq!(stamp("soon\x1b[2J"), "soon [2J");
        let ahead = SystemTime::now() + Duration::from_secs(7200);
        let ahead = humantime::format_rfc3339_millis(ahead).to_string();
        assert!(full(&ahead).contains("; in 1h 59m"), "{}", full(&ahead));
        assert_eq!(left(&ahead), "1h 59m");
        assert_eq!(since(&ahead), "0s");
    }

    #[test]
    fn spans_are_as_fine_as_they_are_short() {
        for (milliseconds, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1.0s"),
            (59_950, "59.9s"),
            (200_000, "3m 20s"),
            (90_061_000, "1day 1h"),
        ] {
            assert_eq!(span(milliseconds), text);
        }
        for (milliseconds, text) in [
            (0.119, "0.12ms"),
            (9.0, "9ms"),
            (12.6, "13ms"),
            (1500.0, "1.5s"),
        ] {
            assert_eq!(fine(milliseconds), text);
        }
    }
}
