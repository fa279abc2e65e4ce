use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use shelly_executor::daemon::{self, Options, PolicyCheck};
use shelly_executor::domain::counted;
use shelly_executor::policy::Policy;

use super::{Found, warnings};
use crate::chain;

/// What is wrong with the policy, and which of its examples hold: all of them, or it is not valid.
pub fn policy(options: &Options, path: Option<PathBuf>, is_json: bool) -> Found {
    let found = daemon::check_policy(options, path);
    let json = is_json.then(|| format!("{}\n", as_json(&found)));
    match &found.verdict {
        Err(error) => Found::invalid(json.unwrap_or_default(), error),
        Ok(policy) => Found::valid(
            json.unwrap_or_else(|| in_words(&found.path, policy) + &warnings(&found.warnings)),
        ),
    }
}

fn in_words(path: &Path, policy: &Policy) -> String {
    let at = path.display();
    let mut text = String::new();
    for approval in policy.remembered() {
        if let Some(source) = &approval.source {
            let (file, line) = (source.file.display(), source.line);
            let (rule, uid) = (&approval.rule, approval.uid);
            text += &format!("remembered: {file}:{line}: `{rule}` for uid {uid}\n");
        }
    }
    for example in policy.examples() {
        let word = match example.matches {
            true => "matches",
            false => "does not match",
        };
        let (line, rule, text_of) = (example.source.line, &example.rule, &example.text);
        text += &format!("ok: {at}:{line}: `{rule}` {word} {text_of:?}\n");
    }
    text + &match path.exists() {
        true => format!("{at}: valid: {}\n", counts(policy)),
        false => format!("{at}: not there; the built-in policy is used, which allows everything\n"),
    }
}

/// How many rules it has, how many approvals are remembered, and how many examples hold.
fn counts(policy: &Policy) -> String {
    let (remembered, examples) = (policy.remembered().count(), policy.examples().len());
    let mut rules = counted(policy.rule_count() as u64, "rule", "rules");
    if remembered > 0 {
        rules.push_str(&format!(", {remembered} of them remembered approvals"));
    }
    let mut counts = vec![rules];
    counts.push(counted(examples as u64, "example holds", "examples hold"));
    counts.join(", ")
}

fn as_json(found: &PolicyCheck) -> Value {
    let policy = found.verdict.as_ref().ok();
    json!({
        "path": found.path.display().to_string(),
        "valid": policy.is_some(),
        "rules": policy.map(Policy::rule_count),
        "remembered": policy.map(|policy| policy.remembered().count()),
        "examples": policy.map(|policy| policy.examples().len()),
        "warnings": found.warnings,
        "error": found.verdict.as_ref().err().map(|error| chain(error)),
    })
}
