use serde::de::DeserializeOwned;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::domain::JsonSink;

/// JSON as text: what the ledger keeps it does not look into, and a tree of it would cost more than
/// all else that is done for an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    /// A value as JSON; null for what has none, such as a map with keys that are no texts.
    pub fn of(value: &impl Serialize) -> Self {
        /// Enough for most.
        const ROOM: usize = 384;
        let mut text = Vec::with_capacity(ROOM);
        if let Err(error) = serde_json::to_writer(JsonSink(&mut text), value) {
            tracing::error!(%error, "cannot write JSON for the ledger");
            return Self::default();
        }
        String::from_utf8(text).map_or_else(|_| Self::default(), Self)
    }

    /// JSON that was written as a text; `None` for what is none.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, to be kept.
    pub fn into_string(self) -> String {
        self.0
    }

    /// What it says, if it is that.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.as_str()).ok()
    }
}

impl Default for Json {
    /// `null`.
    fn default() -> Self {
        Self("null".to_owned())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(Box::<str>::from(text).into()))
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::of(&value)
    }
}
