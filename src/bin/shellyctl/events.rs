//! `shellyctl events`: what happens in the daemon, an event a line, as journalctl has it.

use std::process::ExitCode;

use serde_json::Value;
use shelly_executor::client::{self, Client, FeedFilter, FeedItem, Happening};

use crate::args::EventsArgs;
use crate::failure::Failure;
use crate::subscription::{self, Subscription, Told};
use crate::{clock, ids, print};

/// Prints what has happened, or with `--follow` what happens.
pub async fn run(client: &Client, args: EventsArgs, json: bool) -> Result<ExitCode, Failure> {
    let execution_id = match args.execution {
        Some(given) => Some(ids::execution(client, &given).await?),
        None => None,
    };
    let filter = FeedFilter {
        execution_id,
        tool: args.tool,
        types: args.types,
    };
    if args.follow {
        let mut subscription = Subscription::open(client, filter, args.after).await?;
        loop {
            match subscription.next().await? {
                Told::Item(item) => tell(&item, json)?,
                told @ (Told::Lost | Told::Again) => {
                    told.message().iter().for_each(|m| print::note(m))
                }
            }
        }
    }
    let mut past = client.past(&filter, args.after.unwrap_or_default()).await?;
    while let Some(item) = past.next().await {
        tell(&item?, json)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(item: &FeedItem, json: bool) -> Result<(), Failure> {
    match item {
        FeedItem::Happened(happening) if json => print::line(&happening.json),
        FeedItem::Happened(happening) => print::line(&line(happening)),
        FeedItem::Missed { from, to } => {
            print::note(&subscription::missed(*from, *to));
            Ok(())
        }
    }
}

fn line(happening: &Happening) -> String {
    let Happening { number, kind, .. } = happening;
    let mut words = vec![format!("{} #{number} {kind}", clock::log(&happening.time))];
    words.extend(happening.tool.clone());
    words.extend(happening.execution_id.clone());
    words.extend(details(happening));
    let line = words.join(" ");
    print::one_line(&match happening.text("summary") {
        Some(summary) => format!("{line}: {summary}"),
        None => line,
    })
}

/// What there is to say besides, by type.
fn details(happening: &Happening) -> Option<String> {
    let text = |name| happening.text(name);
    let took = happening.amount("duration_ms").map(clock::fine);
    let took = took.map(|took| format!(" in {took}")).unwrap_or_default();
    match happening.kind.as_str() {
        "executionStarted" | "executionQueued" | "circuitOpened" | "circuitHalfOpened"
        | "circuitClosed" => None,
        "executionRetried" => text("detail").map(str::to_owned),
        "stageStarted" => text("stage").map(str::to_owned),
        "stageCompleted" => text("stage").map(|stage| format!("{stage}{took}")),
        "hookCompleted" => {
            let detail = text("detail").filter(|detail| !detail.is_empty());
            let detail = detail.map(|detail| format!(" ({detail})"));
            Some(format!(
                "{} {} {}: {}{took}{}",
                text("hook")?,
                text("when")?,
                text("stage")?,
                text("decision")?,
                detail.unwrap_or_default()
            ))
        }
        "executionCompleted" => {
            let exit = text("exit").filter(|exit| *exit != "0");
            let exit = exit.map(|exit| format!(" {exit}")).unwrap_or_default();
            Some(format!("{}{exit}{took}", text("status")?))
        }
        "executionFailed" | "executionAborted" => {
            let detail = text("detail").map(|detail| format!(" ({detail})"));
            Some(format!("{}{}", text("status")?, detail.unwrap_or_default()))
        }
        "confirmationRequired" => {
            let until = text("expires_at").map(clock::stamp).unwrap_or_default();
            Some(format!("approval {} until {until}", text("approval_id")?))
        }
        "confirmationDecided" => {
            let by = happening.details.get("by").and_then(Value::as_u64);
            let by = by.and_then(|uid| u32::try_from(uid).ok());
            let by = by.map(|uid| format!(" by {}", print::user(uid)));
            let by = by.unwrap_or_default();
            let (id, decision) = (text("approval_id")?, text("decision")?);
            Some(format!("approval {id} {decision}{by}"))
        }
        "confirmationExpired" => text("approval_id").map(|id| format!("approval {id}")),
        "configurationReloaded" | "configurationRefused" | "policyRefused" => {
            text("detail").map(str::to_owned)
        }
        "policyReloaded" => {
            let rules = happening.details.get("rules").and_then(Value::as_u64);
            rules.map(|rules| client::counted(rules, "rule", "rules"))
        }
        _ => {
            let mut details = happening.details.clone();
            // It stands at the end of each line.
            details.remove("summary");
            (!details.is_empty()).then(|| Value::Object(details).to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(event: &str) -> String {
        let json = format!(r#"{{"number": 7, "time": "now", {event}}}"#);
        line(&serde_json::from_str(&json).expect("an event"))
    }

    #[test]
    fn the_life_of_an_execution_reads_like_a_journal() {
        for (event, expected) in [
            (
                r#""type": "executionStarted", "summary": "df\n-h""#,
                "executionStarted bash e: df -h",
            ),
            (
                r#""type": "stageStarted", "stage": "permission""#,
                "stageStarted bash e permission",
            ),
            (
                r#""type": "stageCompleted", "stage": "permission", "duration_ms": 0.119"#,
                "stageCompleted bash e permission in 0.12ms",
            ),
            (
                r#""type": "hookCompleted", "hook": "gate", "stage": "execution", "when": "before", "decision": "deny", "duration_ms": 1.5, "detail": "no""#,
                "hookCompleted bash e gate before execution: deny in 1.50ms (no)",
            ),
            (
                r#""type": "executionCompleted", "status": "success", "duration_ms": 12, "exit": "0", "summary": "df -h""#,
                "executionCompleted bash e success in 12ms: df -h",
            ),
            (
                r#""type": "executionCompleted", "status": "error", "duration_ms": 2000, "exit": "SIGSEGV", "summary": "df""#,
                "executionCompleted bash e error SIGSEGV in 2.0s: df",
            ),
            (
                r#""type": "executionFailed", "status": "failed", "detail": "no\nshell", "summary": "df""#,
                "executionFailed bash e failed (no shell): df",
            ),
            (
                r#""type": "executionAborted", "status": "cancelled", "detail": "by its caller", "summary": "df""#,
                "executionAborted bash e cancelled (by its caller): df",
            ),
        ] {
            let of = r#""execution_id": "e", "tool": "bash", "caller_uid": 0"#;
            assert_eq!(
                line_of(&format!("{event}, {of}")),
                format!("now #7 {expected}")
            );
        }
    }

    #[test]
    fn what_else_happens_says_what_it_knows() {
        let none = r#""execution_id": null, "tool": null, "caller_uid": null"#;
        for (event, expected) in [
            (
                r#""type": "confirmationRequired", "approval_id": "a", "summary": "git push", "expires_at": "soon""#,
                "confirmationRequired approval a until soon: git push",
            ),
            (
                r#""type": "confirmationDecided", "approval_id": "a", "decision": "approved", "by": 4294967"#,
                "confirmationDecided approval a approved by 4294967",
            ),
            (
                r#""type": "confirmationExpired", "approval_id": "a""#,
                "confirmationExpired approval a",
            ),
            (
                r#""type": "configurationRefused", "detail": "line 3""#,
                "configurationRefused line 3",
            ),
            (
                r#""type": "configurationReloaded""#,
                "configurationReloaded",
            ),
            (
                r#""type": "policyReloaded", "rules": 3"#,
                "policyReloaded 3 rules",
            ),
            (
                r#""type": "policyReloaded", "rules": 1"#,
                "policyReloaded 1 rule",
            ),
            (r#""type": "newerType", "x": [1]"#, r#"newerType {"x":[1]}"#),
            (
                r#""type": "newerType", "x": 1, "summary": "ls""#,
                r#"newerType {"x":1}: ls"#,
            ),
            (r#""type": "newerType", "summary": "ls""#, "newerType: ls"),
        ] {
            let line = line_of(&format!("{event}, {none}"));
            assert_eq!(line, format!("now #7 {expected}"));
        }
    }
}
