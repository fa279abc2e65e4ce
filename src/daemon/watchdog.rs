use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::client::{Client, ClientError};

/// How long a probe may take. A daemon that needs longer for its own health is not well; the
/// watchdog's own limit decides how long that may go on.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long between two probes of a daemon that is not ready yet.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// How long between two attempts to connect where the backlog is full.
const CROWDED_PAUSE: Duration = Duration::from_millis(2);

/// How long there is between two records of why it is not.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// When it was told last that something is wrong.
#[derive(Default)]
struct Told(Option<Instant>);

impl Told {
    /// Whether it is to be told again, which is then done.
    fn is_due(&mut self) -> bool {
        let is_due = self.0.is_none_or(|told| told.elapsed() >= TOLD_EVERY);
        self.0 = if is_due { Some(Instant::now()) } else { self.0 };
        is_due
    }
}

/// What can be wrong with a probe.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("no answer within {} s", PROBE_TIMEOUT.as_secs())]
    Late,
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl ProbeError {
    /// What to do about it, as the end of a sentence.
    fn hint(&self) -> &'static str {
        match self {
            Self::Client(error) if is_refused(error) => {
                ", to which its own user may not connect (with `User=` or `DynamicUser=` the unit needs `SupplementaryGroups=` with the socket's group)"
            }
            Self::Client(_) | Self::Late => "",
        }
    }
}

/// Whether the socket's permissions are behind it.
fn is_refused(error: &ClientError) -> bool {
    comes_of(error, io::ErrorKind::PermissionDenied)
}

/// Whether others who connect have filled the socket's backlog (`EAGAIN`, connect(2)).
fn is_crowded_out(error: &ClientError) -> bool {
    comes_of(error, io::ErrorKind::WouldBlock)
}

fn comes_of(error: &ClientError, kind: io::ErrorKind) -> bool {
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == kind) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Tells systemd that the daemon is ready and then, if it has a watchdog on us, that it lives.
/// Never without proof: an answer that came through the whole of the daemon, from the socket to
/// the handler and back, each time on a new connection.
pub(super) async fn keep(socket: PathBuf) {
    let mut told = Told::default();
    while let Err(error) = probe(&socket).await {
        if told.is_due() {
            let hint = error.hint();
            tracing::error!(%error, "not ready: the daemon does not answer on its own socket{hint}");
        }
        tokio::time::sleep(PROBE_PAUSE).await;
    }
    super::service::ready();
    let limit = sd_notify::watchdog_enabled();
    // As systemd has it, 0 is no watchdog.
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
        return;
    };
    let mut told = Told::default();
    let mut pause = Duration::ZERO;
    loop {
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        pause = match probe(&socket).await {
            Ok(()) => {
                super::service::alive();
                // As sd_watchdog_enabled(3) recommends.
                (limit / 2).saturating_sub(began.elapsed())
            }
            Err(error) => {
                if told.is_due() {
                    tracing::error!(%error, "the watchdog is not fed: the daemon does not answer on its own socket");
                }
                // There is no time to lose.
                PROBE_PAUSE.min(limit / 8)
            }
        };
    }
}

/// Asks the daemon on `socket` for its health.
async fn probe(socket: &Path) -> Result<(), ProbeError> {
    let client = Client::new(socket);
    let healthy = async {
        loop {
            match client.health().await {
                // It is accepted from as fast as can be; nobody's place in the backlog is kept for us.
                Err(error) if is_crowded_out(&error) => tokio::time::sleep(CROWDED_PAUSE).await,
                answer => return Ok(answer.map(drop)?),
            }
        }
    };
    let answer = tokio::time::timeout(PROBE_TIMEOUT, healthy).await;
    answer.unwrap_or(Err(ProbeError::Late))
}
