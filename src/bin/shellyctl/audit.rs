//! `shellyctl audit`: whether the trail is whole, and all of it.

use std::process::ExitCode;

use shelly_executor::client::{AuditReport, Client};

use crate::args::AuditCommand;
use crate::failure::Failure;
use crate::output;
use crate::print::{self, Fields, Look, Page};

const BROKEN: u8 = 1;

/// Checks the trail or prints it.
pub async fn run(client: &Client, command: AuditCommand, json: bool) -> Result<ExitCode, Failure> {
    match command {
        AuditCommand::Verify { head } => verify(client, head.as_deref(), json).await,
        AuditCommand::Export { after } => {
            output::pass_on(client.audit(after).await?).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn verify(client: &Client, head: Option<&str>, json: bool) -> Result<ExitCode, Failure> {
    let report = client.verify_audit(head).await?;
    if json {
        print::line(&report.json)?;
    } else {
        print::text(&render(&report, Page::stdout()))?;
    }
    Ok(if report.intact {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BROKEN)
    })
}

fn render(report: &AuditReport, page: Page) -> String {
    let (look, word) = if report.intact {
        (Look::Good, "intact")
    } else {
        (Look::Bad, "broken")
    };
    let mut fields = Fields::default();
    fields.add("Problem", report.problem.as_ref());
    fields.add("Records", Some(report.records.to_string()));
    let head = report.head.as_ref();
    fields.add(
        "Head",
        head.map(|head| format!("{}:{}", head.number, head.hash)),
    );
    format!(
        "{} the audit trail is {}\n{}",
        page.look(look, "●"),
        page.look(look, word),
        fields.render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_printed_as_it_can_be_given_back() {
        let report = r#"{"intact": false, "records": 3, "head": {"number": 3, "hash": "00ff"}, "problem": "record 2 is changed"}"#;
        let report: AuditReport = serde_json::from_str(report).expect("a report");
        assert_eq!(
            render(&report, Page::plain()),
            "● the audit trail is broken\n  Problem: record 2 is changed\n  Records: 3\n     Head: 3:00ff\n"
        );
    }
}
