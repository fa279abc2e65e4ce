//! Programs whose options say what else they run, and those that start a shell of their own.

use super::loose::{Nested, Reader};
use super::strict;
use super::text::{is_known, plain};
use super::wrappers::{Input, Wrapped};

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
        if name == "env" {
            nested.extend(split_by_env(arguments, certain));
        } else if starts_shell(name, arguments) {
            self.shell_input(input, certain, nested);
        } else if may_run_input(name) {
            match input {
                Some(Input::Text(text)) => nested.push(Nested {
                    text: plain(text),
                    certain: false,
                }),
                Some(Input::Unknown) => {}
                None => nested.extend(self.own_input(false)),
            }
            let lists = |word: &String| matches!(word.as_str(), "-l" | "-r" | "-d" | "-c" | "-V");
            let reads = matches!(name, "at" | "batch") && !arguments.iter().any(lists);
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
        Some(Nested { text, certain })
    }
}

/// The options of a command, as far as its first operand.
struct Options<'w> {
    letters: String,
    longs: Vec<&'w str>,
    /// Words that are no options.
    operands: &'w [String],
}

impl<'w> Options<'w> {
    /// Reads `arguments`, where the options `valued` (letters, or long) have values.
    fn read(arguments: &'w [String], valued: &str, valued_long: &[&str]) -> Self {
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
                takes_next = valued_long.contains(&long);
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
        self.letters.contains(letters) || self.longs.iter().any(|long| longs.contains(long))
    }
}

/// Whether the command starts a shell that reads its input for a script, without naming one.
fn starts_shell(name: &str, arguments: &[String]) -> bool {
    let gives_script = |word: &String| {
        let short = word.starts_with('-') && !word.starts_with("--") && word.contains('c');
        short || word.starts_with("--c") || word.starts_with("--session-c")
    };
    match name {
        "sudo" => {
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
            let options = Options::read(arguments, "CDghpRrTtUu", &long);
            options.has(&['s', 'i'], &["shell", "login"])
                && options.operands.iter().all(|word| word.contains('='))
        }
        "doas" => {
            let options = Options::read(arguments, "Cu", &[]);
            options.has(&['s'], &[]) && options.operands.is_empty()
        }
        "su" => !arguments.iter().any(gives_script),
        "runuser" => {
            let options = Options::read(arguments, "ugGw", &["user", "group", "supp-group"]);
            options.operands.len() < 2 && !arguments.iter().any(gives_script)
        }
        "chroot" => Options::read(arguments, "", &[]).operands.len() == 1,
        "newgrp" => true,
        "sg" | "unshare" | "nsenter" => {
            let options = Options::read(arguments, "tSG", &["target", "setuid", "setgid"]);
            options.operands.len() < 1 + usize::from(name == "sg")
        }
        _ => false,
    }
}

/// Whether what the command reads may run elsewhere or later: a known text is looked at.
fn may_run_input(name: &str) -> bool {
    let names = [
        "ssh",
        "rsh",
        "mosh",
        "at",
        "batch",
        "crontab",
        "script",
        "machinectl",
        "docker",
        "podman",
        "kubectl",
        "lxc",
        "systemd-run",
        "systemd-nspawn",
    ];
    names.contains(&name)
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
    let mut text = format!("env {}", plain(value));
    let simple = strict::read(&text).is_ok_and(|segments| segments.len() == 1);
    let exact = simple && !value.contains('\\');
    if !exact {
        for blank in ["\\_", "\\t", "\\n", "\\f", "\\r", "\\v"] {
            text = text.replace(blank, " ");
        }
    }
    for word in behind {
        text.push_str(" '");
        text.push_str(&plain(word).replace('\'', "'\\''"));
        text.push('\'');
    }
    Nested {
        certain: certain && exact && is_known(value) && behind.iter().all(|word| is_known(word)),
        text,
    }
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
        "jobs" => after("-x", None),
        "ip" => of_ip(words),
        "gdb" => after("--args", None),
        "uv" | "poetry" | "pdm" | "hatch" | "pipx" | "pipenv" | "rye" => after("run", None),
        "conda" | "mamba" => after("run", None).map(|at| match words.get(at).map(String::as_str) {
            Some("-n" | "-p" | "--name" | "--prefix") => at + 2,
            Some(_) | None => at,
        }),
        "bundle" | "npm" | "pnpm" | "yarn" => words
            .iter()
            .position(|word| matches!(word.as_str(), "x" | "dlx") || is_short(word, "exec", 3))
            .map(|at| at + 1 + usize::from(words.get(at + 1).is_some_and(|word| word == "--"))),
        _ => None,
    };
    let begin = begin.filter(|at| *at < words.len());
    begin.map(|at| (at, words.len())).into_iter().collect()
}

/// Where the command of `ip netns exec NAME` or `ip vrf exec NAME` begins; ip takes beginnings of its words.
fn of_ip(words: &[String]) -> Option<usize> {
    let is_exec = |pair: &[String]| {
        let object = is_short(&pair[0], "netns", 3) || is_short(&pair[0], "vrf", 1);
        object && is_short(&pair[1], "exec", 1)
    };
    // Behind them comes the name of the namespace.
    words.windows(2).position(is_exec).map(|at| at + 3)
}

/// Whether a word stands for another of which it is a beginning, of so many letters at least.
fn is_short(word: &str, whole: &str, least: usize) -> bool {
    word.len() >= least && whole.starts_with(word)
}

/// The scripts in the words of git: what it runs for each submodule, commit or alias.
pub(super) fn of_git(arguments: &[String]) -> Vec<String> {
    let mut scripts = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        let rest = &arguments[at + 1..];
        let next = rest.first().map(String::as_str);
        match word.as_str() {
            "foreach" => {
                let flags = ["--recursive", "--quiet", "-q"];
                let rest = rest.iter().map(String::as_str);
                let words: Vec<&str> = rest.filter(|word| !flags.contains(word)).collect();
                scripts.push(words.join(" "));
            }
            "-c" => {
                let value = next.and_then(|next| next.split_once('='));
                scripts.extend(value.map(|(_, value)| value.trim_start_matches('!').to_owned()));
            }
            "-x" | "--exec" | "--extcmd" => scripts.extend(next.map(str::to_owned)),
            word if word.ends_with("-filter") => scripts.extend(next.map(str::to_owned)),
            word => {
                let options = ["--exec=", "--extcmd=", "-x"];
                let value = options.iter().find_map(|option| word.strip_prefix(option));
                scripts.extend(value.map(str::to_owned));
            }
        }
    }
    scripts
}
