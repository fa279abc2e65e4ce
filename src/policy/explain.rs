//! A decision in words.

use std::collections::BTreeMap;

use super::input::script;
use super::judge::{Cause, Decision, Policy};
use super::question::{Judgement, Question, Verdict};
use super::remember::{exact_rules, remember_rules};
use super::rule::Rule;
use crate::domain::RiskLevel;

pub(super) fn explain(
    policy: &Policy,
    (tool, question): (&str, &Question<'_>),
    decision: Decision<'_>,
) -> Judgement {
    let rule = decision.cause.rule();
    let source = match (rule, &decision.cause) {
        (_, Cause::Remembered(grant)) => grant.remembered.source.clone(),
        (Some(rule), _) => Some(rule.source.clone()),
        (None, Cause::Default(_)) => policy.default_source().cloned(),
        (None, _) => None,
    };
    let own = rule.filter(|_| !matches!(decision.cause, Cause::MayMatch(_)));
    let remember_rules = remember_rules(policy, question, &decision);
    let reason = own.and_then(|rule| rule.reason.clone());
    let mut reason = reason.unwrap_or_else(|| reason_of(policy, tool, &decision));
    let mut would_change = would_change(policy, question, &decision, &remember_rules);
    if let Some(fault) = fault_of_env(policy, question, &decision) {
        let (what, without) = match fault {
            Fault::Of(name) => (
                format!("`{name}` in `env` is"),
                format!("`{name}` in `env`"),
            ),
            Fault::OfSeveral => (
                "several variables in `env` are".to_owned(),
                "the variables in `env`".to_owned(),
            ),
        };
        reason = format!("what {what} set to may be run by what reads it: {reason}");
        would_change = format!("A call without {without}. With it: {would_change}");
    }
    Judgement {
        reason,
        would_change,
        verdict: decision.verdict,
        rule: rule.map(|rule| rule.text.clone()),
        source,
        segment: decision.segment,
        suggest: rule.and_then(|rule| rule.suggest.clone()),
        risk_level: RiskLevel::Trusted,
        risk_rule: None,
        workspace: None,
        remember_rules,
    }
}

/// The variable of a call that makes its verdict stricter.
enum Fault<'a> {
    /// Without this variable it would be judged more mildly.
    Of(&'a str),
    /// There are several such.
    OfSeveral,
}

fn fault_of_env<'a>(
    policy: &Policy,
    question: &Question<'a>,
    decision: &Decision<'_>,
) -> Option<Fault<'a>> {
    /// How many variables are looked at, and how long the script may be, in bytes: it is judged once more for each.
    const MOST: usize = 8;
    const SHORT: usize = 4096;
    let is_of_a_rule = match decision.cause {
        Cause::Rule(_) | Cause::Write(_) | Cause::MayMatch(_) => decision.verdict != Verdict::Allow,
        // It names the variable, or is for want of a rule.
        Cause::Environment(_) | Cause::Default(_) | Cause::Remembered(_) | Cause::Unreadable(_) => {
            false
        }
    };
    let is_short = script(question).is_none_or(|text| text.len() <= SHORT);
    let is_milder = |env: &BTreeMap<String, String>| {
        policy.decide(&Question { env, ..*question }).verdict < decision.verdict
    };
    let env = question.env;
    if env.is_empty() || !is_of_a_rule || !is_short || !is_milder(&BTreeMap::new()) {
        return None;
    }
    let mut each = env.keys().take(MOST);
    let one = each.find(|name| {
        let mut without = env.clone();
        without.remove(*name);
        is_milder(&without)
    });
    Some(one.map_or(Fault::OfSeveral, |name| Fault::Of(name)))
}

fn place(rule: &Rule) -> String {
    format!("{}:{}", rule.source.file.display(), rule.source.line)
}

fn reason_of(policy: &Policy, tool: &str, decision: &Decision<'_>) -> String {
    let what = match &decision.segment {
        Some(segment) => format!("`{segment}`"),
        None => format!("this call of `{tool}`"),
    };
    match &decision.cause {
        Cause::Rule(rule) => {
            let verb = match rule.list {
                Verdict::Allow => "allows",
                Verdict::Ask => "asks about",
                Verdict::Deny => "denies",
            };
            format!("the rule `{}` {verb} {what}", rule.text)
        }
        Cause::Remembered(grant) => {
            let place = match grant.remembered.source {
                Some(_) => format!("written down at {}", place(&grant.rule)),
                None => "approved for this session".to_owned(),
            };
            format!(
                "a remembered approval allows {what}: `{}`, {place}",
                grant.rule.text
            )
        }
        Cause::Write(rule) => format!(
            "the rule `{}` is about a file that {what} writes",
            rule.text
        ),
        Cause::MayMatch(rule) => format!(
            "what {what} does is known only when it runs, and the rule `{}` may match it",
            rule.text
        ),
        Cause::Unreadable(why) => format!("the script cannot be read: {why}"),
        Cause::Environment(name) => {
            format!("the call sets `{name}`, which decides what a script runs")
        }
        Cause::Default(why) => {
            let word = policy.default_word();
            match why {
                Some(why) => {
                    format!("no rule decides about {what} ({why}), and the default is {word}")
                }
                None => format!("no rule decides about {what}, and the default is {word}"),
            }
        }
    }
}

fn would_change(
    policy: &Policy,
    question: &Question<'_>,
    decision: &Decision<'_>,
    remember: &[String],
) -> String {
    let tool = question.tool;
    let in_allow = |rules: &[String]| {
        let rules: Vec<String> = rules.iter().map(|rule| format!("`{rule}`")).collect();
        format!("In `allow`: {}.", rules.join(", "))
    };
    match &decision.cause {
        Cause::Rule(rule) if rule.list == Verdict::Allow => {
            format!(
                "A rule in `deny` or `ask` that matches as well; this one stands at {}.",
                place(rule)
            )
        }
        Cause::Remembered(grant) => match grant.remembered.source {
            Some(_) => format!(
                "A rule in `deny` that matches as well, or a reload after {} is gone.",
                grant.rule.source.file.display()
            ),
            None => "A rule in `deny` that matches as well, or a restart of the daemon.".to_owned(),
        },
        Cause::Rule(rule) if !remember.is_empty() => format!(
            "An approval that is remembered, or a change of the rule `{}` at {}: no rule in `allow` outweighs it.",
            rule.text,
            place(rule)
        ),
        Cause::Rule(rule) | Cause::Write(rule) => format!(
            "Only a change of the rule `{}` at {}: no rule in `allow` outweighs it.",
            rule.text,
            place(rule)
        ),
        Cause::MayMatch(rule) => format!(
            "A script that says outright what it runs and writes, or a change of the rule `{}` at {}.",
            rule.text,
            place(rule)
        ),
        Cause::Unreadable(_) => {
            "A shorter or simpler script, or no rules on commands and files written.".to_owned()
        }
        Cause::Environment(name) => {
            format!("A call without `{name}` in `env`, or no rules on commands and files written.")
        }
        Cause::Default(_) if decision.verdict == Verdict::Allow => {
            "A rule in `deny` or `ask` that matches, or another `default`.".to_owned()
        }
        Cause::Default(_) if !remember.is_empty() => in_allow(remember),
        Cause::Default(why) => match (script(question), exact_rules(policy, question), why) {
            (None, _, _) => format!(
                "A rule `{tool}` or `{tool}(parameter:…)` in `allow`, or another `default`."
            ),
            (Some(_), rules, _) if !rules.is_empty() => in_allow(&rules),
            (Some(_), _, Some(why)) => format!(
                "A simpler script, for {why}; otherwise only `{tool}` in `allow`, which allows every script, or another `default`."
            ),
            (Some(_), _, None) => format!(
                "A rule `{tool}(command:…)` in `allow` for each command that has none, or another `default`."
            ),
        },
    }
}
