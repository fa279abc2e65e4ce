use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;

use super::wait_for;

/// A named pipe at which a command waits for the test: `read _ < PATH`.
pub struct Fifo {
    path: PathBuf,
}

impl Fifo {
    pub fn new(path: PathBuf) -> Self {
        nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a named pipe");
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until a command has the pipe open, without letting it go on.
    #[track_caller]
    pub fn reached(&self) -> Gate {
        let open = || {
            OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(&self.path)
                .ok()
        };
        Gate(wait_for("a command waits at the named pipe", open))
    }
}

/// Holds a command back as long as it lives.
#[must_use = "dropped, the command goes on"]
pub struct Gate(File);

impl Gate {
    /// Lets the command go on with a line to read.
    pub fn say(mut self, line: &str) {
        writeln!(self.0, "{line}").expect("the command reads");
    }
}
