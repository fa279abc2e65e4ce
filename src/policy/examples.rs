use std::collections::BTreeMap;
use std::path::Path;

use super::judge::{Cause, Policy};
use super::question::{Question, RuleSource, Verdict};
use super::rule::Rule;
use crate::domain::Caller;

/// An example of what a rule matches or does not, checked when the policy is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The rule, as written.
    pub rule: String,
    /// The list it is on.
    pub list: Verdict,
    /// The command, the parameter's value or, for a rule on a tool as such, the tool's name.
    pub text: String,
    /// Whether it is to match.
    pub matches: bool,
    /// Where the example stands.
    pub source: RuleSource,
}

impl Example {
    pub(super) fn new(rule: &Rule, text: String, matches: bool, source: RuleSource) -> Self {
        Self {
            rule: rule.text.clone(),
            list: rule.list,
            text,
            matches,
            source,
        }
    }

    /// Holds the example against its rule alone, in a policy that says the opposite otherwise,
    /// for a call from `/`.
    pub(super) fn check(&self, rule: &Rule) -> Result<(), String> {
        let default = match rule.list {
            Verdict::Allow => Verdict::Deny,
            Verdict::Ask | Verdict::Deny => Verdict::Allow,
        };
        let alone = Rule {
            principals: None,
            called_by: None,
            ..rule.clone()
        };
        let input = alone.example_input(&self.text);
        let whole = matches!(alone.subject, super::rule::Subject::Whole);
        let tool = match (whole, alone.tool_name()) {
            (true, _) => self.text.as_str(),
            (false, Some(name)) => name,
            (false, None) => "bash",
        };
        let policy = Policy::of_one(default, alone.clone());
        let question = Question {
            tool,
            input: &input,
            paths: &[],
            caller: &Caller {
                uid: 0,
                gid: 0,
                groups: Vec::new(),
            },
            chain: &[],
            working_dir: Some(Path::new("/")),
            env: &BTreeMap::new(),
            stdin: None,
            shell: Path::new("/bin/bash"),
        };
        let matched = matches!(policy.decide(&question).cause, Cause::Rule(_));
        let reason = || policy.judge(&question).reason;
        match (self.matches, matched) {
            (true, true) => Ok(()),
            (false, false) => Ok(()),
            (true, false) => Err(format!(
                "{:?} does not match `{}`: {}",
                self.text,
                self.rule,
                reason()
            )),
            (false, true) => Err(format!("{:?} matches `{}`", self.text, self.rule)),
        }
    }
}
