use std::sync::Arc;

use crate::config::ExecutorConfig;
use crate::domain::{Call, ExecutorError};
use crate::tools::{Registry, Tool};

/// A call whose tool is there.
pub(super) struct Found {
    pub(super) call: Call,
    pub(super) tool: Arc<Tool>,
}

/// Finds the tool.
pub(super) fn find(
    call: Call,
    registry: &Registry,
    config: &ExecutorConfig,
    summary: &str,
) -> Result<Found, ExecutorError> {
    let wanted = call.options.tool_version.as_deref();
    let Some(tool) = registry.find(&call.tool, wanted) else {
        let versions = registry.versions(&call.tool);
        if let (Some(version), false) = (wanted, versions.is_empty()) {
            return Err(ExecutorError::UnknownVersion {
                version: version.to_owned(),
                tool_name: call.tool,
                input_summary: summary.to_owned(),
                versions,
            });
        }
        return Err(ExecutorError::UnknownTool {
            nearest: registry
                .nearest_enabled(&call.tool, config)
                .map(str::to_owned),
            tool_name: call.tool,
            input_summary: summary.to_owned(),
        });
    };
    if !tool.is_enabled(config) {
        return Err(ExecutorError::ToolDisabled {
            tool_name: call.tool,
            input_summary: summary.to_owned(),
        });
    }
    Ok(Found { call, tool })
}
