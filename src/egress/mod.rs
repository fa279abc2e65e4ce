//! The one way out of a sandbox: an HTTP proxy (RFC 9110, 9112) on a Unix socket of one execution's
//! own. It is told names, looks them up itself for every connection, and connects to what is on the
//! list; to the inside there are neither addresses nor a resolver.

mod dial;
mod proxy;
mod rules;
mod seen;

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

pub(crate) use rules::Rules;

use crate::domain::{Connection, ExecutionId};
use proxy::Proxy;
use seen::Seen;

/// How many connections one execution may have open at once; one more waits.
const MAX_CONNECTIONS: usize = 64;

/// How long `accept` rests after it failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The way out of one execution. Dropping it ends every connection.
pub(crate) struct Egress {
    seen: Arc<Seen>,
    open: oneshot::Sender<()>,
}

impl Egress {
    /// Opens it on a socket that does not block, for whoever can get at that. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// When the socket cannot be waited for.
    pub(crate) fn open(listener: StdListener, rules: Rules, id: ExecutionId) -> io::Result<Self> {
        let listener = UnixListener::from_std(listener)?;
        let seen = Arc::new(Seen::default());
        let proxy = Proxy::new(rules, Arc::clone(&seen), id);
        let (open, closed) = oneshot::channel::<()>();
        tokio::spawn(async move {
            // Nothing is ever sent: it is over when the way out is dropped, and what it serves with it.
            tokio::select! {
                _ = closed => {}
                () = serve(listener, proxy) => {}
            }
        });
        Ok(Self { seen, open })
    }

    /// Closes it, and says what was asked for, in the order in which it was first. Nothing is connected
    /// to any more when this returns.
    pub(crate) fn close(self) -> Vec<Connection> {
        let asked = self.seen.close();
        drop(self.open);
        asked
    }
}

async fn serve(listener: UnixListener, proxy: Proxy) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // It is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let proxy = proxy.clone();
                connections.spawn(async move {
                    proxy.serve(stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection out of a sandbox");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}
