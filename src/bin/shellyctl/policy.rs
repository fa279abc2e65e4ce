//! `shellyctl policy explain`: what would become of a call, and why.

use std::process::ExitCode;

use shelly_executor::client::{Call, Client, Judgement, read_json};

use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::print::{self, Fields, Look, Page};
use crate::{exec, options};

const WOULD_NOT_RUN: u8 = 1;

/// Prints what the policy says.
pub async fn explain(client: &Client, args: ExplainArgs, json: bool) -> Result<ExitCode, Failure> {
    let chain = args.called_by.clone();
    let workspace = args.options.workspace.clone();
    let judgement = client.explain(&call(client, args).await?, &chain).await?;
    if json {
        print::line(&judgement.json)?;
    } else {
        print::text(&render(&judgement, Page::stdout()))?;
    }
    if let Some(dir) = workspace
        && judgement.risk_level.as_deref() == Some("trusted")
    {
        print::note(&format!(
            "--workspace {} would not be used: it is trusted and would run outside of the sandbox; --untrusted has it run inside",
            dir.display()
        ));
    }
    Ok(match judgement.verdict.as_str() {
        "allow" => ExitCode::SUCCESS,
        _ => ExitCode::from(WOULD_NOT_RUN),
    })
}

async fn call(client: &Client, args: ExplainArgs) -> Result<Call, Failure> {
    let ExplainArgs {
        options,
        called_by: _,
        tool,
        command,
    } = args;
    let call = match tool {
        None => Call::bash(&exec::script(&command)?),
        Some(tool) => {
            let input = command.join(" ");
            match read_json(&input) {
                Ok(input) => Call::new(tool, input),
                Err(source) => {
                    // What a tool takes does not matter where there is no such tool.
                    client.tool(&tool).await?;
                    return Err(Failure::ExplainedNotJson { source });
                }
            }
        }
    };
    options::with(options, call)
}

fn render(judgement: &Judgement, page: Page) -> String {
    let look = match judgement.verdict.as_str() {
        "allow" => Look::Good,
        "deny" => Look::Bad,
        _ => Look::Heading,
    };
    let verdict = print::one_line(&judgement.verdict);
    let mut text = format!(
        "{}: {}\n",
        page.look(look, &verdict),
        print::one_line(&judgement.reason)
    );
    let source = judgement.source.as_ref();
    let source = source.map(|source| format!("{}:{}", source.file, source.line));
    let mut fields = Fields::default();
    fields.add("Rule", judgement.rule.as_ref());
    fields.add("Source", source);
    fields.add("Segment", judgement.segment.as_ref());
    fields.add("Instead", judgement.suggest.as_ref());
    fields.add("To change", Some(&judgement.would_change));
    fields.all("To allow", &judgement.remember_rules);
    if judgement.risk_level.as_deref() == Some("untrusted") {
        let rule = judgement.risk_rule.as_deref();
        let by = rule.map(|rule| format!(", by `untrusted` {rule}"));
        let runs = format!("in the sandbox (untrusted{})", by.unwrap_or_default());
        fields.add("Runs", Some(runs));
        fields.add("Writes to", judgement.workspace.as_ref());
    }
    text += &fields.render();
    text
}
