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

/// Connects to what is on the list. `lookups`: how many names may be looked up at once.
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
    // A resolver that does not answer keeps threads for longer than anybody waits for it: a few for
    // each execution, so that no other lacks them.
    let question = (name.clone(), to.port);
    let looked_up = async {
        let place = Arc::clone(lookups).acquire_owned().await;
        let asked = tokio::task::spawn_blocking(move || {
            let _place = place;
            question.to_socket_addrs().map(Vec::from_iter)
        });
        asked.await.map_err(io::Error::other)?
    };
    let found = patiently(looked_up).await;
    let found = found.map_err(|source| DialError::Unknown {
        host: to.host.clone(),
        source,
    })?;
    Ok(found)
}

async fn patiently<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
