//! `shellyctl replay`: the call of an execution once more.

use std::process::ExitCode;

use shelly_executor::client::Client;

use crate::ending::Wanted;
use crate::failure::Failure;
use crate::{call, exec, ids};

/// Only what bash runs has streams to pass on and an exit status of its own.
const RUNS_COMMANDS: &str = "bash";

/// Makes the call, and goes on as `exec` or `call` does.
pub async fn run(client: &Client, id: &str, json: bool) -> Result<ExitCode, Failure> {
    let id = ids::execution(client, id).await?;
    let record = client.execution(&id, None).await?;
    let opening = client.replay(&id);
    let wanted = Wanted {
        json,
        workspace: None,
    };
    if record.tool.as_deref() == Some(RUNS_COMMANDS) {
        exec::ended(client, opening, wanted).await
    } else {
        call::ended(client, opening, wanted).await
    }
}
