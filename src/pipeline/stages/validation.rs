use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

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

/// A call that was held against its tool.
pub(super) enum Checked {
    /// That is all there is to it.
    Valid(Valid),
    /// It takes its time, or the disk has to be asked where its paths lead.
    Pending(Pending),
}

/// A call whose check is for a thread that may block.
pub(super) struct Pending {
    found: Found,
    /// Whether its input fits the schema, defaults filled in.
    is_held: bool,
    caller: Caller,
    config: Arc<ExecutorConfig>,
    summary: String,
}

/// Fills in defaults and holds the input against the schema, then against what no schema says.
pub(super) fn check(
    found: Found,
    circumstances: &Circumstances<'_>,
) -> Result<Checked, ExecutorError> {
    let pending = |found, is_held| {
        Ok(Checked::Pending(Pending {
            found,
            is_held,
            caller: circumstances.caller.clone(),
            config: Arc::clone(circumstances.config),
            summary: circumstances.summary.to_owned(),
        }))
    };
    if !is_quick(&found.call.input) {
        return pending(found, false);
    }
    let (found, is_filled) = hold(found, circumstances.summary)?;
    if found.names_paths() {
        return pending(found, true);
    }
    Ok(Checked::Valid(found.valid(Vec::new(), is_filled)))
}

/// Whether an input is checked in less time than it takes to have a thread do it, or not much more.
fn is_quick(input: &Value) -> bool {
    /// So many values, each with less than a KiB of text, take a millisecond at the most.
    const VALUES: usize = 1024;
    fn spend(value: &Value, left: &mut usize) -> bool {
        let text = value.as_str().map_or(0, str::len);
        let Some(rest) = left.checked_sub(1 + text / 1024) else {
            return false;
        };
        *left = rest;
        match value {
            Value::Array(items) => items.iter().all(|item| spend(item, left)),
            Value::Object(members) => members.values().all(|member| spend(member, left)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
    let mut left = VALUES;
    spend(input, &mut left)
}

/// Says whether a default was filled in.
fn hold(mut found: Found, summary: &str) -> Result<(Found, bool), ExecutorError> {
    let Found { call, tool } = &mut found;
    let is_filled = tool.schema.fill_in(&mut call.input);
    let violations = if nests_too_deeply(&call.input) {
        let detail = format!("nests more than {NESTS_AT_MOST} levels deep");
        vec![Violation::of_all(detail)]
    } else {
        let mut violations = tool.schema.violations(&call.input);
        violations.extend(tool.implementation.check(&call.input));
        violations
    };
    match violations.is_empty() {
        true => Ok((found, is_filled)),
        false => Err(invalid(found.call.tool, summary.to_owned(), violations)),
    }
}

fn invalid(tool_name: String, input_summary: String, violations: Vec<Violation>) -> ExecutorError {
    ExecutorError::InvalidInput {
        tool_name,
        input_summary,
        violations,
    }
}

impl Found {
    fn names_paths(&self) -> bool {
        self.tool.implementation.names_paths(&self.call.input)
    }

    fn valid(self, resolved: Vec<Resolved>, is_changed: bool) -> Valid {
        let Self { call, tool } = self;
        Valid {
            call,
            tool,
            resolved,
            is_changed,
        }
    }
}

impl Pending {
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.found.call.options.timeout
    }

    /// Does what is left of the check. The disk and the user database may be asked, and take their time.
    pub(super) fn finish(self) -> Result<Valid, ExecutorError> {
        let (mut found, is_filled) = match self.is_held {
            true => (self.found, true),
            false => hold(self.found, &self.summary)?,
        };
        if !found.names_paths() {
            return Ok(found.valid(Vec::new(), is_filled));
        }
        let place = Place::of(&found.call, &self.caller, &self.config);
        match found.tool.implementation.resolve(&mut found.call, &place) {
            Ok(resolved) => Ok(found.valid(resolved, true)),
            Err(violations) => Err(invalid(found.call.tool, self.summary, violations)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_takes_its_time_is_checked_elsewhere() {
        for (input, quick) in [
            (json!({"command": "df -h"}), true),
            (json!({"command": "x".repeat(1 << 19)}), true),
            (json!({"command": "x".repeat(1 << 21)}), false),
            (
                json!({"edits": vec![json!({"old": "a", "new": "b"}); 100]}),
                true,
            ),
            (json!({"edits": vec![0; 2000]}), false),
        ] {
            assert_eq!(is_quick(&input), quick, "{:.40}", input.to_string());
        }
    }
}
