//! Starts the real daemon and talks to it.

mod clock;
mod daemon;
mod fifo;
mod http;
mod proc;
mod wait;

pub use clock::timed;
pub use daemon::{Daemon, Mode, bash_call, scratch};
pub use fifo::Fifo;
pub use http::{Connection, Reply};
pub use proc::Process;
pub use wait::{wait_for, wait_to_equal, wait_until};

use std::io::Write;

/// Says what is not tested here and why. Past the harness, which shows nothing of a test that
/// passes; `tests/run` counts and repeats it.
pub fn skip(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}
