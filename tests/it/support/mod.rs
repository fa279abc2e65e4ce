//! Starts the real daemon and talks to it.

mod daemon;
mod http;
pub mod openapi;
mod wait;

pub use daemon::{Daemon, Mode};
pub use http::{Connection, Reply};
pub use wait::{wait_for, wait_until};
