use serde::Deserialize;
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::file::LogFile;

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// A filter as in `RUST_LOG`.
    pub level: String,
    /// Where lines go and what they look like.
    pub format: LogFormat,
}

/// Where log lines go and what they look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// To the journal under systemd, as text elsewhere.
    Auto,
    /// To the journal.
    Journal,
    /// Lines for people, on standard error.
    Text,
    /// One JSON object a line, on standard error.
    Json,
}

pub(super) fn log_config(file: LogFile) -> Result<LogConfig, (&'static str, String)> {
    let level = file.level.unwrap_or_else(|| "info".to_owned());
    if log_filter(&level).is_none() {
        let detail = format!(
            "{level:?} is no level: expected off, error, warn, info, debug or trace, or some of them by target such as \"info,hyper=debug\""
        );
        return Err(("log.level", detail));
    }
    Ok(LogConfig {
        level,
        format: file.format.unwrap_or(LogFormat::Auto),
    })
}

/// The target of what is logged whatever the filter says: the end of the audit trail, without which
/// nobody finds out that it was cut off.
pub const AUDIT_HEAD: &str = "audit_head";

/// Reads a log filter: a level, or levels by target. A word that is neither would by itself be a
/// target of which everything is logged, and nothing else: a misspelt level would end the log.
pub fn log_filter(text: &str) -> Option<Targets> {
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let is_clear = |directive: &str| directive.contains('=') || is_level(directive.trim());
    text.split(',')
        .all(is_clear)
        .then(|| text.parse::<Targets>().ok())
        .flatten()
        .map(|targets| targets.with_target(AUDIT_HEAD, LevelFilter::INFO))
}
