//! git: which of its commands and options run other programs.

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
    "subtree", "svn", "upload-archive", "upload-pack", "web--browse",
];

/// Options of git's subcommands that name a program, or a file to write.
#[rustfmt::skip]
const OPTIONS: &[&str] = &[
    "-O", "-x", "--config", "--config-env", "--editor", "--exec", "--ext-diff", "--extcmd", "--open-files-in-pager", "--output", "--output-directory",
    "--receive-pack", "--server-option", "--smtp-server", "--template", "--textconv", "--upload-pack",
];

/// Options that name one only for some subcommands, or a directory to write to.
#[rustfmt::skip]
const OPTIONS_OF: &[(&[&str], &[&str])] = &[
    (&["archive", "clone", "fetch", "ls-remote", "pull"], &["-c", "-u"]),
    (&["archive", "bugreport", "diagnose", "format-patch", "index-pack", "mailsplit"], &["-o"]),
    (&["apply"], &["--build-fake-ancestor", "--unsafe-paths"]),
    (&["checkout-index"], &["--prefix"]),
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
    let found =
        options.any(|option| is_given(&option)) || rest.iter().any(|word| word.contains("::"));
    found.then_some("has a git option that names a program or a file to write")
}
