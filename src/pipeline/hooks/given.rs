use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::config::{ExecutorConfig, Hook};
use crate::domain::{
    Call, Correlation, Display, ExecutionId, ExecutorError, Ruling, Stage, ToolOutput, When,
};
use crate::pipeline::Execution;

/// The members of what a hook is given, of which not every call has all.
pub(super) const NAMES: [&str; 16] = [
    "hook",
    "stage",
    "when",
    "execution_id",
    "tool",
    "chain",
    "input",
    "stdin",
    "working_dir",
    "env_names",
    "caller_uid",
    "trace_id",
    "tenant_id",
    "session_id",
    "judgement",
    "result",
];

/// What a hook is given on standard input. Nothing in it is masked: it is the operator's own
/// program, and could not judge what it cannot see.
#[derive(Serialize)]
pub(super) struct Given<'a> {
    hook: &'a str,
    stage: Stage,
    when: When,
    execution_id: ExecutionId,
    tool: &'a str,
    /// The tools that led to the call, the outermost first.
    chain: Vec<String>,
    input: &'a Value,
    /// What the command will read on its standard input, which may be a script.
    stdin: Option<&'a str>,
    working_dir: Option<&'a Path>,
    env_names: Vec<&'a str>,
    caller_uid: u32,
    #[serde(flatten)]
    correlation: Correlation,
    judgement: Option<&'a Ruling>,
    result: Option<&'a ResultSeen>,
}

/// What came of the run, without its output.
#[derive(Serialize)]
pub(in crate::pipeline) struct ResultSeen {
    /// An exit code, a signal's name, `timeout` or `cancelled`.
    pub(in crate::pipeline) exit: String,
    pub(in crate::pipeline) duration_ms: u64,
    pub(in crate::pipeline) stdout_bytes: u64,
    pub(in crate::pipeline) stderr_bytes: u64,
    /// The text for the model, once it has been formatted; for skills only.
    #[serde(skip)]
    pub(in crate::pipeline) content: Option<String>,
    /// The line of the output that tells most, secrets masked; once it has been formatted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::pipeline) display: Option<Display>,
}

impl ResultSeen {
    /// What of a formatted result is shown.
    pub(in crate::pipeline) fn of(result: &Result<ToolOutput, ExecutorError>) -> Option<Self> {
        let output = match result {
            Ok(output) => Some(output),
            Err(error) => error.partial(),
        };
        output.map(|output| Self {
            exit: output.display.exit.clone(),
            duration_ms: output.display.duration_ms,
            stdout_bytes: output.run.stdout_bytes,
            stderr_bytes: output.run.stderr_bytes,
            content: Some(output.content.clone()),
            display: Some(output.display.clone()),
        })
    }
}

/// The text of it.
pub(super) fn given(
    hook: &Hook,
    call: &Call,
    execution: &Execution,
    config: &ExecutorConfig,
    result: Option<&ResultSeen>,
) -> String {
    let options = &call.options;
    let known = execution.known();
    let working_dir = options.working_dir.as_ref().or(config.working_dir.as_ref());
    let given = Given {
        hook: &hook.name,
        stage: hook.point.stage,
        when: hook.point.when,
        execution_id: execution.id,
        tool: &call.tool,
        chain: execution.family.chain(),
        input: &call.input,
        stdin: options.stdin.as_deref(),
        working_dir: working_dir.map(|dir| dir.as_path()),
        env_names: options.env.keys().map(String::as_str).collect(),
        caller_uid: execution.caller.uid,
        correlation: options.correlation(),
        judgement: known.ruling.as_ref(),
        result,
    };
    // Keys are texts throughout, and a path that is none was refused: which is all that could be
    // wrong. The hook makes nothing of an empty text.
    serde_json::to_string(&given).unwrap_or_default()
}
