//! Approvals that were remembered: rules that outweigh what asks, for whom they were given.
//! They allow as `allow` does, and never more: what cannot be read, or is denied, stays so.

use std::path::PathBuf;
use std::time::SystemTime;

use super::error::PolicyError;
use super::judge::{Cause, Decision, Policy};
use super::question::{Question, RuleSource, Verdict};
use super::rule::{Rule, Subject};
use super::scripts::{Asked, allowable, covers, forms, is_elsewhere, judge_segment, moves, shown};
use super::shell::Command;
use super::shell::strict::{Segment, join};
use super::tools::Tools;
use crate::domain::{ApprovalId, Principal};

/// A rule that an approval has left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// `Tool(param:pattern)`.
    pub rule: String,
    /// Whose calls it lets pass.
    pub uid: u32,
    /// The tool whose calls it lets pass; none: of calls whatever led to them.
    pub called_by: Option<String>,
    /// The approval.
    pub approval: ApprovalId,
    /// Who gave it.
    pub approved_by: u32,
    /// When.
    pub at: SystemTime,
    /// Where it is written down; none, if it is for the session: until the daemon ends.
    pub source: Option<RuleSource>,
}

/// The same, ready to be held against calls.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub rule: Rule,
    pub remembered: Remembered,
}

impl Grant {
    pub(super) fn new(remembered: &Remembered) -> Result<Self, PolicyError> {
        let place = remembered.source.clone().unwrap_or_else(|| RuleSource {
            file: PathBuf::from(format!("approval {}", remembered.approval)),
            line: 1,
        });
        let made = Rule::new(Verdict::Allow, &remembered.rule, place.clone());
        let rule = made.and_then(|rule| match rule.subject {
            Subject::Whole => Err(format!(
                "{:?} is more than anybody was asked about: expected `Tool(param:pattern)`, or the rule in `allow` of policy.toml",
                rule.text
            )),
            Subject::Script(_) | Subject::Parameter { .. } => Ok(rule),
        });
        let wrong = |key: &str, detail| PolicyError {
            path: place.file.clone(),
            line: place.line,
            key: Some(key.to_owned()),
            detail,
        };
        let mut rule = rule.map_err(|detail| wrong("rule", detail))?;
        let called_by = remembered.called_by.as_deref().map(Tools::new).transpose();
        let called_by = called_by.map_err(|detail| wrong("called_by", detail))?;
        rule.called_by = called_by.map(|tool| vec![tool]);
        rule.principals = Some(vec![Principal::User {
            name: remembered.uid.to_string(),
            uid: remembered.uid,
        }]);
        Ok(Self {
            rule,
            remembered: remembered.clone(),
        })
    }
}

/// The call that is no script, if it is remembered.
pub(super) fn judge_input<'p>(
    policy: &'p Policy,
    question: &'p Question<'_>,
) -> Option<Decision<'p>> {
    let mut matching = policy
        .grants(question)
        .filter(|grant| grant.rule.matches_input(question));
    let grant = matching.next()?;
    quiets_parameters(policy, question).then_some(Decision {
        verdict: Verdict::Allow,
        cause: Cause::Remembered(grant),
        segment: None,
    })
}

/// Whether each parameter that a rule asks about is one of which an approval is remembered: who
/// approved a path has not approved a mode.
fn quiets_parameters(policy: &Policy, question: &Question<'_>) -> bool {
    let asking = policy.rules(Verdict::Ask, question);
    let mut asking = asking.filter(|rule| rule.matches_input(question));
    asking.all(|rule| match rule.parameter() {
        None => true,
        parameter => policy
            .grants(question)
            .any(|grant| grant.rule.parameter() == parameter && grant.rule.matches_input(question)),
    })
}

/// A command of a script that patterns may allow, and how it stands.
pub(super) struct Standing<'p> {
    pub segment: Segment,
    /// Joined, as patterns see them.
    pub words: String,
    grant: Option<&'p Grant>,
    /// Whether it needs none: it would pass, and nothing asks about it.
    passes: bool,
}

impl Standing<'_> {
    /// Whether it keeps the script from running.
    pub(super) fn is_open(&self) -> bool {
        self.grant.is_none() && !self.passes
    }
}

/// How each command stands; none when patterns may allow nothing of it.
pub(super) fn standings<'p>(
    policy: &'p Policy,
    question: &'p Question<'_>,
    text: &str,
    whole: Option<&Decision<'_>>,
) -> Option<Vec<Standing<'p>>> {
    let scripts = |list| -> Vec<&'p Rule> {
        let rules = policy.rules(list, question);
        rules.filter(|rule| rule.script().is_some()).collect()
    };
    let (allowing, asking) = (scripts(Verdict::Allow), scripts(Verdict::Ask));
    let whole = whole.map(|whole| whole.verdict);
    let mut moved = false;
    let segments = allowable(text, question).ok()?.into_iter();
    let standing = segments.map(|segment| {
        let words = join(segment.words.iter().map(String::as_str));
        let elsewhere = is_elsewhere(&segment, moved);
        let grant = policy
            .grants(question)
            .find(|grant| !elsewhere && covers(&grant.rule, &segment, &words));
        let asks = |rule: &&Rule| {
            rule.script()
                .is_some_and(|glob| forms(&words).any(|form| glob.matches(form)))
        };
        let by_itself = || judge_segment(policy, &allowing, &segment, &words, moved).verdict;
        let passes = grant.is_none()
            && whole.unwrap_or_else(by_itself) == Verdict::Allow
            && !asking.iter().any(asks);
        moved |= moves(&segment);
        Standing {
            segment,
            words,
            grant,
            passes,
        }
    });
    Some(standing.collect())
}

/// The script, if every command of it is remembered, or would pass and is not asked about.
pub(super) fn judge_commands<'p>(
    policy: &'p Policy,
    question: &'p Question<'_>,
    text: &str,
    whole: Option<&Decision<'_>>,
    asked: &Asked<'_>,
) -> Option<Decision<'p>> {
    policy.grants(question).next()?;
    let standings = standings(policy, question, text, whole)?;
    if standings.iter().any(Standing::is_open) || !quiets_parameters(policy, question) {
        return None;
    }
    // What is asked about may also be within a command (sudo), and in which is not known.
    let within = |asked: &Command| standings.iter().all(|one| one.words != asked.text());
    let any_passes = standings.iter().any(|one| one.passes);
    if any_passes && asked.commands.iter().any(within) {
        return None;
    }
    let first = standings.iter().find_map(|one| Some((one, one.grant?)));
    first.map(|(one, grant)| Decision {
        verdict: Verdict::Allow,
        cause: Cause::Remembered(grant),
        segment: Some(shown(&one.words)),
    })
}
