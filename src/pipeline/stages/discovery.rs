use std::collections::BTreeSet;

use crate::domain::{Call, ExecutorError};
use crate::tools::{Registry, Tool};

/// A call whose tool is there.
pub(super) struct Found<'a> {
    pub(super) call: Call,
    pub(super) tool: &'a Tool,
}

/// Finds the tool.
pub(super) fn find<'a>(
    call: Call,
    registry: &'a Registry,
    disabled: &BTreeSet<String>,
    summary: &str,
) -> Result<Found<'a>, ExecutorError> {
    let Some(tool) = registry.find(&call.tool) else {
        return Err(ExecutorError::UnknownTool {
            nearest: registry.nearest(&call.tool, disabled).map(str::to_owned),
            tool_name: call.tool,
            input_summary: summary.to_owned(),
        });
    };
    if disabled.contains(&call.tool) {
        return Err(ExecutorError::ToolDisabled {
            tool_name: call.tool,
            input_summary: summary.to_owned(),
        });
    }
    Ok(Found { call, tool })
}
