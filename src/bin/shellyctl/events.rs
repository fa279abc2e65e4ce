//! `shellyctl events`: what happens in the daemon, an event a line, as journalctl has it.

use std::collections::HashMap;
use std::process::ExitCode;

use serde_json::Value;
use shelly_executor::client::{Client, FeedFilter, FeedItem, Happening};

use crate::args::EventsArgs;
use crate::failure::Failure;
use crate::subscription::{Subscription, Told};
use crate::{clock, print};

/// Prints what has happened, or with `--follow` what happens.
pub async fn run(client: &Client, args: EventsArgs, json: bool) -> Result<ExitCode, Failure> {
    let filter = FeedFilter {
        execution_id: args.execution,
        tool: args.tool,
        types: args.types,
    };
    let mut teller = Teller::default();
    if args.follow {
        let mut subscription = Subscription::open(client, filter, args.after).await?;
        loop {
            if let Told::Item(item) = subscription.next().await? {
                teller.tell(&item, json)?;
            }
        }
    }
    let mut past = client.past(&filter, args.after.unwrap_or_default()).await?;
    while let Some(item) = past.next().await {
        teller.tell(&item?, json)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts events into words. Remembers what the executions under way are about, since only their
/// first event says it.
#[derive(Default)]
struct Teller {
    summaries: HashMap<String, String>,
}

impl Teller {
    fn tell(&mut self, item: &FeedItem, json: bool) -> Result<(), Failure> {
        match item {
            FeedItem::Happened(happening) if json => print::line(&happening.json),
            FeedItem::Happened(happening) => print::line(&self.line(happening)),
            FeedItem::Missed { from, to } => {
                print::note(&format!(
                    "the daemon cannot tell events #{from} to #{to} any more"
                ));
                Ok(())
            }
        }
    }

    fn line(&mut self, happening: &Happening) -> String {
        let Happening { number, kind, .. } = happening;
        let mut words = vec![format!("{} #{number} {kind}", clock::log(&happening.time))];
        words.extend(happening.tool.clone());
        words.extend(happening.execution_id.clone());
        words.extend(details(happening));
        let line = words.join(" ");
        let summary = self.summary(happening);
        print::one_line(&match summary.filter(|summary| !summary.is_empty()) {
            Some(summary) => format!("{line}: {summary}"),
            None => line,
        })
    }

    /// What the execution is about, where the line ought to say so.
    fn summary(&mut self, happening: &Happening) -> Option<String> {
        let told = happening.text("summary").map(str::to_owned);
        let Some(id) = &happening.execution_id else {
            return told;
        };
        match happening.kind.as_str() {
            "executionStarted" => {
                let summary = told.clone().unwrap_or_default();
                self.summaries.insert(id.clone(), summary);
                told
            }
            "executionCompleted" => self.summaries.remove(id).or(told),
            "executionFailed" | "executionAborted" => {
                self.summaries.remove(id);
                told
            }
            _ => told,
        }
    }
}

/// What there is to say besides, by type.
fn details(happening: &Happening) -> Option<String> {
    let text = |name| happening.text(name);
    let took = happening.count("duration_ms").map(clock::span);
    let took = took.map(|took| format!(" in {took}")).unwrap_or_default();
    let detail = || {
        text("detail")
            .map(|detail| format!(": {detail}"))
            .unwrap_or_default()
    };
    match happening.kind.as_str() {
        "executionStarted" | "policyReloaded" => None,
        "stageStarted" => text("stage").map(str::to_owned),
        "stageCompleted" => text("stage").map(|stage| format!("{stage}{took}")),
        "executionCompleted" => {
            let exit = text("exit").filter(|exit| *exit != "0");
            let exit = exit.map(|exit| format!(" {exit}")).unwrap_or_default();
            Some(format!("{}{exit}{took}", text("status")?))
        }
        "executionFailed" | "executionAborted" => {
            let code = text("code").map(|code| format!(" {code}"));
            let code = code.unwrap_or_default();
            Some(format!("{}{code}{}", text("status")?, detail()))
        }
        "confirmationRequired" => {
            let until = text("expires_at").map(clock::stamp).unwrap_or_default();
            Some(format!("approval {} until {until}", text("approval_id")?))
        }
        "confirmationDecided" => {
            let by = happening.details.get("by").and_then(Value::as_u64);
            let by = by.and_then(|uid| u32::try_from(uid).ok()).map(print::user);
            let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
            let (id, decision) = (text("approval_id")?, text("decision")?);
            Some(format!("approval {id} {decision}{by}"))
        }
        "confirmationExpired" => text("approval_id").map(|id| format!("approval {id}")),
        "configurationReloaded" | "configurationRefused" | "policyRefused" => {
            text("detail").map(str::to_owned)
        }
        _ => Some(Value::Object(happening.details.clone()).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines without their times.
    fn lines(events: &[&str]) -> Vec<String> {
        let mut teller = Teller::default();
        let line = |(at, event): (usize, &&str)| {
            let json = format!(r#"{{"number": {at}, "time": "now", {event}}}"#);
            let happening = serde_json::from_str(&json).expect("an event");
            teller.line(&happening)
        };
        events.iter().enumerate().map(line).collect()
    }

    #[test]
    fn the_end_of_an_execution_says_what_it_was_about() {
        let of = r#""execution_id": "e", "tool": "bash", "caller_uid": 0"#;
        let lines = lines(&[
            &format!(r#""type": "executionStarted", {of}, "summary": "df -h""#),
            &format!(r#""type": "stageStarted", {of}, "stage": "permission""#),
            &format!(r#""type": "stageCompleted", {of}, "stage": "permission", "duration_ms": 3"#),
            &format!(
                r#""type": "executionCompleted", {of}, "status": "success", "duration_ms": 12, "exit": "0""#
            ),
            &format!(
                r#""type": "executionCompleted", {of}, "status": "error", "duration_ms": 2000, "exit": "SIGSEGV""#
            ),
        ]);
        assert_eq!(
            lines,
            [
                "now #0 executionStarted bash e: df -h",
                "now #1 stageStarted bash e permission",
                "now #2 stageCompleted bash e permission in 3ms",
                "now #3 executionCompleted bash e success in 12ms: df -h",
                "now #4 executionCompleted bash e error SIGSEGV in 2.0s",
            ]
        );
    }

    #[test]
    fn each_type_says_what_it_knows() {
        let none = r#""execution_id": null, "tool": null, "caller_uid": null"#;
        for (event, expected) in [
            (
                r#""type": "executionFailed", "status": "failed", "code": "spawn_failed", "detail": "no\nshell""#,
                "executionFailed failed spawn_failed: no shell",
            ),
            (
                r#""type": "executionAborted", "status": "cancelled", "detail": "by its caller""#,
                "executionAborted cancelled: by its caller",
            ),
            (
                r#""type": "confirmationRequired", "approval_id": "a", "summary": "git push", "expires_at": "soon""#,
                "confirmationRequired approval a until soon: git push",
            ),
            (
                r#""type": "confirmationDecided", "approval_id": "a", "decision": "approve", "by": 4294967"#,
                "confirmationDecided approval a approve by 4294967",
            ),
            (
                r#""type": "confirmationExpired", "approval_id": "a""#,
                "confirmationExpired approval a",
            ),
            (
                r#""type": "configurationRefused", "detail": "line 3""#,
                "configurationRefused line 3",
            ),
            (r#""type": "policyReloaded""#, "policyReloaded"),
            (r#""type": "newerType", "x": [1]"#, r#"newerType {"x":[1]}"#),
        ] {
            let line = lines(&[&format!("{event}, {none}")]);
            assert_eq!(line, [format!("now #0 {expected}")]);
        }
    }
}
