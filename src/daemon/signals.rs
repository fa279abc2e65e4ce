use std::io;

use nix::sys::signal::{self, SigSet};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals the daemon goes by.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// Has the signals wait until [`Signals`] takes them: one that comes while the daemon starts is
/// neither the end of it nor lost between the handler's installation and its first use. Call it
/// while there is one thread.
pub(super) fn block() -> io::Result<()> {
    Ok(own().thread_block()?)
}

fn own() -> SigSet {
    let own = [
        signal::Signal::SIGTERM,
        signal::Signal::SIGINT,
        signal::Signal::SIGHUP,
    ];
    own.into_iter().collect()
}

impl Signals {
    /// Takes the signals from now on, those that were held back first.
    pub(super) fn new() -> io::Result<Self> {
        let signals = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        };
        own().thread_unblock()?;
        Ok(signals)
    }

    /// Waits for SIGTERM or SIGINT.
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for SIGHUP, or for SIGTERM or SIGINT.
    pub(super) async fn reload_or_stop(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.hang_up.recv() => Wish::Reload,
        }
    }
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Reload,
    Stop,
}
