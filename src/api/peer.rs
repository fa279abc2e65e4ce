use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerPidfd;
use nix::sys::socket::{Shutdown, getsockopt, shutdown};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use super::problem::{Code, Refusal};
use crate::domain::Caller;
use crate::runner::watch;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Who it is.
    pub(crate) caller: Caller,
    /// The process that connected, if it is one of this pid namespace.
    pub(crate) pid: Option<i32>,
    hang_up: Arc<AsyncFd<OwnedFd>>,
}

impl Peer {
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        let caller = Caller {
            uid: credentials.uid(),
            gid: credentials.gid(),
            groups: supplementary_groups(stream.as_fd())?,
        };
        // A second registration of the same socket that asks for nothing but out-of-band data,
        // which Unix sockets do not have. What epoll reports unasked remains: EPOLLHUP, when both
        // directions are closed (epoll_ctl(2)). A half-close is EPOLLRDHUP and is not.
        let second = stream.as_fd().try_clone_to_owned()?;
        let hang_up = Arc::new(watch(second, Interest::PRIORITY)?);
        Ok(Self {
            caller,
            pid: credentials.pid().filter(|pid| *pid > 0),
            hang_up,
        })
    }

    /// Whether the process that connected is still there: what has its connection now may be any other. What is
    /// asked of its pid says something about it only if this holds afterwards. Before Linux 6.5, which does not tell
    /// by the connection, another process with its pid is taken for it.
    pub(super) fn is_there(&self) -> bool {
        // It is none of this pid namespace.
        let Some(pid) = self.pid else {
            return true;
        };
        let process = match getsockopt(self.hang_up.get_ref(), PeerPidfd) {
            Err(Errno::ENOPROTOOPT) => pidfd_of(pid),
            found => found.ok(),
        };
        // A pidfd is readable when the process has ended (pidfd_open(2)).
        process.is_some_and(|process| {
            let mut polled = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            poll(&mut polled, PollTimeout::ZERO) == Ok(0)
        })
    }

    /// Takes nothing more from it; see [`take_no_more`].
    pub(super) fn take_no_more(&self) -> io::Result<()> {
        take_no_more(self.hang_up.get_ref())
    }

    /// Waits until the peer has hung up.
    pub(crate) async fn hung_up(&self) {
        let _ = self.hang_up.ready(Interest::PRIORITY).await;
    }
}

fn pidfd_of(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// What is answered where it is not known who is at the other end, which is a defect.
pub(crate) fn missing() -> Refusal {
    Refusal::new(Code::Internal, "the connection has no peer")
}

/// Has all that is sent to a socket from now on fail (`EPIPE`), and whoever connects to one that listens (`ECONNREFUSED`).
/// What came before can still be read, or accepted.
pub(super) fn take_no_more(socket: impl AsFd) -> io::Result<()> {
    Ok(shutdown(socket.as_fd().as_raw_fd(), Shutdown::Read)?)
}

/// `SO_PEERGROUPS` (Linux 4.13): an array of group ids; ERANGE says how long it would be.
fn supplementary_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<u32> = vec![0; 64];
    loop {
        let mut bytes = libc::socklen_t::try_from(size_of_val(groups.as_slice()))
            .map_err(|_| io::Error::other("more groups than a socket option can hold"))?;
        // SAFETY: the kernel writes at most `bytes` bytes, which is what the vector has.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let error = (result != 0).then(io::Error::last_os_error);
        groups.resize(bytes as usize / size_of::<u32>(), 0);
        match error {
            None => return Ok(groups),
            Some(error) if error.raw_os_error() == Some(libc::ERANGE) => {}
            Some(error) => return Err(error),
        }
    }
}
