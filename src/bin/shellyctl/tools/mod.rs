//! `shellyctl tools`: what the daemon offers, and what becomes of directories of tools.

mod copy;
mod error;
mod install;
mod new;
mod remove;

use std::process::ExitCode;

use serde_json::Value;
use shelly_executor::client::{Client, ToolDetails};

use crate::args::tools::{CheckArgs, ToolsCommand};
use crate::config;
use crate::failure::Failure;
use crate::print::{self, Fields, Look, Page};
use crate::status::patiently;

pub use error::ToolsError;

/// Does what needs no daemon. `name` is a tool that was named before the command, which is meant otherwise.
pub fn work(command: ToolsCommand, name: Option<String>, json: bool) -> Result<ExitCode, Failure> {
    if let Some(name) = name {
        return Err(ToolsError::Misplaced { name }.into());
    }
    match command {
        ToolsCommand::Install(args) => install::run(args, json),
        ToolsCommand::Remove(args) => remove::run(args, json),
        ToolsCommand::New(args) => new::run(args, json),
        ToolsCommand::Check(CheckArgs { dir, skills_dir }) => {
            Err(config::check_skill(&dir, skills_dir.as_deref(), json))
        }
    }
}

/// Prints all tools.
pub async fn list(client: &Client, json: bool) -> Result<ExitCode, Failure> {
    let tools = patiently(client, client.tools()).await?;
    if json {
        print::line(&tools.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<[String; 2]> = tools
        .iter()
        .map(|tool| {
            [
                print::one_line(&tool.name),
                first_sentence(&tool.description),
            ]
        })
        .collect();
    print::text(&Page::stdout().table(["NAME", "DESCRIPTION"], &rows))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints everything about one tool.
pub async fn show(client: &Client, name: &str, json: bool) -> Result<ExitCode, Failure> {
    let tool = match name.split_once('@') {
        Some((name, version)) => patiently(client, client.tool_version(name, version)).await?,
        None => patiently(client, client.tool(name)).await?,
    };
    if json {
        print::line(&tool.json)?;
    } else {
        print::text(&render(&tool, Page::stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(tool: &ToolDetails, page: Page) -> String {
    let heading = page.look(Look::Heading, &print::one_line(&tool.definition.name));
    let mut text = format!("{heading}\n");
    let mut fields = Fields::default();
    fields.add("Version", tool.version.as_ref().map(scalar));
    // One version is the one above.
    if tool.versions.len() > 1 {
        fields.add("Versions", Some(tool.versions.join(", ")));
    }
    fields.add("Category", tool.category.as_ref());
    fields.add("Risk", tool.risk_level.as_ref().map(scalar));
    let limit = tool.timeout_secs.map(|seconds| format!("{seconds} s"));
    fields.add("Time limit", limit);
    fields.add("Source", tool.source.as_ref().map(scalar));
    text += &fields.render();
    text += &format!(
        "\n{}\n",
        print::plain(tool.definition.description.trim_end())
    );
    let schemas = [
        ("Input schema", Some(&tool.definition.input_schema)),
        ("Output schema", tool.output_schema.as_ref()),
    ];
    for (label, schema) in schemas {
        if let Some(schema) = schema.filter(|schema| !schema.is_null()) {
            text += &format!("\n{}\n{schema:#}\n", page.look(Look::Heading, label));
        }
    }
    text
}

/// As much of a description as says what a tool is for, on one line.
fn first_sentence(description: &str) -> String {
    let mut paragraphs = description.trim().split("\n\n");
    let paragraph = print::one_line(paragraphs.next().unwrap_or_default());
    match paragraph.split_once(". ") {
        Some((sentence, _)) => format!("{sentence}."),
        None => paragraph,
    }
}

/// A string without its quotes; anything else as JSON.
fn scalar(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_first_sentences() {
        for (description, listed) in [
            (
                "Reads 1.5 lines of a.txt. At once.",
                "Reads 1.5 lines of a.txt.",
            ),
            ("Reads\na file.", "Reads a file."),
            ("Reads a file\n\nAt once. Or later.", "Reads a file"),
            ("", ""),
        ] {
            assert_eq!(first_sentence(description), listed);
        }
    }
}
