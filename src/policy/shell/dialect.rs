//! Which shell reads a script. It is read as bash has it; where others have it otherwise, nobody knows what it runs.

use std::path::Path;

use super::hazards::unversioned;
use super::nested::is_shell;

/// Who reads a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shell {
    /// bash, under any of its names but `sh`.
    Bash,
    /// `sh`, or one that may be it: bash or dash, and who knows which. To the latter `[[` and `((` begin no tests, `&>`
    /// ends a command, and `$'` begins no escapes.
    Posix,
    /// One with a grammar of its own, such as fish or zsh.
    Other,
}

impl Shell {
    /// The one at `path`, by its name.
    pub fn at(path: &Path) -> Self {
        let name = path.file_name().and_then(|name| name.to_str());
        Self::named(name.unwrap_or_default())
    }

    pub(super) fn named(name: &str) -> Self {
        match unversioned(name) {
            "bash" | "bash-static" | "rbash" => Self::Bash,
            "ash" | "dash" | "hush" | "posh" | "sash" | "sh" => Self::Posix,
            _ => Self::Other,
        }
    }

    /// Who reads the scripts that the program `name` takes: most give them to `sh`, or to a shell of the user's, which
    /// is held to be of that kind. `None` for what is a part of the shell that runs it, and for what gives its words to
    /// no shell.
    #[rustfmt::skip]
    pub(super) fn of_program(name: &str) -> Option<Self> {
        match name {
            "." | "alias" | "bind" | "compgen" | "complete" | "declare" | "eval" | "export" | "fc" | "hash" | "history" | "local" | "mapfile"
            | "readarray" | "readonly" | "source" | "trap" | "typeset" => None,
            "doas" | "env" | "sudo" | "sudo-rs" => None,
            name if is_shell(name) => Some(Self::named(name)),
            _ => Some(Self::Posix),
        }
    }
}
