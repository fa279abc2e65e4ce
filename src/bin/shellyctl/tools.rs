//! `shellyctl tools`: what the daemon offers.

use std::process::ExitCode;

use serde_json::Value;
use shelly_executor::client::{Client, ToolDetails};

use crate::failure::Failure;
use crate::print::{self, Look, Page};
use crate::status::patiently;

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
    let tool = patiently(client, client.tool(name)).await?;
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
    for (label, value) in [
        ("Version", &tool.version),
        ("Risk", &tool.risk_level),
        ("Source", &tool.source),
    ] {
        if let Some(value) = value {
            text += &format!("{label:>9}: {}\n", print::one_line(&scalar(value)));
        }
    }
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
