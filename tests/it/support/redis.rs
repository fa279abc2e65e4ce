use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use serde_json::json;

use super::daemon::{Daemon, scratch};
use super::skip;
use super::wait::wait_until;

/// A Redis server of the test's own, at a Unix socket. Killed and waited for when dropped.
pub struct Redis {
    child: Child,
    dir: PathBuf,
    port: u16,
    password: String,
}

impl Redis {
    /// `None`, and that is said, where there is no such program.
    pub fn start() -> Option<Self> {
        Self::start_at(0, "")
    }

    /// The same, at a port of this machine as well, and with a password.
    pub fn start_with_password(password: &str) -> Option<Self> {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        Self::start_at(port, password)
    }

    fn start_at(port: u16, password: &str) -> Option<Self> {
        let program = Command::new("redis-server").arg("--version").output();
        if program.is_err() {
            skip("rates and places in a Redis server, for there is no redis-server");
            return None;
        }
        let dir = scratch();
        Some(Self {
            child: launch(&dir, port, password),
            dir,
            port,
            password: password.to_owned(),
        })
    }

    /// The `backend` that a daemon is configured with.
    pub fn backend(&self) -> String {
        format!("redis+unix://{}", socket(&self.dir).display())
    }

    /// The same by its port.
    pub fn backend_with(&self, password: &str) -> String {
        let (port, database) = (self.port, self.database());
        format!("redis://:{password}@127.0.0.1:{port}/{database}")
    }

    /// The number of the database that `backend` or `backend_with` names.
    fn database(&self) -> u32 {
        if self.port == 0 { 0 } else { 3 }
    }

    /// Kills it, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts another in its place, which has forgotten everything.
    pub fn restart(&mut self) {
        let _ = fs::remove_file(socket(&self.dir));
        self.child = launch(&self.dir, self.port, &self.password);
    }

    /// Whether what a daemon lets through is known here.
    pub fn knows(&self, daemon: &Daemon) -> bool {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let tenant = format!("probe-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let reply = daemon.bash_with("true", &json!({"tenant_id": tenant}));
        assert_eq!(reply.status, 200, "{}", reply.json());
        let exists = format!("EXISTS shelly:rate:tenant:{tenant}");
        self.ask(&exists) == [":1"]
    }

    /// The lines of its answer to a command: of a list those of its members, of each its text alone.
    pub fn ask(&self, command: &str) -> Vec<String> {
        let mut stream = UnixStream::connect(socket(&self.dir)).expect("it listens");
        let (password, database) = (&self.password, self.database());
        // The first is an error where there is no password.
        write!(
            stream,
            "AUTH {password}\r\nSELECT {database}\r\n{command}\r\nQUIT\r\n"
        )
        .expect("written");
        let lines = BufReader::new(stream).lines();
        let mut lines: Vec<String> = lines.skip(2).map(|line| line.expect("an answer")).collect();
        assert_eq!(lines.pop().as_deref(), Some("+OK"));
        lines.retain(|line| !line.starts_with(['*', '$']));
        lines
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        kill(pid, signal).expect("it is there");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}

fn launch(dir: &Path, port: u16, password: &str) -> Child {
    let socket = socket(dir);
    let mut command = Command::new("redis-server");
    command
        .args([
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocket",
        ])
        .arg(&socket)
        .args(["--port", &port.to_string(), "--requirepass", password])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let child = command.spawn().expect("redis-server starts");
    wait_until("the Redis server listens", || {
        UnixStream::connect(&socket).is_ok()
    });
    child
}
