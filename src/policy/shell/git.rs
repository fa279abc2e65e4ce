//! git: which of its commands and options run other programs, and the scripts in its words.

use super::hazards::gives;

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
    (&["tag"], &["-s", "--sign", "-u", "--local-user", "-v", "--verify"]),
    (&["fast-export", "fast-import"], &["--allow-unsafe-features", "--export-marks", "--import-marks"]),
];

/// Why a command of git is on the list of hazards.
pub(super) fn hazard(arguments: &[String]) -> Option<&'static str> {
    let (subcommand, rest) = arguments.split_first()?;
    if subcommand.starts_with('-') {
        let harmless = ["--version", "--no-pager", "--no-optional-locks", "--help"];
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
    let is_given = |option: &&str| rest.iter().any(|word| gives(word, option, ""));
    // A remote helper; and what in a format has signatures verified, by the program that settings name.
    let runs = |word: &String| {
        ["::", "%G", "%(signature"]
            .iter()
            .any(|sign| word.contains(sign))
    };
    let found = options.any(is_given) || rest.iter().any(runs);
    found.then_some("has a git option that names a program or a file to write")
}

/// The scripts in the words of git: what it runs for each submodule, commit or alias.
pub(super) fn scripts(arguments: &[String]) -> Vec<String> {
    let mut scripts = Vec::new();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let configures = subcommand(arguments) == Some("config");
    let runs_each = has("rebase") || has("difftool");
    for (at, word) in arguments.iter().enumerate() {
        let rest = &arguments[at + 1..];
        let next = || rest.first().map(String::as_str).unwrap_or_default();
        match word.as_str() {
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
            "-c" => scripts.extend(value_of(next())),
            word if word.starts_with("--") => {
                let (name, value) = word.split_once('=').unwrap_or((word, next()));
                if names_program(name) {
                    scripts.push(value.to_owned());
                    // For `--config` it is a setting.
                    scripts.extend(value_of(value));
                }
            }
            word if word.starts_with('-') => {
                scripts.extend(word.strip_prefix("-c").and_then(value_of));
                scripts.extend(word.strip_prefix("-O").map(str::to_owned));
                if word == "-u" && has("clone") {
                    scripts.push(next().to_owned());
                }
                // In a group as well: `rebase -ix`.
                let found = word
                    .split_once('x')
                    .filter(|_| runs_each || word.starts_with("-x"));
                scripts.extend(found.map(|(_, attached)| match attached {
                    "" => next().to_owned(),
                    attached => attached.to_owned(),
                }));
            }
            word if word.starts_with("ext::") => scripts.push(word[5..].to_owned()),
            word if configures => scripts.push(word.trim_start_matches('!').to_owned()),
            _ => {}
        }
    }
    scripts.retain(|script| !script.is_empty());
    scripts
}

/// The command of git's that is given.
fn subcommand(arguments: &[String]) -> Option<&str> {
    let mut rest = arguments.iter().map(String::as_str);
    loop {
        match rest.next()? {
            "-C" | "-c" | "--config-env" | "--git-dir" | "--namespace" | "--work-tree" => {
                rest.next();
            }
            option if option.starts_with('-') => {}
            subcommand => return Some(subcommand),
        }
    }
}

/// The command in a setting (`alias.x=!command`).
fn value_of(setting: &str) -> Option<String> {
    let (_, value) = setting.split_once('=')?;
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
