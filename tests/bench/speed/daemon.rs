//! A real daemon under measurement: its configuration, start, memory and end.
//!
//! It runs with the shipped configuration. What differs is in one place, `Setup`,
//! and printed with the results.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Fallible;
use crate::client::{self, Connection, Request};

/// How the daemon holds a command's process tree together.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    Group,
    Cgroup,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Cgroup => "cgroup",
        }
    }
}

/// What a measured daemon has that the shipped configuration has not.
pub struct Setup<'a> {
    pub mode: Mode,
    /// The floor of a row is its bare command, so `sh -c true` needs a daemon whose shell is `sh`.
    pub shell: Option<&'a str>,
    /// In place of the shipped policy.
    pub policy: Option<&'a str>,
    /// Names the daemon's directory.
    pub name: &'a str,
}

/// A running daemon. Dropping it ends it, waits, and removes its cgroups.
pub struct Daemon {
    child: Child,
    directory: PathBuf,
    // Held for its drop: after the daemon's, so that the directories are empty.
    _cgroup: Option<Cgroup>,
    /// From before the spawn to the answer of `GET /health`, in seconds.
    pub start_seconds: f64,
}

/// Longer than a cold start on a busy machine, shorter than anyone's patience.
const START_LIMIT: Duration = Duration::from_secs(10);

impl Daemon {
    /// Starts a daemon under `root`, a directory for this run, and waits for its first answer.
    pub fn start(root: &Path, setup: &Setup) -> Fallible<Self> {
        let directory = root.join(setup.name);
        let cgroup = match setup.mode {
            Mode::Group => None,
            Mode::Cgroup => Some(Cgroup::create(setup.name)?),
        };
        // A directory of its own: the daemon watches it, and would wake up for every line of its log.
        let configuration = configure(&directory.join("etc"), setup, cgroup.as_ref())?;
        fs::create_dir_all(directory.join("state"))?;
        let log = File::create(directory.join("log"))?;
        let socket = directory.join("socket");
        let mut command = Command::new(program());
        command
            .arg("--config")
            .arg(configuration)
            .arg("--socket")
            .arg(&socket);
        // The environment systemd would give, as far as it matters.
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("STATE_DIRECTORY", directory.join("state"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let start = Instant::now();
        let child = command
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program().display()))?;
        let mut daemon = Self {
            child,
            directory,
            _cgroup: cgroup,
            start_seconds: 0.0,
        };
        while let Err(error) = daemon.answers() {
            if start.elapsed() > START_LIMIT || daemon.child.try_wait()?.is_some() {
                return Err(format!(
                    "the daemon does not answer: {error}\n{}",
                    daemon.last_words()
                )
                .into());
            }
            // Short against the milliseconds of a start, long enough to leave it the processor.
            std::thread::sleep(Duration::from_micros(100));
        }
        daemon.start_seconds = start.elapsed().as_secs_f64();
        Ok(daemon)
    }

    fn answers(&self) -> Fallible<()> {
        self.connect()?
            .exchange(&Request::get("/health"))?
            .expect(200)
            .map(drop)
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// Where its skills are, if there are any.
    pub fn skills_dir(&self) -> PathBuf {
        self.directory.join("etc/skills")
    }

    pub fn connect(&self) -> Fallible<Connection> {
        Connection::open(&self.socket())
    }

    /// Whether it keeps a ledger, and how, which is as shipped.
    pub fn ledger(&self) -> Fallible<String> {
        // Without one there are no events to be had.
        client::whole(&self.socket(), "/events?follow=false&type=stageCompleted")
            .map_err(|error| format!("no ledger: {error}"))?;
        let path = self.directory.join("etc/executor.toml");
        let table: toml::Table = fs::read_to_string(path)?.parse()?;
        let setting = |key: &str| {
            table
                .get("ledger")
                .and_then(|ledger| ledger.get(key)?.as_str())
        };
        let [durability, audit] =
            ["durability", "audit"].map(|key| setting(key).unwrap_or("by default"));
        Ok(format!("on, durability {durability}, audit {audit}"))
    }

    /// Resident memory, in bytes.
    pub fn resident(&self) -> Fallible<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .ok_or("no VmRSS")?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024.0)
    }

    /// The end of the daemon's log, for errors.
    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let _sent = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Ok(Some(status)) if status.success() => return,
                Ok(Some(status)) => {
                    return eprintln!(
                        "the daemon ended with {:?}\n{}",
                        (status.code(), status.signal()),
                        self.last_words()
                    );
                }
                Err(error) => return eprintln!("cannot wait for the daemon: {error}"),
            }
        }
        eprintln!("the daemon did not end on SIGTERM");
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The daemon to measure: the one cargo built with this bench, or `SHELLY_BENCH_DAEMON`, to compare two builds.
pub fn program() -> PathBuf {
    std::env::var_os("SHELLY_BENCH_DAEMON").map_or_else(
        || env!("CARGO_BIN_EXE_shelly-executord").into(),
        PathBuf::from,
    )
}

/// Writes the shipped configuration into the daemon's directory with the overrides of `setup`.
fn configure(directory: &Path, setup: &Setup, cgroup: Option<&Cgroup>) -> Fallible<PathBuf> {
    fs::create_dir_all(directory)?;
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    for entry in fs::read_dir(&shipped)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), directory.join(entry.file_name()))?;
        }
    }
    let path = directory.join("executor.toml");
    let mut table: toml::Table = fs::read_to_string(&path)?.parse()?;
    if let Some(shell) = setup.shell {
        table.insert("shell".to_owned(), shell.into());
    }
    let mut tree = toml::Table::new();
    tree.insert("mode".to_owned(), setup.mode.name().into());
    if let Some(cgroup) = cgroup {
        tree.insert("path".to_owned(), cgroup.0.display().to_string().into());
    }
    table.insert("cgroup".to_owned(), tree.into());
    fs::write(&path, toml::to_string(&table)?)?;
    if let Some(policy) = setup.policy {
        fs::write(directory.join("policy.toml"), policy)?;
    }
    Ok(path)
}

/// A cgroup v2 directory of our own, removed with everything in it.
struct Cgroup(PathBuf);

impl Cgroup {
    fn create(name: &str) -> Fallible<Self> {
        let path = cgroup_mount()?.join(format!("shelly-bench-{}-{name}", std::process::id()));
        fs::create_dir(&path)
            .map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel takes a moment to let go of the last process.
        for _ in 0..100 {
            if remove_tree(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("could not remove {}", self.0.display());
    }
}

/// Removes cgroup directories from the leaves up; their files cannot and need not be removed.
fn remove_tree(path: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// Where cgroup v2 is mounted, if it is.
fn cgroup_mount() -> Fallible<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mount = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    Ok(mount
        .and_then(|line| line.split(' ').nth(1))
        .ok_or("cgroup v2 is not mounted")?
        .into())
}

/// Whether a cgroup directory can be made here, and if not, why.
pub fn cgroup_usable() -> Fallible<()> {
    Cgroup::create("probe").map(drop)
}
