//! `shellyctl audit`: whether the trail is whole, and all of it.

use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use serde_json::Value;
use shelly_executor::client::{AuditReport, Client, DEFAULT_SOCKET, Received};

use crate::args::AuditCommand;
use crate::failure::Failure;
use crate::print::{self, Fields, Look, Page};
use crate::{journal, output};

const BROKEN: u8 = 1;

/// How many heads one request has room for.
const AT_ONCE: usize = 500;

/// Checks the trail or prints it.
pub async fn run(client: &Client, command: AuditCommand, json: bool) -> Result<ExitCode, Failure> {
    match command {
        AuditCommand::Verify { head, unit, since } => {
            let noted = match unit {
                _ if !head.is_empty() => Vec::new(),
                Some(unit) => journal::audit_heads(&unit, since)?,
                None => usual_heads(client, since),
            };
            verify(client, &head, &noted, json).await
        }
        AuditCommand::Export { after } => {
            output::pass_on(client.audit(after).await?).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Holds the trail against the ends that somebody has given, or the journal has noted.
async fn verify(
    client: &Client,
    given: &[String],
    noted: &[String],
    json: bool,
) -> Result<ExitCode, Failure> {
    let known = if noted.is_empty() { given } else { noted };
    let report = compare(client, known).await?;
    if json {
        print::line(&with_journal(&report.json, noted.len()))?;
    } else {
        print::text(&render(&report, noted.len(), Page::stdout()))?;
    }
    if report.intact {
        return Ok(ExitCode::SUCCESS);
    }
    if !noted.is_empty() && report.head.is_none() {
        print::hint(
            "the journal also knows of records that went with a state directory that was removed, with a power cut, or \
             in favour of an older copy: `journalctl TARGET=audit_head` says when each end was noted, and --since \
             passes over the earlier ones",
        );
    }
    Ok(ExitCode::from(BROKEN))
}

/// What the journal of the packaged unit has, if it is that unit's daemon that is asked.
fn usual_heads(client: &Client, since: Option<SystemTime>) -> Vec<String> {
    if client.socket() != Path::new(DEFAULT_SOCKET) {
        print::note(
            "not held against the journal: nobody says which unit this daemon is of; --unit does",
        );
        return Vec::new();
    }
    journal::audit_heads(journal::UNIT, since).unwrap_or_else(|error| {
        print::note(&format!("not held against the journal: {error}"));
        Vec::new()
    })
}

/// Has the trail held against all of `known`, however many that are; the first report of a broken one counts.
async fn compare(client: &Client, known: &[String]) -> Result<Received<AuditReport>, Failure> {
    let mut pieces = known.chunks(AT_ONCE);
    loop {
        let report = client
            .verify_audit(pieces.next().unwrap_or_default())
            .await?;
        if !report.intact || pieces.len() == 0 {
            return Ok(report);
        }
    }
}

/// The report with how many ends the journal has that the trail was held against; null where it was held against none.
fn with_journal(report: &str, noted: usize) -> String {
    match serde_json::from_str::<Value>(report) {
        Ok(Value::Object(mut members)) => {
            let noted = (noted > 0).then_some(noted);
            members.insert("journal_heads".to_owned(), noted.into());
            Value::Object(members).to_string()
        }
        // It was read as a report before.
        Ok(_) | Err(_) => report.to_owned(),
    }
}

/// `noted` is how many ends the journal has, all of which the trail has too if it is intact.
fn render(report: &AuditReport, noted: usize, page: Page) -> String {
    let (look, subject, word) = match (report.intact, &report.head) {
        (true, _) => (Look::Good, "audit trail", "intact"),
        (false, None) => (Look::Bad, "audit trail", "broken"),
        (false, Some(_)) => (Look::Bad, "history", "not what the audit trail says"),
    };
    let mut fields = Fields::default();
    fields.add("Problem", report.problem.as_ref());
    fields.add("Records", Some(report.records.to_string()));
    let head = report.head.as_ref();
    fields.add("Executions", head.map(|_| report.executions.to_string()));
    fields.add(
        "Head",
        head.map(|head| format!("{}:{}", head.number, head.hash)),
    );
    let holds = report.intact && noted > 0;
    let ends = if noted == 1 { "end" } else { "ends" };
    fields.add(
        "Journal",
        holds.then(|| format!("names {noted} {ends} of it")),
    );
    format!(
        "{} the {subject} is {}\n{}",
        page.look(look, "●"),
        page.look(look, word),
        fields.render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_of_the_trail_or_of_the_history() {
        let report = r#"{"intact": false, "records": 3, "executions": 1, "head": null, "problem": "record 2 is changed"}"#;
        let report: AuditReport = serde_json::from_str(report).expect("a report");
        assert_eq!(
            render(&report, 2, Page::plain()),
            "● the audit trail is broken\n  Problem: record 2 is changed\n  Records: 3\n"
        );
        let report = r#"{"intact": false, "records": 3, "executions": 1, "head": {"number": 3, "hash": "00ff"}, "problem": "one was changed"}"#;
        let report: AuditReport = serde_json::from_str(report).expect("a report");
        assert_eq!(
            render(&report, 2, Page::plain()),
            "● the history is not what the audit trail says\n     Problem: one was changed\n     Records: 3\n  Executions: 1\n        Head: 3:00ff\n"
        );
    }

    #[test]
    fn an_intact_trail_says_whether_the_journal_knows_of_it() {
        let report = r#"{"intact": true, "records": 3, "executions": 1, "head": {"number": 3, "hash": "00ff"}, "problem": null}"#;
        let report: AuditReport = serde_json::from_str(report).expect("a report");
        let without =
            "● the audit trail is intact\n     Records: 3\n  Executions: 1\n        Head: 3:00ff\n";
        assert_eq!(render(&report, 0, Page::plain()), without);
        assert_eq!(
            render(&report, 2, Page::plain()),
            format!("{without}     Journal: names 2 ends of it\n")
        );
    }

    #[test]
    fn programs_are_told_how_much_the_journal_knows_of_it() {
        let report = r#"{"intact":true,"new_member":[1]}"#;
        let told =
            |noted| serde_json::from_str::<Value>(&with_journal(report, noted)).expect("JSON");
        let expected =
            |heads| serde_json::json!({"intact": true, "new_member": [1], "journal_heads": heads});
        assert_eq!(told(2), expected(Some(2)));
        assert_eq!(told(0), expected(None));
    }
}
