//! What programs hand to a shell elsewhere, and the programs here that they reach it by.

use super::super::glob::{INNER_BLANK, UNKNOWN, UNKNOWN_WORDS};
use super::super::paths::base_name;
use super::containers::{command_within, is_quiet};
use super::hazards::values_of;
use super::inner::Options;
use super::nested::is_plain;
use super::shells::is_shell;

/// Options of ssh that have values.
const SSH_VALUED: &str = "BbcDEeFIiJLlmOoPpQRSWw";

/// The same of autossh, which has one more.
const AUTOSSH_VALUED: &str = "BbcDEeFIiJLlMmOoPpQRSWw";

/// The same of those that copy files over it.
const SCP_VALUED: &str = "cDFiJloPSX";
const SFTP_VALUED: &str = "BbcDFiJloPRSsX";

/// The options that have values, of a program that takes settings of ssh's.
fn valued_of(name: &str) -> Option<&'static str> {
    match name {
        "autossh" => Some(AUTOSSH_VALUED),
        "scp" => Some(SCP_VALUED),
        "sftp" => Some(SFTP_VALUED),
        name => is_ssh(name).then_some(SSH_VALUED),
    }
}

/// What ssh may be told to run here, in its own settings (ssh_config(5)), and there.
const SETTINGS: [&str; 5] = [
    "proxycommand",
    "localcommand",
    "knownhostscommand",
    "remotecommand",
    "xauthlocation",
];

/// Whether the program is ssh, or goes by its options.
pub(super) fn is_ssh(name: &str) -> bool {
    matches!(name, "autossh" | "rsh" | "slogin" | "ssh")
}

/// What one of those is told before the host and behind it.
pub(super) struct Ssh<'w> {
    pub before: Options<'w>,
    /// None where there is no host.
    pub behind: Option<Options<'w>>,
}

impl<'w> Ssh<'w> {
    pub(super) fn read(name: &str, arguments: &'w [String]) -> Option<Self> {
        let valued = valued_of(name).filter(|_| is_ssh(name))?;
        let before = Options::read(arguments, valued, &[]);
        let behind = before.operands.split_first();
        let behind = behind.map(|(_host, rest)| Options::read(rest, valued, &[]));
        Some(Self { before, behind })
    }
}

/// Whether a program copies files, and has a program named by its options only.
fn copies(name: &str) -> bool {
    matches!(name, "rsync" | "scp")
}

/// Whether a program makes one text of the words of a command, to be parted elsewhere, and not by [`remote_scripts`].
pub(super) fn joins_words(name: &str, arguments: &[String]) -> bool {
    let has = |what: &str| arguments.iter().any(|word| word.starts_with(what));
    match name {
        "clush" | "dsh" | "parallel-ssh" | "pdsh" | "pssh" => true,
        "salt" | "salt-call" | "salt-ssh" => has("cmd."),
        "fly" | "flyctl" | "minikube" => has("ssh"),
        "heroku" => has("run"),
        _ => false,
    }
}

/// Whether a program on the list of those that run others runs none that its words name, but for values of options.
pub(super) fn keeps_its_words(name: &str, words: &[String]) -> bool {
    let is_clear = !words.iter().any(|word| word.contains(UNKNOWN_WORDS));
    copies(name) && is_clear || is_quiet(name, &words[1..])
}

/// Where in `words` the command begins that the program runs elsewhere, if that is known.
pub(super) fn command_elsewhere(name: &str, words: &[String]) -> Option<usize> {
    let Some(ssh) = Ssh::read(name, &words[1..]) else {
        return command_within(name, &words[1..]).map(|at| at + 1);
    };
    let (host, command) = ssh.before.operands.split_first()?;
    (!host.contains(UNKNOWN_WORDS)).then_some(words.len() - command.len())
}

/// Whether a command is a shell that is told nothing which another one would read otherwise: `ssh h bash -s`. It is looked
/// at as the words that it is, with what it is given to read.
fn is_plain_shell(words: &[String]) -> bool {
    let is_shell = words.first().is_some_and(|name| is_shell(base_name(name)));
    // What is empty is gone there.
    let is_same = |word: &String| !word.is_empty() && is_plain(word);
    is_shell && words.iter().all(is_same)
}

/// The texts that the program `name` hands to a shell there, whatever they look like.
pub(super) fn remote_scripts(name: &str, arguments: &[String]) -> Vec<String> {
    let mut texts = Vec::new();
    if let Some(ssh) = Ssh::read(name, arguments) {
        // They are put together with blanks, and read by the shell of whom it is done as.
        let command = ssh.behind.map(|behind| behind.operands);
        let command = command.filter(|words| !is_plain_shell(words));
        texts.extend(command.map(|words| words.join(" ")));
        if arguments.iter().any(|word| word.contains(UNKNOWN_WORDS)) {
            // Which word is the host is not known, either.
            texts.extend(arguments.iter().skip(1).cloned());
        }
    }
    let at = arguments.iter().position(|word| word == "shell");
    let shell = at.filter(|_| name == "adb");
    texts.extend(shell.map(|at| arguments[at + 1..].join(" ")));
    let valued: &[(&str, &str)] = match name {
        "ansible" => &[("-a", "abcefiklmMoPtTu"), ("--args", "")],
        "vagrant" => &[("-c", "c"), ("--command", "")],
        _ => &[],
    };
    for (option, others) in valued {
        texts.extend(values_of(option, others, arguments).map(str::to_owned));
    }
    texts
}

/// What their options and settings have them run here, to get there.
pub(super) fn ways_there(name: &str, arguments: &[String]) -> Vec<String> {
    let valued: &[(&str, &str)] = match name {
        "scp" => &[("-S", SCP_VALUED), ("-D", SCP_VALUED)],
        "sftp" => &[("-S", SFTP_VALUED), ("-D", SFTP_VALUED)],
        "rsync" => &[("-e", "BeMfT"), ("--rsh", ""), ("--rsync-path", "")],
        "mosh" => &[("--ssh", ""), ("--client", "")],
        _ => &[],
    };
    let values = valued
        .iter()
        .flat_map(|(option, others)| values_of(option, others, arguments));
    let valued = valued_of(name).into_iter();
    let own_settings = valued.flat_map(|others| values_of("-o", others, arguments));
    // One of which not even the name is known may be any.
    let unknown = own_settings.filter(|value| value.starts_with([UNKNOWN, UNKNOWN_WORDS]));
    let values = values.chain(unknown);
    let settings = arguments.iter().flat_map(|word| settings(word));
    values.map(str::to_owned).chain(settings).collect()
}

/// What settings of ssh's in that word run, if it has such: `ProxyCommand=x`, `-oproxycommand x`.
fn settings(word: &str) -> impl Iterator<Item = String> {
    let word = word.replace('"', "");
    let lower = word.to_ascii_lowercase();
    SETTINGS.iter().filter_map(move |name| {
        let value = &word[lower.find(name)? + name.len()..];
        let value = value.trim_start_matches(['=', ' ', '\t', INNER_BLANK]);
        Some(value.to_owned())
    })
}
