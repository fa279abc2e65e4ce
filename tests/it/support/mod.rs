//! Starts the real daemon and talks to it.

mod clock;
pub mod collector;
mod daemon;
mod events;
mod fifo;
pub mod grpc;
mod http;
pub mod openapi;
mod proc;
mod provider;
mod python;
mod redis;
mod skip;
mod wait;

/// For a script: goes on when the last background command is `sleep`, and no copy of its shell any more.
pub const SLEEPS: &str = r#"until read -r name </proc/$!/comm && [ "$name" = sleep ]; do :; done"#;

pub use clock::timed;
pub use daemon::{Daemon, Mode, bash_call, scratch};
pub use events::{Event, Events};
pub use fifo::{Fifo, Gate};
pub use http::{Connection, Reply};
pub use proc::Process;
pub use provider::Provider;
pub use python::python_with;
pub use redis::Redis;
pub use skip::{can_trace, skip};
pub use wait::{wait_for, wait_on, wait_to_equal, wait_until};
