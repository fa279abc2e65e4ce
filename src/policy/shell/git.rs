//! git: which of its commands and options run other programs, and the scripts in its words.

use super::super::glob::{INNER_BLANK, UNKNOWN_WORDS};
use super::hazards::{gives, values_of};
use super::text::is_known;

/// Before git's subcommand, each of these decides which programs git runs, or where it finds
/// the configuration that does.
const GLOBAL: &str = "sets git's configuration or place before its subcommand";

/// git's subcommands whose purpose is to run or configure other programs.
#[rustfmt::skip]
const RUNS: &[&str] = &[
    "archimport", "bisect", "citool", "config", "credential", "credential-cache", "credential-store", "cvsexportcommit", "cvsimport", "cvsserver", "daemon", "difftool", "difftool--helper",
    "filter-branch", "filter-repo", "for-each-repo", "fsmonitor--daemon", "gitk", "gui", "help", "hook", "http-backend", "imap-send", "instaweb", "maintenance", "merge-index", "merge-one-file", "mergetool",
    "mergetool--lib", "p4", "quiltimport", "rebase", "receive-pack", "remote-ext", "remote-fd", "send-email", "sh-i18n", "sh-setup", "shell", "submodule", "submodule--helper",
    "subtree", "svn", "upload-archive", "upload-pack", "verify-commit", "verify-tag", "web--browse",
];

/// Options of git's subcommands that name a program, or a file to write.
#[rustfmt::skip]
const OPTIONS: &[&str] = &[
    "-O", "-x", "--config", "--config-env", "--editor", "--exec", "--ext-diff", "--extcmd", "--gpg-sign", "--open-files-in-pager", "--output", "--output-directory",
    "--receive-pack", "--server-option", "--show-signature", "--signed", "--smtp-server", "--template", "--textconv", "--upload-pack", "--verify-signatures",
];

/// Options that name one only for some subcommands, or a directory to write to.
#[rustfmt::skip]
const OPTIONS_OF: &[(&[&str], &[&str])] = &[
    (&["archive", "clone", "fetch", "ls-remote", "pull"], &["-c", "-u"]),
    (&["archive", "bugreport", "diagnose", "format-patch", "index-pack", "mailsplit"], &["-o"]),
    (&["apply"], &["--build-fake-ancestor", "--unsafe-paths"]),
    (&["checkout-index"], &["--prefix"]),
    (&["am", "cherry-pick", "commit", "commit-tree", "merge", "pull", "revert"], &["-S"]),
    (&["merge", "pull"], &["-s", "--strategy"]),
    (&["cherry-pick", "revert"], &["--strategy"]),
    (&["tag"], &["-s", "--sign", "-u", "--local-user", "-v", "--verify"]),
    (&["fast-export", "fast-import"], &["--allow-unsafe-features", "--export-marks", "--import-marks"]),
];

/// The subcommands for which `-x` is nothing of that kind: it adds a line to a message, or says which files. Of
/// others, among them whatever an alias stands for, it names a program.
const PLAIN_X: &[&str] = &["cherry-pick", "clean", "ls-files"];

/// Letters that have a value for these subcommands: what stands behind one in a group is no option (`commit -mStyle`).
/// Of others, none is known, and every letter counts.
#[rustfmt::skip]
const VALUED: &[(&[&str], &str)] = &[
    (&["am"], "Cp"),
    (&["cherry-pick", "revert"], "mX"),
    (&["clone"], "bcjou"),
    (&["commit"], "cCFmtu"),
    (&["commit-tree"], "Fmp"),
    (&["diff", "log", "show"], "GLlnSU"),
    (&["grep"], "ABCefm"),
    (&["merge"], "FmsX"),
    (&["pull"], "josX"),
    (&["tag"], "Fmn"),
];

/// What in a word has a program run: a remote helper; in a format, signatures, which are verified by a program that
/// settings name.
const SIGNS: &[&str] = &[
    "::",
    "%G",
    "%+G",
    "%-G",
    "% G",
    "%(signature",
    "%(*signature",
];

/// Ways to another repository that git goes itself, or by helpers of its own. For any other it runs `git-remote-SCHEME`.
const SCHEMES: &[&str] = &[
    "file", "ftp", "ftps", "git", "git+ssh", "http", "https", "ssh", "ssh+git",
];

/// Whether a word is the address of a repository that is reached by a program of which it says the name.
fn has_helper(word: &str) -> bool {
    let Some((before, _)) = word.split_once("://") else {
        return false;
    };
    let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let scheme = before.rsplit(|c: char| !is_of_scheme(c)).next();
    scheme.is_some_and(|scheme| !SCHEMES.contains(&scheme))
}

fn valued(subcommand: &str) -> &'static str {
    let of = VALUED.iter().find(|(of, _)| of.contains(&subcommand));
    of.map_or("", |(_, letters)| letters)
}

/// Why a command of git is on the list of hazards.
pub(super) fn hazard(arguments: &[String]) -> Option<&'static str> {
    let (subcommand, rest) = arguments.split_first()?;
    if rest.first().is_some_and(|word| word == "--help")
        || subcommand == "--help" && !rest.is_empty()
    {
        return Some("has git show a manual by a program that settings name");
    }
    if subcommand.starts_with('-') {
        let harmless = ["--version", "--help"];
        if subcommand == "--no-pager" || subcommand == "--no-optional-locks" {
            return hazard(rest);
        }
        return (!harmless.contains(&subcommand.as_str())).then_some(GLOBAL);
    }
    let subcommand = subcommand.as_str();
    if RUNS.contains(&subcommand) {
        return Some("is a git command that runs or configures other programs");
    }
    let own = OPTIONS_OF.iter().filter(|(of, _)| of.contains(&subcommand));
    let mut options = own.flat_map(|(_, options)| *options).chain(OPTIONS);
    let valued = valued(subcommand);
    let is_plain = |option: &str| option == "-x" && PLAIN_X.contains(&subcommand);
    let is_given =
        |option: &&str| !is_plain(option) && rest.iter().any(|word| gives(word, option, valued));
    let runs = |word: &String| SIGNS.iter().any(|sign| word.contains(sign)) || has_helper(word);
    // To sort by signatures, they are verified as well.
    let verifies = values_of("--sort", "", rest).any(|key| key.contains("signature"));
    let found = verifies || options.any(is_given) || rest.iter().any(runs);
    found.then_some("has a git option that names a program or a file to write")
}

/// What stands for words that whoever gives an alias puts behind it, in the script that it is.
pub(super) const GIVEN_LATER: &str = "\"$@\"";

/// How many scripts are looked for in git's words before it is not known what it runs.
const MAX_SCRIPTS: usize = 16;

/// The scripts in the words of git: what it runs for each submodule, commit or alias.
pub(super) fn scripts(arguments: &[String]) -> Vec<String> {
    let mut scripts = Vec::new();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let behind = from_subcommand(arguments);
    let before = arguments.len() - behind.len();
    let subcommand = behind.first().map(String::as_str);
    let configures = subcommand == Some("config");
    let is_plain = subcommand.is_some_and(|subcommand| PLAIN_X.contains(&subcommand));
    let clones = has("clone");
    let runs_each = has("rebase") || has("difftool");
    for (at, word) in arguments.iter().enumerate() {
        let rest = &arguments[at + 1..];
        let next = || rest.first().map(String::as_str).unwrap_or_default();
        if let Some((before, remote)) = word.split_once("ext::")
            && !before.ends_with(char::is_alphanumeric)
        {
            scripts.push(run_for_remote(remote));
        }
        match word.as_str() {
            // Each would be all of the rest.
            "foreach" | "remote-ext" if scripts.len() >= MAX_SCRIPTS => {
                scripts.push(UNKNOWN_WORDS.to_string());
            }
            "foreach" => {
                let flags = ["--recursive", "--quiet", "-q"];
                let rest = rest.iter().map(String::as_str);
                let words: Vec<&str> = rest.filter(|word| !flags.contains(word)).collect();
                scripts.push(words.join(" "));
            }
            "merge-index" => {
                let mut rest = rest.iter().skip_while(|word| word.starts_with('-'));
                scripts.extend(rest.next().cloned());
            }
            // The remote's name, then what is run for it.
            "remote-ext" => scripts.push(rest.get(1..).unwrap_or_default().join(" ")),
            "-c" => {
                scripts.extend(value_of(next()));
                if includes(next()) || (at < before || clones) && may_be_any(next()) {
                    // What that says, who knows.
                    scripts.push(UNKNOWN_WORDS.to_string());
                }
                // Each would be all of the rest.
                scripts.extend(match scripts.len() < MAX_SCRIPTS {
                    true => run_by_alias(next(), rest.get(1..).unwrap_or_default()),
                    false => alias(next()).map(|_| UNKNOWN_WORDS.to_string()),
                });
            }
            word if word.starts_with("--") => {
                let (name, value) = word.split_once('=').unwrap_or((word, next()));
                if names_program(name) {
                    scripts.push(value.to_owned());
                    // For `--config` it is a setting.
                    scripts.extend(value_of(value));
                }
            }
            word if word.starts_with('-') => {
                if let Some(setting) = word.strip_prefix("-c") {
                    scripts.extend(value_of(setting));
                    let is_any = at < before && may_be_any(setting);
                    scripts.extend(is_any.then(|| UNKNOWN_WORDS.to_string()));
                }
                scripts.extend(pager(word));
                let is_given = clones && gives(word, "-u", valued("clone"));
                let attached = word.split_once('u').filter(|_| is_given);
                scripts.extend(attached.map(|(_, attached)| match attached {
                    "" => next().to_owned(),
                    attached => attached.to_owned(),
                }));
                // In a group as well: `rebase -ix`.
                let found = word
                    .split_once('x')
                    .filter(|_| runs_each || (word.starts_with("-x") && !is_plain));
                scripts.extend(found.map(|(_, attached)| match attached {
                    "" => next().to_owned(),
                    attached => attached.to_owned(),
                }));
            }
            word if configures => {
                scripts.push(word.trim_start_matches('!').to_owned());
                // Whoever gives the alias later gives it words of their own.
                let value = alias(word).and(rest.first());
                scripts.extend(value.map(|value| run_for(value, GIVEN_LATER)));
            }
            _ => {}
        }
    }
    scripts.retain(|script| !script.is_empty());
    scripts
}

/// What the remote helper `ext::` runs: words between blanks, in which a percent sign takes the meaning of a blank.
fn run_for_remote(remote: &str) -> String {
    let mut script = String::from("'");
    let mut chars = remote.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' => script.extend(chars.next()),
            ' ' | INNER_BLANK => script.push_str("' '"),
            '\'' => script.push_str("'\\''"),
            c => script.push(c),
        }
    }
    script + "'"
}

/// The program that grep shows what it finds with, in a group of options.
fn pager(word: &str) -> Option<String> {
    let is_given = gives(word, "-O", valued("grep"));
    let (_, program) = word.split_once('O').filter(|_| is_given)?;
    Some(program.to_owned())
}

/// The words from the command of git's on.
fn from_subcommand(arguments: &[String]) -> &[String] {
    let mut rest = arguments;
    loop {
        let Some((first, behind)) = rest.split_first() else {
            return rest;
        };
        rest = match first.as_str() {
            "-C" | "-c" | "--config-env" | "--git-dir" | "--namespace" | "--work-tree" => {
                behind.get(1..).unwrap_or_default()
            }
            option if option.starts_with('-') => behind,
            _ => return rest,
        };
    }
}

/// The name of the alias that a key of the configuration is about; its section may be in any letters (`git-config(1)`).
fn alias(key: &str) -> Option<&str> {
    let (section, name) = key.split_once('.')?;
    section.eq_ignore_ascii_case("alias").then_some(name)
}

/// What git runs for an alias that is set in its words: behind the alias's own words stand those behind its name, where
/// that is the command given, and where it is not another alias may lead to it.
fn run_by_alias(setting: &str, words: &[String]) -> Option<String> {
    let (key, value) = setting.split_once('=')?;
    let name = alias(key)?;
    let given = from_subcommand(words).split_first();
    let handed = given.filter(|(first, _)| first.eq_ignore_ascii_case(name));
    let Some((_, words)) = handed else {
        return Some(run_for(value, GIVEN_LATER));
    };
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    Some(run_for(value, &words.join(" ")))
}

/// What git runs for an alias with this value and these words behind it, as a shell would have them.
fn run_for(value: &str, words: &str) -> String {
    match value.strip_prefix('!') {
        Some(command) => format!("{command} {words}"),
        None => format!("git {value} {words}"),
    }
}

/// A word as one of a script's.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Whether a setting has git read others from a file.
fn includes(setting: &str) -> bool {
    let section = setting.split(['.', '=']).next().unwrap_or_default();
    section.to_ascii_lowercase().starts_with("include")
}

/// Whether it is not known in which section a setting is.
fn may_be_any(setting: &str) -> bool {
    !is_known(setting.split(['.', '=']).next().unwrap_or_default())
}

/// The sections of settings of which none names a program.
const PLAIN_SECTIONS: &[&str] = &[
    "advice",
    "author",
    "color",
    "committer",
    "http",
    "push",
    "safe",
    "user",
];

/// The command in a setting (`alias.x=!command`).
fn value_of(setting: &str) -> Option<String> {
    let (key, value) = setting.split_once('=')?;
    let (section, _) = key.split_once('.').unwrap_or((key, ""));
    let mut plain = PLAIN_SECTIONS.iter();
    let is_plain = plain.any(|plain| section.eq_ignore_ascii_case(plain));
    // What may be several words may be more settings.
    if is_plain && !value.contains(UNKNOWN_WORDS) {
        return None;
    }
    Some(value.trim_start_matches('!').to_owned())
}

/// Whether the option has a command for its value.
fn names_program(option: &str) -> bool {
    let options = [
        "--config",
        "--exec",
        "--extcmd",
        "--open-files-in-pager",
        "--receive-pack",
        "--setup",
        "--upload-pack",
    ];
    let is_filter = option.ends_with("-filter") || option.ends_with("-cmd");
    is_filter || (option.len() > 3 && options.iter().any(|one| gives(option, one, "")))
}
