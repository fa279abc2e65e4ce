use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the event loop watch a descriptor. `T` is one of std's owners of exactly one descriptor,
/// which is what its conversion into an [`OwnedFd`] says.
///
/// # Errors
/// As epoll_ctl(2).
pub(crate) fn watch<T: AsRawFd + Into<OwnedFd>>(
    fd: T,
    interest: Interest,
) -> io::Result<AsyncFd<T>> {
    // SAFETY: `fd` owns an open descriptor, keeps it open and the same for as long as it lives,
    // and is handed over.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map_err(io::Error::from)
}
