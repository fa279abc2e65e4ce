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
    let variable = variable_that_decides(policy, question, &decision);
    let reason = || {
        let reason = reason(policy, tool, &decision);
        match &variable {
            Some(variable) => {
                format!("what {variable} is set to may be run by what reads it: {reason}")
            }
            None => reason,
        }
    };
    let would_change = would_change(policy, question, &decision, &remember_rules);
    Judgement {
        reason: own
            .and_then(|rule| rule.reason.clone())
            .unwrap_or_else(reason),
        would_change: match &variable {
            Some(variable) => format!("A call without {variable}. With it: {would_change}"),
            None => would_change,
        },
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

/// What of a call's environment decides, where it would be judged more mildly without.
fn variable_that_decides(
    policy: &Policy,
    question: &Question<'_>,
    decision: &Decision<'_>,
) -> Option<String> {
    /// How many are looked at, each of which is judged by itself, beside a script that is no longer than this, in bytes.
    const MOST: usize = 8;
    const SHORT: usize = 4096;
    let is_as_strict = |env: &BTreeMap<String, String>| {
        policy.decide(&Question { env, ..*question }).verdict >= decision.verdict
    };
    let is_told = matches!(decision.cause, Cause::Environment(_));
    let is_nothing = question.env.is_empty() || decision.verdict == Verdict::Allow;
    if is_nothing || is_told || is_as_strict(&BTreeMap::new()) {
        return None;
    }
    let is_short = script(question).is_none_or(|text| text.len() <= SHORT);
    let mut each = question.env.iter().take(MOST);
    let one = each.find(|(name, value)| {
        let alone = [((*name).clone(), (*value).clone())];
        question.env.len() == 1 || is_short && is_as_strict(&BTreeMap::from(alone))
    });
    Some(match one {
        Some((name, _)) => format!("`{name}` in `env`"),
        None => "`env`".to_owned(),
    })
}

fn place(rule: &Rule) -> String {
    format!("{}:{}", rule.source.file.display(), rule.source.line)
}

fn reason(policy: &Policy, tool: &str, decision: &Decision<'_>) -> String {
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
