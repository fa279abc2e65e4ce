use std::path::{Path, PathBuf};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sections::{self, Streams};
use super::{Context, Place, Produced, Resolved, ToolImpl, UseOfIt, schema_of, shell};
use crate::config::ExecutorConfig;
use crate::domain::{Call, Ending, ExecutorError, Exit, ToolDefinition, ToolDetails, Violation};
use crate::runner::Outcome;

/// What it takes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The shell command to execute.
    command: String,
    /// The directory to execute it in: absolute, below `~`, or relative to the call's.
    #[expect(dead_code, reason = "it became the call's working directory")]
    cwd: Option<String>,
}

/// What it answers a program.
#[derive(Serialize, JsonSchema)]
struct Output {
    /// The exit code; the negative number of the signal that ended it, if one did.
    return_code: i32,
    /// What it wrote to standard output, as far as the answer holds it: cut where the text is, and marked there.
    stdout: String,
    /// What it wrote to standard error, likewise.
    stderr: String,
}

/// The parameter for the directory.
const DIRECTORY: &str = "cwd";

/// What it is called.
pub(super) const NAME: &str = "execute_command";

/// Runs shell commands as `bash` does, and answers a program, too.
pub(super) struct ExecuteCommand;

impl ToolImpl for ExecuteCommand {
    fn name(&self) -> &str {
        NAME
    }

    fn details(&self, config: &ExecutorConfig) -> ToolDetails {
        let definition = ToolDefinition {
            name: self.name().to_owned(),
            description: format!(
                "Execute a shell command via {} -c, as `bash` does, in the directory `cwd`. The \
                 output is structured: return_code, stdout and stderr. Each call is a fresh shell; \
                 when the command ends, processes it left in the background are killed.",
                config.shell.display()
            ),
            input_schema: schema_of::<Input>(),
        };
        ToolDetails {
            output_schema: Some(schema_of::<Output>()),
            ..ToolDetails::built_in(definition, "shell", config.default_timeout)
        }
    }

    fn subject(&self, input: &Value) -> String {
        shell::command(input)
    }

    fn check(&self, input: &Value) -> Vec<Violation> {
        shell::check_command(input)
    }

    /// It runs somewhere, whether it says so or not.
    fn names_paths(&self, _input: &Value) -> bool {
        true
    }

    /// The directory becomes that of the call, so that whatever judges, asks about or records the
    /// call knows where it runs.
    fn resolve(&self, call: &mut Call, place: &Place) -> Result<Vec<Resolved>, Vec<Violation>> {
        let resolved = |absolute: PathBuf, real: PathBuf| Resolved {
            parameter: DIRECTORY.to_owned(),
            real,
            absolute,
            use_of_it: UseOfIt::Named,
        };
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let Some(Value::String(path)) = call.input.get(DIRECTORY) else {
            let dir = place.working_dir.clone();
            let dir = dir.or_else(|| std::env::current_dir().ok());
            return Ok(dir
                .map(|dir| resolved(dir.clone(), real(&dir)))
                .into_iter()
                .collect());
        };
        let violation = |detail: String| {
            vec![Violation {
                pointer: format!("/{DIRECTORY}"),
                detail,
            }]
        };
        let absolute = place.absolute(path).map_err(violation)?;
        let real = real(&absolute);
        // Its links followed, for what the command redirects to is judged by where that is.
        let set = call.options.set_working_dir(real.clone());
        set.map_err(|error| violation(error.detail))?;
        // Absolute from now on: a replay is relative to nothing else.
        call.input[DIRECTORY] = absolute.to_string_lossy().into();
        Ok(vec![resolved(absolute, real)])
    }

    fn run<'a>(
        &'a self,
        call: &'a Call,
        context: Context<'a>,
    ) -> BoxFuture<'a, Result<Produced, ExecutorError>> {
        async move {
            let Input { command, .. } = shell::input(call, &context)?;
            let (cap, truncate) = (context.config.max_output_bytes, context.config.truncate);
            let outcome = shell::run(command, call, context).await?;
            Ok(match return_code(&outcome) {
                Some(return_code) => {
                    let streams = Streams {
                        stdout: &outcome.stdout,
                        stderr: &outcome.stderr,
                    };
                    let (stdout, stderr) = sections::texts(streams, cap, truncate);
                    let output = Output {
                        return_code,
                        stdout,
                        stderr,
                    };
                    // Of a number and two texts nothing can fail.
                    let output = serde_json::to_value(output).unwrap_or_default();
                    Produced::Told(outcome, output)
                }
                None => Produced::Ran(outcome),
            })
        }
        .boxed()
    }
}

/// As Python's `subprocess` has it; `None` of a command that was stopped.
fn return_code(outcome: &Outcome) -> Option<i32> {
    match outcome.ending {
        Ending::Itself(Exit::Code(code)) => Some(code),
        Ending::Itself(Exit::Signal(signal)) => Some(-signal.0),
        Ending::Stopped { .. } => None,
    }
}
