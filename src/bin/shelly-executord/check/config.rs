use serde_json::{Value, json};
use shelly_executor::daemon::{self, ConfigCheck, Options};

use super::{Found, warnings};
use crate::chain;

/// What is wrong with the configuration.
pub fn config(options: &Options, is_json: bool) -> Found {
    let found = daemon::check_config(options);
    let json = is_json.then(|| format!("{}\n", as_json(&found)));
    match &found.verdict {
        Err(error) => Found::invalid(json.unwrap_or_default(), error),
        Ok(doubts) => Found::valid(json.unwrap_or_else(|| {
            let found_there = match found.exists {
                true => "valid",
                false => "not there; the built-in configuration is used",
            };
            let path = found.path.display();
            format!("{path}: {found_there}\n{}", warnings(doubts))
        })),
    }
}

fn as_json(found: &ConfigCheck) -> Value {
    let (warnings, error) = match &found.verdict {
        Ok(warnings) => (warnings.as_slice(), None),
        Err(error) => (Default::default(), Some(chain(error))),
    };
    json!({
        "path": found.path.display().to_string(),
        "exists": found.exists,
        "valid": error.is_none(),
        "warnings": warnings,
        "error": error,
    })
}
