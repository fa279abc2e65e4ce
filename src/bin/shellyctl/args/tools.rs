//! `shellyctl tools`, and what works on directories of tools.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

/// Which tool to show, or what to do.
#[derive(Debug, Args)]
pub struct ToolsArgs {
    /// The tool to show; NAME@VERSION shows another version than the default one
    pub name: Option<String>,

    #[command(subcommand)]
    pub command: Option<ToolsCommand>,
}

/// The commands of `shellyctl tools`.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// Put a skill where the daemon finds it
    ///
    /// Checks the directory as `tools check` does, copies it beside the daemon's skills and puts it in its
    /// place at once: whoever looks sees the old one or the new one, never a part. What runs goes on,
    /// but finds no more of the old one's files than it has open. One whose directory is called the same is replaced; a
    /// directory called NAME@VERSION stands beside others.
    ///
    /// Permissions are kept, but for what would let others than its owner write. A directory with
    /// symbolic links that lead out of it, with devices, FIFOs or sockets, or with more than 64 MiB
    /// or 10000 files is refused. What is called __pycache__ is left out.
    Install(InstallArgs),

    /// Take a skill away
    ///
    /// It is gone at once; what runs of it goes on, as far as it needs no more of its files.
    Remove(RemoveArgs),

    /// Make the directory of a new skill, which works as it is
    ///
    /// With a skill.json, a program, an example and a script `test` that runs it, and a README. No crate,
    /// module or tool is needed but those of the language. A directory that is there already is
    /// left alone.
    New(NewArgs),

    /// Say everything that is wrong with a skill
    ///
    /// Runs `shelly-executord --check-skill`, which reads it as the daemon does; the daemon is neither
    /// asked nor changed. Each problem is a line: path, line, what is wrong and what was expected. The exit status
    /// is 0 when there is none and 1 when there is.
    Check(CheckArgs),
}

/// What to install.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The skill's directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,

    #[command(flatten)]
    pub place: Place,
}

/// What to remove.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// The skill: NAME, NAME@VERSION where there are several, or the directory it was installed from
    #[arg(value_hint = ValueHint::DirPath)]
    pub skill: PathBuf,

    #[command(flatten)]
    pub place: Place,
}

/// What to make.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// What the skill is called: up to 64 of a-z, A-Z, 0-9, _ and -
    pub name: String,

    /// What its program is written in
    #[arg(long, value_enum)]
    pub lang: Lang,

    /// Make it in this directory instead of the current one
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// What to check.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The skill's directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,

    /// Look for what it calls among the skills of this directory, instead of beside it and in the
    /// daemon's
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub skills_dir: Option<PathBuf>,
}

/// Where skills are.
#[derive(Debug, Args)]
pub struct Place {
    /// The directory of skills: `skills` beside the daemon's configuration
    ///
    /// That of a daemon which runs with the usual configuration, if absent:
    /// /etc/shelly-executor/skills.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub skills_dir: Option<PathBuf>,
}

/// What a skill's program can be written in from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lang {
    Sh,
    Python,
    Rust,
}
