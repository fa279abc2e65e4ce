use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{RiskLevel, words};

words! {
    /// What a policy says. Ordered: the strictest is the greatest.
    #[derive(PartialOrd, Ord, Hash, ToSchema)]
    pub enum Verdict {
        /// It runs.
        Allow = "allow",
        /// It runs when somebody says so.
        Ask = "ask",
        /// It does not run.
        Deny = "deny",
    }
}

/// Where a rule stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleSource {
    /// The file.
    #[schema(value_type = String)]
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
}

/// A verdict, and everything that a person wants to know about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Judgement {
    /// What it is.
    pub verdict: Verdict,
    /// The rule that decided, as written; null when it was the default, or text that cannot be
    /// read.
    #[schema(required)]
    pub rule: Option<String>,
    /// Where that rule stands.
    #[schema(required)]
    pub source: Option<RuleSource>,
    /// The command in a script, or the value in an input, that decided.
    #[schema(required)]
    pub segment: Option<String>,
    /// Why: the rule's own reason, or one in our words.
    pub reason: String,
    /// What to do instead, as the rule says.
    #[schema(required)]
    pub suggest: Option<String>,
    /// A sentence that says what would make the verdict another one.
    pub would_change: String,
    /// How far the policy trusts the call: `untrusted` has it run in the sandbox.
    #[serde(default)]
    pub risk_level: RiskLevel,
    /// The rule that raised it, as written; null when none did, or the default.
    #[serde(default)]
    #[schema(required)]
    pub risk_rule: Option<String>,
    /// The directory that the policy lets it write to in the sandbox; null when it grants none.
    #[serde(default)]
    #[schema(required, value_type = Option<String>)]
    pub workspace: Option<PathBuf>,
    /// The rules that would let exactly this pass the next time, if they were remembered for the
    /// caller. Empty when there are none: nothing is asked about, what would run is on the hazard
    /// list, or not all of it can be read.
    pub remember_rules: Vec<String>,
}

/// What of a judgement is kept for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ruling {
    /// The verdict.
    pub verdict: Verdict,
    /// The rule that decided, as written.
    #[schema(required)]
    pub rule: Option<String>,
    /// Where the rule stood: `FILE:LINE`.
    #[schema(required)]
    pub source: Option<String>,
}

impl From<&Judgement> for Ruling {
    fn from(judgement: &Judgement) -> Self {
        let place = |source: &RuleSource| {
            let (file, line) = (source.file.to_string_lossy(), source.line.to_string());
            [&*file, ":", &line].concat()
        };
        Self {
            verdict: judgement.verdict,
            rule: judgement.rule.clone(),
            source: judgement.source.as_ref().map(place),
        }
    }
}

impl Judgement {
    /// Replaces every text in it that may repeat the call by what `mask` makes of it.
    pub fn mask(&mut self, mask: impl Fn(&str) -> String) {
        for text in [&mut self.reason, &mut self.would_change] {
            *text = mask(text);
        }
        if let Some(segment) = &mut self.segment {
            *segment = mask(segment);
        }
        // A rule with a hole in it would not be the one that is meant.
        self.remember_rules.retain(|rule| mask(rule) == *rule);
    }
}
