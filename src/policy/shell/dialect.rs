//! Which shell reads a script. It is read as bash has it; where others have it otherwise, nobody knows what it runs.

use std::path::Path;

use super::hazards::unversioned;
use super::shells::is_shell;
use super::text::is_known;

/// Who reads a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shell {
    /// bash, under any of its names but `sh`.
    Bash,
    /// `sh`, or one that may be it: bash or dash, and who knows which. To the latter `[[` and `((` begin no tests, `&>`
    /// ends a command, `$'` begins no escapes, and a quote in `"${…}"` is none.
    Posix,
    /// One with a grammar of its own, such as fish or zsh.
    Other,
}

/// Who may read something otherwise than bash does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Apart {
    #[default]
    Nobody,
    /// Other shells of its kind, dash among them.
    Others,
    /// Those, and bash itself in POSIX mode.
    Posix,
}

/// Whether a text names a variable that has bash be in POSIX mode, or may.
pub(super) fn names_posix(text: &str) -> bool {
    let names = ["POSIXLY_CORRECT", "SHELLOPTS"];
    names.iter().any(|name| text.contains(name))
}

/// Whether a text names what has bash take `!(` for a pattern, or may.
pub(super) fn names_extended(text: &str) -> bool {
    let names = ["extglob", "BASHOPTS", "BASH_COMPAT", "compat"];
    names.iter().any(|name| text.contains(name))
}

/// Whether a command may have a shell be in POSIX mode: by an option, or by its name.
pub(super) fn asks_for_posix(name: &str, arguments: &[String]) -> bool {
    let has_option = |is: &dyn Fn(&str) -> bool| {
        let mut options = arguments.iter().take_while(|word| *word != "--");
        options.any(|word| is(word))
    };
    match name {
        "set" | "shopt" => has_option(&|word| word.contains("posix") || !is_known(word)),
        "exec" => has_option(&|word| word.starts_with('-') && word.contains('a')),
        "env" => has_option(&|word| word.starts_with("-a") || word.starts_with("--a")),
        name => is_shell(name) && has_option(&|word| word.contains("posix")),
    }
}

/// Whether a command may have a shell take `!(` for a pattern, by an option.
pub(super) fn asks_for_extended(name: &str, arguments: &[String]) -> bool {
    (name == "shopt" || is_shell(name))
        && arguments
            .iter()
            .any(|word| names_extended(word) || !is_known(word))
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
