//! A program's or subcommand's definition as a man page. Description and options are as
//! clap_mangen sets them; the rest it leaves out or words for terminals.

use std::error::Error;

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;

use crate::roff::{Page, escape, quotes_in_bold, references};

/// Paths, each with what is there.
pub type Files = &'static [(&'static str, &'static str)];

/// What stands on a page besides the definition of its command.
pub struct Frame<'a> {
    pub name: &'a str,
    pub section: &'a str,
    pub date: &'a str,
    pub files: Files,
    pub see_also: Vec<&'a str>,
}

/// Defines what clap_mangen writes for an apostrophe.
const APOSTROPHE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '";

/// The page of a command that has been built.
pub fn program_page(command: &Command, frame: &Frame<'_>) -> Result<String, Box<dyn Error>> {
    let mut page = Page::new(frame.name, frame.section, frame.date);
    page.raw(APOSTROPHE);
    page.section("NAME");
    let about = command.get_about().map(ToString::to_string);
    let about = escape(&about.unwrap_or_default());
    page.raw(&format!("{} \\- {about}", escape(frame.name)));
    page.section("SYNOPSIS");
    page.raw(&synopsis(command));
    page.raw(&clap_sections(command, frame.section)?);
    if let Some(text) = command.get_after_long_help() {
        after_options(&mut page, &text.to_string());
    }
    if !frame.files.is_empty() {
        page.section("FILES");
    }
    for (path, what) in frame.files {
        page.entry(path, what);
    }
    page.section("SEE ALSO");
    page.raw(&references(&frame.see_also));
    Ok(page.finish())
}

/// How the command is called, as man-pages(7) has it: bold what is typed as it stands, italic what
/// stands for something else.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut parts = vec![format!("\\fB{}\\fR", escape(name))];
    let (positionals, options): (Vec<&Arg>, Vec<&Arg>) = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !explains_itself(arg))
        .partition(|arg| arg.is_positional());
    parts.extend(options.into_iter().chain(positionals).map(argument));
    if command.has_subcommands() {
        parts.push("\\fICOMMAND\\fR\n[\\fIARGUMENT\\fR]...".to_owned());
    }
    parts.join("\n")
}

/// `--help` and `--version`, which every program has.
fn explains_itself(arg: &Arg) -> bool {
    matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

fn argument(arg: &Arg) -> String {
    let option = arg
        .get_long()
        .map(|long| format!("\\fB{}\\fR", escape(&format!("--{long}"))));
    let value = arg
        .get_action()
        .takes_values()
        .then(|| arg.get_value_names().unwrap_or_default().join(" "))
        .map(|value| format!("\\fI{}\\fR", escape(&value)));
    let text = option
        .into_iter()
        .chain(value)
        .collect::<Vec<_>>()
        .join(" ");
    let repeated = if matches!(arg.get_action(), ArgAction::Append) {
        "..."
    } else {
        ""
    };
    match arg.is_required_set() {
        true => format!("{text}{repeated}"),
        false => format!("[{text}]{repeated}"),
    }
}

/// From the description to the options and subcommands.
fn clap_sections(command: &Command, section: &str) -> Result<String, Box<dyn Error>> {
    const DESCRIPTION: &str = ".SH DESCRIPTION\n";
    let mut page = Vec::new();
    Man::new(command.clone())
        .section(section)
        .render(&mut page)?;
    let page = String::from_utf8(page)?;
    let (_, rest) = page
        .split_once(DESCRIPTION)
        .ok_or("clap wrote a page without a description")?;
    let (sections, _) = rest
        .split_once(".SH EXTRA\n")
        .or_else(|| rest.split_once(".SH VERSION\n"))
        .ok_or("clap wrote a page without a version")?;
    let lines: Vec<String> = sections.lines().map(quotes_in_bold).collect();
    Ok(format!("{DESCRIPTION}{}", lines.join("\n")))
}

/// What `--help` says after the options: a heading ends in a colon; below it are terms, indented by
/// two spaces, with two or more between term and meaning, and paragraphs of one line.
fn after_options(page: &mut Page, text: &str) {
    for line in text.lines().filter(|line| !line.is_empty()) {
        let entry = line
            .strip_prefix("  ")
            .and_then(|line| line.split_once("  "));
        match (entry, line.strip_suffix(':')) {
            (Some((term, meaning)), _) => page.entry(term, meaning.trim_start()),
            (None, Some(heading)) => page.section(&heading.to_uppercase()),
            (None, None) => {
                page.raw(".PP");
                page.text(line);
            }
        }
    }
}
