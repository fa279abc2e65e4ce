//! `executor.toml` as it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use regex::bytes::Regex;
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::files::FilesFile;
use super::flow::FlowConfig;
use super::hooks::Hooks;
use super::sandbox::SandboxFile;
use super::tracing::TracingFile;
use super::values::{Bounded, word};
use super::{Audit, Durability, LogFormat, Truncate};
use crate::domain::{CallOptions, Correlation, EXECUTION_VARIABLE, INSTANCE_VARIABLE};

const MIB: u64 = 1 << 20;

/// The file as it is written: every key optional, none unknown.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) default_timeout_secs: Option<Bounded<1, 604_800>>,
    pub(super) max_timeout_secs: Option<Bounded<1, 604_800>>,
    pub(super) max_output_bytes: Option<Bounded<1, { 64 * MIB }>>,
    #[serde(deserialize_with = "word")]
    pub(super) truncate: Option<Truncate>,
    #[serde(deserialize_with = "absolute")]
    pub(super) working_dir: Option<PathBuf>,
    #[serde(deserialize_with = "absolute")]
    pub(super) shell: Option<PathBuf>,
    pub(super) kill_grace_ms: Option<Bounded<0, 60_000>>,
    pub(super) kill_wait_ms: Option<Bounded<1, 60_000>>,
    pub(super) drain_ms: Option<Bounded<0, 60_000>>,
    pub(super) spool_max_bytes: Option<Bounded<0, { 1 << 40 }>>,
    pub(super) spool_total_bytes: Option<Bounded<0, { 1 << 50 }>>,
    pub(super) max_request_bytes: Option<Bounded<1024, { 1024 * MIB }>>,
    pub(super) max_connections: Option<Bounded<1, 65_536>>,
    pub(super) shutdown_grace_secs: Option<Bounded<0, 3600>>,
    #[serde(deserialize_with = "environment")]
    pub(super) env: BTreeMap<String, String>,
    pub(super) limits: LimitsFile,
    pub(super) cgroup: CgroupFile,
    pub(super) secrets: SecretsFile,
    pub(super) tools: ToolsFile,
    pub(super) metrics: MetricsFile,
    pub(super) tracing: TracingFile,
    pub(super) ledger: LedgerFile,
    pub(super) confirmation: ConfirmationFile,
    pub(super) hooks: Hooks,
    pub(super) files: FilesFile,
    pub(super) skills: SkillsFile,
    pub(super) sandbox: SandboxFile,
    pub(super) flow: FlowConfig,
    pub(super) access: AccessFile,
    pub(super) log: LogFile,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [limits]")]
pub(super) struct LimitsFile {
    /// Not less than what execve(2) takes of arguments and variables, 6 MiB, and some more: they count as the new
    /// process's while it still shares the daemon's memory, and whom the kernel kills for want of room it kills with
    /// all that share it.
    pub(super) memory_max: Option<Bounded<{ 8 * MIB }, { i64::MAX as u64 }>>,
    pub(super) pids_max: Option<Bounded<1, 4_194_304>>,
    pub(super) cpu_weight: Option<Bounded<1, 10_000>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [cgroup]")]
pub(super) struct CgroupFile {
    #[serde(deserialize_with = "word")]
    pub(super) mode: Option<CgroupMode>,
    #[serde(deserialize_with = "absolute")]
    pub(super) path: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CgroupMode {
    Auto,
    Cgroup,
    Group,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [secrets]")]
pub(super) struct SecretsFile {
    pub(super) tokens: Option<bool>,
    #[serde(deserialize_with = "patterns")]
    pub(super) patterns: Vec<Regex>,
    pub(super) variables: BTreeSet<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [tools]")]
pub(super) struct ToolsFile {
    pub(super) disabled: BTreeSet<String>,
    pub(super) untrusted: BTreeSet<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [metrics]")]
pub(super) struct MetricsFile {
    pub(super) enabled: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [ledger]")]
pub(super) struct LedgerFile {
    #[serde(deserialize_with = "word")]
    pub(super) durability: Option<Durability>,
    #[serde(deserialize_with = "word")]
    pub(super) audit: Option<Audit>,
    pub(super) max_history_size: Option<Bounded<1, 100_000_000>>,
    pub(super) max_age_days: Option<Bounded<1, 36_500>>,
    pub(super) max_total_bytes: Option<Bounded<{ 16 * MIB }, { 1 << 50 }>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [confirmation]")]
pub(super) struct ConfirmationFile {
    pub(super) timeout_secs: Option<Bounded<1, 604_800>>,
    pub(super) async_timeout_secs: Option<Bounded<1, 31_536_000>>,
    pub(super) pending_max: Option<Bounded<1, 1_000_000>>,
    pub(super) self_approval: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [access]")]
pub(super) struct AccessFile {
    pub(super) callers: Vec<String>,
    pub(super) approvers: Vec<String>,
    pub(super) admins: Vec<String>,
    pub(super) observers: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [skills]")]
pub(super) struct SkillsFile {
    pub(super) max_depth: Option<Bounded<0, 100>>,
    pub(super) max_calls: Option<Bounded<0, 1_000_000>>,
    pub(super) max_context_bytes: Option<Bounded<0, { 64 * MIB }>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [log]")]
pub(super) struct LogFile {
    pub(super) level: Option<String>,
    #[serde(deserialize_with = "word")]
    pub(super) format: Option<LogFormat>,
}

fn absolute<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    if path.is_absolute() && !path.as_os_str().as_encoded_bytes().contains(&0) {
        Ok(Some(path))
    } else {
        let detail = format!("{path:?} is no absolute path: expected one that begins with `/`");
        Err(D::Error::custom(detail))
    }
}

fn environment<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    struct Variables;

    impl<'de> Visitor<'de> for Variables {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table of variables")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut options = CallOptions::default();
            while let Some(name) = map.next_key()? {
                let options = &mut options;
                map.next_value_seed(Variable { name, options })?;
            }
            Ok(options.env)
        }
    }

    deserializer.deserialize_map(Variables)
}

/// The value of one, refused by the parser itself so that the refusal carries the place in the file.
struct Variable<'a> {
    name: String,
    options: &'a mut CallOptions,
}

impl<'de> DeserializeSeed<'de> for Variable<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Variable<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string for the variable `{}`", self.name)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        let Self { name, options } = self;
        let own = [EXECUTION_VARIABLE, INSTANCE_VARIABLE];
        let mut own = own.into_iter().chain(Correlation::VARIABLES);
        if own.any(|own| own == name) {
            return Err(E::custom(format!(
                "`{name}` is the daemon's own to set: expected another name"
            )));
        }
        options.add_env(name, value.to_owned()).map_err(E::custom)
    }
}

fn patterns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Regex>, D::Error> {
    let patterns = Vec::<String>::deserialize(deserializer)?;
    let compile = |pattern: String| {
        Regex::new(&pattern).map_err(|error| {
            let error = error.to_string();
            let why = error.lines().last().unwrap_or_default();
            let why = why.strip_prefix("error: ").unwrap_or(why);
            D::Error::custom(format!("{pattern:?} is no regular expression: {why}"))
        })
    };
    patterns.into_iter().map(compile).collect()
}
