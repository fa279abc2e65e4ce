//! The scripts that programs take from their words or their input.

use super::super::glob::{INNER_BLANK, UNKNOWN_WORDS};
use super::super::paths::base_name;
use super::Shell;
use super::git;
use super::hazards::runs_elsewhere;
use super::loose::{Nested, Reader};
use super::operands::RUN_PACKAGES;
use super::options::scripts_of_options;
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
pub(super) const MAX_BEGINNINGS: usize = 16;

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
            "bmake" | "gmake" | "make" => self.scripts_of_make(arguments, input, nested),
            _ => scripts_of_options(name, arguments, nested),
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
