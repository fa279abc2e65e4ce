use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::expression::{self, Expression};
use super::{Answer, Confinement, Context, Produced, ToolImpl, WorkOf, schema_of, shell};
use crate::config::ExecutorConfig;
use crate::domain::{Call, ExecutorError, ToolDefinition, ToolDetails, Violation};

/// What it takes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// A Python expression over the values of `context`, such as `output.strip() == '1'`.
    condition: String,
    /// The values, by the names that the condition uses.
    #[serde(default)]
    context: Map<String, Value>,
}

/// What it answers.
#[derive(Serialize, JsonSchema)]
struct Output {
    /// Whether the condition holds.
    result: bool,
    /// What it amounts to: `result` is whether that is true as Python has it.
    value: Value,
}

/// Tells whether a condition holds.
pub(super) struct CheckCondition;

impl ToolImpl for CheckCondition {
    fn name(&self) -> &str {
        "check_condition"
    }

    fn details(&self, config: &ExecutorConfig) -> ToolDetails {
        let definition = ToolDefinition {
            name: self.name().to_owned(),
            description: "Tell whether a condition holds: a Python expression over the values in \
                          `context`, such as `output.strip() == '1'`. Comparisons, arithmetic, \
                          `and`, `or`, `not`, `in`, indexing, methods of text, and functions such \
                          as `int` and `len` work as in Python; nothing else can be reached."
                .to_owned(),
            input_schema: schema_of::<Input>(),
        };
        ToolDetails {
            output_schema: Some(schema_of::<Output>()),
            ..ToolDetails::built_in(definition, "logic", config.default_timeout)
        }
    }

    fn subject(&self, input: &Value) -> String {
        match input.get("condition") {
            Some(Value::String(condition)) => condition.clone(),
            _ => input.to_string(),
        }
    }

    fn may_run_its_input(&self) -> bool {
        false
    }

    /// What is no expression is so whatever the values are.
    fn check(&self, input: &Value) -> Vec<Violation> {
        let condition = input.get("condition").and_then(Value::as_str);
        let error = condition.and_then(|text| Expression::parse(text).err());
        let violation = error.map(|error| Violation {
            pointer: "/condition".to_owned(),
            detail: error.to_string(),
        });
        violation.into_iter().collect()
    }

    fn confinement(&self) -> Confinement {
        Confinement::Needless
    }

    fn run<'a>(
        &'a self,
        call: &'a Call,
        context: Context<'a>,
    ) -> BoxFuture<'a, Result<Produced, ExecutorError>> {
        async move {
            let Input {
                condition,
                context: values,
            } = shell::input(call, &context)?;
            // Its own bounds end it within milliseconds, which others need not wait for.
            context.live.mark_started();
            let checked = context.work(WorkOf::call(call), move |_| {
                Ok(expression::check(&condition, &values))
            });
            Ok(Produced::Answered(match checked.await? {
                Ok((result, value)) => Answer {
                    content: if result { "True" } else { "False" }.to_owned(),
                    // Of values that came as JSON nothing can fail.
                    output: serde_json::to_value(Output { result, value }).ok(),
                    ..Answer::default()
                },
                Err(error) => Answer::failed(error.to_string()),
            }))
        }
        .boxed()
    }
}
