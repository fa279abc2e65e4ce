//! The one way out of a sandbox: an HTTP proxy (RFC 9110, 9112) on a Unix socket of one execution's
//! own. It is told names, looks them up itself for every connection, and connects to what is on the
//! list; to the inside there are neither addresses nor a resolver.

mod dial;
mod proxy;
mod rules;
mod seen;

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

pub(crate) use rules::Rules;

use crate::domain::{Connection, ExecutionId, Secrets};
use proxy::Proxy;
use seen::Seen;

/// How many connections one execution may have open at once; one more waits.
const MAX_CONNECTIONS: usize = 64;

/// How long `accept` rests after it failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The way out of one execution. Dropping it ends every connection.
pub(crate) struct Egress {
    seen: Arc<Seen>,
    secrets: Arc<OnceLock<Arc<Secrets>>>,
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
        let (seen, secrets) = (Arc::new(Seen::default()), Arc::default());
        let proxy = Proxy::new(rules, Arc::clone(&seen), Arc::clone(&secrets), id);
        let (open, closed) = oneshot::channel::<()>();
        tokio::spawn(async move {
            // Nothing is ever sent: it is over when the way out is dropped, and what it serves with it.
            tokio::select! {
                _ = closed => {}
                () = serve(listener, proxy) => {}
            }
        });
        Ok(Self {
            seen,
            secrets,
            open,
        })
    }

    /// Has these masked in what is told of where it is asked to connect to: names may be made of them. To be said before
    /// anything runs inside; what is said first counts.
    pub(crate) fn mask(&self, secrets: &Arc<Secrets>) {
        let _ = self.secrets.set(Arc::clone(secrets));
    }

    /// Closes it, and says what was asked for, in the order in which it was first. Nothing is connected
    /// to any more when this returns.
    pub(crate) fn close(self) -> Vec<Connection> {
        let mut asked = self.seen.close();
        drop(self.open);
        if let Some(secrets) = self.secrets.get() {
            for connection in &mut asked {
                connection.to = secrets.mask_text(&connection.to);
            }
        }
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn a_secret_that_a_name_is_made_of_is_masked() {
        let path = std::env::temp_dir().join(format!("shelly-egress-{}", ExecutionId::new()));
        let listener = StdListener::bind(&path).expect("bound");
        listener.set_nonblocking(true).expect("set");
        let egress = Egress::open(listener, Rules::default(), ExecutionId::new()).expect("open");
        let mut secrets = Secrets::default();
        secrets.add("zebra-crossing-88");
        egress.mask(&Arc::new(secrets));
        let asked = tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect(&path).expect("connected");
            let request = "GET http://zebra-crossing-88.example.com/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).expect("written");
            stream.read_to_end(&mut Vec::new()).expect("answered");
            std::fs::remove_file(path).expect("removed");
        });
        asked.await.expect("asked");
        let to: Vec<String> = egress.close().into_iter().map(|one| one.to).collect();
        assert_eq!(to, ["***.example.com:80"]);
    }
}
