use std::path::Path;
use std::time::Duration;

use toml::de::DeTable;
use toml::{Spanned, Table, Value};

use super::file::{CgroupFile, CgroupMode, File};
use super::log::log_config;
use super::text::{is_absent, read_text};
use super::values::Bounded;
use super::{
    Access, CgroupChoice, ConfigError, ConfirmationConfig, Durability, ExecutorConfig,
    HistoryConfig, Limits, LogConfig, SecretsConfig, SkillsConfig,
};

/// The shipped configuration, which is also the default.
pub const DEFAULT_EXECUTOR_TOML: &str = include_str!("../../config/executor.toml");

/// All of `executor.toml`, validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How things are run. `spool`'s directory and `instance` are the daemon's to fill in.
    pub executor: ExecutorConfig,
    /// The most kept of one stream, in bytes; 0 keeps none.
    pub spool_max_bytes: u64,
    /// The most kept of all streams, in bytes.
    pub spool_total_bytes: u64,
    /// What a commit of the ledger survives.
    pub durability: Durability,
    /// The largest request body, in bytes.
    pub max_request_bytes: usize,
    /// How many connections are served at once.
    pub max_connections: usize,
    /// How long a stop waits for running commands.
    pub shutdown_grace: Duration,
    /// Who may do what.
    pub access: Access,
    /// What is logged and how.
    pub log: LogConfig,
}

impl Settings {
    /// Reads and validates `path`.
    ///
    /// # Errors
    /// See [`ConfigError`]; nothing of an invalid file is used.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &read_text(path)?)
    }

    /// The same of a file that was read before: that it has no content by now is not what anybody wants.
    ///
    /// # Errors
    /// As [`Settings::read`], and when it is empty, as a write leaves it that a full disk has ended.
    pub fn read_again(path: &Path) -> Result<Self, ConfigError> {
        let text = read_text(path)?;
        if text.is_empty() {
            return Err(ConfigError::Invalid {
                path: path.to_owned(),
                line: 1,
                key: None,
                detail: "the file is empty, as a write leaves it that a full disk has ended: expected what is to be in force, or a comment to have the defaults".to_owned(),
            });
        }
        Self::parse(path, &text)
    }

    /// Reads and validates `path`, where there is such a file.
    ///
    /// # Errors
    /// As [`Settings::read`]; a link that leads nowhere is no lack of a file.
    pub fn read_if_there(path: &Path) -> Result<Option<Self>, ConfigError> {
        match Self::read(path) {
            Err(ConfigError::Unreadable { .. }) if is_absent(path) => Ok(None),
            read => read.map(Some),
        }
    }

    /// What is valid and yet may be a slip of the pen, for people to read.
    pub fn doubts(&self) -> Vec<String> {
        let unknown = self.access.unknown.iter();
        let mut doubts: Vec<String> = unknown
            .map(|name| format!("[access] names {name:?}, whom this machine does not know"))
            .collect();
        let needs = self.executor.needs();
        doubts.extend(needs.filter_map(|need| Some(format!("`{}`: {}", need.key, need.lack()?))));
        if let CgroupChoice::Path(path) = &self.executor.cgroup
            && !path.join("cgroup.procs").exists()
        {
            doubts.push(format!(
                "[cgroup] `path`: `{}` is no cgroup v2 directory, without which the daemon does not start",
                path.display()
            ));
        }
        doubts.extend(self.executor.idle());
        // No bytes at all are a way to say that nothing is to be kept.
        if (1..self.spool_max_bytes).contains(&self.spool_total_bytes) {
            doubts.push(format!(
                "`spool_max_bytes`: {} of a stream never fit into spool_total_bytes = {}",
                self.spool_max_bytes, self.spool_total_bytes
            ));
        }
        doubts
    }

    /// Validates `text`, which came from `path`. What it does not name has the shipped value.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        // By itself first: what is wrong in it has a line there.
        let given: File =
            toml::from_str(text).map_err(|error| ConfigError::from_toml(path, text, &error))?;
        let invalid = |error| ConfigError::from_toml(path, DEFAULT_EXECUTOR_TOML, &error);
        let mut whole: Table = toml::from_str(DEFAULT_EXECUTOR_TOML).map_err(invalid)?;
        overlay(&mut whole, toml::from_str(text).map_err(invalid)?);
        let mut whole: File = whole.try_into().map_err(invalid)?;
        if given.default_timeout_secs.is_none() {
            whole.default_timeout_secs = whole.default_timeout_secs.min(whole.max_timeout_secs);
        }
        whole.settings().map_err(|(key, detail)| {
            let name = key.rsplit('.').next().unwrap_or(key);
            ConfigError::Invalid {
                path: path.to_owned(),
                line: line_of(text, key),
                key: Some(name.to_owned()),
                detail,
            }
        })
    }

    /// The shipped settings.
    ///
    /// # Errors
    /// None in a build whose tests pass.
    pub fn shipped() -> Result<Self, ConfigError> {
        Self::parse(Path::new("built-in executor.toml"), DEFAULT_EXECUTOR_TOML)
    }

    /// The keys whose change from `self` to `next` takes a restart.
    pub fn needs_restart(&self, next: &Self) -> Vec<&'static str> {
        let mut keys = Vec::new();
        if self.executor.cgroup != next.executor.cgroup {
            keys.push("cgroup");
        }
        if self.max_connections != next.max_connections {
            keys.push("max_connections");
        }
        if self.durability != next.durability {
            keys.push("ledger.durability");
        }
        if self.log.format != next.log.format {
            keys.push("log.format");
        }
        // How large it may be can change; whether there is a spool is settled at the start.
        if (self.spool_max_bytes == 0) != (next.spool_max_bytes == 0) {
            keys.push("spool_max_bytes");
        }
        if (self.spool_total_bytes == 0) != (next.spool_total_bytes == 0) {
            keys.push("spool_total_bytes");
        }
        keys
    }
}

impl File {
    /// Checks what concerns several keys, and gives every value its type.
    pub(super) fn settings(self) -> Result<Settings, (&'static str, String)> {
        let default_timeout = set(self.default_timeout_secs, "default_timeout_secs")?.secs();
        let max_timeout = set(self.max_timeout_secs, "max_timeout_secs")?.secs();
        if default_timeout > max_timeout {
            let detail = format!(
                "{} is above max_timeout_secs = {}",
                default_timeout.as_secs(),
                max_timeout.as_secs()
            );
            return Err(("default_timeout_secs", detail));
        }
        let executor = ExecutorConfig {
            default_timeout,
            max_timeout,
            max_output_bytes: set(self.max_output_bytes, "max_output_bytes")?.size(),
            truncate: set(self.truncate, "truncate")?,
            working_dir: self.working_dir,
            shell: set(self.shell, "shell")?,
            kill_grace: set(self.kill_grace_ms, "kill_grace_ms")?.millis(),
            kill_wait: set(self.kill_wait_ms, "kill_wait_ms")?.millis(),
            drain: set(self.drain_ms, "drain_ms")?.millis(),
            env: self.env,
            limits: Limits {
                memory_max: self.limits.memory_max.map(Bounded::get),
                pids_max: self.limits.pids_max.map(Bounded::get),
                cpu_weight: self.limits.cpu_weight.map(Bounded::get),
            },
            cgroup: cgroup_choice(self.cgroup)?,
            subreaper: true,
            state_dir: None,
            spool: None,
            instance: None,
            own_files: Vec::new(),
            tools_file: None,
            secrets: SecretsConfig {
                tokens: set(self.secrets.tokens, "tokens")?,
                patterns: self.secrets.patterns.into(),
                variables: self.secrets.variables,
            },
            disabled_tools: self.tools.disabled,
            untrusted_tools: self.tools.untrusted,
            metrics: set(self.metrics.enabled, "enabled")?,
            tracing: self.tracing.config(),
            ledger: None,
            audit: set(self.ledger.audit, "audit")?,
            confirmation: ConfirmationConfig {
                has_approvers: !self.access.approvers.is_empty(),
                self_approval: set(self.confirmation.self_approval, "self_approval")?,
                timeout: set(self.confirmation.timeout_secs, "timeout_secs")?.secs(),
                async_timeout: set(self.confirmation.async_timeout_secs, "async_timeout_secs")?
                    .secs(),
                pending_max: set(self.confirmation.pending_max, "pending_max")?.number(),
            },
            remembered_dir: None,
            hooks: self.hooks.0,
            skills: SkillsConfig {
                dir: None,
                max_depth: set(self.skills.max_depth, "max_depth")?.number(),
                max_calls: set(self.skills.max_calls, "max_calls")?.number(),
                max_context_bytes: set(self.skills.max_context_bytes, "max_context_bytes")?.size(),
            },
            socket: None,
            sandbox: (self.sandbox.config()).map_err(|detail| ("sandbox.user", detail))?,
            files: self.files.config(),
            flow: self.flow,
            history: HistoryConfig {
                max_count: set(self.ledger.max_history_size, "max_history_size")?.get(),
                max_age: self
                    .ledger
                    .max_age_days
                    .map(|days| Duration::from_secs(days.get() * 24 * 60 * 60)),
                max_total_bytes: set(self.ledger.max_total_bytes, "max_total_bytes")?.get(),
            },
        };
        let access = &self.access;
        Ok(Settings {
            executor,
            spool_max_bytes: set(self.spool_max_bytes, "spool_max_bytes")?.get(),
            spool_total_bytes: set(self.spool_total_bytes, "spool_total_bytes")?.get(),
            durability: set(self.ledger.durability, "durability")?,
            max_request_bytes: set(self.max_request_bytes, "max_request_bytes")?.size(),
            max_connections: set(self.max_connections, "max_connections")?.size(),
            shutdown_grace: set(self.shutdown_grace_secs, "shutdown_grace_secs")?.secs(),
            access: Access::resolve([
                &access.callers,
                &access.approvers,
                &access.admins,
                &access.observers,
            ])?,
            log: log_config(self.log)?,
        })
    }
}

/// A value that the shipped file sets, so that every file does.
fn set<T>(value: Option<T>, key: &'static str) -> Result<T, (&'static str, String)> {
    let nowhere = || "is set nowhere, not even in the shipped file".to_owned();
    value.ok_or_else(|| (key, nowhere()))
}

/// Puts what `given` sets in the place of what `base` does, key by key.
fn overlay(base: &mut Table, given: Table) {
    for (key, value) in given {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(given)) => overlay(base, given),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}

fn cgroup_choice(file: CgroupFile) -> Result<CgroupChoice, (&'static str, String)> {
    match (file.mode.unwrap_or(CgroupMode::Auto), file.path) {
        (CgroupMode::Group, Some(path)) => {
            let path = path.display();
            Err((
                "cgroup.path",
                format!("`{path}` is of no use with mode = \"group\": remove one of them"),
            ))
        }
        (CgroupMode::Group, None) => Ok(CgroupChoice::Group),
        (_, Some(path)) => Ok(CgroupChoice::Path(path)),
        (CgroupMode::Cgroup, None) => Ok(CgroupChoice::Delegated),
        (CgroupMode::Auto, None) => Ok(CgroupChoice::Auto),
    }
}

/// The line of what sets `key`, counted from 1; the first where nothing does. `key` names its tables as well
/// (`log.level`), for several have keys of the same name.
fn line_of(text: &str, key: &str) -> usize {
    let root = DeTable::parse(text).ok();
    let mut table = root.as_ref().map(Spanned::get_ref);
    let mut at = 0;
    for step in key.split('.') {
        let Some((name, value)) = table.and_then(|table| table.get_key_value(step)) else {
            return 1;
        };
        at = name.span().start;
        table = value.get_ref().as_table();
    }
    text.get(..at).unwrap_or_default().matches('\n').count() + 1
}

#[cfg(test)]
mod tests;
