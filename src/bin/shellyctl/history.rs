//! `shellyctl history`: the executions that are and were, or forgetting them.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::SystemTime;

use shelly_executor::client::{Client, ClientError, Executions, HistoryFilter, Received, Summary};

use crate::args::HistoryArgs;
use crate::clock;
use crate::failure::Failure;
use crate::print::{self, Page};

/// What a daemon gives at once.
const MOST_AT_ONCE: u32 = 1000;

/// What it is when the answer to the question was no.
const NOT_DONE: u8 = 1;

/// Lists executions, or forgets them.
pub async fn run(client: &Client, args: HistoryArgs, json: bool) -> Result<ExitCode, Failure> {
    if args.clear {
        return clear(client, args.yes, json).await;
    }
    let lines = args.lines;
    let list = newest(client, filter(args), lines).await?;
    if json {
        print::line(&whole(&list))?;
    } else {
        print::text(&render(&list.executions, Page::stdout()))?;
        if list.next.is_some() && std::io::stdout().is_terminal() {
            print::hint("there are older ones: -n N shows as many");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn filter(args: HistoryArgs) -> HistoryFilter {
    let time = |time: SystemTime| humantime::format_rfc3339_millis(time).to_string();
    HistoryFilter {
        since: args.since.map(time),
        until: args.until.map(time),
        tool: args.tool,
        status: args.status,
        caller: args.caller,
        trace_id: args.trace,
        text: args.grep,
        ..HistoryFilter::default()
    }
}

/// The newest `count`, and the cursor behind them.
struct List {
    executions: Vec<Received<Summary>>,
    next: Option<String>,
}

async fn newest(
    client: &Client,
    mut filter: HistoryFilter,
    count: u32,
) -> Result<List, ClientError> {
    let mut list = List {
        executions: Vec::new(),
        next: None,
    };
    let wanted = usize::try_from(count).unwrap_or(usize::MAX);
    while list.executions.len() < wanted {
        let missing = u32::try_from(wanted - list.executions.len()).unwrap_or(MOST_AT_ONCE);
        filter.limit = Some(missing.min(MOST_AT_ONCE));
        let Executions {
            executions, next, ..
        } = client.executions(&filter).await?.value;
        list.executions.extend(executions);
        list.next.clone_from(&next);
        if next.is_none() {
            break;
        }
        filter.cursor = next;
    }
    Ok(list)
}

/// One list as the daemon would give it, whatever it took to read it.
fn whole(list: &List) -> String {
    let executions: Vec<&str> = list.executions.iter().map(|item| &*item.json).collect();
    let next = serde_json::json!(list.next);
    format!(
        "{{\"executions\":[{}],\"next\":{next}}}",
        executions.join(",")
    )
}

fn render(executions: &[Received<Summary>], page: Page) -> String {
    let rows: Vec<[String; 6]> = executions.iter().map(|item| row(item, page)).collect();
    page.table(
        ["CREATED", "ID", "TOOL", "STATUS", "TOOK", "SUMMARY"],
        &rows,
    )
}

fn row(item: &Summary, page: Page) -> [String; 6] {
    [
        clock::stamp(&item.created_at),
        page.id(&item.execution_id),
        print::one_line(&item.tool),
        print::one_line(&status(item)),
        item.duration_ms.map(clock::span).unwrap_or_default(),
        print::one_line(&item.summary),
    ]
}

/// The status, with the exit code or signal where it says more.
fn status(item: &Summary) -> String {
    let says_more = |exit: &&String| exit.starts_with("SIG") || exit.parse::<i32>().is_ok();
    match item.exit.as_ref().filter(says_more) {
        Some(exit) if item.status == "error" => format!("{} {exit}", item.status),
        Some(_) | None => item.status.clone(),
    }
}

async fn clear(client: &Client, sure: bool, json: bool) -> Result<ExitCode, Failure> {
    if !sure && !confirmed()? {
        print::note("nothing was forgotten");
        return Ok(ExitCode::from(NOT_DONE));
    }
    let forgotten = client.forget_executions().await?;
    if json {
        print::line(&forgotten.json)?;
    } else {
        print::line(&match forgotten.deleted {
            1 => "forgot 1 execution".to_owned(),
            many => format!("forgot {many} executions"),
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn confirmed() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::NotAsked);
    }
    print::ask("Forget all executions that have ended? The audit trail stays. [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.map_err(|source| Failure::Stdin { source })?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(json: &str) -> Received<Summary> {
        serde_json::from_str(json).expect("a summary")
    }

    fn items() -> Vec<Received<Summary>> {
        vec![
            item(
                r#"{"execution_id":"2","status":"running","tool":"bash","summary":"sleep 9\nnow","created_at":"soon"}"#,
            ),
            item(
                r#"{"execution_id":"1","status":"error","tool":"bash","summary":"false","created_at":"soon","duration_ms":12,"exit":"1"}"#,
            ),
        ]
    }

    #[test]
    fn a_row_says_how_it_ended() {
        assert_eq!(
            row(&items()[0], Page::plain()),
            ["soon", "2", "bash", "running", "", "sleep 9 now"]
        );
        assert_eq!(
            row(&items()[1], Page::plain())[3..],
            ["error 1", "12ms", "false"]
        );
        // Of a tool that is no process; `failed` is another status.
        let failed = r#"{"execution_id":"1","status":"error","tool":"a","summary":"s","created_at":"soon","exit":"failed"}"#;
        assert_eq!(row(&item(failed), Page::plain())[3], "error");
    }

    #[test]
    fn what_took_several_readings_is_one_document() {
        let list = List {
            executions: items(),
            next: Some("c\"".to_owned()),
        };
        let read: serde_json::Value = serde_json::from_str(&whole(&list)).expect("JSON");
        assert_eq!(read["executions"][1]["exit"], "1");
        assert_eq!(read["next"], "c\"");
    }
}
