use std::path::Path;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Context, Produced, ToolImpl, schema_of, shell};
use crate::config::ExecutorConfig;
use crate::domain::{Call, ExecutorError, ToolDefinition, ToolDetails, Violation};

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
    fn name(&self) -> &str {
        "bash"
    }

    fn details(&self, config: &ExecutorConfig) -> ToolDetails {
        let definition = ToolDefinition {
            name: self.name().to_owned(),
            description: description(&config.shell),
            input_schema: schema_of::<Input>(),
        };
        ToolDetails::built_in(definition, "shell", config.default_timeout)
    }

    fn subject(&self, input: &Value) -> String {
        shell::command(input)
    }

    fn check(&self, input: &Value) -> Vec<Violation> {
        shell::check_command(input)
    }

    fn run<'a>(
        &'a self,
        call: &'a Call,
        context: Context<'a>,
    ) -> BoxFuture<'a, Result<Produced, ExecutorError>> {
        async move {
            let Input { command } = shell::input(call, &context)?;
            shell::run(command, call, context).await.map(Produced::Ran)
        }
        .boxed()
    }
}
