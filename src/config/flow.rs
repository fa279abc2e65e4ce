//! `[flow]` of `executor.toml`: how much may happen at once and how often.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::backend::FlowBackend;
use super::values::Bounded;

/// The name that stands for every tool without limits of its own.
const EVERY_OTHER: &str = "*";

/// How many places several daemons can share, and how many one daemon can have of them: it tells the server of each of its
/// own whenever one comes or goes, which is a millisecond's work for so many.
pub(crate) const MOST_SHARED: u32 = 1_000;

/// How much may happen at once and how often. The default limits nothing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, try_from = "FlowFile")]
pub struct FlowConfig {
    /// Where rates and shared places are kept. Default in memory.
    pub backend: FlowBackend,
    /// How many calls from outside run at once, in all. Default as many as there are.
    pub max_running: Option<u32>,
    /// The same of all daemons together that share a server, of which none gets more than 1,000. Default
    /// as many as there are.
    pub max_running_shared: Option<u32>,
    /// How many calls of one tool wait for a place. Default 256.
    pub queue_max: u32,
    /// How long a call waits for a place. Default 5 min.
    pub queue_timeout: Duration,
    /// How often each user may call from outside. Default any number of times.
    pub caller_rate: Option<Rate>,
    /// How often calls may come from outside on behalf of each tenant. Default any number of times.
    pub tenant_rate: Option<Rate>,
    /// Limits of tools, by name; `*` for each that has no entry of its own. Default none.
    pub tools: BTreeMap<String, ToolFlow>,
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self {
            backend: FlowBackend::Memory,
            max_running: None,
            max_running_shared: None,
            queue_max: 256,
            queue_timeout: Duration::from_secs(300),
            caller_rate: None,
            tenant_rate: None,
            tools: BTreeMap::new(),
        }
    }
}

impl FlowConfig {
    /// Whether anything is limited at all.
    pub fn is_limited(&self) -> bool {
        self.max_running.is_some()
            || self.max_running_shared.is_some()
            || self.caller_rate.is_some()
            || self.tenant_rate.is_some()
            || !self.tools.is_empty()
    }

    /// Whether there are places that several daemons share.
    pub fn shares_places(&self) -> bool {
        let mut tools = self.tools.values();
        self.max_running_shared.is_some() || tools.any(|tool| tool.max_running_shared.is_some())
    }

    /// The tools that have limits of their own.
    pub(super) fn tools_named(&self) -> impl Iterator<Item = &str> {
        let names = self.tools.keys().map(String::as_str);
        names.filter(|name| *name != EVERY_OTHER)
    }

    /// What holds for a tool: its own entry, else that of every other.
    pub fn tool(&self, name: &str) -> ToolFlow {
        let found = self.tools.get(name);
        let found = found.or_else(|| self.tools.get(EVERY_OTHER));
        found.copied().unwrap_or_default()
    }
}

/// The limits of one tool. The default limits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, try_from = "ToolFlowFile")]
pub struct ToolFlow {
    /// How often it may be called.
    pub rate: Option<Rate>,
    /// How many calls of it run at once.
    pub max_running: Option<u32>,
    /// How many run at once on all daemons together that share a server.
    pub max_running_shared: Option<u32>,
    /// When it is left alone for a while.
    pub breaker: Option<BreakerConfig>,
    /// How often a call of it is tried again; only of a tool that is idempotent.
    pub retries: Option<RetryConfig>,
}

/// A token bucket: it holds `burst` calls at the most and gets `calls` of them in each `per`, evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "RateFile")]
pub struct Rate {
    /// How many calls, from 1 on.
    pub calls: u32,
    /// In what time.
    pub per: Duration,
    /// How many at once, from 1 on. Default `calls`.
    pub burst: u32,
}

/// When a tool is left alone for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "BreakerFile")]
pub struct BreakerConfig {
    /// After how many failures in a row. Default 5.
    pub failures: u32,
    /// For how long, until one call is let through as a trial. Default 30 s.
    pub open: Duration,
    /// Whether a command that fails by itself counts as a failure. Default no.
    pub exit_codes: bool,
}

/// How often a call is tried again that the executor could not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "RetriesFile")]
pub struct RetryConfig {
    /// How often at the most, besides the first time. Default 2.
    pub max: u32,
    /// The longest wait before the first retry; it doubles with each. Default 100 ms.
    pub delay: Duration,
    /// Whether a command that fails by itself is tried again. Default no.
    pub exit_codes: bool,
}

/// `[flow]` as it is written. What is not set has the library's value.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [flow]")]
struct FlowFile {
    backend: FlowBackend,
    max_running: Option<Bounded<1, 1_000_000>>,
    max_running_shared: Option<Bounded<1, { MOST_SHARED as u64 }>>,
    queue_max: Option<Bounded<0, 1_000_000>>,
    queue_timeout_secs: Option<Bounded<1, 604_800>>,
    caller_rate: Option<Rate>,
    tenant_rate: Option<Rate>,
    tools: BTreeMap<String, ToolFlow>,
}

impl TryFrom<FlowFile> for FlowConfig {
    type Error = &'static str;

    fn try_from(file: FlowFile) -> Result<Self, Self::Error> {
        let library = Self::default();
        let config = Self {
            backend: file.backend,
            max_running: file.max_running.map(Bounded::number),
            max_running_shared: file.max_running_shared.map(Bounded::number),
            queue_max: file.queue_max.map_or(library.queue_max, Bounded::number),
            queue_timeout: file
                .queue_timeout_secs
                .map_or(library.queue_timeout, Bounded::secs),
            caller_rate: file.caller_rate,
            tenant_rate: file.tenant_rate,
            tools: file.tools,
        };
        if config.shares_places() && config.backend == FlowBackend::Memory {
            return Err(
                "`max_running_shared` is for several daemons: set `backend` to the Redis server that they share, or use `max_running`",
            );
        }
        // A place that is shared is always waited for, as long as it takes to ask.
        if config.shares_places() && config.queue_max == 0 {
            return Err(
                "with `queue_max = 0` no call may wait, and for a place of `max_running_shared` each has to: set it to 1 or more",
            );
        }
        Ok(config)
    }
}

#[derive(Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a table such as { max_running = 4 }"
)]
struct ToolFlowFile {
    rate: Option<Rate>,
    max_running: Option<Bounded<1, 1_000_000>>,
    max_running_shared: Option<Bounded<1, { MOST_SHARED as u64 }>>,
    breaker: Option<BreakerConfig>,
    idempotent: bool,
    retries: Option<RetryConfig>,
}

impl TryFrom<ToolFlowFile> for ToolFlow {
    type Error = &'static str;

    fn try_from(file: ToolFlowFile) -> Result<Self, Self::Error> {
        if file.retries.is_some() && !file.idempotent {
            return Err(
                "`retries` are for a tool that may run twice without harm: set `idempotent = true` if it is one, or remove them",
            );
        }
        Ok(Self {
            rate: file.rate,
            max_running: file.max_running.map(Bounded::number),
            max_running_shared: file.max_running_shared.map(Bounded::number),
            breaker: file.breaker,
            retries: file.retries,
        })
    }
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { calls = 10, per_secs = 60 }"
)]
struct RateFile {
    calls: Bounded<1, 1_000_000>,
    per_secs: Option<Bounded<1, 86_400>>,
    burst: Option<Bounded<1, 100_000>>,
}

impl From<RateFile> for Rate {
    fn from(file: RateFile) -> Self {
        let calls = file.calls.number();
        Self {
            calls,
            per: file.per_secs.map_or(Duration::from_secs(1), Bounded::secs),
            burst: file.burst.map_or(calls, Bounded::number),
        }
    }
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { failures = 5, open_secs = 30 }"
)]
struct BreakerFile {
    failures: Option<Bounded<1, 1_000_000>>,
    open_secs: Option<Bounded<1, 86_400>>,
    exit_codes: Option<bool>,
}

impl From<BreakerFile> for BreakerConfig {
    fn from(file: BreakerFile) -> Self {
        Self {
            failures: file.failures.map_or(5, Bounded::number),
            open: file
                .open_secs
                .map_or(Duration::from_secs(30), Bounded::secs),
            exit_codes: file.exit_codes.unwrap_or(false),
        }
    }
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { max = 2, delay_ms = 100 }"
)]
struct RetriesFile {
    max: Option<Bounded<1, 100>>,
    delay_ms: Option<Bounded<0, 60_000>>,
    exit_codes: Option<bool>,
}

impl From<RetriesFile> for RetryConfig {
    fn from(file: RetriesFile) -> Self {
        Self {
            max: file.max.map_or(2, Bounded::number),
            delay: file
                .delay_ms
                .map_or(Duration::from_millis(100), Bounded::millis),
            exit_codes: file.exit_codes.unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Settings;

    fn parse(text: &str) -> Result<FlowConfig, String> {
        let text = format!("[flow]\n{text}\n");
        let settings = Settings::parse(Path::new("e.toml"), &text);
        settings
            .map(|settings| settings.executor.flow)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_shipped_file_limits_nothing() {
        let shipped = parse("").expect("valid");
        assert_eq!(shipped, FlowConfig::default());
        assert!(!shipped.is_limited());
    }

    #[test]
    fn every_value_is_read() {
        let config = parse(
            "backend = \"redis://h\"\nmax_running = 9\nmax_running_shared = 20\nqueue_max = 3\nqueue_timeout_secs = 7\n\
             caller_rate = { calls = 10 }\ntenant_rate = { calls = 60, per_secs = 60, burst = 5 }\n\
             [flow.tools.bash]\nmax_running = 2\nmax_running_shared = 4\nbreaker = { failures = 3, open_secs = 4, exit_codes = true }\n\
             [flow.tools.\"*\"]\nrate = { calls = 1 }\nidempotent = true\nretries = {}",
        );
        let config = config.expect("valid");
        assert_eq!((config.max_running, config.queue_max), (Some(9), 3));
        assert_eq!(config.max_running_shared, Some(20));
        assert_eq!(config.queue_timeout, Duration::from_secs(7));
        let rate = |calls, secs, burst| {
            Some(Rate {
                calls,
                per: Duration::from_secs(secs),
                burst,
            })
        };
        assert_eq!(config.caller_rate, rate(10, 1, 10));
        assert_eq!(config.tenant_rate, rate(60, 60, 5));
        let bash = ToolFlow {
            max_running: Some(2),
            max_running_shared: Some(4),
            breaker: Some(BreakerConfig {
                failures: 3,
                open: Duration::from_secs(4),
                exit_codes: true,
            }),
            ..ToolFlow::default()
        };
        assert_eq!(config.tool("bash"), bash);
        let other = ToolFlow {
            rate: rate(1, 1, 1),
            retries: Some(RetryConfig {
                max: 2,
                delay: Duration::from_millis(100),
                exit_codes: false,
            }),
            ..ToolFlow::default()
        };
        assert_eq!(config.tool("read_file"), other);
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        for (text, parts) in [
            (
                "backend = \"redis://:s3cret@h:port\"",
                &["e.toml:2: ", "redis+unix:///PATH"][..],
            ),
            ("max_running = 0", &["e.toml:2: ", "from 1 to"]),
            ("caller_rate = 10", &["e.toml:2: ", "caller_rate"]),
            ("caller_rate = { per_secs = 1 }", &["e.toml:2: ", "calls"]),
            (
                "caller_rate = { calls = 1, per = 1 }",
                &["e.toml:2: ", "per_secs"],
            ),
            (
                "tools.bash.retries = { max = 1 }",
                &["e.toml:2: ", "`idempotent = true`"],
            ),
            (
                "max_running_shared = 1",
                &["e.toml:1: ", "set `backend` to the Redis server"],
            ),
            (
                "backend = \"redis://h\"\nqueue_max = 0\ntools.bash.max_running_shared = 1",
                &["e.toml:1: ", "`queue_max = 0`"],
            ),
            (
                "max_running_shared = 1001",
                &["e.toml:2: ", "from 1 to 1000"],
            ),
            ("[flow.tools.bash]\nburst = 1", &["e.toml:3: ", "burst"]),
        ] {
            let refusal = parse(text).expect_err(text);
            for part in parts {
                assert!(refusal.contains(part), "{text} gave {refusal}");
                assert!(!refusal.contains("s3cret"), "{refusal}");
            }
        }
    }
}
