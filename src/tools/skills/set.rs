//! Skills together: what calls what, and what cannot.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::document::Fault;
use super::skill::{Mode, Skill, Step};
use crate::domain::Violation;
use crate::tools::InputSchema;

/// What is known of a tool that is no skill of this directory.
pub(crate) enum Found<'k> {
    /// There is none.
    Nothing,
    /// There is one that takes this.
    Takes(&'k InputSchema),
}

/// The tools there are beside the skills that are loaded.
pub(crate) trait Known {
    fn find(&self, tool: &str) -> Found<'_>;

    /// What such a tool finds wrong with an input that fits its schema.
    fn wrong_with(&self, tool: &str, input: &Value) -> Vec<Violation>;
}

/// Skills by name; each has one or several versions.
pub(super) type Names<'s> = BTreeMap<&'s str, Vec<&'s Skill>>;

pub(super) fn by_name<'s>(skills: impl IntoIterator<Item = &'s Skill>) -> Names<'s> {
    let mut names = Names::new();
    for skill in skills {
        names.entry(&skill.name).or_default().push(skill);
    }
    names
}

/// What is wrong with what `skill` calls, when there are `names` and `known`.
pub(super) fn calls(skill: &Skill, names: &Names<'_>, known: &dyn Known) -> Vec<Fault> {
    let mut faults = Vec::new();
    for tool in &skill.calls {
        let is_there =
            names.contains_key(tool.as_str()) || !matches!(known.find(tool), Found::Nothing);
        let is_step = steps(skill).any(|step| step.tool == *tool);
        if !is_there && !is_step {
            let detail = format!("`calls` names the tool {tool:?}, which is unknown");
            faults.push(Fault {
                pointer: "/calls".to_owned(),
                detail,
            });
        }
    }
    for step in steps(skill) {
        if is_itself(skill, step) {
            let pointer = format!("{}/tool", step.pointer);
            let detail = format!("`tool` is {:?}: a skill cannot call itself", step.tool);
            faults.push(Fault { pointer, detail });
        } else if let Some(fault) = unknown(step, names, known) {
            faults.push(fault);
        } else {
            faults.extend(parameters(step, names, known));
        }
    }
    faults
}

fn steps(skill: &Skill) -> impl Iterator<Item = &Step> {
    let items = match &skill.mode {
        Mode::Composite { items, .. } => items.as_slice(),
        Mode::Code(_) | Mode::Llm { .. } => &[],
    };
    items.iter().flat_map(|item| item.steps())
}

fn is_itself(skill: &Skill, step: &Step) -> bool {
    let is_version = step
        .version
        .as_ref()
        .is_none_or(|version| *version == skill.version);
    step.tool == skill.name && is_version
}

fn unknown(step: &Step, names: &Names<'_>, known: &dyn Known) -> Option<Fault> {
    let Some(versions) = names.get(step.tool.as_str()) else {
        let is_unknown = matches!(known.find(&step.tool), Found::Nothing);
        return is_unknown.then(|| Fault {
            pointer: format!("{}/tool", step.pointer),
            detail: format!("`tool` is {:?}, which is unknown", step.tool),
        });
    };
    let wanted = step.version.as_ref()?;
    let is_there = versions.iter().any(|skill| skill.version == *wanted);
    let there: Vec<String> = versions
        .iter()
        .map(|skill| skill.version.to_string())
        .collect();
    (!is_there).then(|| Fault {
        pointer: format!("{}/tool_version", step.pointer),
        detail: format!(
            "`tool_version` of {:?} is {wanted}: there is {}",
            step.tool,
            there.join(", ")
        ),
    })
}

/// What is wrong with the parameters that are known already.
fn parameters(step: &Step, names: &Names<'_>, known: &dyn Known) -> Vec<Fault> {
    let schema = match names.get(step.tool.as_str()).map(Vec::as_slice) {
        Some(versions) => {
            let wanted = |skill: &&&Skill| step.version.as_ref() == Some(&skill.version);
            let named = versions.iter().find(wanted);
            // Of several, which one will be called is not known.
            named
                .or(versions.first().filter(|_| versions.len() == 1))
                .map(|skill| &skill.input)
        }
        None => match known.find(&step.tool) {
            Found::Takes(schema) => Some(schema),
            Found::Nothing => None,
        },
    };
    let Some(schema) = schema else {
        return Vec::new();
    };
    let mut given = step.given.clone();
    schema.fill_in(&mut given);
    let templated: Vec<String> = step
        .parameters
        .expressions()
        .into_iter()
        .map(|(at, _)| at)
        .collect();
    let mut violations = schema.violations(&given);
    violations.extend(known.wrong_with(&step.tool, &given));
    // What holds a template, or is in one's place, is known only when it runs.
    let is_known = |at: &str| {
        !templated
            .iter()
            .any(|place| within(place, at) || within(at, place))
    };
    let violations = violations.into_iter();
    violations
        .filter(|violation| is_known(&violation.pointer))
        .map(|violation| Fault {
            pointer: format!("{}/parameters{}", step.pointer, violation.pointer),
            detail: format!("`parameters{}` {}", violation.pointer, violation.detail),
        })
        .collect()
}

/// Whether `inner` is `outer` or in it.
fn within(inner: &str, outer: &str) -> bool {
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// For each skill that is part of a cycle of composites: the step that leads into it, and the cycle.
pub(super) fn cycle(skill: &Skill, names: &Names<'_>) -> Option<Fault> {
    let mut seen = BTreeSet::new();
    for step in steps(skill) {
        let mut path = Vec::new();
        if leads_to(skill, step, names, &mut seen, &mut path) {
            path.reverse();
            let path = [vec![skill.name.clone()], path].concat().join(" -> ");
            return Some(Fault {
                pointer: format!("{}/tool", step.pointer),
                detail: format!("the skills call each other in a cycle: {path}"),
            });
        }
    }
    None
}

/// Whether `step` comes to `target` again; then `path` is filled in from there.
fn leads_to<'s>(
    target: &Skill,
    step: &Step,
    names: &Names<'s>,
    seen: &mut BTreeSet<*const Skill>,
    path: &mut Vec<String>,
) -> bool {
    let versions = names.get(step.tool.as_str()).map_or(&[][..], Vec::as_slice);
    let called = versions.iter().copied().filter(|skill| {
        step.version
            .as_ref()
            .is_none_or(|version| *version == skill.version)
    });
    for skill in called {
        let is_target = std::ptr::eq(skill, target);
        let is_new = seen.insert(std::ptr::from_ref(skill));
        if is_target
            || (is_new && steps(skill).any(|step| leads_to(target, step, names, seen, path)))
        {
            path.push(skill.name.clone());
            return true;
        }
    }
    false
}
