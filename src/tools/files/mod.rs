//! The file tools, one per file. Whatever they touch they reach through `access`, which holds
//! every path to the configured base directories. All of them block.

mod access;
mod diff;
mod edit;
mod error;
mod lines;
mod list;
mod nearest;
mod read;
mod replacement;
mod search;
#[cfg(test)]
mod tests;
mod text;
mod tools;
mod whole;
mod write;

use std::borrow::Cow;
use std::path::Path;

use serde::Serialize;

pub(crate) use access::Access;
use access::{Of, Target, Turn};
pub(crate) use error::FileError;
pub(super) use tools::{EDIT_FILE, LIST_DIR, READ_FILE, SEARCH_FILES, WRITE_FILE};

use super::Answer;
use crate::domain::{Secrets, misleads};

/// Whether to give up; looked at again and again.
pub(crate) type ShouldStop<'a> = &'a dyn Fn() -> bool;

/// What a file tool has to work with.
pub(crate) struct Work<'a> {
    /// What it may reach.
    pub(crate) access: &'a Access,
    /// Whether to give up.
    pub(crate) should_stop: ShouldStop<'a>,
    /// Whether the policy permits what really is at a path.
    pub(crate) permits: &'a dyn Fn(&Path) -> bool,
    /// What is masked in its answer: where that cuts a text, before it is cut.
    pub(crate) secrets: &'a Secrets,
}

impl Work<'_> {
    fn check_permitted(&self, real: &Path) -> Result<(), FileError> {
        match (self.permits)(real) {
            true => Ok(()),
            false => Err(FileError::denied(
                real,
                "the policy does not permit it; where it has permitted the call, the path leads elsewhere now",
            )),
        }
    }

    /// The place of a file that is to be changed, which the policy permits.
    fn target(&self, asked: &str) -> Result<Target, FileError> {
        let target = self.access.target(asked)?;
        self.check_permitted(&target.real)?;
        Ok(target)
    }

    /// Waits for the turn to change what is at `asked` now. Only then is it to be looked at: others had theirs before.
    fn turn(&self, asked: &str) -> Result<Turn, FileError> {
        Turn::wait(Of::File(self.target(asked)?.real), self.should_stop)
    }

    /// Waits for the turn to make directories where those for `target` are missing.
    fn turn_of_directories(&self, target: &Target) -> Result<Turn, FileError> {
        Turn::wait(Of::Directories(target.dir.stat.st_dev), self.should_stop)
    }

    fn check_stop(&self) -> Result<(), FileError> {
        match (self.should_stop)() {
            true => Err(FileError::Stopped),
            false => Ok(()),
        }
    }
}

/// The longest regular expression or glob, in bytes: what it takes to read one is thousands of times its length.
const LONGEST_PATTERN: usize = 4096;

fn check_pattern(parameter: &'static str, pattern: &str) -> Result<(), FileError> {
    let length = pattern.len();
    if length > LONGEST_PATTERN {
        let why = format!("is {length} bytes long: expected at most {LONGEST_PATTERN}");
        return Err(FileError::input(parameter, why));
    }
    Ok(())
}

/// What is answered to the model, and to a program by the tool's output schema.
fn answer(content: String, output: &impl Serialize) -> Answer {
    Answer {
        content,
        // Not reached: the outputs are structs of text and numbers.
        output: serde_json::to_value(output).ok(),
        ..Answer::default()
    }
}

/// A text that names paths as they are, in one line and with nothing in it that moves a cursor.
fn in_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match misleads(character) {
            true => line.extend(character.escape_debug()),
            false => line.push(character),
        }
    }
    line
}

/// A path as texts name it: quoted and escaped, as Rust writes a string, where it would pass for another. One with a
/// line end in it is two to who reads lines. The output has all paths as they are.
fn shown(path: &str) -> Cow<'_, str> {
    let is_plain = |character| !(misleads(character) || matches!(character, '"' | '\\'));
    match path.chars().all(is_plain) {
        true => Cow::Borrowed(path),
        false => Cow::Owned(format!("{path:?}")),
    }
}
