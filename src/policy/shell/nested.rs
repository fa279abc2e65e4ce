//! The scripts that programs take from their words or their input.

use super::super::glob::{INNER_BLANK, UNKNOWN_WORDS};
use super::super::paths::base_name;
use super::Shell;
use super::git;
use super::hazards::{has_options, run_by_options, runs_elsewhere, values_of};
use super::loose::{Nested, Reader};
use super::operands::RUN_PACKAGES;
use super::remote::{is_ssh, joins_words, remote_scripts, ways_there};
use super::shells::{has_history, is_input, is_shell, is_standard_input, says_version};
use super::text::{flatten_unquoted, is_known, plain};
use super::variables::{assignment, declares, is_read_by_programs};

/// What a command reads.
pub(super) enum Input {
    Text(String),
    Unknown,
}

/// Programs with a script in an option's value or in their words, somewhere. So have all that run
/// commands elsewhere.
#[rustfmt::skip]
pub(super) const SCRIPT_TAKERS: &[&str] = &[
    "alias", "bind", "capsh", "compgen", "complete", "concurrently", "cross-env-shell", "declare", "entr", "env", "export", "flock", "foot", "gnome-terminal", "hash", "hyperfine", "kitty", "konsole", "local",
    "asciinema", "bazel", "bunx", "byobu", "execlineb", "just", "mock", "newrole", "nodemon", "sbatch", "sops", "ttyrec", "make-first-existing-target", "mapfile", "mispipe", "nc", "ncat", "netcat", "nix", "nix-shell", "npm", "npx", "parallel", "pee", "pm2", "pnpm", "pnpx", "readarray", "readonly", "runuser", "rxvt", "screen", "script",
    "scriptlive", "sem", "sg", "socat", "start-stop-daemon", "su", "sudo", "sudo-rs", "tmux", "typeset", "urxvt", "uvx", "uxterm", "watch", "watchexec", "xfce4-terminal", "xterm", "yarn",
];

pub(super) fn takes_scripts(name: &str) -> bool {
    SCRIPT_TAKERS.contains(&name) || runs_elsewhere(name)
}

/// Words with which tmux runs commands of its own that say what to run, or reads them from a file.
const TMUX_COMMANDS: [&str; 12] = [
    "if-shell",
    "if",
    "set-hook",
    "bind-key",
    "bind",
    "source-file",
    "source",
    "confirm-before",
    "command-prompt",
    "display-menu",
    "menu",
    "-f",
];

/// How many beginnings of a list of commands are looked at.
const MAX_BEGINNINGS: usize = 16;

/// How many letters may stand before an option's value in the same word.
const MAX_LETTERS: usize = 8;

/// What may be one, and is where nothing of it is unknown and that is `certain`.
pub(super) fn script(text: &str, certain: bool) -> Nested {
    Nested::new(plain(text), certain && is_known(text))
}

impl Reader {
    /// Adds the scripts that the program `name` takes from its words or its input to `nested`.
    pub(super) fn scripts(
        &mut self,
        name: &str,
        words: &[String],
        certain: bool,
        input: Option<&Input>,
        nested: &mut Vec<Nested>,
    ) {
        let arguments = &words[1..];
        let perhaps = |text: &String| script(text, false);
        match name {
            "git" => nested.extend(git::scripts(arguments).iter().map(perhaps)),
            "eval" => {
                let dashes = arguments.first().is_some_and(|word| word == "--");
                let text = arguments[usize::from(dashes)..].join(" ");
                nested.push(script(&text, certain));
            }
            "trap" => nested.extend(trapped(arguments).map(|text| script(text, certain))),
            "source" | "." => match file_of(arguments) {
                Some(file) if is_input(file) => {
                    self.shell_input(input, certain && is_known(file), nested);
                    if !is_standard_input(file) {
                        // Another descriptor may lead elsewhere.
                        self.unknown();
                    }
                }
                // A file with a script, whose name may be all that a rule knows of it; or a link to its input.
                Some(_) => {
                    let dashes = usize::from(arguments[0] == "--");
                    self.add(arguments[dashes..].join(" "), false);
                    nested.extend(given(input));
                }
                None => {}
            },
            // From here on any word may be another; and which files name commands, who knows.
            "alias" | "parallel" | "sem" => {
                self.unknown();
                let value = |word: &String| match word.split_once('=') {
                    Some((_, value)) => script(value, false),
                    None => script(word, false),
                };
                nested.extend(arguments.iter().map(value));
            }
            "history" | "fc" => {
                if name == "fc" {
                    // It changes what it runs.
                    self.unknown();
                }
                // It may begin with any of them.
                let last = arguments.len().min(MAX_BEGINNINGS);
                let beginnings = (1..last).map(|at| script(&arguments[at..].join(" "), false));
                nested.extend(beginnings);
                if last < arguments.len() {
                    self.unknown();
                }
            }
            "set" | "shopt" => {
                if has_history(arguments) {
                    self.unknown();
                }
            }
            // It says so, and ends. Others may pass over the option, and go on to what they are given.
            "bash" if says_version(arguments) => {}
            "compgen" => {
                // Of a list of words with an error what stands before that is run.
                if arguments
                    .iter()
                    .any(|word| flatten_unquoted(&plain(word)).is_err())
                {
                    self.unknown();
                }
                self.scripts_of_taker(name, arguments, nested);
            }
            _ if is_shell(name)
                && says_version(arguments)
                && arguments.len() == 1
                && input.is_none()
                && self.input.is_none() => {}
            _ if is_shell(name) => self.scripts_of_shell(name, arguments, certain, input, nested),
            _ if takes_scripts(name) => self.scripts_of_taker(name, arguments, nested),
            "bmake" | "gmake" | "make" => {
                self.scripts_of_make(arguments, nested);
                let files = ["-f", "--file", "--makefile"].into_iter();
                let mut files = files.flat_map(|option| values_of(option, "CIEjloW", arguments));
                if let Some(file) = files.find(|file| is_input(file)) {
                    match input {
                        Some(Input::Text(text)) if is_standard_input(file) => {
                            self.makefile(text, nested);
                        }
                        Some(_) | None => self.unknown(),
                    }
                }
            }
            _ => scripts_of_options(name, arguments, nested),
        }
    }

    /// Variables that are set for make, and text that it is to read: both may run scripts, and the shell runs all others.
    fn scripts_of_make(&mut self, arguments: &[String], nested: &mut Vec<Nested>) {
        for (name, value) in arguments.iter().filter_map(|word| word.split_once('=')) {
            let assigned = name.trim_matches(BLANKS);
            let name = assigned.trim_end_matches([':', '+', '?']);
            let name = name.trim_end_matches(BLANKS);
            if name == "SHELL" {
                let shell = value.trim_start_matches(BLANKS);
                self.add(format!("{shell} {UNKNOWN_WORDS}"), false);
            }
            if name == ".SHELLFLAGS" {
                nested.push(script(&format!("sh {value}"), false));
            }
            let text = as_script(value);
            let is_plain = is_known(value) && !value.contains('$');
            if ["(call", "{call"].iter().any(|sign| value.contains(sign)) {
                self.unknown();
            }
            if is_plain || assigned.ends_with('!') || text != *value {
                nested.push(script(&text, false));
            }
        }
        for option in ["--eval", "-E"] {
            let texts = values_of(option, "CfIjloW", arguments);
            texts.for_each(|text| self.makefile(text, nested));
        }
    }

    /// Adds what make runs of a text that it reads: recipes, and what its variables are set to.
    fn makefile(&mut self, text: &str, nested: &mut Vec<Nested>) {
        // A line goes on behind a backslash, in a recipe without what it is begun with.
        let joined = text.replace("\\\n\t", "").replace("\\\n", "");
        for text in [text, &joined]
            .into_iter()
            .take(1 + usize::from(joined != text))
        {
            add_recipes(&as_script(text), nested);
        }
        let mut settings = joined.lines().filter_map(|line| line.split_once('='));
        for (name, value) in settings.by_ref().take(MAX_BEGINNINGS) {
            if name.contains("SHELLFLAGS") {
                nested.push(script(&format!("sh {value}"), false));
            } else if name.contains("SHELL") {
                self.add(format!("{value} {UNKNOWN_WORDS}"), false);
            }
            nested.push(script(&as_script(value), false));
        }
        if settings.next().is_some() {
            self.unknown();
        }
    }

    /// Not all of these are scripts, and none is for certain.
    fn scripts_of_taker(&mut self, name: &str, arguments: &[String], nested: &mut Vec<Nested>) {
        let is_tmux = |word: &String| TMUX_COMMANDS.contains(&word.as_str());
        // In formats, too, which most of its commands take.
        let has_command = |word: &String| word.contains("#(");
        if name == "tmux"
            && arguments
                .iter()
                .any(|word| is_tmux(word) || has_command(word))
        {
            self.unknown();
        }
        let elsewhere = runs_elsewhere(name);
        if joins_words(name, arguments) && !arguments.iter().all(|word| is_known(word)) {
            self.unknown();
        }
        let texts = remote_scripts(name, arguments);
        nested.extend(texts.iter().map(|text| Nested {
            shell: Some(Shell::Posix),
            ..script(text, false)
        }));
        for text in ways_there(name, arguments) {
            nested.extend(match is_known(&text) {
                true => Some(Nested {
                    shell: Some(Shell::Posix),
                    ..script(&text, false)
                }),
                false => {
                    let text = plain(&text);
                    if text
                        .split_whitespace()
                        .next()
                        .is_some_and(|first| !is_known(first))
                    {
                        // Whatever that is, it is run.
                        self.unknown();
                    }
                    self.unknown_value(&text)
                }
            });
        }
        // There another word is mostly one of a command (`docker exec c sh -c x`), which is looked at as a whole, a
        // template (`{{ .State }}`), or names files; and no script.
        let mut shell = None;
        if name == "socat" {
            // `exec:COMMAND`, in any letters.
            let behind = arguments.iter().filter_map(|word| word.split_once(':'));
            nested.extend(behind.map(|(_, text)| script(text, false)));
        }
        let sets_any = sets_variables(name, arguments);
        let passed_on = passed_on(name, arguments);
        for (at, word) in arguments.iter().enumerate() {
            if sets_any && self.set_in_words(word, nested) {
                continue;
            }
            if passed_on.is_some_and(|from| at >= from) && is_pattern(word) {
                continue;
            }
            // Of what is set, the value may be one, and not the word.
            let most = match sets_any && assignment(word).is_some() {
                true => word.len() - 1,
                false => word.len(),
            };
            let scripts = scripts_of(word).filter(|text| text.len() <= most);
            let scripts = scripts.filter(|text| !elsewhere || is_command(text));
            // Programs give what such a variable says to `sh`.
            let is_read = assignment(word).is_some_and(|(name, _)| is_read_by_programs(name));
            let by_programs = (sets_any && is_read).then_some(Shell::Posix);
            nested.extend(scripts.map(|text| Nested {
                shell: by_programs.or(shell),
                ..script(text, false)
            }));
            // `docker exec c bash -c x`: as words, where ssh makes one text of them.
            let program = base_name(word);
            if elsewhere && !is_ssh(name) && is_shell(program) {
                shell = Some(Shell::named(program));
            }
        }
    }
}

/// Adds what make runs of a text that it reads.
fn add_recipes(text: &str, nested: &mut Vec<Nested>) {
    nested.push(script(text, false));
    // `x:;@command`: what stands before the command of a recipe is make's.
    let lines = text.split([';', '\n', '\t']);
    let marks = [INNER_BLANK, ' ', '@', '-', '+'];
    let recipes = lines.map(|line| line.trim_start_matches(marks));
    let mut recipes = recipes.filter(|line| !line.is_empty());
    let looked_at = recipes.by_ref().take(MAX_BEGINNINGS);
    nested.extend(looked_at.map(|line| script(line, false)));
    let unknown = || script(&UNKNOWN_WORDS.to_string(), false);
    nested.extend(recipes.next().map(|_| unknown()));
}

/// Whether a program sets variables that stand in its words, to what these say.
fn sets_variables(name: &str, arguments: &[String]) -> bool {
    // With such an option a value is the name of another, arithmetic or what an array is made of; and what is not known
    // may be such an option.
    let evaluates = |word: &String| {
        let letters = word.strip_prefix(['-', '+']).unwrap_or_default();
        let may_be_option = !is_known(word) && !word.contains('=');
        may_be_option || word.contains(UNKNOWN_WORDS) || letters.contains(['a', 'A', 'i', 'n'])
    };
    match name {
        name if declares(name) => !arguments.iter().any(evaluates),
        // Of what may be several words, one may be a program.
        "doas" | "env" | "sudo" => !arguments.iter().any(|word| word.contains(UNKNOWN_WORDS)),
        _ => false,
    }
}

/// What stands for blanks in a word of make's.
const BLANKS: [char; 3] = [INNER_BLANK, ' ', '\t'];

/// A text for make as a shell would have it: `$(shell COMMAND)` and `${shell COMMAND}` are what `$(COMMAND)` is there;
/// `$(NAME)` is a variable.
fn as_script(text: &str) -> String {
    let mut script = String::with_capacity(text.len());
    // What closes the braces that are open.
    let mut closing = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("$$") {
            // One for the shell.
            script.push('$');
            rest = behind;
            continue;
        }
        let is_braced = rest.starts_with("${");
        let called = ["$(shell", "${shell"]
            .iter()
            .find_map(|sign| rest.strip_prefix(sign));
        if let Some(behind) = called.filter(|behind| behind.starts_with(BLANKS)) {
            closing.extend(is_braced.then_some(')'));
            script.push_str("$(");
            rest = behind;
            continue;
        }
        script.push(match first {
            '}' => closing.pop().unwrap_or('}'),
            other => other,
        });
        closing.extend((first == '{').then_some('}'));
        rest = &rest[first.len_utf8()..];
    }
    script
}

/// What the values of options run.
pub(super) fn scripts_of_options(name: &str, arguments: &[String], nested: &mut Vec<Nested>) {
    let mut add = |text: &str| nested.push(script(text, false));
    if name == "gh" {
        // `alias set x '!COMMAND'`.
        // Whoever gives it later gives it words of their own.
        let aliases = arguments.iter().filter_map(|word| word.strip_prefix('!'));
        aliases.for_each(|command| add(&format!("{command} {}", git::GIVEN_LATER)));
    }
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let is_shell =
        |word: &String| word == "-s" || word.starts_with("-s=") || word.starts_with("--shell");
    if name == "gh" && has("alias") && arguments.iter().any(is_shell) {
        // What it is for stands behind the alias's name.
        let commands = arguments.iter();
        commands.for_each(|word| add(&format!("{word} {}", git::GIVEN_LATER)));
    }
    let values = |options: &'static [&'static str]| {
        let each = options.iter();
        each.flat_map(|option| values_of(option, "", arguments))
    };
    if name == "hg" && arguments.iter().any(|word| word.starts_with("bis")) {
        values(&["-c", "--command"]).for_each(&mut add);
    }
    if is_watch_of_cargo(name, arguments) {
        values(&["-s", "--shell"]).for_each(&mut add);
    }
    if name == "consul" && ["exec", "lock", "watch"].into_iter().any(has) {
        arguments.iter().for_each(|word| add(word));
    }
    if is_debugger(name) {
        let commands = (0..arguments.len()).filter(|at| !is_process(arguments, *at));
        commands.for_each(|at| add(&command_of_debugger(&arguments[at])));
    }
    if name == "rustc" {
        // `-C linker=PROGRAM`, `--codegen=linker=PROGRAM`.
        let linkers = arguments
            .iter()
            .filter_map(|word| word.split_once("linker="));
        linkers.for_each(|(_, program)| add(program));
    }
    if name == "zip" {
        // The program stands in the same word.
        let groups = arguments.iter().filter(|word| word.starts_with('-'));
        let values = groups.filter_map(|group| group.split_once("TT"));
        values.for_each(|(_, program)| add(program));
    }
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

/// What a trap runs.
fn trapped(arguments: &[String]) -> Option<&String> {
    let is_option = |word: &&String| word.starts_with('-') && *word != "--";
    let options = arguments.iter().take_while(is_option).count();
    let ends = arguments.get(options).is_some_and(|word| word == "--");
    arguments.get(options + usize::from(ends))
}

/// Whether a quoted text is more than a word and begins as a command does.
fn is_command(text: &str) -> bool {
    let text = plain(text);
    let blank = |c: char| c.is_whitespace() || ";|&`".contains(c);
    let first = text.trim_start().split(blank).next().unwrap_or_default();
    let is_more = text.contains(blank) || text.contains("$(");
    is_known(&text) && is_more && is_plain(first)
}

/// Whether a word has nothing in it that would make it several, or more than a word.
pub(super) fn is_plain(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_alphanumeric() || "/._-+:=@%,~".contains(c))
}

/// Whether a word is a pattern for names of files, such as programs look for themselves: `npx eslint 'src/**/*.{js,ts}'`.
fn is_pattern(word: &str) -> bool {
    let signs: &[char] = &['*', '?', '[', ']', '{', '}', '!'];
    word.contains(signs) && !word.contains('=') && is_plain(&word.replace(signs, ""))
}

/// From which of its arguments on a program for packages gives patterns to another one as they are, and to no shell.
fn passed_on(name: &str, arguments: &[String]) -> Option<usize> {
    let at = |words: &[&str]| {
        let mut arguments = arguments.iter().map(String::as_str);
        arguments.position(|word| words.contains(&word))
    };
    let may_call = |word: &String| {
        let long = word.split('=').next().unwrap_or_default();
        let calls = long.len() > 2 && ("--call".starts_with(long) || long.starts_with("--shell"));
        calls || !word.starts_with("--") && gives_script(word)
    };
    let program = match name {
        name if RUN_PACKAGES.contains(&name) => {
            let flags = ["-q", "--quiet", "-y", "--yes"];
            let mut words = arguments.iter().map(String::as_str);
            words.position(|word| !flags.contains(&word))
        }
        "npm" | "pnpm" | "yarn" => at(&["dlx", "exec", "x"]).map(|at| at + 1),
        _ => return None,
    };
    let Some(program) = program.filter(|program| *program < arguments.len()) else {
        // What it keeps or reads may be a script later, and `explore` puts its words together for a shell.
        let keeps = at(&["config", "explore", "pkg", "set", "set-script"]).is_some();
        return (!keeps && !arguments.iter().any(may_call)).then_some(0);
    };
    let is_named = |word: &str| is_plain(word) && !word.is_empty() && !word.starts_with('-');
    let is_clear = is_named(&arguments[program]) && !arguments[..program].iter().any(may_call);
    is_clear.then_some(program + 1)
}

/// Whether an option is one for a script: `-c`, also behind other letters, or `--call`.
pub(super) fn gives_script(option: &str) -> bool {
    match option.strip_prefix("--") {
        Some(long) => long.starts_with('c'),
        None => option.starts_with('-') && option.contains('c'),
    }
}

/// What of a word may be a script: all of it, or a value in it (`-S'marker x'`, `--x='marker x'`,
/// `-oProxyCommand marker x`, `EXEC:marker x`).
pub(super) fn scripts_of(word: &str) -> impl Iterator<Item = &str> {
    let behind = |separator: char| Some(word.split_once(separator)?.1);
    let attached = word
        .strip_prefix('-')
        .filter(|group| !group.starts_with('-'));
    // In a group, the last letter has the value.
    let behind_letters = attached.into_iter().flat_map(|group| {
        let is_letter =
            |c: char| c.is_ascii_alphanumeric() || !is_known(c.encode_utf8(&mut [0; 4]));
        let letters = group.char_indices().take(MAX_LETTERS);
        let letters = letters.take_while(move |(at, c)| *at == 0 || is_letter(*c));
        letters.map(move |(at, c)| &group[at + c.len_utf8()..])
    });
    let behind_letters = behind_letters.filter(|text| !text.is_empty());
    let attached = attached.and_then(|group| group.get(1..));
    // `ProxyCommand`, `EXEC`: names of settings and addresses.
    let name = attached.unwrap_or(word).split([':', INNER_BLANK]).next();
    let setting = name.is_some_and(|name| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(char::is_alphanumeric)
    });
    let values = [
        Some(word),
        behind('='),
        behind(':').filter(|_| setting),
        behind(INNER_BLANK).filter(|_| setting),
    ];
    values.into_iter().flatten().chain(behind_letters)
}

/// What of its input a program may read, if it is known.
pub(super) fn given(input: Option<&Input>) -> Option<Nested> {
    match input {
        Some(Input::Text(text)) => Some(script(text, false)),
        Some(Input::Unknown) | None => None,
    }
}

/// The file that a shell is to read by one of its built-ins.
fn file_of(arguments: &[String]) -> Option<&String> {
    arguments.iter().find(|word| *word != "--")
}
