//! The rules that would let exactly a call pass the next time.

use std::path::PathBuf;
use std::time::SystemTime;

use super::glob::Kind;
use super::input::{SHELL_PARAMETER, is_path_parameter, script};
use super::judge::{Cause, Decision, Policy};
use super::paths::{absolute, goes_up};
use super::pattern::escape;
use super::question::{Question, RuleSource, Verdict};
use super::remembered::{Remembered, standings};
use super::rule::Rule;
use super::shell::hazards::{Hazard, hazard};
use crate::domain::ApprovalId;

/// How many rules are remembered of one script: each is held against each command from then on, and before that
/// against those of the script, whenever somebody is asked about it.
const MOST_REMEMBERED: usize = 64;

/// One rule for each command that does not pass already; none at all when something on the
/// hazard list is among them, when there are too many, or when remembering them would not let the call pass.
pub(super) fn remember_rules(
    policy: &Policy,
    question: &Question<'_>,
    decision: &Decision<'_>,
) -> Vec<String> {
    let asking = match decision.cause {
        Cause::Rule(rule) => Some(rule),
        Cause::Default(_) => None,
        Cause::Remembered(_)
        | Cause::Write(_)
        | Cause::MayMatch(_)
        | Cause::Unreadable(_)
        | Cause::Environment(_) => return Vec::new(),
    };
    if decision.verdict != Verdict::Ask {
        return Vec::new();
    }
    let rules = match script(question) {
        // Nothing on the hazard list is waved through for good with one key.
        Some(text) => of_script(policy, question, text, MOST_REMEMBERED, |_| true),
        None => of_input(question, asking).into_iter().collect(),
    };
    match lets_pass(policy, question, &rules) {
        true => rules,
        false => Vec::new(),
    }
}

/// Whether the call passes once `rules` are remembered.
fn lets_pass(policy: &Policy, question: &Question<'_>, rules: &[String]) -> bool {
    let remembered = rules.iter().map(|rule| Remembered {
        rule: rule.clone(),
        uid: question.caller.uid,
        called_by: question.chain.last().cloned(),
        approval: ApprovalId::from_bytes([0; 16]),
        approved_by: question.caller.uid,
        at: SystemTime::UNIX_EPOCH,
        source: None,
    });
    let remembered: Vec<Remembered> = remembered.collect();
    let with = policy.with_remembered(&remembered);
    with.is_ok_and(|with| with.decide(question).verdict == Verdict::Allow)
}

/// How many rules somebody writes down for one script. Each is held against each command, of which a script may have
/// thousands, and whatever is refused is told how it would not be.
const MOST_WRITTEN: usize = 8;

/// The rules that would let a script pass if they stood in `allow`, one for each command that does not pass
/// already; none at all when that takes more, or more of them than anybody writes down.
pub(super) fn exact_rules(policy: &Policy, question: &Question<'_>) -> Vec<String> {
    let never = |hazard| matches!(hazard, Hazard::Shell(_));
    let rules = script(question).map(|text| of_script(policy, question, text, MOST_WRITTEN, never));
    let rules = rules.unwrap_or_default();
    // A person is to write them down.
    let is_valid = |text: &String| {
        let source = RuleSource {
            file: PathBuf::new(),
            line: 0,
        };
        Rule::new(Verdict::Allow, text, source).is_ok_and(|rule| rule.check_meant().is_ok())
    };
    match rules.iter().all(is_valid) && lets_pass(policy, question, &rules) {
        true => rules,
        false => Vec::new(),
    }
}

fn of_script(
    policy: &Policy,
    question: &Question<'_>,
    text: &str,
    most: usize,
    is_refused: impl Fn(Hazard) -> bool,
) -> Vec<String> {
    let whole = policy.decide_whole(question);
    let mut rules: Vec<String> = Vec::new();
    for one in standings(policy, question, text, whole.as_ref()).unwrap_or_default() {
        if !one.is_open() {
            continue;
        }
        if hazard(&one.segment.words).is_some_and(&is_refused) {
            return Vec::new();
        }
        let rule = format!(
            "{}(command:{})",
            question.tool,
            escape(&one.words, Kind::Command)
        );
        if rules.contains(&rule) {
            continue;
        }
        if rules.len() == most {
            return Vec::new();
        }
        rules.push(rule);
    }
    rules
}

/// A rule on the one parameter that says what is touched: a path that is asked about, the only path, another parameter
/// that is asked about, or the only one.
fn of_input(question: &Question<'_>, asking: Option<&Rule>) -> Option<String> {
    let input = question.input.as_object()?;
    let asked = asking.and_then(Rule::parameter);
    let asked = asked.and_then(|name| input.get_key_value(name));
    let mut paths = input.iter().filter(|(name, _)| is_path_parameter(name));
    let (name, value) = match (asked, paths.next(), paths.next()) {
        // How a file is touched says nothing of which: nobody was asked about any other.
        (Some((name, _)), Some(path), None) if !is_path_parameter(name) => path,
        (Some((name, _)), Some(_), Some(_)) if !is_path_parameter(name) => return None,
        (Some(asked), _, _) => asked,
        (None, Some(path), None) => path,
        (None, None, _) if input.len() == 1 => input.iter().next()?,
        _ => return None,
    };
    let value = value.as_str().filter(|value| !value.is_empty())?;
    let (value, kind) = match is_path_parameter(name) {
        true if goes_up(value) => return None,
        true => (absolute(value, question.working_dir)?, Kind::Path),
        // The tool is no shell, and the pattern yet one of commands.
        false if name == SHELL_PARAMETER => (value.to_owned(), Kind::Command),
        false => (value.to_owned(), Kind::Text),
    };
    Some(format!(
        "{}({name}:{})",
        question.tool,
        escape(&value, kind)
    ))
}
