//! The lists of what no pattern may allow: data only, [`super::hazards`] reads them.

pub(super) const INTERPRETER: &str = "runs code from its arguments or input";
pub(super) const WRAPPER: &str = "runs the program its arguments name";
pub(super) const REMOTE: &str = "runs commands elsewhere";
pub(super) const BUILDER: &str = "runs what files of the directory say";
pub(super) const EDITOR: &str = "can run commands from within";

/// Programs that run others whatever their options are. A version behind the name (python3.11)
/// does not make it another.
#[rustfmt::skip]
pub(super) const PROGRAMS: &[(&str, &[&str])] = &[
    (INTERPRETER, &[
        "sh", "bash", "bash-static", "rbash", "dash", "ash", "sash", "ksh", "ksh93", "rksh", "mksh", "lksh", "oksh", "pdksh", "posh", "yash", "zsh", "rzsh", "fish", "csh", "tcsh", "osh", "ysh", "hush",
        "busybox", "toybox", "pwsh", "xonsh", "nu", "elvish", "murex",
        "python", "pypy", "ipython", "perl", "ruby", "irb", "node", "nodejs", "deno", "bun", "php", "lua", "luajit", "texlua", "luatex", "lualatex", "tclsh", "wish", "expect", "guile",
        "racket", "sbcl", "clisp", "emacs", "emacsclient", "ghci", "runghc", "julia", "octave", "Rscript", "R", "java", "jshell", "jdb", "jrunscript", "groovy", "scala", "kotlin", "swift", "gdb", "gdbtui", "lldb",
        "pydoc", "awk", "gawk", "mawk", "nawk", "original-awk", "bpftrace", "m4", "dc", "psql", "mysql", "mysqlsh", "mariadb", "sqlite3", "osascript", "ts-node", "tsx", "elixir", "erl", "dotnet", "gp", "gnuplot", "gs", "exiftool",
        "file-rename", "json_pp", "pdb", "prename", "rename",
    ]),
    (WRAPPER, &[
        "env", "sudo", "sudo-rs", "sudoedit", "doas", "su", "runuser", "sg", "newgrp", "pkexec", "run0", "setpriv", "capsh", "xargs", "parallel", "sem", "timeout", "nice", "ionice", "nohup", "setsid",
        "stdbuf", "unbuffer", "chrt", "taskset", "numactl", "cpulimit", "flock", "unshare", "nsenter", "chroot", "arch-chroot", "bwrap", "firejail", "proot", "fakeroot", "script", "scriptreplay", "watch", "watchexec", "entr",
        "at", "batch", "crontab", "systemd-run", "systemd-inhibit", "systemd-nspawn", "systemd-vmspawn", "systemd-cat", "systemd-socket-activate", "machinectl", "start-stop-daemon", "daemonize", "time", "strace", "ltrace", "perf",
        "valgrind", "prlimit", "choom", "setarch", "linux32", "linux64", "i386", "x86_64", "uname26", "eatmydata", "faketime", "dbus-run-session", "dbus-launch", "xvfb-run", "tmux",
        "screen", "dtach", "abduco", "run-parts", "find", "fd", "fdfind", "hyperfine", "ld.so", "ld-linux.so", "ld-linux-x86-64.so", "ld-linux-aarch64.so", "ldd", "tini", "dumb-init", "gosu", "su-exec", "setuidgid", "s6-setuidgid",
        "chronic", "ifne", "mispipe", "pee", "zrun", "bunx", "chpst", "softlimit", "cgexec", "ssh-agent", "gpg-agent", "sshpass", "direnv", "mise", "asdf", "rbenv", "pyenv", "nodenv", "nvm", "nix", "nix-shell", "guix", "flatpak", "snap", "distrobox", "toolbox", "rlwrap", "socat", "nc", "ncat",
        "netcat", "logrotate", "logsave", "busctl", "debconf", "dpkg-reconfigure", "update-alternatives", "zargs", "aa-exec", "runcon", "newrole", "torify", "torsocks", "proxychains", "catchsegv", "gdbserver", "jcmd",
        "agetty", "authbind", "catatonit", "coreutils", "debconf-apt-progress", "envdir", "fakechroot", "fakeroot-sysv", "fakeroot-tcp", "flatpak-spawn", "getty", "gprofng", "heaptrack", "jexec", "luit",
        "make-first-existing-target", "memusage", "nocache", "not", "openvt", "pg_virtualenv", "primusrun", "rr", "rtcwake", "runc", "s6-setsid", "scriptlive", "setlock", "sotruss", "switch_root", "trace-cmd", "trickle",
        "uclampset", "uftrace", "valgrind.bin", "vglrun", "apptainer", "coresched", "dbus-send", "enosys", "envuidgid", "gdbus", "homectl", "lckdo", "nq", "pipesz", "qdbus", "singularity", "tsocks", "tsp", "userdbctl",
        "asciinema", "byobu", "cage", "chamber", "cset", "dotenv", "envchain", "execlineb", "gamemoderun", "infisical", "k5start", "keyctl", "krenew", "mangohud", "mock", "nodemon", "op", "optirun", "pipexec", "prime-run", "schroot", "sops",
        "bear", "ccache", "concurrently", "cross-env", "cross-env-shell", "ddev", "distcc", "fnm", "icecc", "pm2", "rvm", "sccache", "tmate", "volta",
        "fstab-decode", "retry", "startx", "steam-run", "timelimit", "ttyrec", "weston", "with-lock-ex", "xdg-terminal-exec", "xinit", "zellij",
        "msgexec", "msgfilter", "mpirun", "mpiexec", "srun", "salloc", "sbatch", "doppler", "aws-vault", "run-mailcap", "xdg-open", "xterm", "uxterm", "rxvt", "urxvt", "gnome-terminal", "konsole", "xfce4-terminal", "alacritty", "kitty", "foot",
    ]),
    (REMOTE, &[
        "ssh", "autossh", "slogin", "scp", "sftp", "rsh", "mosh", "rsync", "docker", "docker-compose", "podman", "podman-compose", "podman-remote", "buildah", "nerdctl", "crictl", "ctr", "kubectl", "oc", "k3s", "microk8s", "minikube", "lxc", "lxc-attach", "lxc-execute", "incus",
        "pct", "multipass", "adb", "ansible", "ansible-playbook", "salt", "salt-call", "salt-ssh", "guestfish", "virt-builder", "virt-customize", "pdsh", "pssh", "parallel-ssh", "clush", "dsh", "virsh", "vagrant", "fly", "flyctl", "heroku", "sshfs", "devcontainer", "lxc-start",
    ]),
    (BUILDER, &[
        "make", "bmake", "gmake", "cmake", "ninja", "meson", "bazel", "just", "task", "rake", "bundle", "gem", "cargo", "rustup", "rustc", "rustdoc", "go", "npm", "npx", "pnpm", "pnpx", "yarn", "corepack", "pip", "pipx", "pipenv", "uv", "uvx",
        "poetry", "pdm", "hatch", "rye", "tox", "nox", "pytest", "prove", "mvn", "gradle", "gradlew", "ant", "sbt", "javac", "javadoc", "composer", "phpunit", "jest", "mocha", "vitest", "eslint", "gulp", "grunt",
        "c89", "c89-gcc", "c99", "c99-gcc", "gcc", "cc", "g++", "c++", "cpp", "clang", "clang++", "clang-cpp", "ld", "ld.bfd", "ld.gold", "ld.lld", "lld", "gold", "mold", "pre-commit", "terraform", "tofu",
        "apt", "apt-get", "apt-key", "aptitude", "dpkg", "rpm", "dnf", "yum", "pacman", "apk", "zypper", "debuild", "dpkg-buildpackage", "puppet", "chef-apply", "chef-client", "chef-solo", "autom4te", "autoreconf", "automake", "autoconf", "libtool", "cabal", "conda", "mamba", "micromamba", "stack",
    ]),
    (EDITOR, &[
        "vi", "vim", "vim.basic", "vim.gtk3", "vim.nox", "vim.tiny", "rvim", "gvim", "nvim", "view", "rview", "gview", "vimdiff", "editor", "sensible-editor", "select-editor", "ex", "ed", "red", "nano", "pico", "joe", "mc", "less", "more", "most", "pager", "sensible-pager", "zless", "zmore", "bzless", "bzmore", "lzless", "xzless", "xzmore", "zstdless", "man", "info", "ftp", "tnftp", "lftp", "smbclient", "telnet", "mutt", "mail", "mailx", "lynx", "w3m", "links", "top", "htop", "git-shell",
        "visudo", "vipw", "vigr", "vidir", "vipe", "debugfs",
    ]),
];

pub(super) const CODE: &str = "reads its arguments as code";
pub(super) const MEANING: &str = "changes what later words mean";
pub(super) const SUBSCRIPT: &str = "evaluates the subscript in a variable's name";

/// Built-ins of the shell. They have no path, so no version and no directory either.
#[rustfmt::skip]
pub(super) const BUILTINS: &[(&str, &[&str])] = &[
    (CODE, &["eval", "source", ".", "trap", "exec", "command", "builtin", "bind", "complete", "compgen", "compopt", "fc", "coproc", "mapfile", "readarray", "let"]),
    (MEANING, &["alias", "unalias", "enable", "hash", "set", "shopt", "export", "readonly", "declare", "typeset", "local", "unset", "history", "pushd", "popd", "dirs", "umask", "ulimit", "exit", "return", "break", "continue", "shift", "getopts"]),
    (SUBSCRIPT, &["read", "wait"]),
];

/// Options that make a harmless program run others, or do what nobody expects of it.
pub(super) struct Options {
    pub programs: &'static [&'static str],
    /// A letter (`-I`) counts wherever it stands in a group, a long one (`--filter`) in every
    /// abbreviation. One of several letters and one dash (`-engine`) is written with two as well.
    pub options: &'static [&'static str],
    /// The letters that have a value: what stands behind one in a group is no option.
    pub valued: &'static str,
    pub what: &'static str,
}

const fn options(
    programs: &'static [&'static str],
    options: &'static [&'static str],
    valued: &'static str,
    what: &'static str,
) -> Options {
    Options {
        programs,
        options,
        valued,
        what,
    }
}

pub(super) const RUNS: &str = "runs a program its options name";
const LOADS: &str = "loads code its options name";
const WRITES: &str = "writes files its options name";
const COMMANDS: &str = "takes commands from a file";
pub(super) const SETTINGS: &str = "takes settings that name programs";

/// Letters of curl and wget that have a value.
const CURL: &str = "AbCcdDeEFHhKmoPQrtTuUwxXyYz";
const WGET: &str = "aABDeiIlOoPQRtTUwX";

/// The tools of apt: `-o Dir::Bin::…` is a program they run.
const APT: &[&str] = &[
    "apt-cache",
    "apt-cdrom",
    "apt-config",
    "apt-extracttemplates",
    "apt-file",
    "apt-ftparchive",
    "apt-listchanges",
    "apt-mark",
    "apt-show-versions",
    "apt-sortpkgs",
];

const BINUTILS: &[&str] = &[
    "addr2line",
    "ar",
    "gcc-ar",
    "gcc-nm",
    "gcc-ranlib",
    "nm",
    "objcopy",
    "objdump",
    "ranlib",
    "size",
    "strip",
];

const JDK: &[&str] = &[
    "jar",
    "jarsigner",
    "javap",
    "jconsole",
    "jdeprscan",
    "jdeps",
    "jinfo",
    "jlink",
    "jmap",
    "jmod",
    "jpackage",
    "jps",
    "jstack",
    "jstat",
    "keytool",
    "rmiregistry",
    "serialver",
];

const MYSQL: &[&str] = &[
    "mariadb-admin",
    "mariadb-binlog",
    "mariadb-check",
    "mariadb-dump",
    "mariadb-import",
    "mariadb-show",
    "mysqladmin",
    "mysqlbinlog",
    "mysqlcheck",
    "mysqldump",
    "mysqlimport",
    "mysqlshow",
];

const SYSTEMD: &[&str] = &[
    "hostnamectl",
    "journalctl",
    "localectl",
    "loginctl",
    "systemctl",
    "systemd-analyze",
    "timedatectl",
];

const TABLES: &[&str] = &[
    "ip6tables",
    "ip6tables-legacy",
    "ip6tables-nft",
    "ip6tables-restore",
    "ip6tables-save",
    "iptables",
    "iptables-legacy",
    "iptables-nft",
    "iptables-restore",
    "iptables-save",
];

const TEX: &[&str] = &[
    "etex", "latex", "pdflatex", "pdftex", "tex", "xelatex", "xetex",
];

#[rustfmt::skip]
pub(super) const OPTIONS: &[Options] = &[
    options(&["tar"],    &["-I", "-F", "--checkpoint-action", "--to-command", "--use-compress-program", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command"], "", RUNS),
    options(&["tar"],    &["--index-file", "--volno-file"], "", WRITES),
    options(&["tar"],    &["-g", "--listed-incremental"], "bCfHKLNTVX", WRITES),
    options(&["strace"], &["-o", "--output"], "abeEIOpPsSuUX", RUNS),
    options(&["perf"],   &["--pre", "--post"], "", RUNS),
    options(&["dbus-run-session"], &["--dbus-daemon"], "", RUNS),
    options(&["pip"],    &["--editor", "--python"], "", RUNS),
    options(&["savelog"], &["-x"], "cgmru", RUNS),
    options(&["dpkg"],   &["--pre-invoke", "--post-invoke", "--status-logger"], "", RUNS),
    options(&["apt", "apt-get", "aptitude"], &["-o", "--option"], "", RUNS),
    options(&["bsdtar"], &["--use-compress-program"], "", RUNS),
    options(&["aria2c"], &["--on-bt-download-complete", "--on-download-complete", "--on-download-error", "--on-download-pause", "--on-download-start", "--on-download-stop"], "", RUNS),
    options(&["aria2c"], &["--conf-path"], "", SETTINGS),
    options(&["bazel"],  &["--run_under"], "", RUNS),
    options(&["borg"],   &["--remote-path", "--rsh"], "", RUNS),
    options(&["go"],     &["-exec", "-toolexec", "-vettool"], "", RUNS),
    options(&["dmsetup"], &["--exec"], "", RUNS),
    options(&["c++", "c89", "c89-gcc", "c99", "c99-gcc", "cc", "cpp", "g++", "gcc"], &["-wrapper"], "", RUNS),
    options(&["clang", "clang++"], &["--ld-path", "-fuse-ld"], "", RUNS),
    options(&["gcloud"], &["--command"], "", RUNS),
    options(&["gpg", "gpg2"], &["--photo-viewer"], "", RUNS),
    options(&["tcpdump"], &["-z"], "BcCEFGijmMQrsTVwWyZ", RUNS),
    options(&["modprobe"], &["-C", "--config", "-d", "--dirname"], "", SETTINGS),
    options(&["patch"],  &["-e", "--ed"], "BdDFgiprVYz", COMMANDS),
    options(&["rclone"], &["--config", "--metadata-mapper", "--password-command", "--sftp-ssh"], "", RUNS),
    options(&["restic"], &["-o", "--option", "--password-command", "--stdin-from-command"], "", RUNS),
    options(&["certbot"], &["--deploy-hook", "--manual-auth-hook", "--manual-cleanup-hook", "--post-hook", "--pre-hook", "--renew-hook"], "", RUNS),
    options(&["certbot"], &["-c", "--config"], "dm", SETTINGS),
    options(&["openvpn"], &["--auth-user-pass-verify", "--client-connect", "--client-crresponse", "--client-disconnect", "--down", "--ipchange", "--iproute", "--learn-address", "--route-pre-down", "--route-up", "--tls-crypt-v2-verify", "--tls-verify", "--up"], "", RUNS),
    options(&["openvpn"], &["--config", "--plugin"], "", SETTINGS),
    options(&["youtube-dl", "yt-dlp"], &["--downloader", "--exec", "--exec-before-download", "--external-downloader", "--netrc-cmd"], "", RUNS),
    options(&["youtube-dl", "yt-dlp"], &["--config-locations", "--plugin-dirs"], "", SETTINGS),
    options(&["cpio"],   &["--rsh-command"], "", RUNS),
    options(&["cargo"],  &["--config"], "", SETTINGS),
    options(&["cmake"],  &["-D"], "", SETTINGS),
    options(&["gpg-connect-agent"], &["--agent-program", "--keyboxd-program", "--dirmngr-program"], "", SETTINGS),
    options(&["gpgtar"], &["--gpg"], "", RUNS),
    options(&["mdadm"],  &["-p", "--alert", "--program"], "", RUNS),
    options(&["mlr"],    &["--prepipe", "--prepipex"], "", RUNS),
    options(&["pandoc"], &["-F", "-L", "--filter", "--lua-filter", "--pdf-engine"], "", RUNS),
    options(&["protoc"], &["--plugin"], "", RUNS),
    options(&["rpm", "rpmbuild", "rpmspec"], &["-D", "-E", "--define", "--eval"], "", SETTINGS),
    options(&["ssh-copy-id"], &["-o"], "Fip", SETTINGS),
    options(&["sort"],   &["--compress-program"], "", RUNS),
    options(&["sort"],   &["-o", "--output"], "kStT", WRITES),
    options(&["shuf"],   &["-o", "--output"], "in", WRITES),
    options(&["ptx"],    &["-G", "--traditional"], "", "writes the file its second argument names"),
    options(&["split"],  &["--filter"], "", RUNS),
    options(&["install", "ginstall"], &["--strip-program"], "", RUNS),
    options(&["zip"],    &["-T", "-TT", "--unzip-command"], "", RUNS),
    options(&["zip"],    &["-lf", "--logfile-path"], "", WRITES),
    options(&["sdiff", "diff3"], &["--diff-program"], "", RUNS),
    options(&["sdiff"],  &["-o", "--output"], "Iwo", WRITES),
    options(&["iconv"],  &["-o", "--output"], "ft", WRITES),
    options(&["sar"],    &["-o"], "", WRITES),
    options(&["tree"],   &["-o", "-R"], "", WRITES),
    options(&["yq"],     &["-i", "--inplace", "--in-place"], "", WRITES),
    options(&["rg"],     &["--pre", "--hostname-bin", "-z", "--search-zip"], "", RUNS),
    options(&["ack", "ag"], &["--pager", "--ackrc", "--output"], "", RUNS),
    options(&["grep"],   &["--pager"], "", RUNS),
    options(&["fzf"],    &["--bind", "--listen", "--preview", "--with-shell"], "", RUNS),
    options(&["tcpdump"], &["-w"], "BcCEFGijmMQrsTVWyz", WRITES),
    options(&["dumpcap"], &["-w"], "", WRITES),
    options(&["tshark"], &["-w"], "BcCEFGijMrsTwWyYz", WRITES),
    options(&["tshark"], &["-X"], "", LOADS),
    options(&["nmap"],   &["-script", "-datadir", "-servicedb", "--script", "--datadir"], "", LOADS),
    options(&["nmap"],   &["-o", "-oA", "-oG", "-oM", "-oN", "-oS", "-oX", "--resume"], "", WRITES),
    options(&["date"],   &["-s", "--set"], "dfIrs", "sets the clock"),
    options(&["hostname"], &["-F", "--file", "-b", "--boot"], "F", "sets the system's name"),
    options(&["wget"],   &["--use-askpass", "-e", "--execute"], WGET, RUNS),
    options(&["wget"],   &["--config"], WGET, SETTINGS),
    options(&["gpg", "gpg2", "gpgsm", "gpgv"], &["-o", "--output"], "NorRu", WRITES),
    options(&["wget"],   &["-a", "-b", "-O", "--background", "-o", "-P", "--append-output", "--directory-prefix", "--hsts-file", "--output-document", "--output-file", "--rejected-log", "--save-cookies", "--warc-file"], WGET, WRITES),
    options(&["curl"],   &["-K", "--config"], CURL, "takes options from a file"),
    options(&["curl"],   &["--engine"], CURL, LOADS),
    options(&["curl"],   &["-c", "-D", "-O", "-o", "-T", "--alt-svc", "--cookie-jar", "--create-dirs", "--dump-header", "--etag-save", "--hsts", "--libcurl", "--output", "--output-dir", "--remote-name", "--remote-name-all", "--stderr", "--trace", "--trace-ascii", "--upload-file"], CURL, WRITES),
    options(&["jobs"],   &["-x"], "", RUNS),
    options(&["test", "["], &["-v"], "", SUBSCRIPT),
    options(&["journalctl"], &["--vacuum-size", "--vacuum-time", "--vacuum-files", "--rotate", "--flush", "--relinquish-var", "--smart-relinquish-var"], "", "removes or moves logs"),
    options(&["journalctl"], &["--cursor-file", "--setup-keys", "--update-catalog"], "", "writes files"),
    options(&["coredumpctl"], &["-A", "-o", "--debugger", "--debugger-arguments", "--output"], "", RUNS),
    options(SYSTEMD,     &["-H", "--host", "-M", "--machine", "--image"], "", REMOTE),
    options(&["systemd-dissect"], &["--with"], "", RUNS),
    options(&["systemd-notify"], &["--exec"], "", RUNS),
    options(&["ss"],     &["-K", "--kill", "-D", "--diag"], "", "closes connections, writes files"),
    options(&["file"],   &["-C", "--compile"], "", "writes files"),
    options(&["getent"], &["-s", "--service"], "", LOADS),
    options(&["nft"],    &["-f", "-i", "--file", "--interactive"], "", COMMANDS),
    options(TABLES,      &["-M", "--modprobe"], "", RUNS),
    options(&["dmesg"],  &["-C", "-c", "--clear", "--read-clear"], "", "removes messages"),
    options(&["diff"],   &["-l", "--paginate"], "", RUNS),
    options(&["pr", "column", "bat", "batcat"], &["--pager"], "", RUNS),
    options(&["openssl"], &["-config", "-engine", "-provider", "-provider-path", "-ssl_client_engine"], "", LOADS),
    options(&["openssl"], &["-cacertsout", "-CAcreateserial", "-CAserial", "-certout", "-certsout", "-chainout", "-crlout", "-extracertsout", "-keylogfile", "-keyout", "-msgfile", "-newkeyout", "-out", "-outdir", "-reqout", "-respout", "-rspout", "-sess_out", "-writerand"], "", WRITES),
    options(&["ssh-keygen"], &["-D", "-w"], "", LOADS),
    options(&["ssh-add"], &["-s", "-S"], "tE", LOADS),
    options(&["gpg", "gpgsm", "gpgv"], &["--agent-program", "--dirmngr-program", "--exec-path", "--homedir", "--keyboxd-program", "--load-extension", "--options", "--photo-viewer"], "", SETTINGS),
    options(&["sysctl"], &["-p", "--load", "--system"], "", "takes settings from a file"),
    options(APT,         &["-c", "-o", "--config-file", "--option"], "", SETTINGS),
    options(BINUTILS,    &["--plugin"], "", LOADS),
    options(JDK,         &["-J"], "", LOADS),
    options(&["keytool", "jarsigner"], &["-addprovider", "-providerarg", "-providerclass", "-providerpath"], "", LOADS),
    options(MYSQL,       &["--default-auth", "--defaults-extra-file", "--defaults-file", "--plugin-dir"], "", LOADS),
    options(MYSQL,       &["-r", "-T", "--result-file", "--tab"], "hpPSu", WRITES),
    options(&["pidstat"], &["-e"], "", RUNS),
    options(&["agetty", "getty"], &["-l", "--login-program"], "", RUNS),
    options(&["dpkg-architecture"], &["-c", "--command"], "aAeEiILlqtTW", RUNS),
    options(&["groff", "nroff"], &["-U"], "dDfFIKLmMnoPrTwW", "has its input run programs"),
    options(&["pic", "troff"], &["-U"], "", "has its input run programs"),
    options(&["groff", "nroff", "troff"], &["-F"], "", SETTINGS),
    options(&["man"],    &["-H", "-P", "--html", "--pager"], "", RUNS),
    options(&["prove"],  &["-e", "--exec"], "", RUNS),
    options(&["run0", "systemd-run"], &["-p", "--property"], "", RUNS),
    options(&["schedtool"], &["-e"], "anp", RUNS),
    options(&["pylint"], &["--init-hook", "--load-plugins", "--rcfile"], "", LOADS),
    options(&["helm"],   &["--post-renderer"], "", RUNS),
    options(&["hg"],     &["--remotecmd", "--ssh"], "", RUNS),
    options(&["hg"],     &["-R", "--config", "--cwd", "--repository"], "", SETTINGS),
    options(&["svn", "svnlook"], &["--config-dir", "--config-option", "--diff-cmd", "--diff3-cmd", "--editor-cmd"], "", SETTINGS),
    options(TEX,         &["-enable-write18", "-shell-escape"], "", RUNS),
];

/// Arguments of `ip`, `openssl` and the like that run programs whatever stands before them:
/// programs, arguments, how many letters are enough (0 for all), why.
#[rustfmt::skip]
pub(super) const ARGUMENTS: &[(&str, &[&str], usize, &str)] = &[
    ("ip",          &["exec", "vrf"], 0, WRAPPER),
    ("tc",          &["exec"], 1, WRAPPER),
    ("systemctl",   &["edit", "set-environment", "import-environment", "link", "enable", "reenable"], 0, "has the system run other programs"),
    ("coredumpctl", &["debug", "gdb"], 0, EDITOR),
    ("gcloud",      &["scp", "ssh"], 0, REMOTE),
    ("gh",          &["alias", "codespace", "cs", "extension", "extensions", "ext"], 0, WRAPPER),
    ("openssl",     &["engine"], 0, "loads code its arguments name"),
    ("consul",      &["exec", "lock", "watch"], 0, WRAPPER),
    ("nomad",       &["exec"], 0, REMOTE),
    ("helm",        &["plugin", "plugins"], 0, WRAPPER),
    ("hg",          &["bisect", "extdiff", "serve"], 2, WRAPPER),
];

/// Variables with options for a program, and that.
pub(super) const OPTIONS_IN: &[(&str, &str)] = &[
    ("ACK_OPTIONS", "ack"),
    ("FZF_DEFAULT_OPTS", "fzf"),
    ("GNUMAKEFLAGS", "make"),
    ("MAKEFLAGS", "make"),
    ("MANOPT", "man"),
    ("TAR_OPTIONS", "tar"),
    ("ZIP", "zip"),
    ("ZIPOPT", "zip"),
];

/// Files that programs of the list obey where they are called, without being told: programs, files.
#[rustfmt::skip]
pub(super) const DEFAULT_FILES: &[(&[&str], &[&str])] = &[
    (&["bmake", "gmake", "make"], &["BSDmakefile", "GNUmakefile", "Makefile", "makefile"]),
    (&["just"], &[".justfile", "Justfile", "justfile"]),
    (&["ninja"], &["build.ninja"]),
    (&["npm", "pnpm", "yarn"], &["package.json"]),
    (&["rake"], &["Rakefile", "Rakefile.rb", "rakefile", "rakefile.rb"]),
    (&["task"], &["Taskfile.dist.yaml", "Taskfile.dist.yml", "Taskfile.yaml", "Taskfile.yml", "taskfile.yaml", "taskfile.yml"]),
];
