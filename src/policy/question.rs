use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::Caller;

/// What a policy is asked about: one call, before anything of it runs.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// Its input, defaults of the schema filled in.
    pub input: &'a Value,
    /// Who asks.
    pub caller: &'a Caller,
    /// Where it would run. Relative paths are of unknown meaning without it.
    pub working_dir: Option<&'a Path>,
    /// What the call adds to the environment. `BASH_ENV` or `PATH` decide what a script runs as
    /// much as its text does, so a call that sets more than harmless variables is not allowed
    /// by a pattern on that text.
    pub env: &'a BTreeMap<String, String>,
}

/// What a policy says. Ordered: the strictest is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It runs.
    Allow,
    /// It runs when somebody says so.
    Ask,
    /// It does not run.
    Deny,
}

impl Verdict {
    /// The word of the policy file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// Where a rule stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleSource {
    /// The file.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
}

/// A verdict, and everything that a person wants to know about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// What it is.
    pub verdict: Verdict,
    /// The rule that decided, as written; null when it was the default, or text that cannot be
    /// read.
    pub rule: Option<String>,
    /// Where that rule stands.
    pub source: Option<RuleSource>,
    /// The command in a script, or the value in an input, that decided.
    pub segment: Option<String>,
    /// Why: the rule's own reason, or one in our words.
    pub reason: String,
    /// What to do instead, as the rule says.
    pub suggest: Option<String>,
    /// A sentence that says what would make the verdict another one.
    pub would_change: String,
    /// The rules for `allow` that would let exactly this pass the next time. Empty when there
    /// are none: the verdict is not the default's, or what would run is on the hazard list.
    pub remember_rules: Vec<String>,
}
