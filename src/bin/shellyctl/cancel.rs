//! `shellyctl cancel`: end an execution.

use std::process::ExitCode;

use shelly_executor::client::{Client, Record};

use crate::failure::Failure;
use crate::{ids, print};

/// Cancels and waits for the processes to be dead.
pub async fn run(client: &Client, id: &str, json: bool) -> Result<ExitCode, Failure> {
    let id = ids::execution(client, id).await?;
    let record = client.cancel(&id).await?;
    if json {
        print::line(&record.json)?;
    } else {
        print::line(&render(&record))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What became of it.
pub fn render(record: &Record) -> String {
    let Record {
        execution_id,
        status,
        ..
    } = record;
    if status == "cancelled" {
        format!("{execution_id} is cancelled")
    } else {
        format!(
            "{execution_id} had already ended: {}",
            print::one_line(status)
        )
    }
}
