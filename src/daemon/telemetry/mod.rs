mod courier;

use std::io::{self, IsTerminal};
use std::sync::Arc;

use nix::sys::stat::fstat;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt, reload};

use courier::{LoggedAt, Message, Sink};

pub(super) use courier::Courier;

use crate::config::{LogConfig, LogFormat, log_filter};

/// What keeps the log from being written.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `RUST_LOG` holds no filter.
    #[error(
        "RUST_LOG={value:?} is no filter: expected one such as \"info\" or \"shelly_executor=debug\""
    )]
    Filter {
        /// What it holds.
        value: String,
    },
    /// There is no journal to write to.
    #[error("cannot reach the journal; choose `format = \"text\"` in [log] where there is none")]
    Journal(#[source] io::Error),
    /// Somebody else in this process has set up logging.
    #[error("logging is set up already")]
    Twice(#[from] TryInitError),
}

/// Changes what is logged while the daemon runs.
#[derive(Clone, Debug)]
pub(super) struct LogFilter {
    handle: reload::Handle<Targets, Registry>,
    /// `RUST_LOG` was set: it stays in force.
    fixed: bool,
}

impl LogFilter {
    /// Goes by `level` from now on, which is a valid filter.
    pub(super) fn set(&self, level: &str) {
        if !self.fixed
            && let Some(targets) = log_filter(level)
            && let Err(error) = self.handle.reload(targets)
        {
            tracing::warn!(%error, "cannot change the log level");
        }
    }
}

/// Sets up the log of this process: what changes it, and what is still to be [carried](Courier::carry) beside everything else.
///
/// # Errors
/// See [`TelemetryError`].
pub(super) fn start(config: &LogConfig) -> Result<(LogFilter, Courier), TelemetryError> {
    let from_environment = std::env::var("RUST_LOG")
        .ok()
        .filter(|value| !value.is_empty());
    let fixed = from_environment.is_some();
    let value = from_environment.unwrap_or_else(|| config.level.clone());
    let targets = log_filter(&value).ok_or(TelemetryError::Filter { value })?;
    let (filter, handle) = reload::Layer::new(targets);
    let (sink, message) = sink(config.format)?;
    let courier = Courier::new(sink, message);
    let registry = tracing_subscriber::registry().with(filter);
    registry.with(courier.clone()).try_init()?;
    Ok((LogFilter { handle, fixed }, courier))
}

/// Where it goes, and what its messages say there.
fn sink(format: LogFormat) -> Result<(Sink, Message), TelemetryError> {
    let registry = tracing_subscriber::registry();
    let text = fmt::layer().with_timer(LoggedAt).with_writer(io::stderr);
    Ok(match format {
        LogFormat::Auto if is_journal() => (Arc::new(registry.with(journal()?)), Message::Whole),
        LogFormat::Journal => (Arc::new(registry.with(journal()?)), Message::Whole),
        LogFormat::Json => {
            let json = text.json().flatten_event(true);
            (Arc::new(registry.with(json)), Message::AsLogged)
        }
        LogFormat::Auto | LogFormat::Text => {
            let colour = io::stderr().is_terminal();
            let text = text.with_ansi(colour).with_target(false);
            (Arc::new(registry.with(text)), Message::AsLogged)
        }
    })
}

/// Fields keep their names: `EXECUTION_ID=…` is what people type after `journalctl`.
fn journal<S>() -> Result<impl Layer<S>, TelemetryError>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let layer = tracing_journald::layer().map_err(TelemetryError::Journal)?;
    Ok(layer
        .with_field_prefix(None)
        .with_syslog_identifier("shelly-executord".to_owned()))
}

/// Whether standard error is the journal, by the rule of systemd.exec(5): `JOURNAL_STREAM` holds
/// its device and inode.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    fstat(io::stderr()).is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}
