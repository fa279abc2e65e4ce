//! Programs that run the program their arguments name, and what they run.

use super::super::glob::{UNKNOWN, UNKNOWN_WORDS};
use super::super::paths::{absolute, base_name};
use super::Shell;
use super::containers;
use super::dialect::{asks_for_extended, asks_for_posix, names_extended, names_posix};
use super::found::{found_by, given_to_xargs, runs_what_is_found};
use super::hazards::{runs_its_arguments, unversioned, values_of};
use super::hidden::{hidden, hidden_by_escapes};
use super::inner::{by_subcommand, is_login, with_options};
use super::loose::{Nested, Reader, redefines};
use super::nested::{Input, script, scripts_of, takes_scripts};
use super::operands::Operands;
use super::remote::keeps_its_words;
use super::text::{flatten_unquoted, is_known, plain};
use super::variables::{recodes, refers};

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
    wrapper(&["ccache", "distcc", "icecc", "sccache"], &[], 0, false),
    wrapper(&["authbind", "catatonit", "debconf-apt-progress", "fakechroot", "fakeroot-sysv", "fakeroot-tcp", "heaptrack", "memusage", "nocache", "not", "pg_virtualenv", "fstab-decode", "primusrun", "retry", "s6-setsid", "sotruss", "trickle", "vglrun"], &[], 0, false),
    wrapper(&["envdir", "setlock"], &[], 1, false),
    wrapper(&["torify", "torsocks"], &["-a", "--address", "-P", "--port", "-p", "--pass", "-u", "--user"], 0, false),
    wrapper(&["xargs"], &[], 0, false),
    wrapper(&["parallel", "sem", "watch", "entr", "strace", "ltrace", "valgrind", "valgrind.bin", "hyperfine", "dbus-run-session", "xvfb-run", "direnv", "script"], &["-n", "--interval", "-e", "-o", "-p", "-j", "-a"], 0, true),
    wrapper(&["coproc"], &[], 0, false),
    wrapper(&["cpulimit"], &["-l", "--limit", "-p", "--pid", "-e", "--exe", "-P", "--path"], 0, false),
];

/// The name of the program that a word is the path of, or of a package with its version, as npx and its like have them:
/// `nodemon@3`.
pub(super) fn name_of(word: &str) -> &str {
    let name = base_name(word);
    match name.split_once('@') {
        Some((package, _)) if !package.is_empty() => package,
        Some(_) | None => name,
    }
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
        "bmake" | "gmake" | "make" => words.iter().any(|word| {
            let is_short = word.starts_with('-') && !word.starts_with("--") && word.contains('C');
            is_short || word.starts_with("--d")
        }),
        "conda" | "git" | "npm" | "npx" | "pnpm" | "poetry" | "uv" | "yarn" => true,
        name => runs_its_arguments(name) && !STAY.contains(&name) && wrapper_of(name).is_none(),
    }
}

/// Whether a program's arguments are, as far as is known, a command.
pub(super) fn is_wrapper(name: &str) -> bool {
    wrapper_of(name).is_some()
}

fn wrapper_of(name: &str) -> Option<&'static Wrapper> {
    let names = [name, unversioned(name)];
    WRAPPERS
        .iter()
        .find(|wrapper| names.iter().any(|name| wrapper.names.contains(name)))
}

/// The options of a wrapper whose value is the next word.
pub(super) fn values_of_wrapper(name: &str) -> Option<&'static [&'static str]> {
    wrapper_of(name).map(|wrapper| wrapper.values)
}

/// How many commands of find's, and how many wrappers around one, are looked at for what find has found.
pub(super) const MAX_WRAPPED: usize = 16;

/// Where a command that another one runs begins and ends, in the words of that.
pub(super) type Wrapped = (usize, usize);

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
        if words
            .iter()
            .any(|word| matches!(word.as_str(), "echo" | "printf"))
        {
            let escaped = words.iter().flat_map(|word| hidden_by_escapes(word));
            nested.extend(escaped);
        }
        for (name, value) in words.iter().filter_map(|word| word.split_once('=')) {
            nested.extend(with_options(name, value));
            self.may_be_recoded |= recodes(name, value);
        }
        self.may_refer |= refers(words);
        self.may_be_posix |= words.iter().any(|word| names_posix(word));
        let sets_prompt = |word: &String| word.contains("PS4=");
        if words
            .iter()
            .any(|word| sets_prompt(word) && flatten_unquoted(&plain(word)).is_err())
        {
            // Of a prompt, what stands before the error is run.
            self.unknown();
        }
        self.may_be_extended |= words.iter().any(|word| names_extended(word));
        if words.iter().any(|word| redefines(word)) {
            self.unknown();
        }
        let joined = self.joined(words);
        // Where commands begin: certain, no, or perhaps, behind a wrapper.
        let mut starts: Vec<(usize, usize, bool)> = vec![(0, words.len(), certain)];
        let mut done = vec![false; words.len()];
        let mut wrapped = None;
        let mut operands = Operands::new(words.len());
        let mut elsewhere = false;
        while let Some((start, end, certain)) = starts.pop() {
            if self.is_over() {
                return nested;
            }
            if start >= end || std::mem::replace(&mut done[start], true) {
                continue;
            }
            let words = &words[start..end];
            self.add_words(&joined, (start, end), certain);
            let name = name_of(&words[0]).to_owned();
            // A name that is not known may be one of these.
            let others = words[1..].iter().filter(|word| !word.starts_with('-'));
            self.reading.may_move |= !is_known(&name) && others.count() <= 1;
            if matches!(name.as_str(), "cd" | "chdir" | "pushd" | "popd") {
                self.reading.moves = true;
            }
            if let Some(subcommand) = name.strip_prefix("git-") {
                // Elsewhere another may be called so, and a function.
                let is_its = words[0].ends_with(&format!("/git-core/{name}"));
                let certain = certain && is_its;
                nested.extend(self.started_by_git(subcommand, words, certain, input));
            }
            self.count_words(&name, words);
            elsewhere |= leads_elsewhere(&name, words);
            let inner = self.unwrap(&name, words);
            let may_be_any = self.may_run_words(words, input, &mut nested);
            let runs_words = runs_its_arguments(&name) && !keeps_its_words(&name, words);
            let own = operands.learn(start, &name, words, &inner);
            if !inner.is_empty() || may_be_any || runs_words {
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
            self.named(&name, &own, certain, input, &mut nested);
        }
        // A wrapper's options may be more than we know.
        if let Some(first) = wrapped {
            // The end of find's `-exec` is no word of the command.
            let is_ended = words.last().is_some_and(|word| word == ";");
            let end = words.len() - usize::from(is_ended);
            for start in first + 1..end {
                // Of that nothing is allowed, and to go on would take time that grows with its square.
                if self.is_over() {
                    return nested;
                }
                if !done[start] && !operands.has(words, start) && !words[start].starts_with('-') {
                    let words = &words[start..end];
                    self.add_words(&joined, (start, end), false);
                    let name = name_of(&words[0]).to_owned();
                    self.count_words(&name, words);
                    for (from, to) in self.unwrap(&name, words) {
                        self.add_words(&joined, (start + from, start + to), false);
                    }
                    self.named(&name, words, false, input, &mut nested);
                    elsewhere |= leads_elsewhere(&name, words);
                    operands.pass(&words[0]);
                }
                operands.pass_over(&words[start]);
            }
        }
        nested.iter_mut().for_each(|one| one.elsewhere |= elsewhere);
        nested.sort_unstable();
        nested.dedup();
        nested
    }

    /// Adds the programs that the words of `name` name elsewhere than in a row, and what it may take for scripts
    /// to `nested`.
    pub(super) fn named(
        &mut self,
        name: &str,
        words: &[String],
        certain: bool,
        input: Option<&Input>,
        nested: &mut Vec<Nested>,
    ) {
        if is_link_of_the_kernels(&words[0], self.reading.moves) {
            self.unknown();
        }
        self.told.keep_command(name, words);
        self.may_be_posix |= asks_for_posix(name, &words[1..]);
        self.may_be_extended |= asks_for_extended(name, &words[1..]);
        let before = nested.len();
        self.scripts(name, words, certain, input, nested);
        read_by(Shell::of_program(name), &mut nested[before..]);
        let before_input = nested.len();
        self.beyond_words(name, &words[1..], certain, input, nested);
        read_by(Some(Shell::Posix), &mut nested[before_input..]);
        self.count(&nested[before..]);
        let (programs, arguments) = named_apart(name, &words[1..]);
        for program in programs {
            if self.is_full() {
                return;
            }
            let program = std::iter::once(program.to_owned());
            let command: Vec<String> = program.chain(arguments.iter().cloned()).collect();
            nested.extend(self.command(&command, certain, input));
        }
    }

    /// Adds what git would be told for what it starts itself for one of its commands, and answers the scripts in that.
    fn started_by_git(
        &mut self,
        subcommand: &str,
        words: &[String],
        certain: bool,
        input: Option<&Input>,
    ) -> Vec<Nested> {
        if self.by_git == MAX_WRAPPED {
            self.unknown();
            return Vec::new();
        }
        self.by_git += 1;
        let as_git = ["git", subcommand].map(str::to_owned).into_iter();
        let as_git: Vec<String> = as_git.chain(words[1..].iter().cloned()).collect();
        let nested = self.command(&as_git, certain, input);
        self.by_git -= 1;
        nested
    }

    /// Whether the program may be a wrapper, or a shell, for nobody knows what it is: then its words may be scripts.
    fn may_run_words(
        &mut self,
        words: &[String],
        input: Option<&Input>,
        nested: &mut Vec<Nested>,
    ) -> bool {
        let Some((program, arguments)) = words.split_first().filter(|(name, _)| !is_known(name))
        else {
            return false;
        };
        if is_known(base_name(program)) {
            return false;
        }
        let before = nested.len();
        // One that is a word only is looked at as that.
        let is_more =
            |text: &String| text.contains([' ', '\t', '\n', ';', '|', '&', '(', '<', '`']);
        let texts = arguments.iter().flat_map(|word| scripts_of(word));
        // But for the value of such an option of a shell or of env(1).
        let groups = arguments.iter().filter_map(|word| word.strip_prefix('-'));
        let values = groups.flat_map(|group| {
            let letters = group.match_indices(['S', 'c']).take(MAX_WRAPPED);
            letters.map(|(at, letter)| &group[at + letter.len()..])
        });
        nested.extend(
            values
                .filter(|value| !value.is_empty())
                // What parts words for env(1).
                .map(|value| script(&value.replace(['\x0b', '\x0c', '\r'], " "), false)),
        );
        for text in texts.map(plain).filter(is_more) {
            if is_known(&text) {
                nested.push(Nested::new(text, false));
            } else if text.contains([';', '|', '&', '\n', '(']) {
                self.unknown();
            } else {
                // It is parted into words only there.
                self.add(text.replace(UNKNOWN, &UNKNOWN_WORDS.to_string()), false);
            }
        }
        // A setting for one that takes such, whose value is a command.
        let settings = arguments.iter().filter_map(|word| word.split_once('='));
        let settings = settings.filter(|(name, _)| name.starts_with('-') || name.contains('.'));
        nested.extend(settings.map(|(_, value)| script(value.trim_start_matches('!'), false)));
        match input {
            Some(Input::Text(text)) => nested.push(script(text, false)),
            // A file, or what comes out of a pipe.
            Some(Input::Unknown) => self.unknown(),
            None if self.is_piped => self.unknown(),
            None => nested.extend(self.own_input(false)),
        }
        self.count(&nested[before..]);
        true
    }

    /// Adds what may be a command, and those that the wrappers in it run as far as they are known.
    pub(super) fn wrapped(&mut self, mut words: &[String]) {
        for _ in 0..MAX_WRAPPED {
            let Some(program) = words.first().filter(|word| is_known(word)) else {
                return;
            };
            self.add(words.join(" "), false);
            let inner = wrapped_by(base_name(program), words);
            let inner = inner.first().and_then(|(from, to)| words.get(*from..*to));
            words = inner.unwrap_or_default();
        }
    }

    /// Where in `words` the commands are that the program `name` runs.
    fn unwrap(&mut self, name: &str, words: &[String]) -> Vec<Wrapped> {
        let found = wrapped_by(name, words);
        if name == "find" {
            let is_much = found.len() > MAX_WRAPPED;
            let looked_at = found.iter().take(MAX_WRAPPED);
            let mut commands = looked_at.map(|(from, to)| &words[*from..*to]);
            if is_much || commands.any(runs_what_is_found) {
                self.unknown();
            }
        } else if let Some(wrapper) = wrapper_of(name) {
            self.reading.moves |= wrapper.moves && !found.is_empty();
            for (at, _) in found.iter().filter(|_| name == "xargs") {
                let (options, command) = words.split_at((*at).min(words.len()));
                self.with_input(&options[1..], command);
            }
        }
        found
    }
}

/// Where in `words` the commands are that the program `name` runs.
pub(super) fn wrapped_by(name: &str, words: &[String]) -> Vec<Wrapped> {
    if name == "find" {
        return found_by(words);
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
    if name == "xargs" {
        return vec![given_to_xargs(words)];
    }
    let assigns = |word: &String| matches!(name, "env" | "sudo" | "doas") && word.contains('=');
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let is_flag = word.starts_with('-') && (word.len() > 1 || name == "env");
        if word == "--" {
            at += 1;
            // Behind it there are no options.
            at += words[at..].iter().take_while(|word| assigns(word)).count();
            break;
        } else if wrapper.values.contains(&word.as_str()) {
            at += 2;
        } else if is_flag || assigns(word) {
            at += 1;
        } else {
            break;
        }
    }
    vec![(at + wrapper.own, words.len())]
}

/// Whether a program runs what its words name, as commands or as scripts.
pub(super) fn may_run(name: &str) -> bool {
    takes_scripts(name) || runs_its_arguments(name)
}

/// Says of scripts who reads them, where that is not known better.
fn read_by(shell: Option<Shell>, scripts: &mut [Nested]) {
    for script in scripts {
        script.shell = script.shell.or(shell);
    }
}

/// Whether a program's name may be a link that leads to another, whose name it does not say: `/proc/self/exe`,
/// `/dev/fd/3`; or `./exe`, where the script may have gone there.
fn is_link_of_the_kernels(program: &str, moves: bool) -> bool {
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let name = base_name(program);
    match absolute(program, None) {
        Some(path) => {
            let is_there = ["/proc/", "/dev/fd/"]
                .iter()
                .any(|dir| path.starts_with(dir));
            match is_known(&path) {
                true => is_there && (name == "exe" || is_number(name)),
                // It may be there, by a pattern: `/pro?/self/exe`.
                false => is_there || name == "exe" || is_number(name),
            }
        }
        None => (moves || !is_known(program)) && name == "exe" && program != name,
    }
}

/// The programs that options name, or may name, while their arguments stand elsewhere; and those.
fn named_apart<'a>(name: &str, arguments: &'a [String]) -> (Vec<&'a str>, &'a [String]) {
    let (options, before): (&[&str], _) = match name {
        "start-stop-daemon" => {
            let end = arguments.iter().position(|word| word == "--");
            (&["-x", "--exec", "-a", "--startas"], end)
        }
        "cset" => {
            let end = arguments.iter().position(|word| word == "--");
            (&["-e", "--exec"], end)
        }
        "coreutils" => {
            let names = |word: &String| word.starts_with("--coreutils-prog");
            (
                &["--coreutils-prog-shebang"],
                arguments.iter().position(names),
            )
        }
        name if containers::is_one(name) => {
            let behind = containers::behind_container(name, arguments);
            (&[containers::ENTRYPOINT], behind.map(|at| at - 1))
        }
        // Behind the application.
        "flatpak" => {
            let words = arguments.iter().enumerate();
            let mut words = words.filter(|(_, word)| !word.starts_with('-'));
            (&["--command"], words.nth(1).map(|(at, _)| at))
        }
        _ => return (Vec::new(), &[]),
    };
    let programs = options.iter().flat_map(|one| values_of(one, "", arguments));
    let programs = programs.filter(|program| !program.starts_with('-'));
    (
        programs.collect(),
        before.map_or(&[], |at| &arguments[at + 1..]),
    )
}

#[cfg(test)]
mod tests {
    use super::super::hazards::always;
    use super::super::nested::SCRIPT_TAKERS;
    use super::super::shells::SHELLS;
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
