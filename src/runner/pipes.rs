//! The pipes of a run, held open until its leader has ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

/// What a run's output goes through.
#[derive(Debug)]
pub(super) struct Pipes {
    /// The ends to read from, which do not block.
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// The others.
    pub ends: Ends,
}

/// What becomes a leader's 0 to 2, for as long as it needs them here: it takes them when it first runs.
/// They stay open until it has ended, so that its end is one event and not three.
#[derive(Debug)]
pub(super) struct Ends {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl Ends {
    /// The descriptors that become 0, 1 and 2 of the child.
    pub(super) fn stdio(&self) -> [BorrowedFd<'_>; 3] {
        [&self.stdin, &self.stdout, &self.stderr].map(AsFd::as_fd)
    }
}

impl Pipes {
    /// Those of a leader whose standard input that is.
    ///
    /// # Errors
    /// As pipe(2).
    pub(super) fn make(stdin: OwnedFd) -> io::Result<Self> {
        let (stdout, stdout_end) = pipe()?;
        let (stderr, stderr_end) = pipe()?;
        Ok(Self {
            stdout,
            stderr,
            ends: Ends {
                stdin,
                stdout: stdout_end,
                stderr: stderr_end,
            },
        })
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((read, write))
}
