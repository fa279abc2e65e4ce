//! SIGINT and SIGTERM end a run early, and daemons, cgroups and files are removed all the same.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::Fallible;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether the run was interrupted; what it has measured so far is not worth keeping.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// From here on signals set a flag instead of ending the process.
pub fn listen() -> Fallible<()> {
    // Without SA_RESTART, so that a wait for an answer ends too.
    let action = SigAction::new(
        SigHandler::Handler(interrupt),
        SaFlags::empty(),
        SigSet::empty(),
    );
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler stores to an atomic and does nothing else.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

extern "C" fn interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}
