use std::collections::BTreeMap;

use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::words;

words! {
    /// Whose the values are that a call brings along and skills share.
    #[derive(PartialOrd, Ord, Hash, ToSchema)]
    pub enum Scope {
        /// What the caller remembers.
        Memory = "memory",
        /// How it is set up.
        Config = "config",
        /// What belongs to its session: lasts as long as the daemon knows the session's id.
        Session = "session",
        /// What skills leave for one another: lasts as long as the outermost call.
        Scratch = "scratch",
    }
}

/// Values by scope and name.
pub type ScopedValues = BTreeMap<Scope, Map<String, Value>>;
