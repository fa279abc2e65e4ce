//! What this process as a whole must be before it does anything, and what it leaves.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

/// Puts right what whoever started the daemon may have left otherwise.
pub(super) fn prepare() {
    super::memory::tune();
    // Everything the daemon makes is its own; commands start with 022 whatever this is.
    umask(Mode::from_bits_truncate(0o077));
    // With SIGCHLD ignored, children would vanish before they are waited for (wait(2), notes),
    // and their pids become somebody else's.
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is installed, only the default disposition.
    if let Err(error) = unsafe { sigaction(Signal::SIGCHLD, &default) } {
        tracing::warn!(%error, "cannot reset SIGCHLD");
    }
    // What may not grow any more (RLIMIT_FSIZE) is then an error of write(2), as on a full disk, and not the daemon's end.
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is installed; commands get the default back.
    if let Err(error) = unsafe { sigaction(Signal::SIGXFSZ, &ignore) } {
        tracing::warn!(%error, "cannot ignore SIGXFSZ");
    }
    // Commands get the default limit back.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, soft, hard, "cannot raise the limit of open files");
    }
}

/// Tells of a limit of open files with which fewer clients than `max_connections` are served.
pub(super) fn tell_of_few_descriptors(max_connections: usize) {
    /// What an execution takes, two pipes and what it is watched and killed by; what a connection does; and what the daemon
    /// has open besides.
    const EXECUTION: u64 = 7;
    const CONNECTION: u64 = 2;
    const OWN: u64 = 64;
    let each = EXECUTION + CONNECTION;
    let needed = OWN + each * max_connections as u64;
    if let Ok((_, limit)) = getrlimit(Resource::RLIMIT_NOFILE)
        && limit < needed
    {
        tracing::warn!(
            limit,
            needed,
            "the limit of open files is too low for max_connections = {max_connections}: raise it (LimitNOFILE=, ulimit -n), \
             or lower max_connections to {}",
            limit.saturating_sub(OWN) / each
        );
    }
}

/// Whether nothing is left of what this process has started, not even in a sleep that nothing interrupts. Reaps what has
/// ended.
pub(super) fn is_alone() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return true,
            Ok(WaitStatus::StillAlive) | Err(_) => return false,
            // One less.
            Ok(_) => {}
        }
    }
}
