use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Whose the values are that a call brings along and skills share (seed 002).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// What the caller remembers.
    Memory,
    /// How it is set up.
    Config,
    /// What belongs to its session: lasts as long as the daemon knows the session's id.
    Session,
    /// What skills leave for one another: lasts as long as the outermost call.
    Scratch,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Config, Self::Session, Self::Scratch];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Config => "config",
            Self::Session => "session",
            Self::Scratch => "scratch",
        }
    }

    /// The scope of that name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }
}

/// Values by scope and name.
pub type ScopedValues = BTreeMap<Scope, Map<String, Value>>;
