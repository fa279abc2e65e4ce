use serde::{Deserialize, Serialize};

use super::ExecutionId;

/// Where a call that a tool has made comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The execution that made it.
    pub parent: ExecutionId,
    /// How many calls it is inside of.
    pub depth: u32,
}
