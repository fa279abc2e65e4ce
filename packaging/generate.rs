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

use configuration_page::configuration_page;
use program_page::{Files, Frame, program_page};

#[path = "../src/bin/shelly-executord/args.rs"]
mod daemon;

#[path = "../src/bin/shellyctl/args/mod.rs"]
mod ctl;

mod configuration_page;
mod program_page;
mod roff;
mod third_party;

/// An installed program, as far as its documentation goes.
struct Program {
    name: &'static str,
    section: &'static str,
    command: Command,
    see_also: &'static [&'static str],
}

fn programs() -> [Program; 2] {
    [
        Program {
            name: "shelly-executord",
            section: "8",
            command: daemon::Args::command(),
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
            see_also: &[
                "shelly-executord(8)",
                "executor.toml(5)",
                "systemctl(1)",
                "journalctl(1)",
            ],
        },
    ]
}

const SOCKET: (&str, &str) = (
    "/run/shelly-executor/executor.sock",
    "the socket that calls arrive on",
);

const CONFIGURATION: (&str, &str) = (
    "/etc/shelly-executor/executor.toml",
    "the configuration, described in executor.toml(5)",
);

const POLICY: (&str, &str) = (
    "/etc/shelly-executor/policy.toml",
    "what may be run, and what somebody is asked about",
);

const TOOLS: (&str, &str) = (
    "/etc/shelly-executor/tools.toml",
    "what a model is told of each tool",
);

const SKILLS: (&str, &str) = (
    "/etc/shelly-executor/skills",
    "skills: tools of your own, each a directory",
);

const STATE: (&str, &str) = (
    "/var/lib/shelly-executor",
    "the daemon's lock and id, ledger.db with history and audit trail, in spool/ what executions write, and in policy.d/ remembered approvals",
);

/// The files that a page's command has to do with.
fn files(page: &str) -> Files {
    match page {
        "shelly-executord" => &[SOCKET, CONFIGURATION, POLICY, TOOLS, SKILLS, STATE],
        "shellyctl-config" | "shellyctl-config-check" => &[CONFIGURATION, POLICY, TOOLS],
        "shellyctl-policy-test" => &[POLICY],
        "shellyctl-tools" => &[SOCKET, SKILLS],
        "shellyctl-tools-install" | "shellyctl-tools-remove" | "shellyctl-tools-check" => &[SKILLS],
        "shellyctl-completions" | "shellyctl-tools-new" => &[],
        _ => &[SOCKET],
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or("usage: generate OUTDIR")?;
    let date = date()?;
    let man = make_dir(&out, "man")?;
    for program in programs() {
        for (name, page) in man_pages(&program, &date)? {
            fs::write(man.join(format!("{name}.{}", program.section)), page)?;
        }
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

/// A page for the program, and one for each of its subcommands; with their names.
fn man_pages(program: &Program, date: &str) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    // Without its own name, the command would be called after the package.
    let mut root = program
        .command
        .clone()
        .name(program.name)
        .disable_help_subcommand(true);
    root.build();
    let reference = format!("{}({})", program.name, program.section);
    let mut pages = Vec::new();
    let mut open = vec![root];
    while let Some(command) = open.pop() {
        open.extend(
            command
                .get_subcommands()
                .filter(|command| !command.is_hide_set())
                .cloned(),
        );
        let name = command.get_display_name().unwrap_or(program.name);
        let parent = (name != program.name).then_some(reference.as_str());
        let frame = Frame {
            name,
            section: program.section,
            date,
            files: files(name),
            see_also: parent
                .into_iter()
                .chain(program.see_also.iter().copied())
                .collect(),
        };
        pages.push((name.to_owned(), program_page(&command, &frame)?));
    }
    Ok(pages)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a page without its fonts and escapes.
    fn page(name: &str) -> Vec<String> {
        let mut pages = programs()
            .iter()
            .flat_map(|program| man_pages(program, "2026-01-31").expect("pages"))
            .collect::<Vec<_>>()
            .into_iter();
        let (_, page) = pages.find(|(page, _)| page == name).expect("a page");
        let plain = ["\\fB", "\\fI", "\\fR", "\\"]
            .iter()
            .fold(page, |page, escape| page.replace(escape, ""));
        plain.lines().map(str::to_owned).collect()
    }

    /// The lines of one section of a page.
    fn section(name: &str, heading: &str) -> Vec<String> {
        let heading = format!(".SH \"{heading}\"");
        let lines = page(name).into_iter();
        lines
            .skip_while(|line| *line != heading)
            .skip(1)
            .take_while(|line| !line.starts_with(".SH"))
            .collect()
    }

    #[test]
    fn a_synopsis_has_values_and_repetitions() {
        let exec = section("shellyctl-exec", "SYNOPSIS").join(" ");
        for part in ["[--timeout SECONDS]", "[--env NAME=VALUE]...", "[--stdin]"] {
            assert!(exec.contains(part), "{exec}");
        }
        assert!(exec.ends_with(" COMMAND..."), "{exec}");
        let tools = section("shellyctl-tools", "SYNOPSIS").join(" ");
        assert!(tools.contains(" [NAME]"), "{tools}");
    }

    #[test]
    fn both_programs_tell_exit_statuses_and_variables() {
        for name in ["shelly-executord", "shellyctl"] {
            let statuses = section(name, "EXIT STATUS");
            for status in ["0", "2", "78"] {
                assert!(statuses.iter().any(|line| line == status), "{statuses:?}");
            }
            let variables = section(name, "ENVIRONMENT");
            assert!(
                variables.iter().any(|line| line == "SHELLY_SOCKET"),
                "{variables:?}"
            );
        }
    }

    #[test]
    fn no_page_has_backticks() {
        for program in programs() {
            for (name, page) in man_pages(&program, "2026-01-31").expect("pages") {
                assert!(!page.contains('`'), "{name}");
            }
        }
    }

    #[test]
    fn a_page_lists_the_files_of_its_own_command() {
        let has = |name, path: &str| section(name, "FILES").iter().any(|line| line == path);
        assert!(has("shellyctl-exec", SOCKET.0));
        assert!(has("shellyctl-config-check", CONFIGURATION.0));
        assert!(!has("shellyctl-config-check", SOCKET.0));
        assert!(section("shellyctl-completions", "FILES").is_empty());
    }
}
