//! The sockets that executions in the sandbox have of their own: for calls, and nothing else.

use std::io;
use std::os::unix::net::UnixListener as StdListener;

use tokio::net::UnixListener;
use tokio::sync::oneshot;

use super::accept::{Backlog, Limits, serve};
use super::connection::Routes;
use super::{Api, routes};
use crate::domain::Doorkeeper;

/// One execution's processes have no use for more connections at once.
const LIMITS: Limits = Limits {
    max_connections: 16,
    max_refusals: 4,
};

/// Answers on them.
pub struct Doors(Api);

impl Doors {
    /// As `api` answers.
    pub fn new(api: Api) -> Self {
        Self(api)
    }
}

impl Doorkeeper for Doors {
    fn open(&self, listener: StdListener) -> io::Result<Box<dyn Send + Sync>> {
        let listener = UnixListener::from_std(listener)?;
        let (door, closed) = oneshot::channel::<()>();
        let routes = Routes::of(routes::for_processes(self.0.clone()));
        tokio::spawn(async move {
            // Nothing is ever sent: it is over when the door is dropped.
            let closed = async { drop(closed.await) };
            serve(listener, Backlog::Answered, routes, LIMITS, closed).await;
        });
        Ok(Box::new(door))
    }
}
