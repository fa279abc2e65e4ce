//! `shellyctl call`: any tool with JSON input.

use std::io::Read;
use std::process::ExitCode;

use shelly_executor::client::{Call, Client, ClientError, EventStream, Outcome, read_json};

use crate::args::CallArgs;
use crate::ending::Wanted;
use crate::failure::Failure;
use crate::{ending, follow, options, print};

const TOOL_ERROR: u8 = 1;

/// More than a daemon takes in one request (16 MiB as shipped); keeps an endless input from filling
/// the memory before the daemon gets to refuse it.
pub const MAX_STDIN_BYTES: u64 = 1 << 30;

/// Makes the call and prints what a model would get.
pub async fn run(client: &Client, args: CallArgs, json: bool) -> Result<ExitCode, Failure> {
    let call = call(args)?;
    let wanted = Wanted {
        json,
        workspace: call.workspace.as_deref(),
    };
    ended(client, client.stream(&call), wanted).await
}

/// Waits for what `opening` starts, and prints what a model would get.
pub async fn ended(
    client: &Client,
    opening: impl Future<Output = Result<EventStream, ClientError>>,
    wanted: Wanted<'_>,
) -> Result<ExitCode, Failure> {
    let Some(answer) = follow::to_its_answer(client, opening, None).await? else {
        return Ok(ExitCode::from(ending::CANCELLED));
    };
    if wanted.json {
        print::line(&answer.json)?;
    } else if answer.problem.is_none() || ran(&answer.outcome) {
        print::line(&answer.outcome.content)?;
    }
    wanted.tell_what_was_not_used(&answer);
    if answer.problem.is_some() {
        ending::tell(&answer);
        return Ok(ExitCode::from(ending::exit_status(&answer)));
    }
    Ok(ExitCode::from(if answer.outcome.is_error {
        TOOL_ERROR
    } else {
        0
    }))
}

fn call(args: CallArgs) -> Result<Call, Failure> {
    let CallArgs {
        options,
        session,
        context,
        tool,
        input,
    } = args;
    let input = if input == "-" { stdin()? } else { input };
    match read_json(&input) {
        Ok(input) => {
            let (name, version) = match tool.split_once('@') {
                Some((name, version)) => (name, Some(version)),
                None => (tool.as_str(), None),
            };
            let mut call = Call::new(name, input);
            call.tool_version = version.map(str::to_owned);
            (call.session_id, call.context) = (session, context);
            options::with(options, call)
        }
        Err(source) => Err(Failure::NotJson { tool, source }),
    }
}

/// Whether a process ran, so that `content` has its output rather than the problem once more.
fn ran(outcome: &Outcome) -> bool {
    outcome.duration_ms.is_some()
}

/// All of standard input, as text.
pub fn stdin() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin()
        .lock()
        .take(MAX_STDIN_BYTES)
        .read_to_string(&mut text);
    read.map_err(|source| Failure::Stdin { source })?;
    Ok(text)
}
