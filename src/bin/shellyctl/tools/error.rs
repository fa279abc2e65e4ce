//! Why a tool cannot be made, installed or removed.

use std::io;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

/// Everything that can go wrong with a directory of tools.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// It is no skill that the daemon would load.
    #[error("{}", told(problems))]
    Invalid { problems: Vec<Problem> },
    /// The daemon's program said something strange.
    #[error("cannot read what shelly-executord says of `{}`: {source}", dir.display())]
    Unreadable {
        dir: PathBuf,
        source: serde_json::Error,
    },
    /// There is a file in it that is not copied.
    #[error("`{}` {why}", path.display())]
    Refused { path: PathBuf, why: String },
    /// The system said no.
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// There is something already.
    #[error("`{}` is there already", path.display())]
    Exists { path: PathBuf },
    /// The name cannot be that of a skill.
    #[error("{name:?} is no name of a skill: expected up to 64 of a-z, A-Z, 0-9, _ and -")]
    Name { name: String },
    /// The name is that of another kind of tool.
    #[error(
        "{name:?} is a tool that is built in, and no skill can be called so: choose another name"
    )]
    BuiltIn { name: String },
    /// The directory of skills would be in one that is not there.
    #[error("cannot make `{}`, for the directory it would be in is not there", path.display())]
    Nowhere { path: PathBuf },
    /// A tool is to be shown and another command given.
    #[error("`{name}` stands before a command: expected it alone, or after the command")]
    Misplaced { name: String },
    /// It is not there.
    #[error("there is no skill `{name}` in `{}`{}", dir.display(), among(found))]
    Unknown {
        name: String,
        dir: PathBuf,
        found: Vec<String>,
    },
}

/// One thing that is wrong with a skill, as the daemon's program tells it.
#[derive(Clone, Debug, Deserialize)]
pub struct Problem {
    pub path: String,
    pub line: Option<usize>,
    pub detail: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.detail),
            None => write!(f, "{}: {}", self.path, self.detail),
        }
    }
}

fn told(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

fn among(found: &[String]) -> String {
    match found {
        [] => String::new(),
        found => format!(", but {}", found.join(", ")),
    }
}

impl ToolsError {
    /// What can be done.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("the daemon's skills belong to root: sudo, or --skills-dir DIR")
            }
            Self::Invalid { .. } => Some(
                "`shellyctl tools check DIR --skills-dir SKILLS_DIR` says it line by line, for the place where it is to be",
            ),
            Self::Exists { .. } => Some("choose another name, or remove it first"),
            Self::Unknown { found, .. } if !found.is_empty() => Some("say which version"),
            Self::Nowhere { .. } => Some(
                "is the daemon installed? then do it as root; --skills-dir DIR names the directory of another's skills",
            ),
            Self::Unknown { .. }
            | Self::Unreadable { .. }
            | Self::Refused { .. }
            | Self::Io { .. }
            | Self::Misplaced { .. }
            | Self::BuiltIn { .. }
            | Self::Name { .. } => None,
        }
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let problems: Vec<Value> = match self {
            Self::Invalid { problems } => problems.iter().map(Problem::json).collect(),
            Self::Unreadable { .. }
            | Self::Refused { .. }
            | Self::Io { .. }
            | Self::Exists { .. }
            | Self::Name { .. }
            | Self::BuiltIn { .. }
            | Self::Nowhere { .. }
            | Self::Misplaced { .. }
            | Self::Unknown { .. } => Vec::new(),
        };
        json!({"done": false, "error": self.to_string(), "problems": problems})
    }
}

impl Problem {
    fn json(&self) -> Value {
        json!({"path": self.path, "line": self.line, "detail": self.detail})
    }
}

/// Says what could not be done with `path`.
pub fn cannot<E: Into<io::Error>>(
    what: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(E) -> ToolsError {
    let path = path.into();
    move |error| ToolsError::Io {
        what,
        path,
        source: error.into(),
    }
}

/// Whether a skill can be called so.
pub fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(is_allowed)
}
