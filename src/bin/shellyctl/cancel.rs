//! `shellyctl cancel`: end an execution.

use std::process::ExitCode;

use shelly_executor::client::{Client, Record, Status};

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
    told(&record.execution_id, &record.status)
}

fn told(execution_id: &str, status: &str) -> String {
    let word = print::one_line(status);
    match Status::from_word(status) {
        Some(Status::Cancelled) => format!("{execution_id} is cancelled"),
        // A stop of the daemon answers whoever waits for an end that does not come before it.
        Some(Status::Queued | Status::Waiting | Status::Running) => format!(
            "{execution_id} is to be cancelled, and was still {word} when the daemon was stopped: look again when it is back"
        ),
        Some(
            Status::Success
            | Status::Error
            | Status::Timeout
            | Status::Denied
            | Status::Failed
            | Status::Lost,
        )
        | None => format!("{execution_id} had already ended: {word}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_ended_is_said_to_have() {
        for (status, said) in [
            ("cancelled", "x is cancelled"),
            ("success", "x had already ended: success"),
            (
                "of a newer\ndaemon",
                "x had already ended: of a newer daemon",
            ),
            (
                "waiting",
                "x is to be cancelled, and was still waiting when the daemon was stopped: look again when it is back",
            ),
        ] {
            assert_eq!(told("x", status), said);
        }
    }
}
