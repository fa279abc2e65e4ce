use super::discovery::Found;
use crate::domain::{Call, ExecutorError};
use crate::tools::Tool;

/// A call whose input, with the schema's defaults filled in, fits its tool.
pub(super) struct Valid<'a> {
    pub(super) call: Call,
    pub(super) tool: &'a Tool,
    /// Whether a default was filled in.
    pub(super) is_filled: bool,
}

/// Fills in defaults and holds the input against the schema, then against what no schema says.
pub(super) fn validate<'a>(found: Found<'a>, summary: &str) -> Result<Valid<'a>, ExecutorError> {
    let Found { mut call, tool } = found;
    let is_filled = tool.schema.fill_in(&mut call.input);
    let mut violations = tool.schema.violations(&call.input);
    violations.extend(tool.implementation.check(&call.input));
    if violations.is_empty() {
        return Ok(Valid {
            call,
            tool,
            is_filled,
        });
    }
    Err(ExecutorError::InvalidInput {
        tool_name: call.tool,
        input_summary: summary.to_owned(),
        violations,
    })
}
