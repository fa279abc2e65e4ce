//! The tools that rules name, and whether there are such.

use super::glob::{Glob, Kind};
use super::question::RuleSource;

/// A tool's name, or what several are called like: `*` and `?` work in it.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    /// As written.
    pub text: String,
    glob: Glob,
}

impl Tools {
    /// # Errors
    /// Why it names none.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let is_name =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '*' | '?');
        if text.is_empty() || !text.chars().all(is_name) {
            return Err(format!("{text:?} is no tool's name"));
        }
        Ok(Self {
            text: text.to_owned(),
            glob: Glob::new(text, Kind::Text)?,
        })
    }

    pub(super) fn matches(&self, tool: &str) -> bool {
        self.glob.matches(tool)
    }

    /// Whether it is one name and nothing else.
    pub(super) fn is_literal(&self) -> bool {
        self.glob.is_literal()
    }
}

/// What a rule names and no tool is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTool {
    /// As written.
    pub name: String,
    /// Whether it is one name, as opposed to what several could be called like.
    pub is_literal: bool,
    /// The rule that names it, as written.
    pub rule: String,
    /// Whether it stands in the rule's `called_by`.
    pub is_caller: bool,
    /// Where the rule stands.
    pub source: RuleSource,
}
