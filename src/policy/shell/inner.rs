//! Programs whose options say what else they run, and those that start a shell of their own.

use super::super::glob::{UNKNOWN, UNKNOWN_WORDS};
use super::containers;
use super::hazards::{is_ip_exec, is_short, runs_elsewhere, values_of};
use super::loose::{Nested, Reader};
use super::nested::Input;
use super::options::{is_debugger, is_process, is_watch_of_cargo};
use super::programs::OPTIONS_IN;
use super::remote::{Ssh, is_ssh};
use super::shells::is_input;
use super::text::{is_known, plain};
use super::wrappers::{MAX_WRAPPED, Wrapped};

impl Reader {
    /// What programs run or start that name no script in their words.
    pub(super) fn beyond_words(
        &mut self,
        name: &str,
        arguments: &[String],
        certain: bool,
        input: Option<&Input>,
        nested: &mut Vec<Nested>,
    ) {
        if (is_ssh(name) || matches!(name, "scp" | "sftp")) && reads_settings(arguments) {
            self.unknown();
        }
        if name == "env" {
            nested.extend(split_by_env(arguments, certain));
        } else if starts_shell(name, arguments) {
            self.shell_input(input, certain, nested);
        } else if enters(name, arguments) {
            // What is there need not be a shell, nor be here.
            self.shell_input(input, false, nested);
        } else if may_run_input(name) && !containers::reads_data(name, arguments) {
            let read = match input {
                Some(Input::Text(text)) => Some(Nested::new(plain(text), false)),
                Some(Input::Unknown) => None,
                None => self.own_input(false),
            };
            nested.extend(read.map(|read| match name {
                "crontab" => Nested::new(without_times(&read.text), false),
                // `!COMMAND` is one of a shell's here.
                "sftp" => Nested::new(commands_of_sftp(&read.text), false),
                _ => read,
            }));
            let lists = |word: &String| {
                let words: &[&str] = match name {
                    "crontab" => &["-e", "-l", "-r", "-ri", "-ir", "-V"],
                    _ => &["-l", "-r", "-d", "-c", "-V"],
                };
                words.contains(&word.as_str())
            };
            let reads = matches!(name, "at" | "batch" | "crontab");
            let reads = reads && !arguments.iter().any(lists);
            if reads && !matches!(input, Some(Input::Text(_))) {
                // What stands before it in a pipe, or in a file, is its script.
                self.unknown();
            }
        }
    }

    /// What the script itself is given as input: once, or once more when it is certain only then.
    pub(super) fn own_input(&mut self, certain: bool) -> Option<Nested> {
        let text = self.input.clone()?;
        if self.input_read.is_some_and(|before| before >= certain) {
            return None;
        }
        self.input_read = Some(certain);
        Some(Nested::new(text, certain))
    }
}

/// The options of a command, as far as its first operand.
pub(super) struct Options<'w> {
    letters: String,
    longs: Vec<&'w str>,
    /// Words that are no options.
    pub(super) operands: &'w [String],
}

impl<'w> Options<'w> {
    /// Reads `arguments`, where the options `valued` (letters, or long, which may be abbreviated) have values.
    pub(super) fn read(arguments: &'w [String], valued: &str, valued_long: &[&str]) -> Self {
        let (mut letters, mut longs) = (String::new(), Vec::new());
        let mut rest = arguments;
        while let Some((word, after)) = rest.split_first() {
            let takes_next;
            if let Some(long) = word.strip_prefix("--") {
                if long.is_empty() {
                    rest = after;
                    break;
                }
                longs.push(long);
                let mut names = valued_long.iter().map(|one| one.trim_start_matches('-'));
                // `--wd` of nsenter's has none, unlike the longer one that it begins.
                takes_next = names.any(|one| one == long || long != "wd" && one.starts_with(long));
            } else if let Some(group) = word.strip_prefix('-').filter(|group| !group.is_empty()) {
                let end = group.find(|letter| valued.contains(letter));
                letters.push_str(&group[..end.unwrap_or(group.len())]);
                takes_next = end.is_some_and(|end| end + 1 == group.len());
            } else {
                break;
            }
            rest = after.get(usize::from(takes_next)..).unwrap_or_default();
        }
        Self {
            letters,
            longs,
            operands: rest,
        }
    }

    fn has(&self, letters: &[char], longs: &[&str]) -> bool {
        let is_given = |long: &&str| longs.iter().any(|one| one.starts_with(*long));
        self.letters.contains(letters) || self.longs.iter().any(is_given)
    }
}

/// Long options that have a value in the next word, of programs that start a shell.
#[rustfmt::skip]
const VALUED: &[&str] = &[
    "bind", "chdir", "description", "directory", "group", "groups", "image", "machine", "namespace", "nice", "profile", "property", "setenv", "slice", "unit", "user", "userspec",
];

/// The same of unshare.
#[rustfmt::skip]
const VALUED_OF_UNSHARE: &[&str] = &[
    "boottime", "load-interp", "map-group", "map-groups", "map-user", "map-users", "monotonic", "owner", "propagation", "root", "setgid", "setgroups", "setuid", "target", "wd", "wdns",
];

/// Whether the command starts a shell that reads its input for a script, without naming one.
fn starts_shell(name: &str, arguments: &[String]) -> bool {
    let gives_script = |word: &String| {
        let short = word.starts_with('-') && !word.starts_with("--") && word.contains('c');
        short || word.starts_with("--c") || word.starts_with("--session-c")
    };
    let operands = |valued: &str| Options::read(arguments, valued, VALUED).operands.len();
    // A dash alone asks for a login.
    let is_word = |word: &&String| *word != "-";
    match name {
        "aa-exec" | "linux32" | "linux64" | "pkexec" | "run0" => operands("dginpu") == 0,
        "capsh" => arguments.iter().any(|word| word == "--") && !arguments.iter().any(gives_script),
        "fakeroot" | "firejail" | "proot" => operands("blsqRrw") == 0,
        "nix-shell" => {
            let runs = |word: &String| word.starts_with("--r") || word.starts_with("--command");
            !arguments.iter().any(runs)
        }
        "script" => !arguments
            .iter()
            .any(|word| gives_script(word) || word == "--"),
        "setarch" => {
            let is_machine = |word: &String| word.contains(|c: char| c.is_ascii_digit());
            let rest = Options::read(arguments, "", &[]).operands;
            // There may be more options behind the machine.
            let machine = rest.first().is_some_and(is_machine);
            Options::read(&rest[usize::from(machine)..], "", &[])
                .operands
                .is_empty()
        }
        "systemd-nspawn" => operands("DEiMpuS") == 0,
        "sudo" | "sudo-rs" => {
            let long = [
                "user",
                "group",
                "host",
                "prompt",
                "chdir",
                "chroot",
                "role",
                "type",
                "close-from",
                "command-timeout",
                "other-user",
            ];
            let mut is_shell = false;
            let mut rest = arguments;
            loop {
                let options = Options::read(rest, "CDghpRrTtUu", &long);
                is_shell |= options.has(&['s', 'i'], &["shell", "login"]);
                match options.operands.split_first() {
                    // Behind variables there may be more options.
                    Some((word, after)) if word.contains('=') => rest = after,
                    Some(_) => return false,
                    None => return is_shell,
                }
            }
        }
        "doas" => {
            let options = Options::read(arguments, "Cu", &[]);
            options.has(&['s'], &[]) && options.operands.is_empty()
        }
        "su" => !arguments.iter().any(gives_script),
        "runuser" => {
            let long = [
                "group",
                "shell",
                "supp-group",
                "user",
                "whitelist-environment",
            ];
            let options = Options::read(arguments, "ugGsw", &long);
            options.operands.iter().filter(is_word).count() < 2
                && !arguments.iter().any(gives_script)
        }
        "arch-chroot" | "chroot" => operands("u") == 1,
        "newgrp" => true,
        // Without a program they start one.
        "npm" => {
            let words = Options::read(arguments, "Cpw", &["prefix", "workspace"]).operands;
            let Some((command, behind)) = words.split_first() else {
                return false;
            };
            let own = match command.as_str() {
                "exec" | "x" => 0,
                "explore" => 1,
                _ => return false,
            };
            let is_option = |word: &&String| word.starts_with('-');
            let calls = behind.iter().any(gives_script);
            !calls && behind.iter().filter(|word| !is_option(word)).count() <= own
        }
        "npx" => {
            let options = Options::read(arguments, "cpw", &["call", "package", "workspace"]);
            let says = options.has(&['h', 'v'], &["help", "version"]);
            let calls = arguments.iter().any(gives_script);
            options.operands.is_empty() && !says && !calls
        }
        "sg" => arguments.iter().filter(is_word).count() < 2,
        "unshare" | "nsenter" => {
            let (valued, long) = match name {
                // `-r` and `-w` have one only in the same word.
                "nsenter" => ("GStW", &["setgid", "setuid", "target", "wdns"][..]),
                _ => ("GlRSw", VALUED_OF_UNSHARE),
            };
            Options::read(arguments, valued, long).operands.is_empty()
        }
        _ => false,
    }
}

/// Words with which programs start a shell of their own, in another place: programs, words, how
/// many operands come behind it.
#[rustfmt::skip]
const ENTER: &[(&[&str], &[&str], usize)] = &[
    (&["adb"], &["shell"], 0),
    (&["distrobox", "pct", "toolbox"], &["enter"], 1),
    (&["guix"], &["environment", "shell"], usize::MAX),
    (&["hatch", "pipenv", "poetry"], &["shell"], 0),
    (&["incus", "lxc"], &["console", "shell"], 1),
    (&["machinectl"], &["login", "shell"], 1),
    (&["minikube"], &["ssh"], 0),
    (&["multipass"], &["shell"], 1),
    (&["nix"], &["develop", "shell"], usize::MAX),
    (&["vagrant"], &["ssh"], 1),
    (&["virsh"], &["console"], 1),
];

/// Whether the command may start a shell elsewhere that reads its input, without naming one.
fn enters(name: &str, arguments: &[String]) -> bool {
    let has = |words: &[&str]| arguments.iter().any(|word| words.contains(&word.as_str()));
    match name {
        name if is_ssh(name) => {
            let none = ['G', 'N', 'V'];
            Ssh::read(name, arguments).is_some_and(|Ssh { before, behind }| {
                let is_shell =
                    |behind: &Options<'_>| behind.operands.is_empty() && !behind.has(&none, &[]);
                !before.has(&none, &[]) && behind.is_some_and(|behind| is_shell(&behind))
            })
        }
        "lxc-attach" => !has(&["--"]),
        name if containers::is_one(name) => containers::enters(name, arguments),
        name => ENTER.iter().any(|(programs, words, own)| {
            if !programs.contains(&name) {
                return false;
            }
            let at = arguments
                .iter()
                .position(|word| words.contains(&word.as_str()));
            let Some(at) = at else {
                return false;
            };
            let rest = &arguments[at + 1..];
            let is_option = |word: &&String| word.starts_with('-');
            let gives_script =
                |word: &String| word == "--" || word.starts_with("-c") || word.starts_with("--c");
            rest.iter().filter(|word| !is_option(word)).count() <= *own
                && !rest.iter().any(gives_script)
        }),
    }
}

/// Whether `su` or `runuser` is to start in the directory of the user.
pub(super) fn is_login(arguments: &[String]) -> bool {
    arguments.iter().any(|word| {
        let short = word.starts_with('-') && !word.starts_with("--") && word.contains('l');
        word == "-" || short || word.starts_with("--l")
    })
}

/// The command that a variable with options for a program makes of that.
pub(super) fn with_options(name: &str, value: &str) -> Option<Nested> {
    let (_, program) = OPTIONS_IN.iter().find(|(variable, _)| *variable == name)?;
    // Whatever is unknown is a word to it.
    let value = plain(value).replace([UNKNOWN, UNKNOWN_WORDS], "x");
    let first = value.split_whitespace().next().unwrap_or_default();
    // make takes letters there for options.
    let dash = match *program == "make" && !first.starts_with('-') && !first.contains('=') {
        true => "-",
        false => "",
    };
    let value = value.trim_start();
    Some(Nested::new(format!("{program} {dash}{value}"), false))
}

/// Whether what the command reads may run elsewhere or later: a known text is looked at.
fn may_run_input(name: &str) -> bool {
    let names = [
        "at",
        "batch",
        "crontab",
        "machinectl",
        "script",
        "systemd-nspawn",
        "systemd-run",
    ];
    names.contains(&name) || runs_elsewhere(name)
}

/// The commands of a table for cron, without the times before them.
fn without_times(table: &str) -> String {
    let command = |line: &str| {
        let mut rest = line.trim_start();
        let fields = match rest.bytes().next() {
            Some(b'@') => 1,
            Some(b'#') => 0,
            _ => 5,
        };
        for _ in 0..fields {
            let end = rest.find([' ', '\t']).unwrap_or(rest.len());
            rest = rest[end..].trim_start();
        }
        // What is no entry sets a variable, or is none of these.
        if rest.is_empty() {
            line.to_owned()
        } else {
            rest.to_owned()
        }
    };
    let commands: Vec<String> = table.lines().map(command).collect();
    commands.join("\n")
}

/// Whether a program of OpenSSH's reads its settings from its input, or another descriptor: `-F FILE`.
fn reads_settings(arguments: &[String]) -> bool {
    values_of("-F", "bcDeEiIJlLmoOpQRSwW", arguments).any(is_input)
}

/// What sftp has a shell run here: `!COMMAND`, behind signs of its own.
fn commands_of_sftp(text: &str) -> String {
    let lines = text.lines();
    let commands = lines.map(|line| line.trim_start_matches(['-', '@', ' ', '\t', '!']));
    commands.collect::<Vec<_>>().join("\n")
}

/// What `env -S` makes of its string, which has quotes and escapes of its own: the string and the
/// words behind it are the rest of the command.
fn split_by_env(arguments: &[String], certain: bool) -> Option<Nested> {
    let mut rest = arguments;
    while let Some((word, after)) = rest.split_first() {
        let next = || after.first().map(|value| (value.as_str(), 2));
        let (value, used) = if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long
                .split_once('=')
                .map_or((long, None), |(name, value)| (name, Some(value)));
            let is = |option: &str| !name.is_empty() && option.starts_with(name);
            match value {
                value if is("split-string") => value.map(|value| (value, 1)).or_else(next)?,
                None if is("unset") || is("chdir") || is("argv0") => {
                    rest = after.get(1..)?;
                    continue;
                }
                _ => {
                    rest = after;
                    continue;
                }
            }
        } else {
            let group = word.strip_prefix('-')?;
            let Some(at) = group.find(['S', 'u', 'C', 'a']) else {
                rest = after;
                continue;
            };
            let (letter, attached) = group[at..].split_at(1);
            let value = match attached {
                "" => next()?,
                attached => (attached, 1),
            };
            if letter != "S" {
                rest = rest.get(value.1..)?;
                continue;
            }
            value
        };
        return Some(splice(value, rest.get(used..)?, certain));
    }
    None
}

fn splice(value: &str, behind: &[String], certain: bool) -> Nested {
    let words = words_of_env(&plain(value));
    let behind = behind.iter().map(|word| plain(word));
    let text = words
        .into_iter()
        .chain(behind)
        .fold("env".to_owned(), |text, word| {
            // What is not known may part words, and end quotes.
            let word = word.replace('\'', "'\\''");
            let word = word.replace([UNKNOWN, UNKNOWN_WORDS], &format!("'{UNKNOWN_WORDS}'"));
            format!("{text} '{word}'")
        });
    let is_known = is_known(&text);
    Nested::new(text, certain && is_known)
}

/// The words that env(1) makes of a string: blanks part them, quotes and backslashes are as in its manual, and a
/// variable in braces is not known.
fn words_of_env(string: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = string;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let next = rest.chars().next();
        match (quote, c) {
            (None, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r') => words.extend(word.take()),
            (None, '#') if word.is_none() => break,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), _) if c == open => quote = None,
            // There it is one only before itself and the quote.
            (Some('\''), '\\') if !matches!(next, Some('\'' | '\\')) => {
                word.get_or_insert_default().push(c);
            }
            (_, '\\') => {
                rest = next.map_or("", |next| &rest[next.len_utf8()..]);
                match next {
                    Some('c') => break,
                    Some('_') if quote.is_none() => words.extend(word.take()),
                    next => word
                        .get_or_insert_default()
                        .extend(next.map(|next| match next {
                            '_' => ' ',
                            'f' => '\x0c',
                            'n' => '\n',
                            'r' => '\r',
                            't' => '\t',
                            'v' => '\x0b',
                            next => next,
                        })),
                }
            }
            (None | Some('"'), '$') if next == Some('{') => {
                rest = rest.split_once('}').map_or("", |(_, rest)| rest);
                word.get_or_insert_default().push(UNKNOWN);
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The commands that programs run only for one of their own: `git bisect run`, `jobs -x`.
pub(super) fn by_subcommand(name: &str, words: &[String]) -> Vec<Wrapped> {
    let after = |first: &str, second: Option<&str>| {
        let at = words.iter().position(|word| word == first)? + 1;
        match second {
            None => Some(at),
            Some(second) => (words.get(at)? == second).then_some(at + 1),
        }
    };
    let begin = match name {
        "git" => after("bisect", Some("run")),
        "jobs" => words
            .iter()
            .position(|word| word.starts_with('-') && word.contains('x'))
            .map(|at| at + 1),
        "ip" => of_ip(words),
        "consul" => after("lock", None).map(|at| at + 1),
        "aws-vault" | "bear" | "doppler" | "gcloud" | "lxc-attach" | "lxc-start" | "mise"
        | "tox" => after("--", None),
        "asdf" | "cabal" | "ddev" | "fnm" | "nodenv" | "nomad" | "pyenv" | "rbenv" | "stack" => {
            after("exec", None)
        }
        name if is_watch_of_cargo(name, &words[1..]) => after("--", None),
        "volta" => after("run", None),
        "rvm" => after("do", None),
        // Behind the command of its own, and options with values that nobody knows here.
        name if is_debugger(name) => return operands_of(words),
        "restic"
            if words
                .iter()
                .any(|word| is_short(word, "--stdin-from-command", 5)) =>
        {
            return operands_of(words);
        }
        "cmake" => after("-E", Some("env"))
            .or_else(|| after("-E", Some("time")))
            .or_else(|| after("-E", Some("chdir")).map(|at| at + 1)),
        "ctest" => after("--test-command", None),
        "just" => after("--command", None).or_else(|| after("-c", None)),
        // Behind the toolchain.
        "rustup" => after("run", None).map(|at| at + 1),
        "pidstat" => after("-e", None),
        // A name with a directory in it is a script of that directory.
        "invoke-rc.d" | "rc-service" | "service" => words[1..]
            .iter()
            .position(|word| word.contains('/'))
            .map(|at| at + 1),
        "rxvt" | "urxvt" | "uxterm" | "xterm" => after("-e", None),
        "uv" | "poetry" | "pdm" | "hatch" | "pipx" | "pipenv" | "rye" => after("run", None),
        "conda" | "mamba" | "micromamba" => {
            after("run", None).map(|at| match words.get(at).map(String::as_str) {
                Some("-n" | "-p" | "--name" | "--prefix") => at + 2,
                Some(_) | None => at,
            })
        }
        "bun" | "bundle" | "npm" | "pnpm" | "yarn" => words
            .iter()
            .position(|word| matches!(word.as_str(), "x" | "dlx") || is_short(word, "exec", 3))
            .map(|at| at + 1 + usize::from(words.get(at + 1).is_some_and(|word| word == "--"))),
        _ => None,
    };
    let begin = begin.filter(|at| *at < words.len());
    begin.map(|at| (at, words.len())).into_iter().collect()
}

/// Every word that is no option, of which one is a program, and what is behind it are its arguments.
fn operands_of(words: &[String]) -> Vec<Wrapped> {
    let operands = (1..words.len()).filter(|at| !words[*at].starts_with('-'));
    let operands = operands.filter(|at| !is_process(words, *at));
    let looked_at = operands.take(MAX_WRAPPED);
    looked_at.map(|at| (at, words.len())).collect()
}

/// Where the command of `ip netns exec NAME` or `ip vrf exec NAME` begins.
fn of_ip(words: &[String]) -> Option<usize> {
    // Behind them comes the name of the namespace.
    words.windows(2).position(is_ip_exec).map(|at| at + 3)
}
