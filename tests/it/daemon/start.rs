//! Where and as whom a daemon can be started, and what keeps it from it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Daemon, Mode, scratch, skip};

/// A user with no rights and no entry anywhere.
const NOBODY: u32 = 64_123;

const DAEMON: &str = env!("CARGO_BIN_EXE_shelly-executord");

/// Runs a daemon that is expected to end by itself.
fn refused(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(DAEMON);
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command.output().expect("it starts")
}

#[track_caller]
fn assert_told(output: &Output, code: i32, parts: &[&str]) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
    for part in parts {
        assert!(told.contains(part), "{told:?} lacks {part:?}");
    }
}

/// Runs `test` in a directory that is removed afterwards.
fn in_scratch(test: impl FnOnce(&Path)) {
    let dir = scratch();
    test(&dir);
    fs::remove_dir_all(dir).expect("removable");
}

/// A checkout of somebody who may nothing: the programs, a home, and commands run as that user.
struct Checkout {
    dir: PathBuf,
    uid: u32,
    runtime_dir: Option<PathBuf>,
}

impl Checkout {
    fn new() -> Self {
        let dir = scratch();
        // Where these were built may be closed to others.
        for program in [DAEMON, env!("CARGO_BIN_EXE_shellyctl")] {
            let name = Path::new(program).file_name().expect("a name");
            fs::copy(program, dir.join(name)).expect("copied");
        }
        let own = nix::unistd::geteuid();
        let uid = if own.is_root() {
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("own directory");
            chown(&dir, Some(NOBODY), Some(NOBODY)).expect("root may");
            NOBODY
        } else {
            own.as_raw()
        };
        Self {
            dir,
            uid,
            runtime_dir: None,
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.dir.join(program));
        command.env_clear().env("HOME", &self.dir);
        if let Some(dir) = &self.runtime_dir {
            command.env("XDG_RUNTIME_DIR", dir);
        }
        if nix::unistd::geteuid().is_root() {
            command.uid(self.uid).gid(self.uid);
        }
        command.current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    /// Starts the daemon without a flag, and a command through it likewise.
    fn try_out(self, socket: &Path) {
        let daemon = self.command("shelly-executord");
        let mut daemon = Daemon::spawn(self.dir.clone(), None, socket.to_owned(), daemon);
        let mut exec = self.command("shellyctl");
        exec.args(["exec", "--", "id -u; pwd"]);
        let output = exec.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            text,
            format!("{}\n{}\n", self.uid, self.dir.display()),
            "{output:?}"
        );

        let state = self.dir.join(".local/state/shelly-executor");
        for private in [state.as_path(), socket.parent().expect("a parent")] {
            let mode = fs::metadata(private).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{}", private.display());
        }
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    }
}

#[test]
fn an_ordinary_user_needs_no_flags() {
    let checkout = Checkout::new();
    let socket = checkout
        .dir
        .join(".local/state/shelly-executor/executor.sock");
    checkout.try_out(&socket);
}

#[test]
fn an_ordinary_users_socket_is_in_the_runtime_directory_if_there_is_one() {
    let mut checkout = Checkout::new();
    let runtime_dir = checkout.dir.join("run");
    let socket = runtime_dir.join("shelly-executor/executor.sock");
    checkout.runtime_dir = Some(runtime_dir);
    checkout.try_out(&socket);
}

#[test]
fn a_configuration_that_is_not_valid_is_told_before_anything_starts() {
    in_scratch(|dir| {
        fs::write(dir.join("bad.toml"), "\nkill_grace_ms = \"soon\"\n").expect("written");
        let parts = ["bad.toml:2: ", "kill_grace_ms", "from 0 to 60000"];
        let args = ["--config", "bad.toml", "--socket", "s", "--state", "state"];
        assert_told(&refused(dir, &args), 78, &parts);
        assert!(!dir.join("state").exists() && !dir.join("s").exists());
        assert_told(
            &refused(dir, &["--check-config", "--config", "bad.toml"]),
            78,
            &parts,
        );

        let missing = ["--check-config", "--config", "missing.toml"];
        assert_told(&refused(dir, &missing), 78, &["missing.toml"]);

        fs::write(dir.join("good.toml"), "default_timeout_secs = 5\n").expect("written");
        let good = refused(dir, &["--check-config", "--config", "good.toml"]);
        assert_told(&good, 0, &[]);
        assert!(String::from_utf8_lossy(&good.stdout).contains("good.toml: valid"));
        let untrusted =
            "[tools]\nuntrusted = [\"bash\"]\n[sandbox]\nruntime = \"no-such-runtime\"\n";
        fs::write(dir.join("good.toml"), untrusted).expect("written");
        let doubted = refused(dir, &["--check-config", "--config", "good.toml"]);
        let told = String::from_utf8_lossy(&doubted.stdout);
        assert!(doubted.status.success(), "{doubted:?}");
        assert!(
            told.contains("`no-such-runtime`") && told.contains("[sandbox]"),
            "{told}"
        );

        fs::write(dir.join("good.toml"), "").expect("written");
        let doubted = refused(dir, &["--check-config", "--config", "good.toml"]);
        let told = String::from_utf8_lossy(&doubted.stdout);
        assert!(
            doubted.status.success() && told.contains("the file is empty"),
            "{told}"
        );

        let idle = "[sandbox]\nruntime = \"no-such-runtime\"\n\
                    [[hooks]]\nname = \"h\"\nbefore = \"execution\"\nskill = \"s\"\n\
                    input = { q = \"{{ inptu.x }}\" }\n";
        fs::write(dir.join("good.toml"), idle).expect("written");
        let doubted = refused(dir, &["--check-config", "--config", "good.toml"]);
        let told = String::from_utf8_lossy(&doubted.stdout);
        for part in ["`no-such-runtime`", "the hook `h`", "`inptu` is a missing"] {
            assert!(told.contains(part), "{told}");
        }

        fs::create_dir_all(dir.join("skills/broken")).expect("created");
        fs::write(dir.join("skills/broken/skill.json"), "{").expect("written");
        let doubted = refused(dir, &["--check-config", "--config", "good.toml"]);
        let told = String::from_utf8_lossy(&doubted.stdout);
        assert!(
            doubted.status.success() && told.contains("skills/broken/skill.json"),
            "{told}"
        );

        fs::write(dir.join("tools.toml"), "[bash]\ntext = \"?\"\n").expect("written");
        let check = ["--check-config", "--config", "good.toml"];
        assert_told(&refused(dir, &check), 78, &["tools.toml:2: ", "text"]);
    });
}

/// They are used all the same, but not without a word.
#[test]
fn files_that_others_can_write_to_are_told() {
    let dir = scratch();
    fs::create_dir_all(dir.join("skills/one")).expect("created");
    for (open, mode) in [("skills", 0o1777), ("skills/one", 0o777)] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(dir.join(open), mode).expect("set");
    }
    fs::write(dir.join("policy.toml"), "default = \"allow\"\n").expect("written");
    let is_root = nix::unistd::geteuid().is_root();
    if is_root {
        chown(dir.join("policy.toml"), Some(NOBODY), None).expect("root");
    } else {
        skip("a policy of another user takes root");
    }
    let mut parts = vec![
        "/skills` can be added to by everybody (mode 1777)".to_owned(),
        "/skills/one` can be written to by everybody (mode 0777)".to_owned(),
    ];
    if is_root {
        parts.push(format!("/policy.toml` belongs to uid {NOBODY}"));
    }
    let daemon = Daemon::start_in(dir, Mode::Group, "", |_| {});
    daemon.wait_until("it is told", || {
        let log = daemon.log();
        parts.iter().all(|part| log.contains(part))
    });
    let config = daemon.dir().join("executor.toml");
    let config = config.to_str().expect("text");
    let told = refused(daemon.dir(), &["--check-config", "--config", config]);
    let told = String::from_utf8_lossy(&told.stdout);
    assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    assert!(!told.contains("executor.toml` "), "{told}");
}

/// Nobody who asks for JSON means a daemon at the system's places.
#[test]
fn what_belongs_to_a_check_starts_no_daemon_without_one() {
    in_scratch(|dir| {
        for args in [
            &["--json"][..],
            &["--skills-dir", "x"],
            &["--skills-dir", "x", "--check-config"],
            &["--check-config", "--check-policy"],
            &["--check-policy", "p", "--check-skill", "s"],
        ] {
            let args = [&["--socket", "s", "--state", "state"], args].concat();
            assert_told(&refused(dir, &args), 2, &["Usage:"]);
            assert!(!dir.join("state").exists() && !dir.join("s").exists());
        }
        for check in ["--check-config", "--check-policy"] {
            let checked = refused(dir, &[check, "--json", "--state", "state"]);
            assert_told(&checked, 0, &[]);
        }
    });
}

#[test]
fn what_another_daemon_uses_is_left_to_it() {
    let first = Daemon::start();
    in_scratch(|dir| {
        let state = first.dir().join("state");
        let state = state.to_str().expect("UTF-8");
        let second = refused(dir, &["--socket", "own.sock", "--state", state]);
        assert_told(
            &second,
            1,
            &[state, "another daemon is using it", "--state"],
        );

        let socket = first.socket().to_str().expect("UTF-8");
        let second = refused(dir, &["--socket", socket, "--state", "own"]);
        assert_told(
            &second,
            1,
            &[socket, "another daemon listens there", "--socket"],
        );
    });
    assert_eq!(first.bash("echo here").stdout(), "here");
}

#[test]
fn what_is_no_daemons_socket_is_left_alone() {
    in_scratch(|dir| {
        let path = dir.join("in-the-way");
        fs::write(&path, "precious").expect("written");
        let args = ["--socket", "in-the-way", "--state", "state"];
        assert_told(&refused(dir, &args), 1, &["no socket", "in-the-way"]);
        assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");

        let args = ["--socket", "no-such-directory/socket", "--state", "state"];
        let parts = ["there is no directory `no-such-directory`", "--socket"];
        assert_told(&refused(dir, &args), 1, &parts);
        assert!(!dir.join("no-such-directory").exists());

        let long = "x".repeat(108);
        let parts = ["has 108 bytes", "at most 107", "--socket"];
        let told = refused(dir, &["--socket", &long, "--state", "state"]);
        assert_told(&told, 1, &parts);
        let left = fs::read_dir(dir).expect("readable").flatten();
        let left = left.map(|entry| entry.file_name());
        let is_litter = |name: &OsString| name.to_string_lossy().ends_with(".lock");
        assert_eq!(left.filter(is_litter).count(), 0);

        // Somebody who listens without holding our lock.
        let listener = UnixListener::bind(dir.join("theirs")).expect("bound");
        let args = ["--socket", "theirs", "--state", "state"];
        assert_told(&refused(dir, &args), 1, &["another daemon listens there"]);
        drop(listener);
    });
}

#[test]
fn a_state_directory_that_cannot_be_one_is_told_with_what_to_do() {
    in_scratch(|dir| {
        fs::write(dir.join("file"), "precious").expect("written");
        for state in ["file", "file/below"] {
            let told = refused(dir, &["--socket", "s", "--state", state]);
            let parts = [&format!("/{state}`: it is no directory"), "--state needs"];
            assert_told(&told, 1, &parts);
        }
        assert!(!dir.join("s").exists());
    });
    // Somebody whose home is somebody else's.
    let checkout = Checkout::new();
    let home = checkout.dir.join("closed");
    fs::create_dir(&home).expect("made");
    for mode in [0o555, 0o000] {
        let closed = fs::Permissions::from_mode(mode);
        fs::set_permissions(&home, closed).expect("own directory");
        let mut daemon = checkout.command("shelly-executord");
        let output = daemon.env("HOME", &home).output().expect("it starts");
        let parts = ["closed/.local/state", "ermission denied", "--state"];
        assert_told(&output, 1, &parts);
    }
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).expect("own directory");
    fs::remove_dir_all(&checkout.dir).expect("removable");
}

#[test]
fn what_another_daemon_runs_in_its_cgroup_is_left_to_it() {
    let Some(mode) = Mode::all().into_iter().find(|mode| *mode == Mode::Cgroup) else {
        return;
    };
    let daemon = Daemon::start_with(mode, "");
    let id = daemon.begin("exec sleep 600", &json!({}));
    let config = daemon.dir().join("executor.toml");
    in_scratch(|dir| {
        let config = config.to_str().expect("UTF-8");
        let args = ["--config", config, "--socket", "other", "--state", "state"];
        assert_told(&refused(dir, &args), 1, &["another daemon uses the cgroup"]);
    });
    let record = daemon.get(&format!("/executions/{id}")).json();
    assert_eq!(record["status"], "running", "{record}");
}

#[test]
fn a_socket_that_a_killed_daemon_left_is_replaced() {
    let mut first = Daemon::start();
    first.signal(Signal::SIGKILL);
    first.wait();
    assert!(first.socket().exists());
    let second = first.restart();
    assert_eq!(second.bash("echo again").stdout(), "again");
}

#[test]
fn the_socket_is_for_its_owner_and_group() {
    let daemon = Daemon::start();
    let mode = fs::metadata(daemon.socket())
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
    if !nix::unistd::geteuid().is_root() {
        skip("that others cannot connect, which takes root to become another");
        return;
    }
    let socket: PathBuf = daemon.socket().to_owned();
    let mut other = Command::new("curl");
    other
        .args(["--silent", "--show-error", "--unix-socket"])
        .arg(&socket)
        .arg("http://shelly/health")
        .uid(NOBODY)
        .gid(NOBODY);
    let output = other.output().expect("curl is installed");
    // "Couldn't connect to server" (curl(1), exit codes).
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

/// A check whose words nobody reads is one all the same.
#[test]
fn a_check_that_cannot_say_what_it_found_says_so_and_no_more() {
    in_scratch(|dir| {
        fs::write(dir.join("good.toml"), "default_timeout_secs = 5\n").expect("written");
        fs::write(dir.join("bad.toml"), "x = 1\n").expect("written");
        let check = |file: &str, stdout: Stdio| {
            let child = Command::new(env!("CARGO_BIN_EXE_shelly-executord"))
                .args(["--check-config", "--json", "--config", file])
                .current_dir(dir)
                .stdout(stdout)
                .stderr(Stdio::piped())
                .spawn();
            child
                .and_then(std::process::Child::wait_with_output)
                .expect("run")
        };
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        let full = check("good.toml", full.expect("there").into());
        assert_told(
            &full,
            1,
            &["cannot write to standard output", "No space left"],
        );
        for (file, code, told) in [("good.toml", 0, None), ("bad.toml", 78, Some("bad.toml:1"))] {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            let unread = check(file, writer.into());
            assert_eq!(unread.status.code(), Some(code), "{unread:?}");
            let said = String::from_utf8_lossy(&unread.stderr);
            assert!(said.contains(told.unwrap_or("")), "{said}");
            assert!(
                !said.contains("panicked") && (told.is_some() || said.is_empty()),
                "{said}"
            );
        }
    });
}
