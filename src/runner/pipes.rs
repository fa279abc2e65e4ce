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
    /// `None` for `/dev/null`.
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl Ends {
    /// The descriptors that become 0, 1 and 2 of the child.
    pub(super) fn stdio<'a>(&'a self, null: BorrowedFd<'a>) -> [BorrowedFd<'a>; 3] {
        let stdin = self.stdin.as_ref().map_or(null, AsFd::as_fd);
        [stdin, self.stdout.as_fd(), self.stderr.as_fd()]
    }
}

impl Pipes {
    /// # Errors
    /// As pipe(2).
    pub(super) fn make() -> io::Result<Self> {
        let (stdout, stdout_end) = pipe()?;
        let (stderr, stderr_end) = pipe()?;
        Ok(Self {
            stdout,
            stderr,
            ends: Ends {
                stdin: None,
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
