//! What a list of calls would do: its steps with what is known of them beforehand, none of them called.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};

use super::skill::{Item, Mode, Skill, Step};
use super::steps::{Broken, INPUT, at_step};
use crate::tools::Answer;
use crate::tools::expression::{Saved, Values};

/// The member of a composite's input that asks for it.
pub(super) const DRY_RUN: &str = "dry_run";

/// One step as it would be taken.
#[derive(Serialize)]
struct Planned<'a> {
    step: &'a str,
    tool: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    runs: Runs,
    /// As they would be given; as they are written where they depend on what there is not yet.
    parameters: Value,
    /// The results of earlier steps that `runs` and `parameters` depend on.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    depends_on: BTreeSet<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    save_output_as: Option<&'a str>,
}

/// Whether it would be taken at all.
#[derive(Clone, Copy, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Runs {
    Yes,
    No,
    Depends,
}

/// What the schema of a composite has besides what its author wrote.
pub(super) fn property() -> Value {
    json!({
        "type": "boolean",
        "description": "Tells which tools would be called with what, and calls none.",
    })
}

/// Takes the request for it out of an input.
pub(super) fn is_wanted(input: &mut Value) -> bool {
    let members = input.as_object_mut();
    let wanted = members.and_then(|members| members.remove(DRY_RUN));
    wanted == Some(Value::Bool(true))
}

/// Walks through the steps of a skill.
pub(super) fn rehearse(skill: &Skill, input: Value) -> Answer {
    let items = match &skill.mode {
        Mode::Composite { items, .. } => items.as_slice(),
        Mode::Code(_) | Mode::Llm { .. } => &[],
    };
    let mut walk = Walk {
        unknown: BTreeSet::new(),
        values: Values::default(),
    };
    walk.values.insert(INPUT, input);
    match items.iter().map(|item| walk.take(item)).collect() {
        Ok::<Vec<_>, Broken>(steps) => {
            let steps: Vec<Planned<'_>> = steps.into_iter().flatten().collect();
            let told = json!({DRY_RUN: true, "steps": steps});
            Answer {
                content: format!("{told:#}"),
                // It is not what the skill's output schema speaks of.
                output: None,
                ..Answer::default()
            }
        }
        Err(Broken(why)) => Answer::failed(why),
    }
}

struct Walk<'a> {
    /// What steps that were not taken would have saved.
    unknown: BTreeSet<&'a str>,
    values: Values,
}

impl<'a> Walk<'a> {
    fn take(&mut self, item: &'a Item) -> Result<Vec<Planned<'a>>, Broken> {
        let steps = item.steps();
        let planned: Result<Vec<_>, _> = steps.iter().map(|step| self.step(step)).collect();
        let planned = planned?;
        for planned in &planned {
            match (planned.save_output_as, planned.runs) {
                (Some(name), Runs::No) => self.values.insert(name, Saved::default()),
                (Some(name), Runs::Yes | Runs::Depends) => {
                    self.unknown.insert(name);
                }
                (None, _) => {}
            }
        }
        Ok(planned)
    }

    fn step(&self, step: &'a Step) -> Result<Planned<'a>, Broken> {
        let mut depends_on = BTreeSet::new();
        let mut lacks = |names: BTreeSet<&str>| {
            let lacking = self.unknown.iter().filter(|name| names.contains(**name));
            let before = depends_on.len();
            depends_on.extend(lacking.copied());
            depends_on.len() > before
        };
        let runs = match &step.condition {
            None => Runs::Yes,
            Some(condition) => {
                let names = condition.names().iter().map(String::as_str).collect();
                match lacks(names) {
                    true => Runs::Depends,
                    false => match condition.truth(&self.values) {
                        Ok(true) => Runs::Yes,
                        Ok(false) => Runs::No,
                        Err(error) => return Err(at_step(step, "`condition`", &error)),
                    },
                }
            }
        };
        let names = step.parameters.names();
        let is_known = !names.iter().any(|name| self.unknown.contains(name));
        let parameters = match runs {
            Runs::Yes | Runs::Depends if is_known => step
                .parameters
                .render(&self.values)
                .map_err(|error| at_step(step, "`parameters`", &error))?,
            Runs::Yes | Runs::Depends => {
                lacks(names);
                step.given.clone()
            }
            Runs::No => step.given.clone(),
        };
        Ok(Planned {
            step: &step.pointer,
            tool: &step.tool,
            description: step.description.as_deref(),
            runs,
            parameters,
            depends_on,
            save_output_as: step.save_output_as.as_deref(),
        })
    }
}
