use std::sync::Arc;
use std::time::Duration;

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

/// A call whose input fits its tool as far as its words tell.
pub(super) enum Checked {
    /// That is all there is to it.
    Valid(Valid),
    /// Where the paths in it lead, the disk has to be asked.
    Unresolved(Unresolved),
}

/// A call with paths in it.
pub(super) struct Unresolved {
    call: Call,
    tool: Arc<Tool>,
    caller: Caller,
    config: Arc<ExecutorConfig>,
    summary: String,
}

/// Fills in defaults and holds the input against the schema, then against what no schema says.
pub(super) fn check(
    found: Found,
    circumstances: &Circumstances<'_>,
) -> Result<Checked, ExecutorError> {
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
    if tool.implementation.names_paths(&call.input) {
        return Ok(Checked::Unresolved(Unresolved {
            call,
            tool,
            caller: circumstances.caller.clone(),
            config: Arc::clone(circumstances.config),
            summary: circumstances.summary.to_owned(),
        }));
    }
    Ok(Checked::Valid(Valid {
        call,
        tool,
        resolved: Vec::new(),
        is_changed: is_filled,
    }))
}

impl Unresolved {
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.call.options.timeout
    }

    /// Asks the disk and the user database, which may take their time: for a thread that may.
    pub(super) fn resolve(mut self) -> Result<Valid, ExecutorError> {
        let place = Place::of(&self.call, &self.caller, &self.config);
        match self.tool.implementation.resolve(&mut self.call, &place) {
            Ok(resolved) => Ok(Valid {
                call: self.call,
                tool: self.tool,
                resolved,
                is_changed: true,
            }),
            Err(violations) => Err(ExecutorError::InvalidInput {
                tool_name: self.call.tool,
                input_summary: self.summary,
                violations,
            }),
        }
    }
}
