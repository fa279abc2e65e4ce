//! Programs that run the program their arguments name, and what they run.

use super::super::glob::{INNER_BLANK, UNKNOWN_WORDS};
use super::super::paths::{absolute, base_name};
use super::git;
use super::hazards::{run_by_options, runs_elsewhere, runs_its_arguments, unversioned, values_of};
use super::inner::{by_subcommand, is_login};
use super::loose::{Nested, Reader};
use super::text::{hidden, is_known, plain};

/// A program whose arguments are, after options and so many words of its own, a command.
struct Wrapper {
    names: &'static [&'static str],
    /// Options whose value is the next word.
    values: &'static [&'static str],
    /// Words of its own before the command.
    own: usize,
    /// It may run the command somewhere else.
    moves: bool,
}

const fn wrapper(
    names: &'static [&'static str],
    values: &'static [&'static str],
    own: usize,
    moves: bool,
) -> Wrapper {
    Wrapper {
        names,
        values,
        own,
        moves,
    }
}

/// Options that are not listed are taken for such without a value: where that is wrong, every
/// later word is still looked at, as what may be the command.
#[rustfmt::skip]
const WRAPPERS: &[Wrapper] = &[
    wrapper(&["env"], &["-u", "--unset", "-C", "--chdir", "-a", "--argv0"], 0, true),
    wrapper(&["sudo", "sudo-rs", "doas"], &["-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "-D", "--chdir", "-R", "--chroot", "-r", "--role", "-t", "--type", "-T", "-U", "-c"], 0, true),
    wrapper(&["timeout"], &["-s", "--signal", "-k", "--kill-after"], 1, false),
    wrapper(&["nice"], &["-n", "--adjustment"], 0, false),
    wrapper(&["ionice"], &["-c", "--class", "-n", "--classdata"], 0, false),
    wrapper(&["nohup", "setsid", "unbuffer", "fakeroot", "eatmydata", "command", "builtin", "pkexec", "busybox", "toybox", "coreutils", "catchsegv", "tini", "dumb-init", "aa-exec", "chronic", "ifne", "npx", "pnpx", "bunx", "uvx"], &[], 0, false),
    wrapper(&["exec"], &["-a"], 0, false),
    wrapper(&["stdbuf"], &["-i", "--input", "-o", "--output", "-e", "--error"], 0, false),
    wrapper(&["time"], &["-f", "--format", "-o", "--output"], 0, false),
    wrapper(&["chrt", "setarch", "gosu", "su-exec", "setuidgid", "s6-setuidgid", "chpst", "faketime"], &[], 1, false),
    wrapper(&["taskset"], &[], 1, false),
    wrapper(&["flock"], &["-w", "--timeout", "-E", "--conflict-exit-code"], 1, false),
    wrapper(&["prlimit", "choom", "linux32", "linux64", "setpriv", "capsh", "numactl", "runcon"], &[], 0, false),
    wrapper(&["unshare", "nsenter", "bwrap", "firejail", "systemd-run", "systemd-inhibit", "run0"], &["-p", "--property", "-u", "--unit", "-t", "--target", "-E", "--setenv", "-S", "-G", "-M", "-H"], 0, true),
    wrapper(&["chroot"], &[], 1, true),
    wrapper(&["arch-chroot"], &["-u"], 1, true),
    wrapper(&["logsave", "gdbserver"], &[], 1, false),
    wrapper(&["msgexec", "msgfilter"], &["-D", "--directory", "-i", "--input", "-o", "--output-file", "-w", "--width"], 0, false),
    wrapper(&["proxychains"], &["-f"], 0, false),
    wrapper(&["sshpass"], &["-d", "-f", "-P", "-p"], 0, false),
    wrapper(&["systemd-cat"], &["-p", "--priority", "-t", "--identifier", "--level-prefix", "--namespace", "--stderr-priority"], 0, false),
    wrapper(&["authbind", "catatonit", "debconf-apt-progress", "fakechroot", "fakeroot-sysv", "fakeroot-tcp", "heaptrack", "memusage", "nocache", "not", "pg_virtualenv", "primusrun", "s6-setsid", "sotruss", "trickle", "vglrun"], &[], 0, false),
    wrapper(&["envdir", "setlock"], &[], 1, false),
    wrapper(&["torify", "torsocks"], &["-a", "--address", "-P", "--port", "-p", "--pass", "-u", "--user"], 0, false),
    wrapper(&["xargs"], &["-I", "-n", "--max-args", "-P", "--max-procs", "-L", "--max-lines", "-s", "--max-chars", "-a", "--arg-file", "-d", "--delimiter", "-E"], 0, false),
    wrapper(&["parallel", "sem", "watch", "entr", "strace", "ltrace", "perf", "valgrind", "valgrind.bin", "hyperfine", "dbus-run-session", "xvfb-run", "direnv", "script"], &["-n", "--interval", "-e", "-o", "-p", "-j", "-a"], 0, true),
    wrapper(&["coproc"], &[], 0, false),
    wrapper(&["cpulimit"], &["-l", "--limit", "-p", "--pid", "-e", "--exe", "-P", "--path"], 0, false),
];

/// Shells: `-c` and a script, or a script on their input.
#[rustfmt::skip]
const SHELLS: &[&str] = &[
    "ash", "bash", "bash-static", "csh", "dash", "elvish", "fish", "hush", "ksh", "lksh", "mksh", "nu", "oksh", "osh", "pdksh", "posh", "pwsh", "rbash", "rksh", "rzsh",
    "sash", "sh", "tcsh", "xonsh", "yash", "ysh", "zsh",
];

pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name) || SHELLS.contains(&unversioned(name))
}

/// Programs with a script in an option's value or in their words, somewhere. So have all that run
/// commands elsewhere.
#[rustfmt::skip]
const SCRIPT_TAKERS: &[&str] = &[
    "alias", "bind", "capsh", "compgen", "complete", "declare", "entr", "env", "export", "flock", "foot", "gnome-terminal", "hash", "hyperfine", "kitty", "konsole", "local",
    "asciinema", "bazel", "byobu", "execlineb", "just", "mock", "newrole", "nodemon", "sbatch", "sops", "ttyrec", "make-first-existing-target", "mapfile", "mispipe", "nc", "ncat", "netcat", "nix", "nix-shell", "npm", "npx", "parallel", "pee", "pnpm", "readarray", "readonly", "runuser", "rxvt", "screen", "script",
    "scriptlive", "sem", "sg", "socat", "start-stop-daemon", "su", "sudo", "sudo-rs", "tmux", "typeset", "urxvt", "uxterm", "watch", "watchexec", "xfce4-terminal", "xterm", "yarn",
];

fn takes_scripts(name: &str) -> bool {
    SCRIPT_TAKERS.contains(&name) || runs_elsewhere(name)
}

/// Wrappers that run what they run where they are.
const STAY: &[&str] = &["at", "batch", "sg", "newgrp", "script", "pee", "mispipe"];

/// Whether scripts in these words may be run in another directory, though no `cd` says so.
fn leads_elsewhere(name: &str, words: &[String]) -> bool {
    match name {
        "find" => words
            .iter()
            .any(|word| word == "-execdir" || word == "-okdir"),
        "su" | "runuser" => is_login(&words[1..]),
        "conda" | "git" | "npm" | "npx" | "pnpm" | "poetry" | "uv" | "yarn" => true,
        name => runs_its_arguments(name) && !STAY.contains(&name) && wrapper_of(name).is_none(),
    }
}

fn wrapper_of(name: &str) -> Option<&'static Wrapper> {
    let names = [name, unversioned(name)];
    WRAPPERS
        .iter()
        .find(|wrapper| names.iter().any(|name| wrapper.names.contains(name)))
}

/// Words with which tmux runs commands of its own that say what to run, or reads them from a file.
const TMUX_COMMANDS: [&str; 9] = [
    "if-shell",
    "if",
    "set-hook",
    "bind-key",
    "bind",
    "source-file",
    "source",
    "confirm-before",
    "-f",
];

/// How many commands of find's, and how many wrappers around one, are looked at for what find has found.
const MAX_WRAPPED: usize = 16;

/// Where a command that another one runs begins and ends, in the words of that.
pub(super) type Wrapped = (usize, usize);

/// What a command reads.
pub(super) enum Input {
    Text(String),
    Unknown,
}

impl Reader {
    /// Adds the command of these words, and what it runs if it is a wrapper. Answers the scripts
    /// in it, which the caller reads.
    pub(super) fn command(
        &mut self,
        words: &[String],
        certain: bool,
        input: Option<&Input>,
    ) -> Vec<Nested> {
        let mut nested: Vec<Nested> = words.iter().flat_map(|word| hidden(word)).collect();
        // Where commands begin: certain, no, or perhaps, behind a wrapper.
        let mut starts: Vec<(usize, usize, bool)> = vec![(0, words.len(), certain)];
        let mut done = vec![false; words.len()];
        let mut wrapped = None;
        let mut elsewhere = false;
        while let Some((start, end, certain)) = starts.pop() {
            if self.is_full() {
                return nested;
            }
            if start >= end || std::mem::replace(&mut done[start], true) {
                continue;
            }
            let words = &words[start..end];
            self.add(words.join(" "), certain);
            let name = base_name(&words[0]).to_owned();
            if matches!(name.as_str(), "cd" | "pushd" | "popd") {
                self.reading.moves = true;
            }
            elsewhere |= leads_elsewhere(&name, words);
            let inner = self.unwrap(&name, words);
            if !inner.is_empty() || runs_its_arguments(&name) {
                wrapped.get_or_insert(start);
            }
            if name == "--" {
                // What stood before it was the shell's: `time -p -- command`.
                starts.push((start + 1, end, certain));
            }
            starts.extend(
                inner
                    .into_iter()
                    .map(|(from, to)| (start + from, start + to, certain)),
            );
            self.scripts(&name, words, certain, input, &mut nested);
            self.beyond_words(&name, &words[1..], certain, input, &mut nested);
            for apart in named_apart(&name, &words[1..]) {
                nested.extend(self.command(&apart, certain, input));
            }
        }
        // A wrapper's options may be more than we know.
        if let Some(first) = wrapped {
            for start in first + 1..words.len() {
                // Of that nothing is allowed, and to go on would take time that grows with its square.
                if self.is_full() {
                    return nested;
                }
                if !std::mem::replace(&mut done[start], true) && !words[start].starts_with('-') {
                    // The end of find's `-exec` is no word of the command.
                    let words = &words[start..];
                    let words = words.strip_suffix(&[";".to_owned()]).unwrap_or(words);
                    let Some(program) = words.first() else {
                        continue;
                    };
                    self.add(words.join(" "), false);
                    let name = base_name(program).to_owned();
                    elsewhere |= leads_elsewhere(&name, words);
                    for (from, to) in self.unwrap(&name, words) {
                        if from < to {
                            self.add(words[from..to].join(" "), false);
                        }
                    }
                    self.scripts(&name, words, false, input, &mut nested);
                    self.beyond_words(&name, &words[1..], false, input, &mut nested);
                }
            }
        }
        nested.iter_mut().for_each(|one| one.elsewhere |= elsewhere);
        nested.sort_unstable();
        nested.dedup();
        nested
    }

    /// Where in `words` the commands are that the program `name` runs.
    fn unwrap(&mut self, name: &str, words: &[String]) -> Vec<Wrapped> {
        if name == "find" {
            let found = found_by(words);
            let is_much = found.len() > MAX_WRAPPED;
            let looked_at = found.iter().take(MAX_WRAPPED);
            let mut commands = looked_at.map(|(from, to)| &words[*from..*to]);
            if is_much || commands.any(|words| self.runs_what_is_found(words)) {
                self.unknown();
            }
            return found;
        }
        let Some(wrapper) = wrapper_of(name) else {
            return by_subcommand(name, words);
        };
        if name == "command"
            && words
                .get(1)
                .is_some_and(|word| word == "-v" || word == "-V")
        {
            return Vec::new();
        }
        self.reading.moves |= wrapper.moves;
        let mut at = 1;
        while let Some(word) = words.get(at) {
            let assigns = matches!(name, "env" | "sudo" | "doas") && word.contains('=');
            if word == "--" {
                at += 1;
                break;
            } else if wrapper.values.contains(&word.as_str()) {
                at += 2;
            } else if (word.starts_with('-') && word.len() > 1) || assigns {
                at += 1;
            } else {
                break;
            }
        }
        let at = at + wrapper.own;
        if name == "xargs" {
            self.with_input(words, words.get(at..).unwrap_or_default());
        }
        vec![(at, words.len())]
    }

    /// Whether find puts what it has found where a program is named, or a script.
    fn runs_what_is_found(&mut self, mut command: &[String]) -> bool {
        const FOUND: &str = "{}";
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
                let is_part = |word: &String| word.contains(FOUND) && word != FOUND;
                let first = arguments.iter().find(|word| !word.starts_with('-'));
                return arguments.iter().any(is_part) || first.is_some_and(|word| word == FOUND);
            }
            let inner = self.unwrap(name, command);
            let inner = inner.first().and_then(|(from, to)| command.get(*from..*to));
            command = inner.unwrap_or_default();
        }
        true
    }

    /// What `xargs` makes of its command: more words come from its input, or stand in for one.
    fn with_input(&mut self, words: &[String], command: &[String]) {
        let replaces = |word: &String| {
            ["-I", "-i", "--replace"]
                .iter()
                .any(|option| word.starts_with(option))
        };
        let name = command.first().map_or("", |word| base_name(word));
        let runs = is_shell(name)
            || takes_scripts(name)
            || matches!(name, "" | "eval" | "find" | "xargs")
            || wrapper_of(name).is_some();
        if runs || words.iter().any(replaces) {
            self.unknown();
        }
        let mut command = command.to_vec();
        command.push(UNKNOWN_WORDS.to_string());
        self.add(command.join(" "), true);
    }

    /// The scripts that the program `name` takes from its words or its input.
    fn scripts(
        &mut self,
        name: &str,
        words: &[String],
        certain: bool,
        input: Option<&Input>,
        nested: &mut Vec<Nested>,
    ) {
        let mut add = |text: &str, certain: bool| {
            nested.push(Nested::new(plain(text), certain && is_known(text)));
        };
        let arguments = &words[1..];
        match name {
            "git" => git::scripts(arguments)
                .iter()
                .for_each(|script| add(script, false)),
            "eval" => {
                let dashes = arguments.first().is_some_and(|word| word == "--");
                add(&arguments[usize::from(dashes)..].join(" "), certain);
            }
            "trap" => {
                let is_option = |word: &&String| word.starts_with('-') && *word != "--";
                let options = arguments.iter().take_while(is_option).count();
                let ends = arguments.get(options).is_some_and(|word| word == "--");
                let script = arguments.get(options + usize::from(ends));
                if let Some(script) = script {
                    add(script, certain);
                }
            }
            // A file with a script, whose name may be all that a rule knows of it.
            "source" | "." if file_of(arguments).is_some_and(|file| !is_input(file)) => {
                self.add(arguments.join(" "), false);
            }
            _ if is_shell(name) => {
                for (at, word) in arguments.iter().enumerate() {
                    if self.is_full() {
                        return;
                    }
                    if !word.starts_with('-') {
                        self.add(arguments[at..].join(" "), false);
                    }
                }
                let reads_input = shell_scripts(arguments, certain, &mut add);
                if reads_input {
                    self.shell_input(input, certain, nested);
                }
            }
            "source" | "." if file_of(arguments).is_some_and(|file| is_input(file)) => {
                self.shell_input(input, certain, nested);
            }
            // From here on any word may be another; and which files name commands, who knows.
            "alias" | "parallel" | "sem" => {
                self.unknown();
                arguments.iter().for_each(|word| {
                    let value = word
                        .split_once('=')
                        .map_or(word.as_str(), |(_, value)| value);
                    add(value, false);
                });
            }
            "history" | "fc" => {
                if name == "fc" {
                    // It changes what it runs.
                    self.unknown();
                }
                // It may begin with any of them.
                let last = arguments.len().min(MAX_WRAPPED);
                (1..last).for_each(|at| add(&arguments[at..].join(" "), false));
                if last < arguments.len() {
                    self.unknown();
                }
            }
            // Not all of these are scripts, and none is for certain.
            _ if takes_scripts(name) => {
                if name == "tmux"
                    && arguments
                        .iter()
                        .any(|word| TMUX_COMMANDS.contains(&&**word))
                {
                    self.unknown();
                }
                let elsewhere = runs_elsewhere(name);
                for word in arguments {
                    // There a word is mostly one of a command (`docker exec c sh -c x`), which is looked
                    // at as a whole, a template (`{{ .State }}`), or names files; and no script.
                    let scripts = scripts_of(word);
                    scripts
                        .filter(|script| !elsewhere || is_command(script))
                        .for_each(|script| add(script, false));
                }
            }
            _ => run_by_options(name, arguments)
                .into_iter()
                .for_each(|script| add(script, false)),
        }
    }

    pub(super) fn shell_input(
        &mut self,
        input: Option<&Input>,
        certain: bool,
        nested: &mut Vec<Nested>,
    ) {
        match input {
            Some(Input::Text(text)) if is_known(text) => {
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

/// The commands whose program an option names, or may name, while its arguments stand elsewhere.
fn named_apart(name: &str, arguments: &[String]) -> Vec<Vec<String>> {
    let (options, before): (&[&str], _) = match name {
        "start-stop-daemon" => {
            let end = arguments.iter().position(|word| word == "--");
            (&["-x", "--exec", "-a", "--startas"], end)
        }
        "cset" => {
            let end = arguments.iter().position(|word| word == "--");
            (&["-e", "--exec"], end)
        }
        // Behind the application.
        "flatpak" => {
            let words = arguments.iter().enumerate();
            let mut words = words.filter(|(_, word)| !word.starts_with('-'));
            (&["--command"], words.nth(1).map(|(at, _)| at))
        }
        _ => return Vec::new(),
    };
    let rest = before.map_or(&[][..], |at| &arguments[at + 1..]);
    let programs = options.iter().flat_map(|one| values_of(one, "", arguments));
    let programs = programs.filter(|program| !program.starts_with('-'));
    let commands = programs.map(|program| {
        let words = std::iter::once(program.to_owned());
        words.chain(rest.iter().cloned()).collect()
    });
    commands.collect()
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
fn is_plain(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_alphanumeric() || "/._-+:=@%,~".contains(c))
}

/// What of a word may be a script: all of it, or a value in it (`-S'marker x'`, `--x='marker x'`,
/// `-oProxyCommand marker x`, `EXEC:marker x`).
fn scripts_of(word: &str) -> impl Iterator<Item = &str> {
    let behind = |separator: char| Some(word.split_once(separator)?.1);
    let attached = word
        .strip_prefix('-')
        .filter(|group| !group.starts_with('-'));
    let attached = attached.and_then(|group| {
        let mut letters = group.chars();
        letters.next()?;
        Some(letters.as_str())
    });
    // `ProxyCommand`, `EXEC`: names of settings and addresses.
    let name = attached.unwrap_or(word).split([':', INNER_BLANK]).next();
    let setting = name.is_some_and(|name| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(char::is_alphanumeric)
    });
    let values = [
        Some(word),
        behind('='),
        attached,
        behind(':').filter(|_| setting),
        behind(INNER_BLANK).filter(|_| setting),
    ];
    values.into_iter().flatten()
}

/// The scripts a shell is given; whether it reads its input for one.
fn shell_scripts(arguments: &[String], certain: bool, add: &mut impl FnMut(&str, bool)) -> bool {
    let mut takes_script = false;
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
        let short = option && !word.starts_with("--");
        takes_script |= short && word.contains('c');
        if (short && word.contains(['o', 'O'])) || word == "--rcfile" || word == "--init-file" {
            rest.next();
        }
    }
    if !arguments.iter().all(|word| is_known(word)) {
        add(&UNKNOWN_WORDS.to_string(), false);
    }
    if !takes_script {
        return first.is_none_or(is_input) || arguments.iter().any(|word| word == "-s");
    }
    if let Some(script) = first {
        add(script, certain);
    }
    // Should an option before it have a value that we do not know of.
    arguments.iter().for_each(|word| add(word, false));
    false
}

/// The file that a shell is to read by one of its built-ins.
fn file_of(arguments: &[String]) -> Option<&String> {
    arguments.iter().find(|word| *word != "--")
}

/// Whether a file is what a command is given to read, as far as its name tells: with directories that lead there, or
/// without.
pub(super) fn is_input(file: &str) -> bool {
    let path = absolute(file, None).unwrap_or_default();
    let mut names = file.rsplit('/');
    let (last, before) = (names.next().unwrap_or_default(), names.next());
    let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    file == "-"
        || last == "stdin"
        || is_number && matches!(before, Some("fd" | ".") | None)
        || path.starts_with("/dev/fd/")
        || path.starts_with("/proc/")
        || !is_known(file)
}

/// `find`'s `-exec COMMAND… ;` and the like.
fn found_by(words: &[String]) -> Vec<Wrapped> {
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

#[cfg(test)]
mod tests {
    use super::super::hazards::always;
    use super::*;

    /// Whoever reads its words as commands cannot be harmless.
    #[test]
    fn every_wrapper_is_a_hazard() {
        let wrappers = WRAPPERS.iter().flat_map(|wrapper| wrapper.names);
        for name in wrappers.chain(SHELLS).chain(SCRIPT_TAKERS).chain(STAY) {
            assert!(always(name).is_some(), "{name}");
        }
    }
}
