use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Rules;
use crate::config::{Destination, Host};

/// How long looking a name up may take, and how long connecting to one of its addresses.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many names all executions together have looked up at once. A resolver that hangs holds a thread for each,
/// long after everybody has given up, and what else may block (files, the ledger, the policy) needs threads of the same
/// 512 that tokio has by default. An eighth leaves those be, and is 16 executions that look up all they may.
const LOOKUPS: usize = 64;

/// The places of those.
static PLACES: Semaphore = Semaphore::const_new(LOOKUPS);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// Nobody has allowed it.
    #[error("{0} is not on the list of what this tool may connect to ([sandbox.egress])")]
    NotListed(String),
    /// The name stands for something that is not the Internet's.
    #[error(
        "{host} stands for {address}, which is no public address nor in one of private_networks ([sandbox])"
    )]
    Private {
        /// The host.
        host: Host,
        /// What it stands for.
        address: IpAddr,
    },
    /// The name stands for nothing.
    #[error("cannot look up {host}: {source}")]
    Unknown {
        /// The host.
        host: Host,
        /// What the resolver says.
        source: io::Error,
    },
    /// None of its addresses answers.
    #[error("cannot connect to {to}: {source}")]
    Failed {
        /// What was wanted.
        to: Destination,
        /// What the last address said.
        source: io::Error,
    },
}

/// Connects to what is on the list. `lookups`: how many names this execution may have looked up at once.
///
/// # Errors
/// See [`DialError`].
pub(super) async fn dial(
    rules: &Rules,
    to: &Destination,
    lookups: &Arc<Semaphore>,
) -> Result<TcpStream, DialError> {
    if !rules.admit(to) {
        return Err(DialError::NotListed(to.to_string()));
    }
    let addresses = addresses(to, lookups).await?;
    let may = |address: &&SocketAddr| rules.may_stand_for(&to.host, address.ip());
    let mut failed = None;
    for address in addresses.iter().filter(may) {
        // Checked and used in one: nobody is asked again what the name stands for.
        match patiently(TcpStream::connect(address)).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = Some(error),
        }
    }
    Err(match (failed, addresses.first()) {
        (Some(source), _) => DialError::Failed {
            to: to.clone(),
            source,
        },
        (None, Some(address)) => DialError::Private {
            host: to.host.clone(),
            address: address.ip(),
        },
        (None, None) => DialError::Unknown {
            host: to.host.clone(),
            source: io::Error::from(io::ErrorKind::NotFound),
        },
    })
}

/// What the host's resolver says now.
async fn addresses(
    to: &Destination,
    lookups: &Arc<Semaphore>,
) -> Result<Vec<SocketAddr>, DialError> {
    let name = match &to.host {
        Host::Address(address) => return Ok(vec![SocketAddr::new(*address, to.port)]),
        Host::Name(name) => name,
    };
    let question = (name.clone(), to.port);
    let look_up = move || question.to_socket_addrs().map(Vec::from_iter);
    // Waiting for a place is part of the time that looking up may take.
    let found = patiently(in_turn(lookups, &PLACES, look_up)).await;
    found.map_err(|source| DialError::Unknown {
        host: to.host.clone(),
        source,
    })
}

/// Does `work` on a thread that may block, once there is a place: one of this execution's `own`, so that no other
/// lacks them, and one of `all`. Both are held until it is done, whether or not anybody still waits for it.
async fn in_turn<T: Send + 'static>(
    own: &Arc<Semaphore>,
    all: &'static Semaphore,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let own = Arc::clone(own).acquire_owned().await;
    let all = all.acquire().await;
    let done = tokio::task::spawn_blocking(move || {
        let _places = (own, all);
        work()
    });
    done.await.map_err(io::Error::other)?
}

async fn patiently<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn no_more_are_looked_up_at_once_than_there_are_places_for_all() {
        static ALL: Semaphore = Semaphore::const_new(2);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        // It takes two to go on, so that two do run at once.
        let both = Arc::new(Barrier::new(2));
        let executions = (0..8).map(|_| {
            let (running, most, both) = (running.clone(), most.clone(), both.clone());
            async move {
                let own = Arc::new(Semaphore::new(4));
                let work = move || {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    both.wait();
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                };
                in_turn(&own, &ALL, work).await
            }
        });
        for done in futures_util::future::join_all(executions).await {
            done.expect("done");
        }
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_place_to_the_thread_that_still_works() {
        static ALL: Semaphore = Semaphore::const_new(1);
        let own = Arc::new(Semaphore::new(4));
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let hangs = in_turn(&own, &ALL, move || {
            begun.send(()).expect("waited for");
            may_end.recv().expect("sent");
            Ok(())
        });
        tokio::select! {
            _ = hangs => panic!("it hangs"),
            begun = has_begun => begun.expect("begun"),
        }
        assert_eq!((ALL.available_permits(), own.available_permits()), (0, 3));
        end.send(()).expect("it waits");
        in_turn(&own, &ALL, || Ok(())).await.expect("its turn");
    }
}
