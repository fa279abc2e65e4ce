//! Writes what the package holds beside the programs: man pages and shell completions, from the
//! programs' own argument definitions and the commented default configuration, so that they cannot
//! say anything else than the programs do; and the licences of the crates in them.
//!
//! `cargo run --example generate -- OUTDIR` fills `OUTDIR/man`, `OUTDIR/doc` and
//! `OUTDIR/completions/{bash,zsh,fish}`. Pages are dated by `SOURCE_DATE_EPOCH`, else today.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use configuration_page::configuration_page;
use roff::{Page, references};

#[path = "../src/bin/shelly-executord/args.rs"]
mod daemon;

#[path = "../src/bin/shellyctl/args.rs"]
mod ctl;

mod configuration_page;
mod roff;
mod third_party;

/// An installed program, as far as its documentation goes.
struct Program {
    name: &'static str,
    section: &'static str,
    command: Command,
    files: &'static [(&'static str, &'static str)],
    see_also: &'static [&'static str],
}

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
                    "what a model is told of each tool",
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
    let date = date()?;
    let man = make_dir(&out, "man")?;
    for program in programs() {
        write_man_pages(&program, &date, &man)?;
        write_completions(&program, &out)?;
    }
    let page = configuration_page(include_str!("../config/executor.toml"), &date);
    fs::write(man.join("executor.toml.5"), page)?;
    fs::write(
        make_dir(&out, "doc")?.join("third-party.txt"),
        third_party::notices()?,
    )?;
    Ok(())
}

/// The day that the pages are dated, as `2026-01-31`.
fn date() -> Result<String, Box<dyn Error>> {
    let time = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.parse()?),
        Err(_) => SystemTime::now(),
    };
    Ok(humantime::format_rfc3339_seconds(time)
        .to_string()
        .chars()
        .take("2026-01-31".len())
        .collect())
}

fn make_dir(parent: &Path, name: &str) -> std::io::Result<PathBuf> {
    let dir = parent.join(name);
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// A page for the program, and one for each of its subcommands.
fn write_man_pages(program: &Program, date: &str, dir: &Path) -> Result<(), Box<dyn Error>> {
    // Without its own name, the command would be called after the package.
    let mut root = program
        .command
        .clone()
        .name(program.name)
        .disable_help_subcommand(true);
    root.build();
    let reference = format!("{}({})", program.name, program.section);
    let mut open = vec![root];
    while let Some(command) = open.pop() {
        open.extend(
            command
                .get_subcommands()
                .filter(|command| !command.is_hide_set())
                .cloned(),
        );
        let name = command
            .get_display_name()
            .unwrap_or(program.name)
            .to_owned();
        let mut page = Page::new(&name, program.section, date);
        page.raw(&clap_sections(command, program.section)?);
        page.section("FILES");
        for (path, what) in program.files {
            page.entry(path, what);
        }
        page.section("SEE ALSO");
        let parent = (name != program.name).then_some(reference.as_str());
        page.raw(&references(
            &parent
                .into_iter()
                .chain(program.see_also.iter().copied())
                .collect::<Vec<_>>(),
        ));
        fs::write(
            dir.join(format!("{name}.{}", program.section)),
            page.finish(),
        )?;
    }
    Ok(())
}

/// What clap's definitions say, from NAME on. The title before that is ours, because clap's loses
/// an empty date and with it the order of its arguments.
fn clap_sections(command: Command, section: &str) -> Result<String, Box<dyn Error>> {
    let mut page = Vec::new();
    Man::new(command).section(section).render(&mut page)?;
    let page = String::from_utf8(page)?;
    let (_, sections) = page
        .split_once("\n.SH NAME\n")
        .ok_or("clap wrote a page without a name")?;
    // Clap's word for what is to be said after the options: examples, exit codes.
    Ok(format!(
        ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.SH NAME\n{}",
        sections.replace(".SH EXTRA\n", ".SH NOTES\n")
    ))
}

fn write_completions(program: &Program, out: &Path) -> Result<(), Box<dyn Error>> {
    for (shell, name) in [
        (Shell::Bash, "bash"),
        (Shell::Zsh, "zsh"),
        (Shell::Fish, "fish"),
    ] {
        let dir = make_dir(&make_dir(out, "completions")?, name)?;
        clap_complete::generate_to(shell, &mut program.command.clone(), program.name, dir)?;
    }
    Ok(())
}
