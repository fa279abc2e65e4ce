//! What programs run of their options' values, and the few that have ways of their own to say it.

use super::super::glob::UNKNOWN_WORDS;
use super::git;
use super::hazards::{has_options, run_by_options, values_of};
use super::loose::Nested;
use super::nested::{MAX_BEGINNINGS, script};
use super::text::{is_known, plain};

/// What the values of options run.
pub(super) fn scripts_of_options(name: &str, arguments: &[String], nested: &mut Vec<Nested>) {
    let mut add = |text: &str| nested.push(script(text, false));
    said_otherwise(name, arguments, &mut add);
    for text in run_by_options(name, arguments)
        .into_iter()
        .chain(after_unknown(name, arguments))
    {
        match name {
            // To a program, where the name of a file does not say so.
            "strace" if !text.starts_with(['|', '!']) => continue,
            "strace" => add(&text[1..]),
            // Macros: `%(COMMAND)`.
            "rpm" | "rpmbuild" | "rpmspec" => add(&text.replace("%(", "$(")),
            _ => add(text),
        }
        if name == "fzf" {
            commands_of_fzf(text, &mut add);
        } else if text.contains(',') {
            // So does `-wrapper` of gcc part its words.
            add(&text.replace(',', " "));
        }
    }
}

/// What is said to be run by words that are no option's value, or by options that only some of a program's commands have.
fn said_otherwise(name: &str, arguments: &[String], add: &mut impl FnMut(&str)) {
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let values = |options: &'static [&'static str]| {
        let each = options.iter();
        each.flat_map(|option| values_of(option, "", arguments))
    };
    match name {
        "cargo" if is_watch_of_cargo(name, arguments) => values(&["-s", "--shell"]).for_each(add),
        "consul" if ["exec", "lock", "watch"].into_iter().any(has) => {
            arguments.iter().for_each(|word| add(word));
        }
        "gh" => aliases_of_gh(arguments, add),
        "hg" if arguments.iter().any(|word| word.starts_with("bis")) => {
            values(&["-c", "--command"]).for_each(add);
        }
        // `-C linker=PROGRAM`, `--codegen=linker=PROGRAM`.
        "rustc" => {
            let settings = arguments.iter();
            let linkers = settings.filter_map(|word| word.split_once("linker="));
            linkers.for_each(|(_, program)| add(program));
        }
        // The program stands in the same word.
        "zip" => {
            let groups = arguments.iter().filter(|word| word.starts_with('-'));
            let values = groups.filter_map(|group| group.split_once("TT"));
            values.for_each(|(_, program)| add(program));
        }
        name if is_debugger(name) => {
            let commands = (0..arguments.len()).filter(|at| !is_process(arguments, *at));
            commands.for_each(|at| add(&command_of_debugger(&arguments[at])));
        }
        _ => {}
    }
}

/// What gh keeps to be run later, by whoever gives the alias words of their own: `alias set x '!COMMAND'`, or any with
/// `--shell`.
fn aliases_of_gh(arguments: &[String], add: &mut impl FnMut(&str)) {
    let mut add = |command: &str| add(&format!("{command} {}", git::GIVEN_LATER));
    let aliases = arguments.iter().filter_map(|word| word.strip_prefix('!'));
    aliases.for_each(&mut add);
    let is_shell =
        |word: &String| word == "-s" || word.starts_with("-s=") || word.starts_with("--shell");
    if arguments.iter().any(|word| word == "alias") && arguments.iter().any(is_shell) {
        // What it is for stands behind the alias's name.
        arguments.iter().for_each(|word| add(word));
    }
}

/// Whether it is cargo that runs something whenever a file changes.
pub(super) fn is_watch_of_cargo(name: &str, arguments: &[String]) -> bool {
    let mut words = arguments.iter();
    let first = words.find(|word| !word.starts_with(['-', '+']));
    name == "cargo" && first.is_some_and(|word| word == "watch")
}

pub(super) fn is_debugger(name: &str) -> bool {
    matches!(name, "gdb" | "lldb")
}

/// Whether a word of a debugger's says which process it is to look into.
pub(super) fn is_process(words: &[String], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| words[before].as_str());
    matches!(before, Some("-p" | "-pid" | "--pid" | "--attach-pid"))
}

/// What a word of a debugger's has a shell run, in any abbreviation: `!COMMAND`, `shell COMMAND`,
/// `platform shell COMMAND`; in the word of its option, too.
fn command_of_debugger(word: &str) -> String {
    let word = plain(word);
    let option = word
        .strip_prefix('-')
        .and_then(|option| option.split_once('='));
    let text = option.map_or(&*word, |(_, text)| text).trim_start();
    if let Some(command) = text.strip_prefix('!') {
        return command.to_owned();
    }
    let mut rest = text;
    for _ in 0..2 {
        let (first, behind) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
        if first.len() > 1 && "shell".starts_with(first) {
            return behind.to_owned();
        }
        rest = behind.trim_start();
    }
    text.to_owned()
}

/// What may be the value of an option that runs it, where what the option is is not known.
fn after_unknown<'w>(name: &str, arguments: &'w [String]) -> Vec<&'w str> {
    if !has_options(name) {
        return Vec::new();
    }
    let values = arguments.iter().enumerate().filter_map(|(at, word)| {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word.as_str(), arguments.get(at + 1).map(String::as_str)),
        };
        value.filter(|value| !is_known(option) && is_known(value))
    });
    values.take(MAX_BEGINNINGS).collect()
}

/// How many commands are looked for in a binding of fzf before it is not known what it runs: each may be all of the rest.
const MAX_BOUND: usize = 16;

/// What a binding of fzf runs: `start:execute(COMMAND)+abort`, in brackets of any kind, or `f1:become:COMMAND`.
fn commands_of_fzf(binding: &str, add: &mut impl FnMut(&str)) {
    let actions = ["become", "execute", "preview", "reload", "transform"];
    // They are known in capitals as well.
    let lower = binding.to_ascii_lowercase();
    let behind = actions.into_iter().flat_map(|action| {
        let found = lower.match_indices(action);
        found.map(move |(at, _)| at + action.len())
    });
    for (count, at) in behind.enumerate() {
        if count == MAX_BOUND {
            return add(&UNKNOWN_WORDS.to_string());
        }
        bound(&binding[at..]).into_iter().for_each(&mut *add);
    }
}

/// The command of an action of fzf's, behind the name of that.
fn bound(rest: &str) -> Option<&str> {
    // Others go on, as `transform-query` does.
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '-');
    let open = rest.chars().next()?;
    let command = &rest[open.len_utf8()..];
    let close = match open {
        '(' => ')',
        '[' => ']',
        '{' => '}',
        '<' => '>',
        ':' => return Some(command),
        same => same,
    };
    let ends = |at: &usize| {
        let after = &command[at + close.len_utf8()..];
        after.is_empty() || after.starts_with(['+', ','])
    };
    let mut closings = command.match_indices(close).map(|(at, _)| at);
    let end = closings.find(ends).unwrap_or(command.len());
    Some(&command[..end])
}
