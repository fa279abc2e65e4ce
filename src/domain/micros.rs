//! A time as microseconds since 1970, before which nothing counts; a duration as microseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) fn of(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn at(micros: u64) -> SystemTime {
    let time = UNIX_EPOCH.checked_add(Duration::from_micros(micros));
    time.unwrap_or(UNIX_EPOCH)
}

/// A duration in microseconds, to the nearest.
pub(crate) fn nearest_micros(duration: Duration) -> u64 {
    let micros = duration
        .saturating_add(Duration::from_nanos(500))
        .as_micros();
    u64::try_from(micros).unwrap_or(u64::MAX)
}
