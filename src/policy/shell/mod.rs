//! Reading shell text. [`strict`] may allow and calls opaque what it does not know; [`loose`]
//! finds everything that may be run, to refuse it, over a parser of bash's whole grammar, which
//! [`fence`] keeps within bounds.

mod cost;
mod fence;
mod git;
pub mod hazards;
mod inner;
mod loose;
mod nested;
mod parts;
mod programs;
pub mod strict;
#[cfg(test)]
mod tests;
mod text;
mod tokens;
mod walk;
mod wrappers;

use std::fmt;

pub use fence::Fence;
pub use text::ansi_c;

/// What a script runs and writes, as far as its text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Every command, also behind wrappers and in nested scripts.
    pub commands: Vec<Command>,
    /// The files that redirects write; none where that is known only when it runs.
    pub writes: Vec<Option<String>>,
    /// Whether it changes its directory somewhere.
    pub moves: bool,
}

/// One command that a script may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The words joined by blanks. A blank within a word is U+0001; U+0002 stands for a part of
    /// a word that is known only when it runs, U+0003 for words of which that holds.
    pub text: String,
    /// Whether this is what the script says. Otherwise it is what it may amount to: an argument
    /// that something else may take for a command.
    pub certain: bool,
}

/// Why a script cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Longer than the fence allows.
    TooLong,
    /// Nested more deeply.
    TooDeep,
    /// It took longer.
    TooSlow,
    /// Too many scripts that took longer are still being read.
    Busy,
    /// It is not what bash takes for a script, or more than we know of it.
    Grammar,
    /// The parser and bash may read it in different ways.
    Ambiguous,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "it is too long",
            Self::TooDeep => "it is nested too deeply",
            Self::TooSlow => "it takes too long to read",
            Self::Busy => "too many others are being read",
            Self::Grammar => "it is not in the grammar that is known",
            Self::Ambiguous => "what it says can be read in several ways",
        })
    }
}

/// Finds what `script` may run and write. A script of the simplest form is read here and now,
/// any other behind `fence`.
///
/// # Errors
/// See [`Unreadable`]; then anything may be in it.
pub fn read_shell(script: &str, fence: &Fence) -> Result<Reading, Unreadable> {
    fence::read(script, None, fence)
}

/// The same for a script that is given `input` to read: shells in it may take that for a script.
///
/// # Errors
/// See [`Unreadable`].
pub(super) fn read_with_input(
    script: &str,
    input: Option<&str>,
    fence: &Fence,
) -> Result<Reading, Unreadable> {
    fence::read(script, input, fence)
}

/// Reads a script of the simplest form completely; none when it is not of that form.
pub fn read_shell_strictly(script: &str) -> Option<Vec<Vec<String>>> {
    let segments = strict::read(script).ok()?;
    Some(segments.into_iter().map(|segment| segment.words).collect())
}
