//! Writes what the package holds beside the programs: man pages and shell completions, from the programs' own argument
//! definitions and the commented default configuration, so that they cannot say anything else than the programs do;
//! and the licences of the crates in them.
//!
//! `cargo run --example generate -- OUTDIR` fills `OUTDIR/man`, `OUTDIR/completions/{bash,zsh,fish}`, `OUTDIR/doc`.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

#[path = "../src/bin/shelly-executord/args.rs"]
mod daemon;

#[path = "../src/bin/shellyctl/args.rs"]
mod ctl;

mod third_party;

/// An installed program, as far as its documentation goes.
struct Program {
    name: &'static str,
    section: &'static str,
    command: Command,
    files: &'static [(&'static str, &'static str)],
    see_also: &'static [&'static str],
}

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

const SOCKET: (&str, &str) = (
    "/run/shelly-executor/executor.sock",
    "the socket that calls arrive on",
);

fn programs() -> [Program; 2] {
    [
        Program {
            name: "shelly-executord",
            section: "8",
            command: daemon::Args::command(),
            files: &[
                SOCKET,
                (
                    "/etc/shelly-executor/executor.toml",
                    "the configuration, described in executor.toml(5)",
                ),
                (
                    "/etc/shelly-executor/tools.toml",
                    "what the tools are called and described as",
                ),
                (
                    "/var/lib/shelly-executor",
                    "records and outputs of executions",
                ),
            ],
            see_also: &[
                "shellyctl(1)",
                "executor.toml(5)",
                "systemctl(1)",
                "journalctl(1)",
            ],
        },
        Program {
            name: "shellyctl",
            section: "1",
            command: ctl::Args::command(),
            files: &[SOCKET],
            see_also: &[
                "shelly-executord(8)",
                "executor.toml(5)",
                "systemctl(1)",
                "journalctl(1)",
            ],
        },
    ]
}

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or("usage: generate OUTDIR")?;
    let man = out.join("man");
    fs::create_dir_all(&man)?;
    for program in programs() {
        write_man_pages(&program, &man)?;
        write_completions(&program, &out.join("completions"))?;
    }
    fs::write(
        man.join("executor.toml.5"),
        configuration_page(include_str!("../config/executor.toml")),
    )?;
    let doc = out.join("doc");
    fs::create_dir_all(&doc)?;
    fs::write(doc.join("third-party.txt"), third_party::notices()?)?;
    Ok(())
}

fn write_man_pages(program: &Program, dir: &Path) -> Result<(), Box<dyn Error>> {
    // Without its own name, the command would be called after the package.
    let mut root = program
        .command
        .clone()
        .name(program.name)
        .disable_help_subcommand(true);
    root.build();
    let mut see_also: Vec<String> = program.see_also.iter().map(ToString::to_string).collect();
    write_page(program, root.clone(), &see_also, dir)?;

    see_also.insert(0, format!("{}({})", program.name, program.section));
    write_subcommand_pages(program, &root, &see_also, dir)
}

fn write_subcommand_pages(
    program: &Program,
    parent: &Command,
    see_also: &[String],
    dir: &Path,
) -> Result<(), Box<dyn Error>> {
    for command in parent
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        write_page(program, command.clone(), see_also, dir)?;
        write_subcommand_pages(program, command, see_also, dir)?;
    }
    Ok(())
}

fn write_page(
    program: &Program,
    command: Command,
    see_also: &[String],
    dir: &Path,
) -> Result<(), Box<dyn Error>> {
    let version = env!("CARGO_PKG_VERSION");
    let title = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_uppercase();
    let man = Man::new(command)
        .title(title)
        .section(program.section)
        .source(format!("shelly-executor {version}"))
        .manual("Shelly Executor");
    let mut page = Vec::new();
    man.render(&mut page)?;
    // What clap calls "after help" holds examples and exit codes.
    let mut page = String::from_utf8(page)?.replace(".SH EXTRA\n", ".SH NOTES\n");
    page.push_str(".SH FILES\n");
    for (path, what) in program.files {
        writeln!(page, ".TP\n\\fI{}\\fR\n{}", escape(path), escape(what))?;
    }
    writeln!(page, ".SH \"SEE ALSO\"\n{}", references(see_also))?;
    fs::write(dir.join(man.get_filename()), page)?;
    Ok(())
}

fn write_completions(program: &Program, dir: &Path) -> Result<(), Box<dyn Error>> {
    for shell in SHELLS {
        let name = shell
            .to_possible_value()
            .map(|value| value.get_name().to_owned())
            .ok_or("a shell without a name")?;
        let dir = dir.join(name);
        fs::create_dir_all(&dir)?;
        clap_complete::generate_to(shell, &mut program.command.clone(), program.name, &dir)?;
    }
    Ok(())
}

/// The default configuration as a man page: its comments are the text, everything else is shown as it stands.
fn configuration_page(toml: &str) -> String {
    let mut page = format!(
        ".TH EXECUTOR.TOML 5 \"\" \"shelly-executor {}\" \"Shelly Executor\"\n\
         .SH NAME\nexecutor.toml \\- configuration of shelly-executord\n\
         .SH SYNOPSIS\n\\fI/etc/shelly-executor/executor.toml\\fR\n\
         .SH DESCRIPTION\nThis page is the default configuration itself. The installed file is a copy of it, and so is what is\n\
         compiled in; \\fBshelly-executord \\-\\-check\\-config\\fR says what is wrong with a changed one.\n.PP\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut in_example = false;
    for line in toml.lines() {
        let comment = line
            .strip_prefix('#')
            .map(|text| text.strip_prefix(' ').unwrap_or(text));
        // An indented comment, or one that holds a commented-out key or table, is shown as it stands.
        let prose = comment.filter(|text| !text.starts_with(' ') && !is_setting(text));
        if line.is_empty() || prose == Some("") {
            close_example(&mut page, &mut in_example);
            page.push_str(".PP\n");
        } else if let Some(table) = line
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next())
        {
            close_example(&mut page, &mut in_example);
            page.push_str(&format!(".SH \"[{}]\"\n", escape(table.trim_matches('['))));
        } else if let Some(prose) = prose {
            close_example(&mut page, &mut in_example);
            page.push_str(&format!("{}\n", escape(prose)));
        } else {
            if !in_example {
                page.push_str(".PP\n.RS 4\n.nf\n\\fB\n");
                in_example = true;
            }
            page.push_str(&format!("{}\n", escape(line)));
        }
    }
    close_example(&mut page, &mut in_example);
    page.push_str(".SH \"SEE ALSO\"\n");
    page.push_str(&references(&[
        "shelly-executord(8)".to_owned(),
        "shellyctl(1)".to_owned(),
    ]));
    page.push('\n');
    page
}

fn close_example(page: &mut String, in_example: &mut bool) {
    if std::mem::take(in_example) {
        page.push_str("\\fR\n.fi\n.RE\n.PP\n");
    }
}

/// Whether the text of a comment is a setting that is commented out: `key = value` or `[table]`.
fn is_setting(text: &str) -> bool {
    let key = text.split_once('=').map(|(key, _)| key.trim_end());
    text.starts_with('[')
        || key.is_some_and(|key| {
            !key.is_empty()
                && key
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        })
}

/// `name(section)` references, as man pages set them: the name in bold.
fn references(pages: &[String]) -> String {
    let set = |page: &String| match page.split_once('(') {
        Some((name, section)) => format!("\\fB{}\\fR({section}", escape(name)),
        None => escape(page),
    };
    pages.iter().map(set).collect::<Vec<_>>().join(",\n")
}

/// Text as troff input: backslashes and hyphens are not to be interpreted, nor a line that starts like a request.
fn escape(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) {
        format!("\\&{escaped}")
    } else {
        escaped
    }
}
