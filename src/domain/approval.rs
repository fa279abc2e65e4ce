use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How long an approval is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Remember {
    /// It is for this call.
    #[default]
    Once,
    /// It is for calls like this until the daemon ends.
    Session,
    /// It is for calls like this, for good.
    Always,
}

impl Remember {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}
