//! What shells are given to read: a script in their words, in a file, or on their input.

use super::super::glob::UNKNOWN_WORDS;
use super::super::paths::{absolute, base_name};
use super::hazards::unversioned;
use super::loose::{Nested, Reader, reads_variable};
use super::nested::{Input, given, script};
use super::text::{is_known, plain};

/// Shells: `-c` and a script, or a script on their input.
#[rustfmt::skip]
pub(super) const SHELLS: &[&str] = &[
    "ash", "bash", "bash-static", "csh", "dash", "elvish", "fish", "hush", "ksh", "lksh", "mksh", "nu", "oksh", "osh", "pdksh", "posh", "pwsh", "rbash", "rksh", "rzsh",
    "sash", "sh", "tcsh", "xonsh", "yash", "ysh", "zsh",
];

/// Shells of which all options are known, and none has a script in the same word.
const USUAL: [&str; 10] = [
    "ash",
    "bash",
    "bash-static",
    "dash",
    "ksh",
    "lksh",
    "mksh",
    "rbash",
    "sh",
    "zsh",
];

pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name) || SHELLS.contains(&unversioned(name))
}

impl Reader {
    /// Adds the scripts that the shell `name` is given to `nested`.
    pub(super) fn scripts_of_shell(
        &mut self,
        name: &str,
        arguments: &[String],
        certain: bool,
        input: Option<&Input>,
        nested: &mut Vec<Nested>,
    ) {
        let joined = self.joined(arguments);
        let own = seen_by_script(name, arguments).unwrap_or(arguments.len());
        for (at, word) in arguments.iter().enumerate() {
            if self.is_full() {
                return;
            }
            if !word.starts_with('-') && (at < own || is_known(word)) {
                self.add_words(&joined, (at, arguments.len()), false);
            }
        }
        let arguments = &read_by_shell(name, arguments);
        let mut add = |text: &str, certain: bool| nested.push(script(text, certain));
        let reads = shell_scripts(arguments, certain, &mut add);
        // One that is interactive has a history of what it reads, and another descriptor may lead elsewhere.
        let is_interactive = reads != Reads::Another && has_letter(arguments, 'i');
        if has_history(arguments) || is_interactive || reads == Reads::Descriptor {
            self.unknown();
        }
        match reads {
            Reads::Input | Reads::Descriptor => self.shell_input(input, certain, nested),
            // It may be a link to it.
            Reads::Another => nested.extend(given(input)),
        }
    }

    /// Adds what a shell that reads its input for a script is given there.
    pub(super) fn shell_input(
        &mut self,
        input: Option<&Input>,
        certain: bool,
        nested: &mut Vec<Nested>,
    ) {
        match input {
            Some(Input::Text(text)) if is_known(text) => {
                if reads_on(text) {
                    self.unknown();
                }
                nested.push(Nested::new(plain(text), certain));
            }
            Some(Input::Text(_) | Input::Unknown) | None => {
                nested.extend(self.own_input(certain && input.is_none()));
                // What stands before it, in a pipe or in the same script, may have its say.
                self.unknown();
            }
        }
    }
}

/// Whether a command in a script that is read from its input may read a part of that, so that the script goes on somewhere
/// within what stands there.
fn reads_on(script: &str) -> bool {
    let reads = |word: &str| reads_variable(word) || matches!(word, "dd" | "head" | "select");
    let mut words = script.split(|c: char| !c.is_ascii_alphanumeric());
    script.trim_end().contains('\n') && words.any(reads)
}

/// From which of its arguments on only the script of a shell gets to see them. `None` where that is known only when it
/// runs.
pub(super) fn seen_by_script(name: &str, arguments: &[String]) -> Option<usize> {
    let mut at = 0;
    let mut takes_script = false;
    while let Some(word) = arguments.get(at).filter(|word| is_known(word)) {
        let is_option = word.starts_with(['-', '+']);
        if !is_option || word == "-" || word == "--" {
            at += usize::from(is_option);
            break;
        }
        takes_script |= !word.starts_with("--") && word.contains('c');
        at += 1 + values_behind(word);
    }
    let options = arguments.get(..at)?;
    let first = arguments.get(at)?;
    // Of a file with a script the name has to be known.
    let is_file = !takes_script && first.contains('/') && !is_input(first);
    let is_clear = options.iter().all(|word| is_known(word)) && (is_known(first) || is_file);
    (is_clear && USUAL.contains(&name)).then_some(at + 1)
}

/// The arguments of a shell as far as it reads them itself: without what is known only when it runs, and only its script
/// gets to see.
fn read_by_shell(name: &str, arguments: &[String]) -> Vec<String> {
    let Some(own) = seen_by_script(name, arguments) else {
        return arguments.to_vec();
    };
    let (own, behind) = arguments.split_at(own);
    // The directory of a script says nothing.
    let own = own.iter().map(|word| match is_known(word) {
        true => word.clone(),
        false => format!("./{}", base_name(word)),
    });
    own.chain(behind.iter().filter(|word| is_known(word)).cloned())
        .collect()
}

/// What a shell reads for a script besides what stands in its words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Its standard input.
    Input,
    /// A file that may be its standard input, or another descriptor.
    Descriptor,
    /// Another file, or nothing.
    Another,
}

impl Reads {
    fn file(file: &str) -> Self {
        match is_input(file) {
            true if is_standard_input(file) => Self::Input,
            true => Self::Descriptor,
            false => Self::Another,
        }
    }
}

/// The scripts a shell is given; what else it reads for one.
fn shell_scripts(arguments: &[String], certain: bool, add: &mut impl FnMut(&str, bool)) -> Reads {
    let (mut takes_script, mut reads_first) = (false, false);
    let mut rest = arguments.iter().map(String::as_str);
    let mut first = None;
    while let Some(word) = rest.next() {
        if let Some(long) = word.strip_prefix("--c") {
            // fish and nu: `--command=SCRIPT`, `--commands SCRIPT`.
            takes_script = true;
            if let Some((_, script)) = long.split_once('=') {
                first = Some(script);
                break;
            }
            continue;
        }
        let option = word.starts_with('-') || word.starts_with('+');
        if !option || word == "-" || word == "--" {
            first = if word == "-" || word == "--" {
                rest.next()
            } else {
                Some(word)
            };
            break;
        }
        takes_script |= !word.starts_with("--") && word.contains('c');
        for _ in 0..values_behind(word) {
            let value = rest.next();
            // What an interactive one reads before all else.
            reads_first |= word.starts_with("--") && value.is_some_and(is_input);
        }
    }
    if !arguments.iter().all(|word| is_known(word)) {
        add(&UNKNOWN_WORDS.to_string(), false);
    }
    let from_options = match reads_first {
        true => Reads::Descriptor,
        false => Reads::Another,
    };
    if !takes_script {
        return match first {
            _ if reads_first => from_options,
            None => Reads::Input,
            // With one that is not known it is not known what it runs, whatever it reads.
            Some(_) if has_letter(arguments, 's') => Reads::Input,
            Some(file) => Reads::file(file),
        };
    }
    if let Some(script) = first {
        add(script, certain);
    }
    // Should an option before it have a value that we do not know of.
    arguments.iter().for_each(|word| add(word, false));
    from_options
}

/// Whether a shell is given that short option, alone or with others, or a word that may be it.
fn has_letter(arguments: &[String], letter: char) -> bool {
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        let is_option = word.starts_with(['-', '+']) && word != "--";
        if !is_known(word) || !is_option {
            return !is_known(word);
        }
        let is_short = !word.starts_with("--");
        if is_short && word.contains(letter) {
            return true;
        }
        for _ in 0..values_behind(word) {
            // What it is called may be known only when it runs.
            if arguments.next().is_some_and(|name| !is_known(name)) {
                return true;
            }
        }
    }
    false
}

pub(super) fn says_version(arguments: &[String]) -> bool {
    arguments.first().is_some_and(|word| word == "--version")
}

/// How many words behind an option of a shell's are its values: names of further options, one for each letter.
fn values_behind(option: &str) -> usize {
    match option {
        "--rcfile" | "--init-file" => 1,
        long if long.starts_with("--") => 0,
        group => group.matches(['o', 'O']).count(),
    }
}

/// Whether a shell is told to take `!` for what was run before, which may then be run in other words.
pub(super) fn has_history(arguments: &[String]) -> bool {
    has_letter(arguments, 'H') || arguments.iter().any(|word| word == "histexpand")
}

/// Whether a file is what a command is given to read, and can be nothing else.
pub(super) fn is_standard_input(file: &str) -> bool {
    matches!(file, "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}

/// Whether a file is what a command is given to read, as far as its name tells: with directories that lead there, or
/// without.
pub(super) fn is_input(file: &str) -> bool {
    let path = absolute(file, None).unwrap_or_default();
    let mut names = file.rsplit('/').filter(|name| !name.is_empty());
    let (last, before) = (names.next().unwrap_or_default(), names.next());
    let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    let is_descriptor = matches!(before, Some("fd" | ".") | None) || !is_known(file);
    // Where the directory is not known, but its own name is, that has to be one of these.
    let may_be_any = file.contains(UNKNOWN_WORDS) || !is_known(last) || file.ends_with('/');
    file == "-"
        || last == "stdin"
        || is_number && is_descriptor
        || path.starts_with("/dev/fd/")
        || path.starts_with("/proc/")
        || !is_known(file) && may_be_any
}
