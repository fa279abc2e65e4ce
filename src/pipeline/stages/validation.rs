use std::sync::Arc;

use super::discovery::Found;
use crate::config::ExecutorConfig;
use crate::domain::{Call, Caller, ExecutorError, NESTS_AT_MOST, Violation, nests_too_deeply};
use crate::tools::{Place, Resolved, Tool};

/// A call whose input, with the schema's defaults filled in, fits its tool.
pub(super) struct Valid {
    pub(super) call: Call,
    pub(super) tool: Arc<Tool>,
    /// Where the paths in it lead.
    pub(super) resolved: Vec<Resolved>,
    /// Whether the call is not quite as it came: a default was filled in, or a path resolved.
    pub(super) is_changed: bool,
}

/// What an input is held against besides its schema.
pub(in crate::pipeline) struct Circumstances<'a> {
    pub(in crate::pipeline) caller: &'a Caller,
    pub(in crate::pipeline) config: &'a Arc<ExecutorConfig>,
    pub(in crate::pipeline) summary: &'a str,
}

/// Fills in defaults and holds the input against the schema, then against what no schema says.
pub(super) async fn validate(
    found: Found,
    circumstances: &Circumstances<'_>,
) -> Result<Valid, ExecutorError> {
    let Found { mut call, tool } = found;
    let invalid = |tool_name, violations| ExecutorError::InvalidInput {
        tool_name,
        input_summary: circumstances.summary.to_owned(),
        violations,
    };
    let is_filled = tool.schema.fill_in(&mut call.input);
    if nests_too_deeply(&call.input) {
        let detail = format!("nests more than {NESTS_AT_MOST} levels deep");
        return Err(invalid(call.tool, vec![Violation::of_all(detail)]));
    }
    let mut violations = tool.schema.violations(&call.input);
    violations.extend(tool.implementation.check(&call.input));
    if !violations.is_empty() {
        return Err(invalid(call.tool, violations));
    }
    if !tool.implementation.names_paths(&call.input) {
        return Ok(Valid {
            call,
            tool,
            resolved: Vec::new(),
            is_changed: is_filled,
        });
    }
    let tool_name = call.tool.clone();
    let (caller, config) = (
        circumstances.caller.clone(),
        Arc::clone(circumstances.config),
    );
    // It asks the disk and the user database, which may take their time.
    let resolving = tokio::task::spawn_blocking(move || {
        let place = Place::of(&call, &caller, &config);
        let resolved = tool.implementation.resolve(&mut call, &place)?;
        Ok(Valid {
            call,
            tool,
            resolved,
            is_changed: true,
        })
    });
    match resolving.await {
        Ok(valid) => valid.map_err(|violations| invalid(tool_name, violations)),
        Err(error) => Err(ExecutorError::Internal {
            tool_name,
            input_summary: circumstances.summary.to_owned(),
            detail: "where its paths lead cannot be told: looking for it panicked".to_owned(),
            source: Some(Box::new(error)),
        }),
    }
}
