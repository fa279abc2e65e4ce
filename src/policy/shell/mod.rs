//! Reading shell text. [`strict`] may allow and calls opaque what it does not know; [`loose`]
//! finds everything that may be run, to refuse it, over a parser of bash's whole grammar
//! ([`bash`]), which [`fence`] keeps within bounds.

mod bash;
mod command;
mod containers;
mod dialect;
mod escapes;
mod expansions;
mod fence;
mod found;
mod git;
pub mod hazards;
mod hidden;
mod inner;
mod loose;
mod make;
mod nested;
mod operands;
mod options;
mod programs;
mod remote;
mod shells;
pub mod strict;
#[cfg(test)]
mod tests;
mod text;
mod told;
mod variables;
mod walk;
mod wrappers;

use std::collections::BTreeMap;
use std::fmt;

pub use command::Command;
pub use dialect::Shell;
pub use escapes::ansi_c;
pub use fence::Fence;

/// What a script runs and writes, as far as its text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Every command, also behind wrappers and in nested scripts.
    pub commands: Vec<Command>,
    /// The files that redirects write; none where that is known only when it runs.
    pub writes: Vec<Option<String>>,
    /// Whether it changes its directory somewhere.
    pub moves: bool,
    /// Whether a command of which it is not known may do so.
    pub may_move: bool,
}

/// Why a script cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Longer than the fence allows.
    TooLong,
    /// Nested more deeply.
    TooDeep,
    /// It may run more than the fence allows.
    TooMuch,
    /// It took longer.
    TooSlow,
    /// Too many others are being read, or there is no thread to read it.
    Busy,
    /// The parser failed: a defect of ours.
    Died,
    /// It is not what bash takes for a script, or more than we know of it.
    Grammar,
    /// Shells, or versions of bash, may read it in different ways.
    Ambiguous,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "it is too long",
            Self::TooDeep => "it is nested too deeply",
            Self::TooMuch => "it may run more than can be looked at",
            Self::TooSlow => "it takes too long to read",
            Self::Busy => "too many others are being read, or there is no thread to read it",
            Self::Died => "the parser fails at it, which is a defect of the daemon: report it",
            Self::Grammar => "it is not in the grammar that is known",
            Self::Ambiguous => "what it says can be read in several ways",
        })
    }
}

/// Finds what `script` may run and write. A script of the simplest form is read at once, any other on a thread
/// of its own, which is waited for: see [`Fence`].
///
/// # Errors
/// See [`Unreadable`]; then anything may be in it.
pub fn read_shell(script: &str, fence: &Fence) -> Result<Reading, Unreadable> {
    read_shell_in(script, Setting::new(Shell::Bash, None), fence)
}

/// Where a script is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    /// Who reads it.
    pub shell: Shell,
    /// What it is given to read: shells in it may take that for a script.
    pub input: Option<&'a str>,
    /// What it finds set besides what the daemon sets: what programs in it read there is a command as much as if the
    /// script had set it.
    pub variables: &'a BTreeMap<String, String>,
}

impl<'a> Setting<'a> {
    /// One in which no variable is set.
    fn new(shell: Shell, input: Option<&'a str>) -> Self {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        Self {
            shell,
            input,
            variables: &NONE,
        }
    }
}

/// The same for a script that is run there.
///
/// # Errors
/// See [`Unreadable`].
pub(super) fn read_shell_in(
    script: &str,
    setting: Setting<'_>,
    fence: &Fence,
) -> Result<Reading, Unreadable> {
    fence::read(script, setting, fence)
}

/// Reads a script of the simplest form completely; none when it is not of that form.
pub fn read_shell_strictly(script: &str) -> Option<Vec<Vec<String>>> {
    let segments = strict::read(script).ok()?;
    Some(segments.into_iter().map(|segment| segment.words).collect())
}
