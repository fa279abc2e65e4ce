//! Why a command failed, how that is told, and the exit status it has.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::error::Category;
use shelly_executor::client::ClientError;

use crate::journal::JournalError;
use crate::tools::ToolsError;
use crate::{ending, print};

/// The status for a wrong command line; clap uses the same.
const USAGE: u8 = 2;

/// What a shell reports of a program whose reader went away: 128 + SIGPIPE. Not 0, for nobody has heard the verdict.
const READER_GONE: u8 = 141;

/// Everything that can end a command of shellyctl early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The daemon said no, said something strange, or could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The daemon knows no such approval.
    #[error("{}", .0)]
    NoApproval(ClientError),
    /// The daemon accepted the connection and then said nothing.
    #[error("the daemon on `{}` did not answer within {seconds} s", socket.display())]
    Silent { socket: PathBuf, seconds: u64 },
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {source}")]
    Stdout { source: io::Error },
    /// Standard input cannot be read or passed on.
    #[error("cannot pass standard input on: {source}")]
    Stdin { source: io::Error },
    /// The input of `call` is not JSON.
    #[error(
        "the input for `{tool}` is not JSON: {}; expected an object",
        json_error(source)
    )]
    NotJson {
        tool: String,
        source: serde_json::Error,
    },
    /// The input of `policy explain --tool` is not JSON.
    #[error(
        "with --tool, what follows is its input, and that is not JSON: {}; expected an object",
        json_error(source)
    )]
    ExplainedNotJson { source: serde_json::Error },
    /// The result in a record is none.
    #[error("cannot read the result of execution `{id}`: {source}")]
    Record {
        id: String,
        source: serde_json::Error,
    },
    /// What is to be the beginning or end of an id is that of too many.
    #[error(
        "`{given}` is too short for an execution's id: expected {least} characters of one at the least"
    )]
    TooShort { given: String, least: usize },
    /// What may be the beginning or end of an id is that of several.
    #[error("`{given}` may mean any of {found}")]
    Ambiguous { given: String, found: String },
    /// A question has to be answered, and nobody is there to do it.
    #[error("standard input is no terminal, so nobody can be asked")]
    NotAsked,
    /// There is no screen to show things on.
    #[error("top needs a terminal")]
    NoTerminal,
    /// A command cannot be put into a shell's words.
    #[error("cannot quote the command: {source}")]
    Unquotable { source: shlex::QuoteError },
    /// The directory to run in has no name that JSON can carry.
    #[error("cannot use `{}` as the directory to run in: {source}", cwd.display())]
    Cwd { cwd: PathBuf, source: io::Error },
    /// The daemon's program, which checks configurations, did not start.
    #[error("cannot run `{}`: {source}", program.display())]
    Daemon { program: PathBuf, source: io::Error },
    /// The journal that was named has nothing to compare with.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A tool cannot be made, installed or removed.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// Neither runtime nor signal handlers.
    #[error("cannot set up: {source}")]
    Setup { source: io::Error },
}

/// What is wrong with a JSON text, and where.
fn json_error(error: &serde_json::Error) -> String {
    match (error.classify(), error.line(), error.column()) {
        (Category::Eof, 1, 0) => "it is empty".to_owned(),
        (Category::Eof, line, column) => {
            format!("it ends too early, at line {line} column {column}")
        }
        // serde_json's own text ends in the place.
        (Category::Syntax | Category::Data | Category::Io, ..) => error.to_string(),
    }
}

impl Failure {
    /// Whether the reader of the output has simply seen enough.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Stdout { source } if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether nobody can be talked to, as opposed to somebody who refuses.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Silent { .. } | Self::Client(ClientError::CannotConnect { .. })
        )
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let known = match self {
            Self::Client(error) => return error.hint(),
            Self::NoApproval(_) => {
                Some("`shellyctl approvals` lists what waits, with --all what was decided as well")
            }
            Self::Silent { .. } => Some("see `systemctl status shelly-executor`"),
            Self::Stdin { source } if source.kind() == io::ErrorKind::InvalidData => {
                Some("a call carries text; put bytes into a file that the command reads")
            }
            Self::NotJson { .. } => {
                Some("for instance: shellyctl call bash '{\"command\": \"df -h\"}'")
            }
            Self::ExplainedNotJson { .. } => Some(
                "for instance: shellyctl policy explain --tool read_file '{\"file_path\": \"/etc/hosts\"}'; `shellyctl tools NAME` says what a tool takes, and a command needs no --tool",
            ),
            Self::Ambiguous { .. } => Some("give more of the id, or all of it"),
            Self::TooShort { .. } => Some("`shellyctl history` lists them"),
            Self::NotAsked => Some("--yes does it without asking"),
            Self::NoTerminal => Some("`shellyctl history` and `shellyctl events -f` do without"),
            Self::Daemon { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("it is looked for beside shellyctl and in PATH")
            }
            Self::Tools(error) => error.hint(),
            Self::Journal(JournalError::Silent { .. }) => {
                Some("root and members of the group systemd-journal see all of it")
            }
            Self::Stdout { .. }
            | Self::Stdin { .. }
            | Self::Record { .. }
            | Self::Unquotable { .. }
            | Self::Cwd { .. }
            | Self::Daemon { .. }
            | Self::Journal(_)
            | Self::Setup { .. } => None,
        };
        known.map(Cow::Borrowed)
    }

    fn exit_status(&self) -> u8 {
        match self {
            Self::Client(ClientError::Refused { answer })
            | Self::NoApproval(ClientError::Refused { answer }) => ending::exit_status(answer),
            Self::Stdout { .. } if self.is_broken_pipe() => READER_GONE,
            Self::NotJson { .. }
            | Self::ExplainedNotJson { .. }
            | Self::Unquotable { .. }
            | Self::Cwd { .. }
            | Self::Ambiguous { .. }
            | Self::TooShort { .. }
            | Self::NotAsked
            | Self::NoTerminal => USAGE,
            Self::Tools(ToolsError::Misplaced { .. }) => USAGE,
            Self::Tools(_) => 1,
            Self::Client(_)
            | Self::NoApproval(_)
            | Self::Silent { .. }
            | Self::Stdout { .. }
            | Self::Stdin { .. }
            | Self::Record { .. }
            | Self::Daemon { .. }
            | Self::Journal(_)
            | Self::Setup { .. } => ending::FAILED,
        }
    }

    /// Tells people on standard error, and programs on standard output as far as the daemon gave
    /// JSON; then the status to exit with.
    pub fn report(&self, json: bool) -> ExitCode {
        self.tell(json);
        ExitCode::from(self.exit_status())
    }

    /// As [`Failure::report`], with a status of the command's own.
    pub fn report_as(&self, json: bool, status: u8) -> ExitCode {
        self.tell(json);
        ExitCode::from(status)
    }

    fn tell(&self, json: bool) {
        if self.is_broken_pipe() {
            return;
        }
        if let Self::Client(ClientError::Refused { answer })
        | Self::NoApproval(ClientError::Refused { answer }) = self
            && json
        {
            // Standard error tells it in any case.
            let _ = print::line(&answer.json);
        }
        if let Self::Tools(error) = self
            && json
        {
            let _ = print::line(&error.json().to_string());
        }
        print::note(&self.to_string());
        if let Some(hint) = self.hint() {
            print::hint(&hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use shelly_executor::client::read_json;

    use super::*;

    fn not_json(text: &str) -> String {
        let source = read_json(text).expect_err("not JSON");
        let tool = "bash".to_owned();
        Failure::NotJson { tool, source }.to_string()
    }

    #[test]
    fn what_is_not_json_is_told_with_place_and_expectation() {
        for (text, told) in [
            ("", "it is empty; expected an object"),
            (
                r#"{"a": 1"#,
                "it ends too early, at line 1 column 7; expected an object",
            ),
            (
                "{\n",
                "it ends too early, at line 2 column 0; expected an object",
            ),
            (
                "{a: 1}",
                "key must be a string at line 1 column 2; expected an object",
            ),
            (
                r#"{"a": 1, "a": 2}"#,
                "duplicate field `a` at line 1 column 12; expected an object",
            ),
        ] {
            let expected = format!("the input for `bash` is not JSON: {told}");
            assert_eq!(not_json(text), expected);
        }
    }
}
