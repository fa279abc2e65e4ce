use std::path::Path;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{Closing, Content, Context, Streams, ToolImpl, content};
use crate::config::ExecutorConfig;
use crate::domain::{
    Call, Ending, ExecutorError, Exit, RiskLevel, RunReport, StopReason, ToolDefinition,
    ToolDetails, ToolOutput, Violation,
};
use crate::runner::{Outcome, Plan, RunError, Script};

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
                input_schema: json!({
                    "type": "object",
                    "properties": {
                        "command": {"type": "string", "description": "The shell command to execute."}
                    },
                    "required": ["command"],
                    "additionalProperties": false
                }),
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

    fn run<'a>(
        &'a self,
        call: &'a Call,
        context: Context<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ExecutorError>> {
        run(call, context).boxed()
    }
}

async fn run(call: &Call, context: Context<'_>) -> Result<ToolOutput, ExecutorError> {
    let Context {
        id,
        config,
        runner,
        live,
        summary,
    } = context;
    let command = command(&call.input).map_err(|violations| ExecutorError::InvalidInput {
        tool_name: call.tool.clone(),
        input_summary: summary.clone(),
        violations,
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
            text: command.to_owned(),
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
    match runner.run(plan, &live).await {
        Ok(outcome) => answer(&call.tool, summary, outcome, |streams, closing| {
            content(streams, config.max_output_bytes, config.truncate, closing)
        }),
        Err(RunError { step, source }) => Err(ExecutorError::SpawnFailed {
            tool_name: call.tool.clone(),
            input_summary: summary,
            step,
            source,
        }),
    }
}

/// Reads `{"command": string}`.
fn command(input: &Value) -> Result<&str, Vec<Violation>> {
    let Value::Object(members) = input else {
        let detail = "expected an object such as {\"command\": \"df -h\"}".to_owned();
        return Err(vec![Violation {
            pointer: String::new(),
            detail,
        }]);
    };
    let mut violations: Vec<Violation> = members
        .keys()
        .filter(|member| *member != "command")
        .map(|member| Violation {
            pointer: format!("/{}", member.replace('~', "~0").replace('/', "~1")),
            detail: "is not a member of this input: expected `command` only".to_owned(),
        })
        .collect();
    let mut at_command = |detail: &str| {
        violations.push(Violation {
            pointer: "/command".to_owned(),
            detail: detail.to_owned(),
        });
    };
    let command = match members.get("command") {
        Some(Value::String(command)) if command.contains('\0') => {
            at_command("holds a NUL character, which no command can");
            ""
        }
        Some(Value::String(command)) => command,
        Some(_) => {
            at_command("expected a string");
            ""
        }
        None => {
            at_command("is required");
            ""
        }
    };
    if violations.is_empty() {
        Ok(command)
    } else {
        Err(violations)
    }
}

/// Turns an outcome into what seed 000 calls an answer: whatever ended by itself is an output,
/// what was stopped an error that carries one.
fn answer(
    tool: &str,
    summary: String,
    outcome: Outcome,
    format: impl FnOnce(Streams<'_>, Closing) -> Content,
) -> Result<ToolOutput, ExecutorError> {
    let closing = match outcome.ending {
        Ending::Itself(Exit::Code(code)) => Closing::ExitCode(code),
        Ending::Itself(Exit::Signal(signal)) => Closing::Signal(signal),
        Ending::Stopped {
            reason: StopReason::Timeout(limit),
            ..
        } => Closing::Timeout(limit),
        Ending::Stopped { .. } => Closing::Cancelled,
    };
    let streams = Streams {
        stdout: &outcome.stdout,
        stderr: &outcome.stderr,
    };
    let content = format(streams, closing);
    let run = RunReport {
        exit: outcome.ending.exit(),
        oom_killed: outcome.oom_killed,
        duration: outcome.duration,
        truncated: content.truncated,
        stdout_bytes: outcome.stdout.total,
        stderr_bytes: outcome.stderr.total,
        background: outcome.background,
        usage: outcome.usage,
        kill: outcome.kill,
    };
    let is_error = closing != Closing::ExitCode(0);
    let output = ToolOutput {
        verbatim: content.verbatim,
        ..ToolOutput::new(content.text, is_error, run)
    };
    let (tool_name, input_summary) = (tool.to_owned(), summary);
    match (outcome.ending, outcome.capture_error) {
        (
            Ending::Stopped {
                reason: StopReason::Timeout(limit),
                ..
            },
            _,
        ) => {
            let partial = Box::new(output);
            Err(ExecutorError::Timeout {
                tool_name,
                input_summary,
                limit,
                partial,
            })
        }
        (Ending::Stopped { reason, .. }, _) => {
            let partial = Some(Box::new(output));
            Err(ExecutorError::Cancelled {
                tool_name,
                input_summary,
                reason,
                partial,
            })
        }
        (Ending::Itself(_), Some(source)) => {
            let partial = Box::new(output);
            Err(ExecutorError::OutputCaptureFailed {
                tool_name,
                input_summary,
                partial,
                source,
            })
        }
        (Ending::Itself(_), None) => Ok(output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_violation_is_told_by_pointer() {
        for (input, pointers) in [
            (json!({"command": "df -h"}), &[][..]),
            (json!("df -h"), &[""]),
            (json!({}), &["/command"]),
            (json!({"command": 3}), &["/command"]),
            (json!({"command": "a\0b"}), &["/command"]),
            (
                json!({"cmd/x": 1, "command": null}),
                &["/cmd~1x", "/command"],
            ),
        ] {
            let violations = command(&input).err().unwrap_or_default();
            let found: Vec<&str> = violations.iter().map(|v| v.pointer.as_str()).collect();
            assert_eq!(found, pointers, "{input}");
        }
    }
}
