//! A time as microseconds since 1970. What was before counts as that moment.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) fn of(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn at(micros: u64) -> SystemTime {
    let time = UNIX_EPOCH.checked_add(Duration::from_micros(micros));
    time.unwrap_or(UNIX_EPOCH)
}
