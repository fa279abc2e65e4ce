use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::http::{Connection, Reply};
use super::skip;
use super::wait::{wait_for, wait_until};

/// How the daemon under test holds process trees together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Group,
    Cgroup,
}

impl Mode {
    /// The modes this machine can do. Cgroup mode wants a cgroup v2 to make directories in, which
    /// takes root; without it the tests say so instead of passing by themselves.
    pub fn all() -> Vec<Self> {
        match cgroup_mount() {
            Some(_) => vec![Self::Group, Self::Cgroup],
            None => {
                skip("cgroup mode, for no cgroup v2 can be written to (are you root?)");
                vec![Self::Group]
            }
        }
    }

    pub fn is_available(self) -> bool {
        self == Self::Group || cgroup_mount().is_some()
    }

    /// Whether a cgroup v2 of ours can have a controller, such as `memory`. On a hybrid host they
    /// are with cgroup v1.
    pub fn has_controller(name: &str) -> bool {
        let controllers = cgroup_mount().map(|mount| mount.join("cgroup.controllers"));
        let text = controllers.and_then(|file| fs::read_to_string(file).ok());
        text.is_some_and(|text| text.split_whitespace().any(|controller| controller == name))
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Cgroup => "cgroup",
        }
    }
}

/// A running daemon with a directory, a socket and a configuration of its own. Killed and waited
/// for when dropped, its directory and cgroup removed.
pub struct Daemon {
    child: Child,
    dir: PathBuf,
    socket: PathBuf,
    cgroup: Option<PathBuf>,
    owner: bool,
}

impl Daemon {
    /// A daemon in group mode with the shipped configuration.
    pub fn start() -> Self {
        Self::start_with(Mode::Group, "")
    }

    /// A daemon with `toml` as its configuration, of which `[cgroup]` is filled in. Top-level keys
    /// only, or tables after them.
    pub fn start_with(mode: Mode, toml: &str) -> Self {
        Self::start_adjusted(mode, toml, |_| {})
    }

    /// The same, after `adjust` has had its way with the command that starts it.
    pub fn start_adjusted(mode: Mode, toml: &str, adjust: impl FnOnce(&mut Command)) -> Self {
        Self::start_in(scratch(), mode, toml, adjust)
    }

    /// The same on a directory in which something has been prepared.
    pub fn start_in(
        dir: PathBuf,
        mode: Mode,
        toml: &str,
        adjust: impl FnOnce(&mut Command),
    ) -> Self {
        let cgroup = match mode {
            Mode::Group => None,
            Mode::Cgroup => {
                let name = dir.file_name().expect("a name");
                Some(cgroup_mount().expect("cgroup v2").join(name))
            }
        };
        let table = match &cgroup {
            None => "mode = \"group\"".to_owned(),
            Some(path) => {
                fs::create_dir_all(path).expect("a cgroup");
                format!("mode = \"cgroup\"\npath = {:?}", path.display().to_string())
            }
        };
        fs::write(
            dir.join("executor.toml"),
            format!("{toml}\n[cgroup]\n{table}\n"),
        )
        .expect("written");
        Self::launch(dir, cgroup, adjust)
    }

    /// One in group mode under `policy`, with `toml` as the rest of its configuration.
    pub fn start_under(policy: &str, toml: &str) -> Self {
        let dir = scratch();
        let toml = format!("{toml}\n[cgroup]\nmode = \"group\"\n");
        fs::write(dir.join("executor.toml"), toml).expect("written");
        fs::write(dir.join("policy.toml"), policy).expect("written");
        Self::launch(dir, None, |_| {})
    }

    /// Another daemon on the same directory, for when this one has been killed.
    pub fn restart(&mut self) -> Self {
        let (dir, cgroup) = (self.dir.clone(), self.cgroup.clone());
        self.restart_with(|| Self::launch(dir, cgroup, |_| {}))
    }

    /// The same, started in some way of its own.
    pub fn restart_with(&mut self, start: impl FnOnce() -> Self) -> Self {
        self.owner = false;
        start()
    }

    /// Starts the program on a prepared directory, after `adjust` has had its way with the command.
    pub fn launch(
        dir: PathBuf,
        cgroup: Option<PathBuf>,
        adjust: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shelly-executord"));
        command
            .args([
                "--config",
                "executor.toml",
                "--socket",
                "executor.sock",
                "--state",
                "state",
            ])
            .env("RUST_LOG", "debug")
            .stdin(Stdio::null());
        adjust(&mut command);
        let socket = dir.join("executor.sock");
        Self::spawn(dir, cgroup, socket, command)
    }

    /// Starts a command that is the daemon or becomes it, in `dir`, where it also logs, and waits
    /// until `socket` is listened on.
    pub fn spawn(
        dir: PathBuf,
        cgroup: Option<PathBuf>,
        socket: PathBuf,
        mut command: Command,
    ) -> Self {
        let log = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(dir.join("log"));
        command
            .current_dir(&dir)
            .stdout(Stdio::null())
            .stderr(log.expect("a log"));
        let child = command.spawn().expect("the daemon starts");
        let mut daemon = Self {
            child,
            dir,
            socket,
            cgroup,
            owner: true,
        };
        let socket = daemon.socket.clone();
        wait_until("the daemon listens", || {
            if let Some(status) = daemon.child.try_wait().expect("waitable") {
                panic!("the daemon ended with {status}:\n{}", daemon.log());
            }
            UnixStream::connect(&socket).is_ok()
        });
        daemon
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A private directory, which goes with the daemon.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the daemon is there");
    }

    /// Waits until the daemon has ended.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the daemon has ended", || {
            self.child.try_wait().expect("waitable")
        })
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.socket())
    }

    /// `GET path`.
    pub fn get(&self, path: &str) -> Reply {
        self.connect().request("GET", path, &[], b"")
    }

    /// `POST /execute` with a body as it is.
    pub fn post(&self, body: &Value) -> Reply {
        self.connect()
            .request("POST", "/execute", &[], body.to_string().as_bytes())
    }

    /// Runs a command with the bash tool.
    pub fn bash(&self, command: &str) -> Reply {
        self.post(&json!({"name": "bash", "input": {"command": command}}))
    }

    /// The same with more members in the call, such as `timeout_secs`.
    pub fn bash_with(&self, command: &str, members: &Value) -> Reply {
        self.post(&bash_call(command, members))
    }

    /// Begins a command that nobody waits for, and returns its id.
    pub fn begin(&self, command: &str, members: &Value) -> String {
        let body = bash_call(command, members).to_string();
        let prefer = [("Prefer", "respond-async")];
        let reply = self
            .connect()
            .request("POST", "/execute", &prefer, body.as_bytes());
        assert_eq!(
            reply.status,
            202,
            "{}",
            String::from_utf8_lossy(&reply.body)
        );
        reply.json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned()
    }

    /// The record of an execution, once it has ended.
    pub fn ended(&self, id: &str) -> Value {
        let record = self.get(&format!("/executions/{id}?wait=60")).json();
        assert_ne!(record["status"], "running", "{record}");
        record
    }

    /// What is kept of an output stream.
    pub fn output(&self, id: &str, stream: &str) -> Vec<u8> {
        let reply = self.get(&format!("/executions/{id}/output?stream={stream}"));
        assert_eq!(
            reply.status,
            200,
            "{}",
            String::from_utf8_lossy(&reply.body)
        );
        reply.body
    }

    /// What of executions is still there: processes that carry a mark, by the daemon's instance.
    pub fn instance(&self) -> String {
        let text = fs::read_to_string(self.dir.join("state/instance")).expect("readable");
        text.lines().next().expect("an instance id").to_owned()
    }

    /// The living processes that this daemon's instance has started.
    pub fn processes(&self) -> Vec<i32> {
        marked(&format!("SHELLY_INSTANCE_ID={}", self.instance()))
    }

    /// Waits until `what` has come about.
    #[track_caller]
    pub fn wait_until(&self, what: &str, holds: impl FnMut() -> bool) {
        wait_until(what, holds);
    }

    /// The daemon's cgroup, in cgroup mode.
    pub fn cgroup(&self) -> Option<&Path> {
        self.cgroup.as_deref()
    }

    /// The leaves that are in the daemon's cgroup.
    pub fn leaves(&self) -> Vec<PathBuf> {
        let Some(dir) = &self.cgroup else {
            return Vec::new();
        };
        let entries = fs::read_dir(dir).expect("the cgroup");
        entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the daemon\n{}---", self.log());
        }
        if !self.owner {
            return;
        }
        let text = fs::read_to_string(self.dir.join("state/instance"));
        if let Some(mark) = text.unwrap_or_default().lines().next() {
            for pid in marked(&format!("SHELLY_INSTANCE_ID={mark}")) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        if let Some(cgroup) = &self.cgroup {
            remove_cgroup(cgroup);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A new directory for a daemon to live in, which goes with the daemon.
pub fn scratch() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("shelly-it-{}-{number}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    fs::create_dir_all(&dir).expect("a scratch directory");
    dir
}

/// A call of the bash tool with more members than its input.
pub fn bash_call(command: &str, members: &Value) -> Value {
    let mut call = json!({"name": "bash", "input": {"command": command}});
    let members = members.as_object().expect("an object").clone();
    call.as_object_mut().expect("an object").extend(members);
    call
}

/// The living processes that have `assignment` in their environment.
pub fn marked(assignment: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc");
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|entry| entry == assignment.as_bytes())
        })
        .collect()
}

/// Where a cgroup v2 is mounted that this process may make directories in.
fn cgroup_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, path, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path))
    })?;
    let probe = mount.join(format!("shelly-it-probe-{}", std::process::id()));
    // Another test may be probing at this moment.
    let refused = |error: std::io::Error| error.kind() != std::io::ErrorKind::AlreadyExists;
    if fs::create_dir(&probe).is_err_and(refused) {
        return None;
    }
    let _ = fs::remove_dir(&probe);
    Some(mount)
}

fn remove_cgroup(dir: &Path) {
    let _ = fs::write(dir.join("cgroup.kill"), "1");
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_cgroup(&entry.path());
        }
    }
    let gone = || fs::remove_dir(dir).is_ok() || !dir.exists();
    if std::thread::panicking() {
        // The test has failed already; a second panic would only hide how.
        gone();
    } else {
        wait_until("the cgroup is gone", gone);
    }
}
