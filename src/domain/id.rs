use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// The variable that says to which execution a process belongs.
pub const EXECUTION_VARIABLE: &str = "SHELLY_EXECUTION_ID";

/// The variable that says which daemon (or rather: which state directory) runs a process.
pub const INSTANCE_VARIABLE: &str = "SHELLY_INSTANCE_ID";

/// The variable that names the daemon's socket where no flag does, and to processes where they make calls.
pub const SOCKET_VARIABLE: &str = "SHELLY_SOCKET";

/// A type of ids that are UUIDv7 (RFC 9562), so that they sort by time of creation.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// A fresh id, unique on this host and beyond it.
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// Its sixteen bytes, which sort as it does.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// The id of these bytes.
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let text = &mut Uuid::encode_buffer();
                serializer.serialize_str(self.0.hyphenated().encode_lower(text))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::try_parse(text).map(Self)
            }
        }
    };
}

id! {
    /// Names one execution.
    ExecutionId
}

id! {
    /// Names one question to those who may approve.
    ApprovalId
}
