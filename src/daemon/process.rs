//! What this process as a whole must be before it does anything.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::stat::{Mode, umask};

/// How much freed memory the allocator holds on to at the top of its heap, and up to which size
/// it takes blocks from there at all, in bytes. With glibc's own values (128 KiB both, mallopt(3))
/// every answer of a megabyte is mapped, faulted in and unmapped several times over, which costs
/// more than all the copying. What is held in vain goes back with [`return_memory`].
const HELD_BYTES: libc::c_int = 64 << 20;

/// Tunes the allocator to answers that come and go.
fn hold_memory() {
    // SAFETY: changes parameters of the allocator, which is made for being told so at any time.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, HELD_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, HELD_BYTES / 2);
        // One heap: the few threads there are do not contend for it, and each more is never full.
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives memory that nobody uses back to the system. For a moment when nothing runs.
pub(super) fn return_memory() {
    // SAFETY: releases free memory only (malloc_trim(3)).
    unsafe { libc::malloc_trim(0) };
}

/// Puts right what whoever started the daemon may have left otherwise.
pub(super) fn prepare() {
    hold_memory();
    // Everything the daemon makes is its own; commands start with 022 whatever this is.
    umask(Mode::from_bits_truncate(0o077));
    // With SIGCHLD ignored, children would vanish before they are waited for (wait(2), notes),
    // and their pids become somebody else's.
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is installed, only the default disposition.
    if let Err(error) = unsafe { sigaction(Signal::SIGCHLD, &default) } {
        tracing::warn!(%error, "cannot reset SIGCHLD");
    }
    // Each execution takes up to seven descriptors, each connection two; commands get the
    // default limit back.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, soft, hard, "cannot raise the limit of open files");
    }
}
