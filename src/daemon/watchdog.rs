use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::client::{Client, ClientError};

/// How long a probe may take. A daemon that needs longer for its own health is not well; the
/// watchdog's own limit decides how long that may go on.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long between two probes of a daemon that is not ready yet.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// What can be wrong with a probe.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("no answer within {} s", PROBE_TIMEOUT.as_secs())]
    Late,
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Tells systemd that the daemon is ready and then, if it has a watchdog on us, that it lives.
/// Never without proof: an answer that came through the whole of the daemon, from the socket to
/// the handler and back, each time on a new connection.
pub(super) async fn keep(socket: PathBuf) {
    while let Err(error) = probe(&socket).await {
        tracing::error!(%error, "not ready: the daemon does not answer on its own socket");
        tokio::time::sleep(PROBE_PAUSE).await;
    }
    super::service::ready();
    let limit = sd_notify::watchdog_enabled();
    // As systemd has it, 0 is no watchdog.
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
        return;
    };
    // Half of the limit is what sd_watchdog_enabled(3) recommends.
    let mut ticks = tokio::time::interval(limit / 2);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match probe(&socket).await {
            Ok(()) => super::service::alive(),
            Err(error) => {
                tracing::error!(%error, "the watchdog is not fed: the daemon does not answer on its own socket")
            }
        }
    }
}

/// Asks the daemon on `socket` for its health.
async fn probe(socket: &Path) -> Result<(), ProbeError> {
    let client = Client::new(socket);
    match tokio::time::timeout(PROBE_TIMEOUT, client.health()).await {
        Ok(answer) => Ok(answer.map(drop)?),
        Err(_) => Err(ProbeError::Late),
    }
}
