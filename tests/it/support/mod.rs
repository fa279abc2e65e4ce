//! Starts the real daemon and talks to it.

mod clock;
mod daemon;
mod fifo;
mod http;
mod proc;
mod wait;

pub use clock::{Took, timed};
pub use daemon::{Daemon, Mode, bash_call};
pub use fifo::{Fifo, Gate};
pub use http::{Connection, Reply};
pub use proc::{Baseline, Process};
pub use wait::{wait_for, wait_to_equal, wait_until};
