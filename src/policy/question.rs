use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::domain::Caller;
pub use crate::domain::{Judgement, RuleSource, Verdict};

/// What a policy is asked about: one call, before anything of it runs.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// Its input, defaults of the schema filled in.
    pub input: &'a Value,
    /// Where its paths lead, as far as somebody has looked: each as it was written and with its
    /// links followed. What refuses one of them refuses the call.
    pub paths: &'a [NamedPath],
    /// Who asks.
    pub caller: &'a Caller,
    /// The tools that led to the call, the outermost first; empty when it came from outside.
    pub chain: &'a [String],
    /// Where it would run. Relative paths are of unknown meaning without it.
    pub working_dir: Option<&'a Path>,
    /// What the call adds to the environment. `BASH_ENV` or `PATH` decide what a script runs as
    /// much as its text does, so a call that sets more than harmless variables is not allowed
    /// by a pattern on that text.
    pub env: &'a BTreeMap<String, String>,
    /// What it would read: a shell without a script takes it for one.
    pub stdin: Option<&'a str>,
    /// Who reads its script, where it has one: in what is not bash it may run something else.
    pub shell: &'a Path,
}

/// A path that a parameter stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPath {
    /// The parameter's name.
    pub parameter: String,
    /// The absolute path.
    pub path: PathBuf,
}
