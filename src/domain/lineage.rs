use serde::{Deserialize, Serialize};

use super::ExecutionId;

/// Where a call that a tool has made comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The execution that made it.
    pub parent: ExecutionId,
    /// Nesting depth: how many tool calls enclose it.
    pub depth: u32,
}
