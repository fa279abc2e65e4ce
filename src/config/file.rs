use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::AccessFlags;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::values::Bounded;
use super::{Access, CgroupChoice, ConfigError, ExecutorConfig, Limits, Truncate};
use crate::domain::CallOptions;

/// The shipped configuration, which is also the default.
pub const DEFAULT_EXECUTOR_TOML: &str = include_str!("../../config/executor.toml");

const MIB: u64 = 1 << 20;

/// All of `executor.toml`, validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How things are run. `spool`'s directory and `instance` are the daemon's to fill in.
    pub executor: ExecutorConfig,
    /// The most kept of one stream, in bytes; 0 keeps none.
    pub spool_max_bytes: u64,
    /// The most kept of all streams, in bytes.
    pub spool_total_bytes: u64,
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

impl Settings {
    /// Reads and validates `path`.
    ///
    /// # Errors
    /// See [`ConfigError`]; nothing of an invalid file is used.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        };
        // Reading a FIFO would wait for a writer, and the daemon with it.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(unreadable(std::io::Error::other(
                "it is not a regular file",
            )));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(path, &text)
    }

    /// Reads and validates `path`; where there is none, the shipped settings.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn read_or_shipped(path: &Path) -> Result<Self, ConfigError> {
        match Self::read(path) {
            Err(ConfigError::Unreadable { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Self::shipped()
            }
            read => read,
        }
    }

    /// What is valid and yet may be a slip of the pen, for people to read.
    pub fn doubts(&self) -> Vec<String> {
        let unknown = self.access.unknown.iter();
        let mut doubts: Vec<String> = unknown
            .map(|name| format!("[access] names {name:?}, whom this machine does not know"))
            .collect();
        let shell = &self.executor.shell;
        if nix::unistd::access(shell, AccessFlags::X_OK).is_err() {
            doubts.push(format!("`shell`: cannot execute `{}`", shell.display()));
        }
        if let Some(dir) = &self.executor.working_dir
            && !dir.is_dir()
        {
            doubts.push(format!(
                "`working_dir`: there is no directory `{}`",
                dir.display()
            ));
        }
        doubts
    }

    /// Validates `text`, which came from `path`. What it does not name has the shipped value.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file: File =
            toml::from_str(text).map_err(|error| ConfigError::from_toml(path, text, &error))?;
        let shipped: File = toml::from_str(DEFAULT_EXECUTOR_TOML)
            .map_err(|error| ConfigError::from_toml(path, DEFAULT_EXECUTOR_TOML, &error))?;
        let given = file.clone();
        file.or(shipped).settings().map_err(|(key, detail)| {
            let line = if given.names(key) {
                line_of(text, key)
            } else {
                1
            };
            ConfigError::Invalid {
                path: path.to_owned(),
                line,
                key: Some(key.to_owned()),
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
        if self.log.format != next.log.format {
            keys.push("log.format");
        }
        keys
    }
}

/// The file as it is written: every key optional, none unknown.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default_timeout_secs: Option<Bounded<1, 604_800>>,
    max_timeout_secs: Option<Bounded<1, 604_800>>,
    max_output_bytes: Option<Bounded<1, { 64 * MIB }>>,
    truncate: Option<Truncate>,
    #[serde(default, deserialize_with = "absolute")]
    working_dir: Option<PathBuf>,
    #[serde(default, deserialize_with = "absolute")]
    shell: Option<PathBuf>,
    kill_grace_ms: Option<Bounded<0, 60_000>>,
    kill_wait_ms: Option<Bounded<1, 60_000>>,
    drain_ms: Option<Bounded<0, 60_000>>,
    spool_max_bytes: Option<Bounded<0, { 1 << 40 }>>,
    spool_total_bytes: Option<Bounded<0, { 1 << 50 }>>,
    max_request_bytes: Option<Bounded<1024, { 1024 * MIB }>>,
    max_connections: Option<Bounded<1, 65_536>>,
    shutdown_grace_secs: Option<Bounded<0, 3600>>,
    #[serde(default, deserialize_with = "environment")]
    env: Option<BTreeMap<String, String>>,
    limits: Option<LimitsFile>,
    cgroup: Option<CgroupFile>,
    access: Option<AccessFile>,
    log: Option<LogFile>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsFile {
    memory_max: Option<Bounded<{ 256 * 1024 }, { i64::MAX as u64 }>>,
    pids_max: Option<Bounded<1, 4_194_304>>,
    cpu_weight: Option<Bounded<1, 10_000>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CgroupFile {
    mode: Option<CgroupMode>,
    #[serde(default, deserialize_with = "absolute")]
    path: Option<PathBuf>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CgroupMode {
    Auto,
    Cgroup,
    Group,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessFile {
    callers: Option<Vec<String>>,
    approvers: Option<Vec<String>>,
    admins: Option<Vec<String>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogFile {
    level: Option<String>,
    format: Option<LogFormat>,
}

impl File {
    /// What is not in `self` is taken from `base`, key by key.
    fn or(self, base: Self) -> Self {
        let (limits, base_limits) = (
            self.limits.unwrap_or_default(),
            base.limits.unwrap_or_default(),
        );
        let (cgroup, base_cgroup) = (
            self.cgroup.unwrap_or_default(),
            base.cgroup.unwrap_or_default(),
        );
        let (access, base_access) = (
            self.access.unwrap_or_default(),
            base.access.unwrap_or_default(),
        );
        let (log, base_log) = (self.log.unwrap_or_default(), base.log.unwrap_or_default());
        Self {
            default_timeout_secs: self.default_timeout_secs.or(base.default_timeout_secs),
            max_timeout_secs: self.max_timeout_secs.or(base.max_timeout_secs),
            max_output_bytes: self.max_output_bytes.or(base.max_output_bytes),
            truncate: self.truncate.or(base.truncate),
            working_dir: self.working_dir.or(base.working_dir),
            shell: self.shell.or(base.shell),
            kill_grace_ms: self.kill_grace_ms.or(base.kill_grace_ms),
            kill_wait_ms: self.kill_wait_ms.or(base.kill_wait_ms),
            drain_ms: self.drain_ms.or(base.drain_ms),
            spool_max_bytes: self.spool_max_bytes.or(base.spool_max_bytes),
            spool_total_bytes: self.spool_total_bytes.or(base.spool_total_bytes),
            max_request_bytes: self.max_request_bytes.or(base.max_request_bytes),
            max_connections: self.max_connections.or(base.max_connections),
            shutdown_grace_secs: self.shutdown_grace_secs.or(base.shutdown_grace_secs),
            env: self.env.or(base.env),
            limits: Some(LimitsFile {
                memory_max: limits.memory_max.or(base_limits.memory_max),
                pids_max: limits.pids_max.or(base_limits.pids_max),
                cpu_weight: limits.cpu_weight.or(base_limits.cpu_weight),
            }),
            cgroup: Some(CgroupFile {
                mode: cgroup.mode.or(base_cgroup.mode),
                path: cgroup.path.or(base_cgroup.path),
            }),
            access: Some(AccessFile {
                callers: access.callers.or(base_access.callers),
                approvers: access.approvers.or(base_access.approvers),
                admins: access.admins.or(base_access.admins),
            }),
            log: Some(LogFile {
                level: log.level.or(base_log.level),
                format: log.format.or(base_log.format),
            }),
        }
    }

    /// Whether the file itself sets the key that `settings` complains of.
    fn names(&self, key: &str) -> bool {
        match key {
            "default_timeout_secs" => self.default_timeout_secs.is_some(),
            "callers" => self.access.is_some(),
            "path" => self.cgroup.is_some(),
            "level" => self.log.is_some(),
            _ => false,
        }
    }

    /// Checks what concerns several keys, and gives every value its type.
    fn settings(self) -> Result<Settings, (&'static str, String)> {
        let unset = |key| {
            move || {
                (
                    key,
                    "is set nowhere, not even in the shipped file".to_owned(),
                )
            }
        };
        let default_timeout = self
            .default_timeout_secs
            .ok_or_else(unset("default_timeout_secs"))?
            .secs();
        let max_timeout = self
            .max_timeout_secs
            .ok_or_else(unset("max_timeout_secs"))?
            .secs();
        if default_timeout > max_timeout {
            let detail = format!(
                "{} is above max_timeout_secs = {}",
                default_timeout.as_secs(),
                max_timeout.as_secs()
            );
            return Err(("default_timeout_secs", detail));
        }
        let limits = self.limits.unwrap_or_default();
        let executor = ExecutorConfig {
            default_timeout,
            max_timeout,
            max_output_bytes: self
                .max_output_bytes
                .ok_or_else(unset("max_output_bytes"))?
                .size(),
            truncate: self.truncate.ok_or_else(unset("truncate"))?,
            working_dir: self.working_dir,
            shell: self.shell.ok_or_else(unset("shell"))?,
            kill_grace: self
                .kill_grace_ms
                .ok_or_else(unset("kill_grace_ms"))?
                .millis(),
            kill_wait: self
                .kill_wait_ms
                .ok_or_else(unset("kill_wait_ms"))?
                .millis(),
            drain: self.drain_ms.ok_or_else(unset("drain_ms"))?.millis(),
            env: self.env.unwrap_or_default(),
            limits: Limits {
                memory_max: limits.memory_max.map(Bounded::get),
                pids_max: limits.pids_max.map(Bounded::get),
                cpu_weight: limits.cpu_weight.map(Bounded::get),
            },
            cgroup: cgroup_choice(self.cgroup.unwrap_or_default())?,
            subreaper: true,
            spool: None,
            instance: None,
            tools_file: None,
        };
        let access = self.access.unwrap_or_default();
        let log = self.log.unwrap_or_default();
        Ok(Settings {
            executor,
            spool_max_bytes: self
                .spool_max_bytes
                .ok_or_else(unset("spool_max_bytes"))?
                .get(),
            spool_total_bytes: self
                .spool_total_bytes
                .ok_or_else(unset("spool_total_bytes"))?
                .get(),
            max_request_bytes: self
                .max_request_bytes
                .ok_or_else(unset("max_request_bytes"))?
                .size(),
            max_connections: self
                .max_connections
                .ok_or_else(unset("max_connections"))?
                .size(),
            shutdown_grace: self
                .shutdown_grace_secs
                .ok_or_else(unset("shutdown_grace_secs"))?
                .secs(),
            access: Access::resolve([
                &access.callers.unwrap_or_default(),
                &access.approvers.unwrap_or_default(),
                &access.admins.unwrap_or_default(),
            ])
            .map_err(|detail| ("callers", detail))?,
            log: log_config(log)?,
        })
    }
}

fn cgroup_choice(file: CgroupFile) -> Result<CgroupChoice, (&'static str, String)> {
    match (file.mode.unwrap_or(CgroupMode::Auto), file.path) {
        (CgroupMode::Group, Some(path)) => {
            let path = path.display();
            Err((
                "path",
                format!("`{path}` is of no use with mode = \"group\": remove one of them"),
            ))
        }
        (CgroupMode::Group, None) => Ok(CgroupChoice::Group),
        (_, Some(path)) => Ok(CgroupChoice::Path(path)),
        (CgroupMode::Cgroup, None) => Ok(CgroupChoice::Delegated),
        (CgroupMode::Auto, None) => Ok(CgroupChoice::Auto),
    }
}

fn log_config(file: LogFile) -> Result<LogConfig, (&'static str, String)> {
    let level = file.level.unwrap_or_else(|| "info".to_owned());
    if log_filter(&level).is_none() {
        let detail = format!(
            "{level:?} is no level: expected off, error, warn, info, debug or trace, or some of them by target such as \"info,hyper=debug\""
        );
        return Err(("level", detail));
    }
    Ok(LogConfig {
        level,
        format: file.format.unwrap_or(LogFormat::Auto),
    })
}

/// Reads a log filter: a level, or levels by target. A word that is neither would by itself be a
/// target of which everything is logged, and nothing else: a misspelt level would end the log.
pub fn log_filter(text: &str) -> Option<Targets> {
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let is_clear = |directive: &str| directive.contains('=') || is_level(directive.trim());
    text.split(',')
        .all(is_clear)
        .then(|| text.parse().ok())
        .flatten()
}

fn absolute<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    if path.is_absolute() && !path.as_os_str().as_encoded_bytes().contains(&0) {
        Ok(Some(path))
    } else {
        Err(D::Error::custom(format!("{path:?} is no absolute path")))
    }
}

fn environment<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let mut options = CallOptions::default();
    for (name, value) in BTreeMap::<String, String>::deserialize(deserializer)? {
        options.add_env(name, value).map_err(D::Error::custom)?;
    }
    Ok(Some(options.env))
}

/// The line of the first assignment to `key`, counted from 1.
fn line_of(text: &str, key: &str) -> usize {
    let sets = |line: &str| {
        line.trim_start()
            .strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    text.lines().position(sets).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Settings::parse(Path::new("e.toml"), text)
            .expect_err(text)
            .to_string()
    }

    #[test]
    fn the_shipped_file_is_valid_and_sets_the_seeds_defaults() {
        let settings = Settings::shipped().expect("valid");
        assert_eq!(settings.executor.shell, Path::new("/bin/bash"));
        let library = ExecutorConfig::default();
        assert_eq!(settings.executor.default_timeout, library.default_timeout);
        assert_eq!(settings.executor.max_timeout, library.max_timeout);
        assert_eq!(settings.executor.max_output_bytes, library.max_output_bytes);
        assert_eq!(settings.executor.kill_grace, library.kill_grace);
        assert_eq!(settings.executor.kill_wait, library.kill_wait);
        assert_eq!(settings.executor.drain, library.drain);
    }

    #[test]
    fn what_may_be_a_slip_of_the_pen_is_told() {
        let text = "shell = \"/bin/nosuch\"\nworking_dir = \"/nowhere\"\n\
                    [access]\ncallers = [\"user:no-such-user\"]\n\
                    [log]\nlevel = \"info, hyper=debug\"\n";
        let settings = Settings::parse(Path::new("e.toml"), text).expect("valid");
        let doubts = settings.doubts();
        assert_eq!(doubts.len(), 3, "{doubts:?}");
        for (doubt, part) in doubts
            .iter()
            .zip(["no-such-user", "/bin/nosuch", "/nowhere"])
        {
            assert!(doubt.contains(part), "{doubt}");
        }
    }

    #[test]
    fn every_shipped_key_is_known_also_the_commented_ones() {
        let uncommented: String = DEFAULT_EXECUTOR_TOML
            .lines()
            .filter(|line| !line.contains("path ="))
            .map(|line| match line.strip_prefix("# ") {
                Some(rest)
                    if rest
                        .split_once(" = ")
                        .is_some_and(|(k, _)| !k.contains(' ')) =>
                {
                    rest
                }
                _ => line,
            })
            .map(|line| format!("{line}\n"))
            .collect();
        let settings = Settings::parse(Path::new("e.toml"), &uncommented).expect("valid");
        assert_eq!(settings.executor.limits.pids_max, Some(4096));
    }

    #[test]
    fn refusals_name_file_line_key_and_what_was_expected() {
        for (text, parts) in [
            (
                "\ndefault_timeout_secs = 0\n",
                &["e.toml:2: ", "default_timeout_secs", "from 1 to"][..],
            ),
            (
                "\n\nno_such_key = 1\n",
                &["e.toml:3: ", "no_such_key", "expected one of"],
            ),
            (
                "max_output_bytes = -5\n",
                &["e.toml:1: ", "max_output_bytes", "from 1 to"],
            ),
            (
                "default_timeout_secs = 9\nmax_timeout_secs = 5\n",
                &["e.toml:1: ", "above max_timeout_secs"],
            ),
            (
                "shell = \"bash\"\n",
                &["e.toml:1: ", "`shell`", "absolute path"],
            ),
            (
                "[access]\ncallers = [\"root\"]\n",
                &["e.toml:2: ", "user:NAME"],
            ),
            (
                "[cgroup]\nmode = \"group\"\npath = \"/x\"\n",
                &["e.toml:3: ", "`path`"],
            ),
            ("[env]\n\"A=B\" = \"x\"\n", &["A=B"]),
            ("[log]\nlevel = \"a=b=c\"\n", &["e.toml:2: ", "a=b=c"]),
            ("[log]\nlevel = \"inof\"\n", &["e.toml:2: ", "inof", "info"]),
            ("[log]\nlevel = \"warn,loud\"\n", &["e.toml:2: ", "trace"]),
            ("[log]\nlevel = \"\"\n", &["e.toml:2: ", "off"]),
            (
                "truncate = \"head\"\n",
                &["e.toml:1: ", "truncate", "tail", "middle"],
            ),
            ("x = [", &["e.toml:1: "]),
        ] {
            let refusal = refusal(text);
            for part in parts {
                assert!(
                    refusal.contains(part),
                    "{text:?} gave {refusal:?}, which lacks {part:?}"
                );
            }
        }
    }
}
