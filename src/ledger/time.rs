use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since 1970, as the ledger's columns have them.
pub(super) fn micros(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(error) => {
            i64::try_from(error.duration().as_micros()).map_or(i64::MIN, |before| -before)
        }
    }
}

/// The time of so many microseconds since 1970.
pub(super) fn from_micros(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    let time = if micros >= 0 {
        UNIX_EPOCH.checked_add(distance)
    } else {
        UNIX_EPOCH.checked_sub(distance)
    };
    time.unwrap_or(UNIX_EPOCH)
}

pub(super) fn serialize<S: Serializer>(
    time: &SystemTime,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(micros(*time))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<SystemTime, D::Error> {
    i64::deserialize(deserializer).map(from_micros)
}

/// A time that there may not be.
pub(super) mod optional {
    use super::{Deserialize as _, Deserializer, Serialize as _, Serializer, SystemTime, micros};

    pub(in crate::ledger) fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(micros).serialize(to)
    }

    pub(in crate::ledger) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        Ok(Option::<i64>::deserialize(from)?.map(super::from_micros))
    }
}
