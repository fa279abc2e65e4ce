use std::fmt;
use std::time::Duration;

use crate::config::Rate;

/// What a rate is kept for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    Tool(String),
    /// A user by its number.
    Caller(u32),
    Tenant(String),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(name) => write!(f, "the tool `{name}`"),
            Self::Caller(uid) => write!(f, "uid {uid}"),
            Self::Tenant(id) => write!(f, "the tenant {id:?}"),
        }
    }
}

/// A call to be taken out of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) whose: Whose,
    pub(crate) rate: Rate,
}

/// A bucket that has no call left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) charge: Charge,
    /// When it has one again.
    pub(crate) retry_after: Duration,
}

/// Why a call got no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// So many wait as may.
    QueueFull {
        queue_max: u32,
        /// When somebody who waits is likely to have got a place.
        retry_after: Duration,
    },
    /// It waited for that long.
    TooLong {
        waited: Duration,
        retry_after: Duration,
    },
}

/// A tool that is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// When a call is let through as a trial.
    pub(crate) retry_after: Duration,
}
