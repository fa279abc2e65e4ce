//! The signals that ask a program to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// SIGINT, SIGTERM and SIGHUP; none of them ends the program by itself once this is made.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub fn new() -> Result<Self, Failure> {
        let take = |kind| signal(kind).map_err(|source| Failure::Setup { source });
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hangup: take(SignalKind::hangup())?,
        })
    }

    /// Waits for the next of them.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
