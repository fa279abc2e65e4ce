//! What no pattern may allow: programs, built-ins and options that run what their text names
//! elsewhere, or change what later words mean. The list is an operator's safety net, not the
//! guarantee: it cannot name every program there is.

use super::super::paths::base_name;

/// Why a command is on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hazard {
    /// It runs other programs, or code in its arguments. Written out whole, without a wildcard,
    /// it may be allowed: then the operator has seen all of it.
    Runs(&'static str),
    /// It changes what the commands after it mean. Never allowable by a pattern.
    Shell(&'static str),
}

impl Hazard {
    /// What it is, as the end of a sentence.
    pub fn what(self) -> &'static str {
        match self {
            Self::Runs(what) | Self::Shell(what) => what,
        }
    }
}

const INTERPRETER: &str = "runs code from its arguments or input";
const WRAPPER: &str = "runs the program its arguments name";
const REMOTE: &str = "runs commands elsewhere";
const BUILDER: &str = "runs what files of the directory say";
const EDITOR: &str = "can run commands from within";

/// Programs that run others whatever their options are. A version behind the name (python3.11)
/// does not make it another.
#[rustfmt::skip]
const PROGRAMS: &[(&str, &[&str])] = &[
    (INTERPRETER, &[
        "sh", "bash", "rbash", "dash", "ash", "ksh", "ksh93", "mksh", "zsh", "fish", "csh", "tcsh", "busybox", "toybox", "pwsh", "xonsh", "nu", "elvish",
        "python", "pypy", "ipython", "perl", "ruby", "irb", "node", "nodejs", "deno", "bun", "php", "lua", "luajit", "tclsh", "wish", "expect", "guile",
        "racket", "sbcl", "clisp", "emacs", "ghci", "runghc", "julia", "octave", "Rscript", "R", "java", "jshell", "groovy", "scala", "kotlin", "swift", "gdb", "lldb",
        "awk", "gawk", "mawk", "nawk", "m4", "psql", "mysql", "sqlite3", "osascript", "ts-node", "tsx", "elixir", "erl", "dotnet", "gp", "gnuplot",
    ]),
    (WRAPPER, &[
        "env", "sudo", "sudoedit", "doas", "su", "runuser", "sg", "newgrp", "pkexec", "run0", "setpriv", "capsh", "xargs", "parallel", "timeout", "nice", "ionice", "nohup", "setsid",
        "stdbuf", "unbuffer", "chrt", "taskset", "numactl", "flock", "unshare", "nsenter", "chroot", "bwrap", "firejail", "proot", "fakeroot", "script", "scriptreplay", "watch", "entr",
        "at", "batch", "crontab", "systemd-run", "systemd-inhibit", "systemd-nspawn", "machinectl", "start-stop-daemon", "daemonize", "time", "strace", "ltrace", "perf",
        "valgrind", "prlimit", "choom", "setarch", "linux32", "linux64", "i386", "x86_64", "uname26", "eatmydata", "faketime", "dbus-run-session", "dbus-launch", "xvfb-run", "tmux",
        "screen", "dtach", "abduco", "run-parts", "find", "fd", "fdfind", "hyperfine", "ld.so", "ld-linux.so", "ld-linux-x86-64.so", "ld-linux-aarch64.so", "tini", "dumb-init", "gosu", "su-exec", "chronic", "bunx", "chpst",
        "softlimit", "cgexec", "ssh-agent", "gpg-agent", "direnv", "mise", "asdf", "nix", "nix-shell", "flatpak", "snap", "distrobox", "toolbox", "rlwrap", "socat", "nc", "ncat",
        "netcat", "logrotate", "busctl", "dpkg-reconfigure", "update-alternatives", "zargs", "aa-exec", "runcon", "newrole", "torsocks", "proxychains", "catchsegv",
    ]),
    (REMOTE, &["ssh", "scp", "sftp", "rsh", "mosh", "rsync", "docker", "podman", "nerdctl", "kubectl", "oc", "lxc", "incus", "ansible", "ansible-playbook", "salt", "pdsh", "virsh", "vagrant"]),
    (BUILDER, &[
        "make", "gmake", "cmake", "ninja", "meson", "bazel", "just", "task", "rake", "bundle", "gem", "cargo", "rustup", "go", "npm", "npx", "pnpm", "pnpx", "yarn", "corepack", "pip", "pipx", "uv", "uvx",
        "poetry", "tox", "nox", "pytest", "mvn", "gradle", "gradlew", "ant", "sbt", "composer", "phpunit", "jest", "mocha", "vitest", "gcc", "cc", "g++", "c++", "clang", "ld", "pre-commit", "terraform", "tofu",
        "apt", "apt-get", "aptitude", "dpkg", "rpm", "dnf", "yum", "pacman", "apk", "zypper", "debuild", "dpkg-buildpackage", "autoreconf", "automake", "autoconf", "libtool", "conda", "mamba",
    ]),
    (EDITOR, &["vi", "vim", "nvim", "view", "vimdiff", "ex", "ed", "red", "nano", "pico", "joe", "mc", "less", "more", "most", "man", "info", "ftp", "lftp", "mutt", "mail", "mailx", "lynx", "w3m", "links", "top", "htop", "git-shell", "visudo", "vipw", "vigr"]),
];

const CODE: &str = "reads its arguments as code";
const MEANING: &str = "changes what later words mean";
const SUBSCRIPT: &str = "evaluates the subscript in a variable's name";

/// Built-ins of the shell. They have no path, so no version and no directory either.
#[rustfmt::skip]
const BUILTINS: &[(&str, &[&str])] = &[
    (CODE, &["eval", "source", ".", "trap", "exec", "command", "builtin", "bind", "complete", "compgen", "compopt", "fc", "coproc", "mapfile", "readarray", "let"]),
    (MEANING, &["alias", "unalias", "enable", "hash", "set", "shopt", "export", "readonly", "declare", "typeset", "local", "unset", "history", "pushd", "popd", "dirs", "umask", "ulimit", "exit", "return", "break", "continue", "shift", "getopts"]),
    (SUBSCRIPT, &["read", "wait"]),
];

/// Options that make a harmless program run others or code: program, options, why. Of a short
/// option the letter counts wherever it stands in a group, of a long one every abbreviation.
#[rustfmt::skip]
const OPTIONS: &[(&str, &[&str], &str)] = &[
    ("tar",    &["-I", "-F", "--checkpoint-action", "--to-command", "--use-compress-program", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command"], "runs a program its options name"),
    ("bsdtar", &["--use-compress-program"], "runs a program its options name"),
    ("cpio",   &["--rsh-command"], "runs a program its options name"),
    ("sort",   &["--compress-program"], "runs a program its options name"),
    ("split",  &["--filter"], "runs a program its options name"),
    ("zip",    &["-T", "--unzip-command"], "runs a program its options name"),
    ("rg",     &["--pre", "--hostname-bin", "-z", "--search-zip"], "runs a program its options name"),
    ("grep",   &["--pager"], "runs a program its options name"),
    ("tcpdump", &["-z"], "runs a program its options name"),
    ("date",   &["-s", "--set"], "sets the clock"),
    ("wget",   &["--use-askpass", "-e", "--execute"], "runs a program its options name"),
    ("curl",   &["-K", "--config"], "takes options from a file"),
    ("jobs",   &["-x"], "runs a program its options name"),
    ("test",   &["-v"], SUBSCRIPT),
    ("[",      &["-v"], SUBSCRIPT),
    ("journalctl", &["--vacuum-size", "--vacuum-time", "--vacuum-files", "--rotate", "--flush", "--relinquish-var", "--smart-relinquish-var"], "removes or moves logs"),
    ("journalctl", &["--cursor-file", "--setup-keys", "--update-catalog"], "writes files"),
    ("journalctl", &["-H", "--host", "-M", "--machine"], REMOTE),
    ("systemctl", &["-H", "--host", "-M", "--machine"], REMOTE),
    ("ss",     &["-K", "--kill", "-D", "--diag"], "closes connections, writes files"),
    ("file",   &["-C", "--compile"], "writes files"),
    ("ip",     &["-batch", "-b"], "takes commands from a file"),
    ("dmesg",  &["-C", "-c", "--clear", "--read-clear"], "removes messages"),
    ("diff",   &["-l", "--paginate"], "runs a program its options name"),
    ("pr",     &["--pager"], "runs a program its options name"),
    ("column", &["--pager"], "runs a program its options name"),
    ("bat",    &["--pager"], "runs a program its options name"),
    ("openssl", &["-engine", "-provider", "-provider-path"], "loads code its options name"),
    ("sysctl", &["-p", "--load", "--system"], "takes settings from a file"),
];

/// Arguments of `ip`, `openssl` and the like that run programs whatever stands before them.
#[rustfmt::skip]
const ARGUMENTS: &[(&str, &[&str], &str)] = &[
    ("ip", &["exec", "vrf"], WRAPPER),
    ("systemctl", &["edit", "set-environment", "import-environment", "link", "enable"], "has the system run other programs"),
    ("openssl", &["engine"], "loads code its arguments name"),
];

/// Before git's subcommand, each of these decides which programs git runs, or where it finds
/// the configuration that does.
const GIT_GLOBAL: &str = "sets git's configuration or place before its subcommand";

/// git's subcommands whose purpose is to run or configure other programs.
#[rustfmt::skip]
const GIT_RUNS: [&str; 24] = [
    "config", "filter-branch", "difftool", "mergetool", "instaweb", "daemon", "web--browse", "send-email", "citool", "gui", "gitk", "shell",
    "upload-pack", "receive-pack", "remote-ext", "hook", "credential", "maintenance", "bisect", "submodule", "help", "rebase", "svn", "p4",
];

/// Options of git's subcommands that name a program.
#[rustfmt::skip]
const GIT_OPTIONS: [&str; 16] = [
    "-O", "--open-files-in-pager", "-x", "--exec", "--extcmd", "--upload-pack", "--receive-pack", "--ext-diff", "--textconv",
    "--template", "--config", "--config-env", "--editor", "--server-option", "--smtp-server", "--output",
];

/// Whether `words` is on the list, and why.
pub fn hazard(words: &[String]) -> Option<Hazard> {
    let (name, arguments) = words.split_first()?;
    let program = base_name(name);
    if let Some(what) = listed(BUILTINS, program) {
        return Some(Hazard::Shell(what));
    }
    if program == "printf" && assigns(arguments) {
        return Some(Hazard::Shell("assigns to a variable, PATH maybe"));
    }
    let unversioned =
        program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let by_name = listed(PROGRAMS, program).or_else(|| listed(PROGRAMS, unversioned));
    let by_option = || {
        OPTIONS
            .iter()
            .filter(|(of, ..)| *of == program)
            .find_map(|(_, options, what)| {
                arguments
                    .iter()
                    .any(|word| options.iter().any(|option| gives(word, option)))
                    .then_some(*what)
            })
    };
    let by_argument = || {
        ARGUMENTS
            .iter()
            .filter(|(of, ..)| *of == program)
            .find_map(|(_, listed, what)| {
                arguments
                    .iter()
                    .any(|word| listed.contains(&word.as_str()))
                    .then_some(*what)
            })
    };
    by_name
        .or_else(by_option)
        .or_else(by_argument)
        .or_else(|| special(program, arguments))
        .map(Hazard::Runs)
}

/// Whether a program runs what its arguments name, here or elsewhere.
pub fn runs_its_arguments(name: &str) -> bool {
    let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let what = listed(PROGRAMS, name).or_else(|| listed(PROGRAMS, unversioned));
    what.is_some_and(|what| what == WRAPPER || what == REMOTE)
}

/// Whether what `name` does is decided by what is in the files it is given, as a script decides
/// what a shell does.
pub fn obeys_files(name: &str) -> bool {
    let program = base_name(name);
    let unversioned = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(program, "." | "source" | "sed")
        || listed(PROGRAMS, program)
            .or_else(|| listed(PROGRAMS, unversioned))
            .is_some()
}

/// Whether the program `name` is on the list whatever its arguments are.
pub fn always(name: &str) -> Option<Hazard> {
    hazard(&[name.to_owned()])
}

/// Whether bash's printf sets a variable: by its option, or by a conversion that counts (`%n`).
fn assigns(arguments: &[String]) -> bool {
    let mut arguments = arguments.iter().map(String::as_str).peekable();
    if arguments.peek().is_some_and(|word| word.starts_with("-v")) {
        return true;
    }
    let format = arguments.find(|word| *word != "--").unwrap_or_default();
    let format = format.replace("%%", "");
    format.split('%').skip(1).any(|after| {
        // Flags, width, precision and length stand between.
        let conversion = after
            .trim_start_matches(|c: char| c.is_ascii_digit() || "-+ #0'*.$hlLjztq".contains(c));
        conversion.starts_with('n')
    })
}

fn listed(list: &[(&'static str, &[&str])], program: &str) -> Option<&'static str> {
    list.iter()
        .find(|(_, names)| names.contains(&program))
        .map(|(what, _)| *what)
}

/// Whether `word` gives `option`, abbreviated, with a value attached, or in a group.
fn gives(word: &str, option: &str) -> bool {
    if let Some(long) = option.strip_prefix("--") {
        let given = word
            .strip_prefix("--")
            .map(|word| word.split('=').next().unwrap_or(word));
        return given.is_some_and(|given| !given.is_empty() && long.starts_with(given));
    }
    let mut letters = option.chars().skip(1);
    match (letters.next(), letters.next()) {
        (Some(letter), None) => {
            word.starts_with('-') && !word.starts_with("--") && word.contains(letter)
        }
        _ => word.starts_with(option),
    }
}

fn special(program: &str, arguments: &[String]) -> Option<&'static str> {
    match program {
        "git" => git(arguments),
        // Its scripts have commands that run programs (e) and write files (w), anywhere.
        "sed" | "gsed" => Some("can run programs and write files from its script"),
        // Old style, without a dash: tar xIf PROGRAM ARCHIVE.
        "tar" => {
            let first = arguments.first()?;
            let group = !first.starts_with('-') && first.contains(['I', 'F']);
            group.then_some("runs a program its options name")
        }
        _ => None,
    }
}

fn git(arguments: &[String]) -> Option<&'static str> {
    let (subcommand, rest) = arguments.split_first()?;
    if subcommand.starts_with('-') {
        let harmless = ["--version", "--no-pager", "--no-optional-locks", "--help"];
        if subcommand == "--no-pager" || subcommand == "--no-optional-locks" {
            return git(rest);
        }
        return (!harmless.contains(&subcommand.as_str())).then_some(GIT_GLOBAL);
    }
    if GIT_RUNS.contains(&subcommand.as_str()) {
        return Some("is a git command that runs or configures other programs");
    }
    let runs =
        |word: &String| GIT_OPTIONS.iter().any(|option| gives(word, option)) || word.contains("::");
    let clones = matches!(
        subcommand.as_str(),
        "clone" | "fetch" | "pull" | "ls-remote" | "archive"
    );
    let short = |word: &String| clones && (gives(word, "-u") || gives(word, "-c"));
    let found = rest.iter().any(|word| runs(word) || short(word));
    found.then_some("has a git option that names a program")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str) -> Option<Hazard> {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        hazard(&words)
    }

    #[test]
    fn what_runs_other_programs_is_on_the_list() {
        for command in [
            "bash -c x",
            "/bin/sh x",
            "python3.11 x",
            "python x",
            "env x",
            "sudo x",
            "xargs x",
            "find . -exec x",
            "timeout 5 x",
            "ssh h x",
            "git -c a=b status",
            "git --exec-path=/x status",
            "git -C /x status",
            "git -p status",
            "git grep -Oless x",
            "git grep --open-files x",
            "git rebase -x y",
            "git clone -u x y",
            "git fetch --upload-p=x",
            "git clone ext::x",
            "git config alias.x y",
            "git --no-pager -c a=b log",
            "tar xf a --checkpoint-action=exec=x",
            "tar --to-c=x -xf a",
            "tar -xIx f",
            "tar xIf x a",
            "tar cf a --use=x",
            "sed s/a/b/e",
            "awk x",
            "gawk x",
            "sort --compress-prog=x",
            "vi -c x",
            "rsync -e x",
            "make",
            "ld-linux-x86-64.so.2 x",
            "perl5.36 x",
            "jobs -x a",
            "test -v a",
            "[ -v a ]",
            "rg --pre x y",
        ] {
            assert!(matches!(of(command), Some(Hazard::Runs(_))), "{command}");
        }
        for command in [
            "eval x",
            "source x",
            ". x",
            "exec x",
            "export A=b",
            "hash -p a b",
            "enable -f a b",
            "read a",
            "declare a",
            "mapfile -C a",
            "let a",
            "trap x EXIT",
            "set -x",
            "printf -v a b",
            "printf -va b",
            "printf %n PATH",
            "printf -- %s%-5.3ln a PATH",
        ] {
            assert!(matches!(of(command), Some(Hazard::Shell(_))), "{command}");
        }
    }

    #[test]
    fn the_ordinary_is_not() {
        for command in [
            "git status",
            "git status --short -uno",
            "git log -1 --oneline",
            "git diff HEAD~1",
            "git --no-pager log",
            "git --version",
            "ls -la",
            "cat a",
            "grep -r x .",
            "cd /x",
            "echo x",
            "printf x",
            "printf %s\\n%% next",
            "test -f a",
            "tar tf a.tar",
            "sort -u a",
            "head -n 5 a",
            "df -h",
            "uname -a",
            "ps aux",
            "systemctl status ssh",
            "journalctl -u x",
            "systemctl restart nginx",
        ] {
            assert_eq!(of(command), None, "{command}");
        }
    }
}
