use std::path::Path;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Context, ToolImpl, schema_of};
use crate::config::ExecutorConfig;
use crate::domain::{Call, ExecutorError, RiskLevel, ToolDefinition, ToolDetails, Violation};
use crate::runner::{Outcome, Plan, RunError, Script};

/// What it takes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The shell command to execute.
    command: String,
}

/// Runs shell commands.
pub(super) struct Bash;

/// What the model is told when `tools.toml` does not say.
fn description(shell: &Path) -> String {
    format!(
        "Execute a shell command via {} -c, non-interactively. Standard output and standard error \
         are captured separately and returned with the exit code. Each call is a fresh shell: \
         directories and variables do not carry over. When the command ends, processes it left in \
         the background are killed.",
        shell.display()
    )
}

impl ToolImpl for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn details(&self, config: &ExecutorConfig) -> ToolDetails {
        ToolDetails {
            definition: ToolDefinition {
                name: self.name().to_owned(),
                description: description(&config.shell),
                input_schema: schema_of::<Input>(),
            },
            version: env!("CARGO_PKG_VERSION").to_owned(),
            risk_level: RiskLevel::Trusted,
            output_schema: None,
            source: "builtin".to_owned(),
        }
    }

    fn subject(&self, input: &Value) -> String {
        match input.get("command") {
            Some(Value::String(command)) => command.clone(),
            _ => input.to_string(),
        }
    }

    fn check(&self, input: &Value) -> Vec<Violation> {
        let has_nul =
            matches!(input.get("command"), Some(Value::String(text)) if text.contains('\0'));
        let nul = || Violation {
            pointer: "/command".to_owned(),
            detail: "holds a NUL character, which no command can".to_owned(),
        };
        has_nul.then(nul).into_iter().collect()
    }

    fn run<'a>(
        &'a self,
        call: &'a Call,
        context: Context<'a>,
    ) -> BoxFuture<'a, Result<Outcome, ExecutorError>> {
        run(call, context).boxed()
    }
}

async fn run(call: &Call, context: Context<'_>) -> Result<Outcome, ExecutorError> {
    let Context {
        id,
        config,
        runner,
        live,
        summary,
    } = context;
    let input = Input::deserialize(&call.input);
    // Not reached: it fits the schema, which is made from the type.
    let Input { command } = input.map_err(|error| ExecutorError::Internal {
        tool_name: call.tool.clone(),
        input_summary: summary.clone(),
        detail: "an input that fits the schema cannot be read".to_owned(),
        source: Some(Box::new(error)),
    })?;
    let options = &call.options;
    let configured = config
        .env
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    let given = options
        .env
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    let plan = Plan {
        id,
        program: config.shell.clone(),
        args: Vec::new(),
        script: Some(Script {
            option: "-c".to_owned(),
            text: command,
        }),
        working_dir: options
            .working_dir
            .clone()
            .or_else(|| config.working_dir.clone()),
        env: configured.chain(given).collect(),
        stdin: options.stdin.clone(),
        limit: options.timeout.unwrap_or(config.default_timeout),
        kill_grace: config.kill_grace,
        kill_wait: config.kill_wait,
        drain: config.drain,
        background: options.background,
        limits: config.limits,
    };
    let outcome = runner.run(plan, &live).await;
    outcome.map_err(|RunError { step, source }| ExecutorError::SpawnFailed {
        tool_name: call.tool.clone(),
        input_summary: summary,
        step,
        source,
    })
}
