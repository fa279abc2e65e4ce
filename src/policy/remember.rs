//! The rules that would let exactly a call pass the next time.

use super::glob::escape;
use super::input::{is_path_parameter, script};
use super::judge::{Cause, Decision, Policy};
use super::paths::{absolute, goes_up};
use super::question::{Question, Verdict};
use super::scripts::allowable;
use super::shell::hazards::hazard;
use super::shell::strict::join;

/// One rule for each command that is not allowed already; none at all when something on the
/// hazard list is among them, or when a rule asks: a rule that allows would not change that.
pub(super) fn remember_rules(
    policy: &Policy,
    question: &Question<'_>,
    decision: &Decision<'_>,
) -> Vec<String> {
    if decision.verdict != Verdict::Ask || !matches!(decision.cause, Cause::Default(_)) {
        return Vec::new();
    }
    match script(question) {
        Some(text) => of_script(policy, question, text),
        None => of_input(question).into_iter().collect(),
    }
}

fn of_script(policy: &Policy, question: &Question<'_>, text: &str) -> Vec<String> {
    let Ok(segments) = allowable(text, question.env) else {
        return Vec::new();
    };
    let mut rules: Vec<String> = Vec::new();
    for segment in &segments {
        if hazard(&segment.words).is_some() {
            return Vec::new();
        }
        let words = join(segment.words.iter().map(String::as_str));
        let mut allowing = policy.rules(Verdict::Allow, question);
        if allowing.any(|rule| rule.script().is_some_and(|glob| glob.matches(&words))) {
            continue;
        }
        let rule = format!("{}(command:{})", question.tool, escape(&words));
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

/// A rule on the one parameter that says what is touched: the only path, or the only parameter.
fn of_input(question: &Question<'_>) -> Option<String> {
    let input = question.input.as_object()?;
    let mut paths = input.iter().filter(|(name, _)| is_path_parameter(name));
    let (name, value) = match (paths.next(), paths.next()) {
        (Some(path), None) => path,
        (None, _) if input.len() == 1 => input.iter().next()?,
        _ => return None,
    };
    let value = value.as_str().filter(|value| !value.is_empty())?;
    let value = match is_path_parameter(name) {
        true if goes_up(value) => return None,
        true => absolute(value, question.working_dir)?,
        false => value.to_owned(),
    };
    Some(format!("{}({name}:{})", question.tool, escape(&value)))
}
