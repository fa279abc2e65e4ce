//! What find and xargs put where a command is named, or in its words.

use super::super::glob::{UNKNOWN, UNKNOWN_WORDS};
use super::super::paths::base_name;
use super::containers::is_quiet;
use super::git;
use super::hazards::{is_short, runs_elsewhere};
use super::inner::Options;
use super::loose::Reader;
use super::nested::{gives_script, takes_scripts};
use super::options::scripts_of_options;
use super::shells::is_shell;
use super::text::is_known;
use super::wrappers::{MAX_WRAPPED, Wrapped, is_wrapper, may_run, wrapped_by};

/// Letters of xargs' that have a value, in the next word as well; and such that have one in the same word or none.
const XARGS_VALUED: &str = "EILPadns";
const XARGS_ATTACHED: &str = "eil";

const XARGS_VALUED_LONG: &[&str] = &[
    "arg-file",
    "delimiter",
    "max-args",
    "max-chars",
    "max-procs",
    "process-slot-var",
];

/// What stands for what find has found.
const FOUND: &str = "{}";

impl Reader {
    /// What `xargs` makes of its command: more words come from its input, or stand in for one.
    pub(super) fn with_input(&mut self, options: &[String], command: &[String]) {
        let name = command.first().map_or("", |word| base_name(word));
        let mut longer = command.to_vec();
        longer.push(UNKNOWN_WORDS.to_string());
        let runs = matches!(name, "" | "eval" | "find" | "xargs")
            || is_shell(name)
            || may_run(name) && !is_quiet(name, &longer[1..])
            || is_wrapper(name)
            || has_unknown_script(name, &longer[1..]);
        if runs {
            self.unknown();
        }
        self.add(longer.join(" "), true);
        for placeholder in placeholders(options) {
            if self.is_full() {
                return;
            }
            let found: Vec<String> = command
                .iter()
                .map(|word| word.replace(placeholder, FOUND))
                .collect();
            let is_clear = !placeholder.is_empty() && is_known(placeholder);
            if !is_clear || runs_what_is_found(&found) {
                self.unknown();
            }
            let found = found.join(" ").replace(FOUND, &UNKNOWN.to_string());
            self.add(found, true);
        }
    }
}

/// `find`'s `-exec COMMAND… ;` and the like.
pub(super) fn found_by(words: &[String]) -> Vec<Wrapped> {
    let begins = |word: &str| matches!(word, "-exec" | "-execdir" | "-ok" | "-okdir");
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if begins(word) {
            let rest = &words[at + 1..];
            let length = rest.iter().position(|word| word == ";" || word == "+");
            found.push((at + 1, at + 1 + length.unwrap_or(rest.len())));
        }
    }
    found
}

/// Where in `words`, which are xargs and its own, the command stands that it is given.
pub(super) fn given_to_xargs(words: &[String]) -> Wrapped {
    let operands = Options::read(&words[1..], XARGS_VALUED, XARGS_VALUED_LONG).operands;
    (words.len() - operands.len(), words.len())
}

/// Whether find, or xargs, puts what it has found where a program is named, or a script.
pub(super) fn runs_what_is_found(mut command: &[String]) -> bool {
    let is_found = |word: &String| word == FOUND;
    for _ in 0..MAX_WRAPPED {
        let Some((program, arguments)) = command.split_first() else {
            return false;
        };
        let name = base_name(program);
        if program.contains(FOUND) {
            return true;
        }
        if name == "find" {
            // It is looked at by itself.
            return false;
        }
        if is_shell(name) || takes_scripts(name) {
            let is_part = |word: &String| word.contains(FOUND) && !is_found(word);
            let first = arguments.iter().find(|word| !word.starts_with('-'));
            if arguments.iter().any(is_part) || first.is_some_and(is_found) {
                return true;
            }
        }
        if is_shell(name) {
            return false;
        }
        if has_found_script(name, arguments) {
            return true;
        }
        let inner = wrapped_by(name, command);
        let inner = inner.first().and_then(|(from, to)| command.get(*from..*to));
        if inner.is_none() && may_run(name) && !runs_elsewhere(name) {
            // Where it has its command is not known.
            return arguments.iter().any(is_found);
        }
        command = inner.unwrap_or_default();
    }
    true
}

/// Whether what find has found is a script of the program's: behind an option for one (`flock x -c {}`), or in one
/// that names a program.
fn has_found_script(name: &str, arguments: &[String]) -> bool {
    let takes = takes_scripts(name) && !runs_elsewhere(name) || name == "git";
    let mut pairs = arguments.windows(2);
    takes && pairs.any(|pair| gives_script(&pair[0]) && pair[1].contains(FOUND))
        || scripts_of_words(name, arguments)
            .iter()
            .any(|text| text.contains(FOUND))
}

/// Whether what comes from the input of xargs may be a script of the program's.
fn has_unknown_script(name: &str, arguments: &[String]) -> bool {
    let scripts = scripts_of_words(name, arguments);
    scripts.iter().any(|text| !is_known(text))
}

/// What the options of a program, or its words where it is git, have it run.
fn scripts_of_words(name: &str, arguments: &[String]) -> Vec<String> {
    if name == "git" {
        return git::scripts(arguments);
    }
    let mut nested = Vec::new();
    scripts_of_options(name, arguments, &mut nested);
    nested.into_iter().map(|one| one.text).collect()
}

/// The texts for which xargs puts what it reads, as its options say.
fn placeholders(options: &[String]) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, word) in options.iter().enumerate() {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').unwrap_or((long, FOUND));
            if is_short(name, "replace", 1) {
                found.push(value);
            }
            continue;
        }
        let group = word.strip_prefix('-').unwrap_or_default();
        let has_value = |c| XARGS_VALUED.contains(c) || XARGS_ATTACHED.contains(c);
        let Some(end) = group.find(has_value) else {
            continue;
        };
        let (letter, attached) = group[end..].split_at(1);
        match (letter, attached) {
            ("I", "") => found.extend(options.get(at + 1).map(String::as_str)),
            ("i", "") => found.push(FOUND),
            ("I" | "i", attached) => found.push(attached),
            _ => {}
        }
    }
    found
}
