//! Steps: calls of tools one after another or side by side, with values from earlier ones.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::document::{Fault, member};
use super::fields::Fields;
use super::skill::{Item, Mode, OnError, Step};
use crate::tools::expression::{Expression, Template, is_name};

/// How many steps a composite may have, those in groups counted. What wants more is a program.
const STEP_LIMIT: usize = 100;

/// The value every step sees.
const INPUT: &str = "input";

/// `"steps": […]` and `"result"`.
pub(super) fn read(fields: &mut Fields<'_>) -> Option<Mode> {
    fields.need("steps")?;
    let given = fields.list("steps")?;
    let at = fields.at("steps");
    let mut steps = Steps {
        names: BTreeSet::from([INPUT.to_owned()]),
        count: 0,
        faults: Vec::new(),
    };
    let items: Vec<Option<Item>> = given
        .iter()
        .enumerate()
        .map(|(n, value)| steps.item(&format!("{at}/{n}"), value))
        .collect();
    if !(1..=STEP_LIMIT).contains(&steps.count) {
        fields.wrong(
            "steps",
            format!("holds {} steps: expected 1 to {STEP_LIMIT}", steps.count),
        );
    }
    let result = fields.take("result");
    let result = result.map(|value| steps.template(&fields.at("result"), value));
    fields.faults.append(&mut steps.faults);
    // What is wrong is told; the rest is looked at all the same.
    Some(Mode::Composite {
        items: items.into_iter().flatten().collect(),
        result: result.flatten(),
    })
}

struct Steps {
    /// The values there are by now.
    names: BTreeSet<String>,
    count: usize,
    faults: Vec<Fault>,
}

impl Steps {
    fn wrong(&mut self, pointer: &str, detail: impl Into<String>) {
        let fault = Fault {
            pointer: pointer.to_owned(),
            detail: detail.into(),
        };
        self.faults.push(fault);
    }

    fn item(&mut self, at: &str, value: &Value) -> Option<Item> {
        if value.get("parallel").is_none() {
            let (step, saved) = self.step(at, value);
            self.save(at, saved);
            return step.map(|step| Item::One(Box::new(step)));
        }
        let mut fields = self.fields(at, value)?;
        let description = fields.text("description").map(str::to_owned);
        let group = fields.list("parallel").unwrap_or_default();
        if group.is_empty() {
            fields.wrong("parallel", "holds no steps: expected some");
        }
        self.faults.append(&mut fields.finish("a group"));
        let (mut steps, mut saved) = (Vec::new(), Vec::new());
        for (n, value) in group.iter().enumerate() {
            let at = format!("{at}/parallel/{n}");
            if value.get("parallel").is_some() {
                self.wrong(&at, "is a group in a group: expected steps");
                continue;
            }
            let (step, name) = self.step(&at, value);
            steps.extend(step);
            saved.push((at, name));
        }
        // Only now: the steps of a group do not see each other.
        for (at, name) in saved {
            self.save(&at, name);
        }
        Some(Item::Parallel { description, steps })
    }

    fn fields<'v>(&mut self, at: &str, value: &'v Value) -> Option<Fields<'v>> {
        let fields = Fields::of(at, value);
        fields.map_err(|fault| self.faults.push(fault)).ok()
    }

    fn save(&mut self, at: &str, name: Option<String>) {
        let Some(name) = name else { return };
        let pointer = member(at, "save_output_as");
        if !is_name(&name) {
            let detail = format!(
                "`save_output_as` is {name:?}: expected letters, digits and _, and no word of expressions"
            );
            self.wrong(&pointer, detail);
        } else if !self.names.insert(name.clone()) {
            self.wrong(
                &pointer,
                format!(
                    "`save_output_as` is {name:?}, which is already a value: expected another name"
                ),
            );
        }
    }

    /// A step, unless too much of it is wrong, and what its output is to be saved as.
    fn step(&mut self, at: &str, value: &Value) -> (Option<Step>, Option<String>) {
        self.count += 1;
        let Some(fields) = self.fields(at, value) else {
            return (None, None);
        };
        let name = value.get("save_output_as").and_then(Value::as_str);
        (self.read(at, fields), name.map(str::to_owned))
    }

    fn read(&mut self, at: &str, mut fields: Fields<'_>) -> Option<Step> {
        let tool = fields.need_text("tool").map(str::to_owned);
        let version = fields.text("tool_version");
        let version = version.and_then(|text| fields.version("tool_version", text));
        let description = fields.text("description").map(str::to_owned);
        let save_output_as = fields.text("save_output_as").map(str::to_owned);
        let errors = [("stop", OnError::Stop), ("continue", OnError::Continue)];
        let on_error = fields.choice("on_error", &errors);
        let timeout = fields.timeout();
        let condition = fields
            .text("condition")
            .map(|text| self.condition(&fields.at("condition"), text));
        let given = fields
            .take("parameters")
            .cloned()
            .unwrap_or_else(|| json!({}));
        if !given.is_object() {
            fields.wrong("parameters", "is no object");
        }
        let parameters = self.template(&fields.at("parameters"), &given);
        self.faults.extend(fields.finish("a step"));
        Some(Step {
            pointer: at.to_owned(),
            tool: tool?,
            version,
            description,
            parameters: parameters?,
            given,
            save_output_as,
            condition: condition.flatten(),
            on_error: on_error?,
            timeout,
        })
    }

    fn condition(&mut self, at: &str, text: &str) -> Option<Expression> {
        match Expression::parse(text) {
            Ok(expression) => {
                self.missing(at, &expression);
                Some(expression)
            }
            Err(error) => {
                self.wrong(at, format!("`condition` is no expression: {error}"));
                None
            }
        }
    }

    fn template(&mut self, at: &str, value: &Value) -> Option<Template> {
        let template = match Template::parse(value) {
            Ok(template) => template,
            Err(errors) => {
                for error in errors {
                    let pointer = format!("{at}{}", error.pointer);
                    self.wrong(&pointer, format!("a template is no expression: {error}"));
                }
                return None;
            }
        };
        for (pointer, expression) in template.expressions() {
            self.missing(&format!("{at}{pointer}"), expression);
        }
        Some(template)
    }

    /// Tells the names of an expression that nothing was saved as by then.
    fn missing(&mut self, at: &str, expression: &Expression) {
        for name in expression.names() {
            if !self.names.contains(name) {
                let there: Vec<String> =
                    self.names.iter().map(|name| format!("`{name}`")).collect();
                let detail = format!(
                    "`{name}` is a missing value: there is {} by then",
                    there.join(", ")
                );
                self.wrong(at, detail);
            }
        }
    }
}
