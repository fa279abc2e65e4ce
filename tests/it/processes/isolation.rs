//! What a command is born with: everything it needs, nothing of the daemon's.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::json;

use crate::support::{Daemon, Mode, skip};

/// The environment that the shell was given, before it added its own.
const OWN_ENVIRONMENT: &str = "cat /proc/$$/environ | tr '\\0' '\\n'";

fn variables(text: &str) -> BTreeMap<String, String> {
    let lines = text
        .lines()
        .map(|line| line.split_once('=').expect("NAME=value"));
    lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn the_environment_is_the_documented_one_and_nothing_of_the_daemon_s() {
    for mode in Mode::all() {
        let toml = "[env]\nCONFIGURED = \"yes\"\nLANG = \"de_DE.UTF-8\"";
        let daemon = Daemon::start_adjusted(mode, toml, |command| {
            for (name, value) in [
                ("SECRET_TOKEN", "leak"),
                ("NOTIFY_SOCKET", "/nonexistent/notify"),
                ("LISTEN_PID", "1"),
                ("LISTEN_FDS", "1"),
                ("LISTEN_FDNAMES", "leak"),
                ("CREDENTIALS_DIRECTORY", "/nonexistent"),
                ("INVOCATION_ID", "leak"),
                ("JOURNAL_STREAM", "8:1"),
                ("BASH_ENV", "/nonexistent/leak"),
                ("BASH_FUNC_ls%%", "() { echo leak; }"),
                ("LD_LIBRARY_PATH", "/nonexistent"),
                ("PATH", "/nonexistent"),
                ("HOME", "/nonexistent"),
                ("USER", "leak"),
                ("TERM", "xterm"),
            ] {
                command.env(name, value);
            }
        });
        let members = json!({"env": {"CALLED": "with = and\nnewline?no", "TERM": "vt100"}});
        let members = serde_json::to_string(&members)
            .expect("JSON")
            .replace("\\n", " ");
        let members = serde_json::from_str(&members).expect("JSON");
        let reply = daemon.bash_with(OWN_ENVIRONMENT, &members);
        let id = reply.json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
        let user = user.expect("a user database").expect("an entry in it");
        let instance = daemon.instance();
        let expected: BTreeMap<String, String> = [
            (
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            ),
            ("HOME", user.dir.to_str().expect("text")),
            ("USER", &user.name),
            ("LOGNAME", &user.name),
            ("SHELL", "/bin/bash"),
            ("LANG", "de_DE.UTF-8"),
            ("TERM", "vt100"),
            ("PAGER", "cat"),
            ("GIT_PAGER", "cat"),
            ("MANPAGER", "cat"),
            ("SYSTEMD_PAGER", "cat"),
            ("DEBIAN_FRONTEND", "noninteractive"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "gc.autoDetach"),
            ("GIT_CONFIG_VALUE_0", "false"),
            ("SHELLY_EXECUTION_ID", &id),
            ("SHELLY_INSTANCE_ID", &instance),
            ("CONFIGURED", "yes"),
            ("CALLED", "with = and newline?no"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        assert_eq!(variables(&reply.stdout()), expected, "{mode:?}");
        // And without anything asked for, the defaults.
        let defaults = Daemon::start_with(mode, "").bash(OWN_ENVIRONMENT);
        let defaults = variables(&defaults.stdout());
        assert_eq!(
            (defaults["LANG"].as_str(), defaults["TERM"].as_str()),
            ("C.UTF-8", "dumb")
        );
    }
}

#[test]
fn the_ids_by_which_a_tree_is_found_cannot_be_given() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let members = json!({"env": {"SHELLY_EXECUTION_ID": "x", "SHELLY_INSTANCE_ID": "y"}});
        let reply = daemon.bash_with("echo $SHELLY_EXECUTION_ID $SHELLY_INSTANCE_ID", &members);
        let id = reply.json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        assert_eq!(
            reply.stdout(),
            format!("{id} {}", daemon.instance()),
            "{mode:?}"
        );
    }
}

/// However much is open in the daemon, and however many are just being born.
#[test]
fn nobody_gets_descriptors_of_others() {
    const SIDE_BY_SIDE: usize = 24;
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let open: Vec<_> = (0..150).map(|_| daemon.connect()).collect();
        std::thread::scope(|scope| {
            let daemon = &daemon;
            for client in 0..SIDE_BY_SIDE {
                scope.spawn(move || {
                    for round in 0..10 {
                        let said = format!("{client}.{round}");
                        let command =
                            format!("echo {said}; echo {said} >&2; exec ls /proc/self/fd");
                        let reply = daemon.bash(&command);
                        assert_eq!(reply.stdout(), format!("{said}\n0\n1\n2\n3"), "{mode:?}");
                        let stderr = format!("[stderr]\n{said}");
                        assert!(
                            reply.content().contains(&stderr),
                            "{mode:?}: {}",
                            reply.content()
                        );
                    }
                });
            }
        });
        drop(open);
    }
}

#[test]
fn only_three_descriptors_are_open() {
    for mode in Mode::all() {
        let daemon = Daemon::start_adjusted(mode, "", |command| {
            // One that whoever started the daemon has leaked to it.
            // SAFETY: dup(2) is safe after a fork.
            unsafe { command.pre_exec(|| check(libc::dup2(2, 77))) };
        });
        // Executions side by side, so that there is something of others to be had.
        let other = daemon.begin("sleep 60", &json!({"stdin": "x"}));
        for members in [json!({}), json!({"stdin": "text"})] {
            // Opening the directory is what gives `ls` its fourth.
            let reply = daemon.bash_with("exec ls /proc/self/fd", &members);
            assert_eq!(reply.stdout(), "0\n1\n2\n3", "{mode:?} {members}");
        }
        let reply =
            daemon.bash("readlink /proc/self/fd/0; test /dev/stdout -ef /dev/stderr || echo apart");
        assert_eq!(reply.stdout(), "/dev/null\napart", "{mode:?}");
        let script = format!("#{}\nexec ls /proc/self/fd", "x".repeat(200_000));
        // A long script's own file is the shell's doing.
        let long = daemon.bash(&script).stdout();
        assert!(long == "0\n1\n2\n3", "{mode:?}: {long}");
        daemon
            .connect()
            .request("DELETE", &format!("/executions/{other}"), &[], b"");
    }
}

/// What is opened once has one lock, whoever has it and for as long as anybody has.
#[test]
fn standard_input_is_opened_for_each() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        assert_eq!(daemon.bash("flock 0; echo locked").stdout(), "locked");
        let other = daemon.bash("flock --nonblock 9 9</dev/null && echo free");
        assert_eq!(other.stdout(), "free", "{mode:?}: {}", other.content());
    }
}

/// What an operator gives the daemon (`Nice=`, `CPUSchedulingPolicy=`, `IOSchedulingClass=`,
/// `OOMScoreAdjust=`, `LimitNOFILE=`, `UMask=`, `IgnoreSIGPIPE=`, a blocked signal) is not for its commands.
#[test]
fn nothing_an_operator_gave_the_daemon_reaches_its_commands() {
    // A hard limit is raised again only with CAP_SYS_RESOURCE, which root in a container may lack.
    let may_raise = has_capability(24);
    for mode in Mode::all() {
        let daemon = Daemon::start_adjusted(mode, "", |command| {
            // SAFETY: system calls only, on memory of the closure's own.
            unsafe { command.pre_exec(burden) };
        });
        let own = |file: &str| {
            std::fs::read_to_string(format!("/proc/{}/{file}", daemon.pid())).expect("own process")
        };
        assert_eq!(
            own("oom_score_adj"),
            "500\n",
            "the daemon has what it was given"
        );
        let reply = daemon.bash(
            "grep -E '^Sig(Blk|Ign)' /proc/self/status; umask; cat /proc/self/oom_score_adj; \
             ulimit -Sn; ulimit -Hn; ulimit -Sc; ulimit -Ss; nice; ulimit -Su; ulimit -Si",
        );
        let stdout = reply.stdout();
        let lines: Vec<&str> = stdout.lines().collect();
        let nothing = "0000000000000000";
        assert_eq!(lines[0], format!("SigBlk:\t{nothing}"), "{mode:?}");
        assert_eq!(lines[1], format!("SigIgn:\t{nothing}"), "{mode:?}");
        assert_eq!(lines[2], "0022", "{mode:?}");
        if nix::unistd::geteuid().is_root() {
            let hard = if may_raise { "524288" } else { "4096" };
            let expected = ["0", "1024", hard, "0", "8192", "0"];
            assert_eq!(lines[3..9], expected, "{mode:?}");
            let first = std::fs::read_to_string("/proc/1/limits").expect("limits");
            let soft = |name: &str| {
                let line = first.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|line| line.split_ascii_whitespace().next())
            };
            let computed = [soft("Max processes"), soft("Max pending signals")];
            let computed = computed.map(|limit| limit.expect("a limit"));
            assert_eq!(lines[9..], computed, "{mode:?}");
        } else {
            skip("nice, oom_score_adj and limits of commands, for only root may take them back");
        }
        let scheduling = daemon.bash("chrt -p $$ | head -n 1; ionice -p $$").stdout();
        let lines: Vec<&str> = scheduling.lines().collect();
        assert!(
            lines[0].ends_with(": SCHED_OTHER"),
            "{mode:?}: {scheduling}"
        );
        assert_ne!(lines[1], "idle", "{mode:?}");
        // The daemon itself is as it was given: it shares memory with its children while they
        // are born, and what they change of themselves must not reach it.
        assert_eq!(own("oom_score_adj"), "500\n", "{mode:?}");
        // SIGPIPE is not ignored, so whoever writes to a reader that is gone ends.
        let reply = daemon.bash("yes | head -n 1; echo ${PIPESTATUS[0]}");
        assert_eq!(reply.stdout(), "y\n141", "{mode:?}");
        assert!(!reply.content().contains("[stderr]"), "{mode:?}");
    }
}

fn has_capability(bit: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("own process");
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:\t"));
    let mask = u64::from_str_radix(mask.expect("a mask"), 16).expect("hexadecimal");
    mask & (1 << bit) != 0
}

/// Burdens this process with what an operator could.
fn burden() -> io::Result<()> {
    // SAFETY: system calls on locals that outlive them.
    unsafe {
        for signal in [
            libc::SIGPIPE,
            libc::SIGUSR1,
            libc::SIGQUIT,
            libc::SIGRTMIN() + 3,
        ] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut blocked);
        libc::sigaddset(&raw mut blocked, libc::SIGUSR2);
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const blocked,
            std::ptr::null_mut(),
        ))?;
        libc::umask(0o077);
        check(libc::setpriority(libc::PRIO_PROCESS, 0, 5))?;
        let lowest = libc::sched_param { sched_priority: 0 };
        check(libc::sched_setscheduler(
            0,
            libc::SCHED_BATCH,
            &raw const lowest,
        ))?;
        // The class `idle` of ioprio_set(2), for this process.
        check(libc::syscall(libc::SYS_ioprio_set, 1, 0, 3 << 13) as i32)?;
        for (resource, soft, hard) in [
            (libc::RLIMIT_NOFILE, 512, 4096),
            (libc::RLIMIT_CORE, 1 << 20, 1 << 20),
            (libc::RLIMIT_STACK, 4 << 20, 16 << 20),
            (libc::RLIMIT_NPROC, 4000, libc::RLIM_INFINITY),
            (libc::RLIMIT_SIGPENDING, 100, libc::RLIM_INFINITY),
        ] {
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            check(libc::getrlimit(resource, &raw mut limit))?;
            limit = libc::rlimit {
                rlim_cur: soft,
                rlim_max: hard.min(limit.rlim_max),
            };
            check(libc::setrlimit(resource, &raw const limit))?;
        }
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        check(file)?;
        check(libc::write(file, c"500".as_ptr().cast(), 3) as i32)?;
        check(libc::close(file))
    }
}

/// A daemon that has a terminal, as one that is run by hand from a shell.
#[test]
fn there_is_no_terminal_to_ask_at() {
    for mode in Mode::all() {
        let terminal = Terminal::open();
        let path = CString::new(terminal.path.clone()).expect("no NUL");
        let daemon = Daemon::start_adjusted(mode, "", |command| adopt(command, path));
        let status = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid()));
        let status = status.expect("own process");
        let fields: Vec<&str> = status
            .rsplit_once(')')
            .expect("a name")
            .1
            .split(' ')
            .collect();
        assert_ne!(
            fields[5], "0",
            "the daemon has a controlling terminal: {status}"
        );
        let reply = daemon.bash("exec 3</dev/tty || echo none; tty; ps -o tty= -p $$");
        assert!(
            reply.stdout().starts_with("none\nnot a tty"),
            "{mode:?}: {}",
            reply.content()
        );
        assert!(
            reply.content().contains("No such device or address"),
            "{}",
            reply.content()
        );
        let session = daemon.bash("read -r _ _ _ _ group session _ </proc/$$/stat; echo $(($$ - group)) $(($$ - session))");
        assert_eq!(
            session.stdout(),
            "0 0",
            "{mode:?}: a session and group of its own"
        );
    }
}

/// Makes the terminal at `path` the controlling one of a command that is to be started.
fn adopt(command: &mut Command, path: CString) {
    let adopt = move || {
        // SAFETY: system calls on a string that lives as long as the closure.
        unsafe {
            check(libc::setsid())?;
            // The first terminal that the leader of a session opens becomes its own.
            check(libc::open(path.as_ptr(), libc::O_RDWR))
        }
    };
    // SAFETY: nothing but system calls.
    unsafe { command.pre_exec(adopt) };
}

/// A pseudoterminal.
struct Terminal {
    path: String,
    _master: std::fs::File,
}

impl Terminal {
    fn open() -> Self {
        use std::os::fd::AsRawFd;
        let master = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/ptmx");
        let master = master.expect("a pseudoterminal");
        let (mut locked, mut number) = (0i32, 0i32);
        // SAFETY: both requests take a pointer to one int.
        unsafe {
            assert_eq!(
                libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw mut locked),
                0
            );
            assert_eq!(
                libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number),
                0
            );
        }
        Self {
            path: format!("/dev/pts/{number}"),
            _master: master,
        }
    }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
