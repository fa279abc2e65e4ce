//! A time as microseconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(
    time: &SystemTime,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(of(*time))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<SystemTime, D::Error> {
    u64::deserialize(deserializer).map(at)
}

/// The same of a time that may not have come.
pub(super) mod option {
    use super::{Deserialize, Deserializer, Serializer, SystemTime, at, of};

    pub(in crate::domain) fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.serialize_some(&of(*time)),
            None => serializer.serialize_none(),
        }
    }

    pub(in crate::domain) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(at))
    }
}

fn of(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn at(micros: u64) -> SystemTime {
    let time = UNIX_EPOCH.checked_add(Duration::from_micros(micros));
    time.unwrap_or(UNIX_EPOCH)
}
