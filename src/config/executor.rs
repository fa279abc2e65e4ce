use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::AccessFlags;
use regex::bytes::Regex;

use super::{BaseDir, FilesConfig, FlowConfig, Hook, SandboxConfig, TracingConfig};
use crate::domain::SHORTEST_MASKED;

/// How an [`Executor`](crate::Executor) runs things. The defaults are the library's; the daemon's
/// come from `config/executor.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutorConfig {
    /// The time limit of a call that names none. Default 30 s.
    pub default_timeout: Duration,
    /// The longest time limit a call may ask for. Default one hour.
    pub max_timeout: Duration,
    /// How many bytes of output go into an answer. Default 1 MiB.
    pub max_output_bytes: usize,
    /// Which part of a longer output that is. Default its head.
    pub truncate: Truncate,
    /// Where commands run; `None` inherits this process's working directory.
    pub working_dir: Option<PathBuf>,
    /// The shell of the bash tool. Default `/bin/sh`.
    pub shell: PathBuf,
    /// From SIGTERM to SIGKILL. Default 1 s.
    pub kill_grace: Duration,
    /// How long SIGKILL is given to take effect. Default 500 ms.
    pub kill_wait: Duration,
    /// How long an ended command's output may be held open. Default 200 ms.
    pub drain: Duration,
    /// Variables added to the built environment of every command.
    pub env: BTreeMap<String, String>,
    /// Limits of each execution's cgroup.
    pub limits: Limits,
    /// How process trees are held together. Default process groups: a library does not take
    /// cgroups that its host program may use otherwise.
    pub cgroup: CgroupChoice,
    /// Whether this process becomes a subreaper (`PR_SET_CHILD_SUBREAPER`), to which processes
    /// that left their tree return. It must then have no children of its own making. Default no.
    pub subreaper: bool,
    /// The directory of what this instance keeps for itself, which no file tool touches. Default none.
    pub state_dir: Option<PathBuf>,
    /// The files, and directories of files, that say what this instance does, to which no file tool writes wherever they
    /// are. Default none.
    pub own_files: Vec<PathBuf>,
    /// Where full outputs go; `None` keeps only what goes into the answer. Default none.
    pub spool: Option<SpoolConfig>,
    /// Marks what this instance runs, in the variable `SHELLY_INSTANCE_ID`, so that the next
    /// start on the same state can find what a crash left behind.
    pub instance: Option<String>,
    /// The file with the tools' descriptions; `None` uses the built-in ones.
    pub tools_file: Option<PathBuf>,
    /// What is masked in outputs before anything is stored or sent. Default well-known tokens.
    pub secrets: SecretsConfig,
    /// Tools that are not listed and cannot be called. Default all but `bash`.
    pub disabled_tools: BTreeSet<String>,
    /// Tools that run in the sandbox only, whatever they say of themselves. Default none.
    pub untrusted_tools: BTreeSet<String>,
    /// Whether executions are counted and their stages timed (`[metrics] enabled`). Default
    /// yes.
    pub metrics: bool,
    /// Where the spans of executions are sent. Default nowhere.
    pub tracing: TracingConfig,
    /// Where executions are recorded for good; `None` remembers them in memory. Default none.
    pub ledger: Option<LedgerConfig>,
    /// Whether what cannot be recorded may run. Default yes.
    pub audit: Audit,
    /// How somebody is asked about what the policy asks about. Default nobody is.
    pub confirmation: ConfirmationConfig,
    /// Where approvals are kept that are remembered for good; `None` remembers none so.
    pub remembered_dir: Option<PathBuf>,
    /// What the operator's own programs are asked on a call's way. Default nothing.
    pub hooks: Vec<Hook>,
    /// Where tools come from that are not built in, and how they may call one another.
    pub skills: SkillsConfig,
    /// The socket at which processes of tools make their calls, if there is one.
    pub socket: Option<PathBuf>,
    /// How much of what was executed is remembered. Default a thousand.
    pub history: HistoryConfig,
    /// What the file tools may touch. Default there are none.
    pub files: FilesConfig,
    /// Where and how what is not trusted runs. Default nowhere.
    pub sandbox: SandboxConfig,
    /// How much may happen at once and how often. Default no limits.
    pub flow: FlowConfig,
}

impl ExecutorConfig {
    /// The tools that it names, and where.
    pub fn tools_named(&self) -> impl Iterator<Item = (String, &str)> {
        fn at<'n>(place: &str, names: impl Iterator<Item = &'n String>) -> Vec<(String, &'n str)> {
            names
                .map(|name| (place.to_owned(), name.as_str()))
                .collect()
        }
        let hooks = self.hooks.iter().flat_map(|hook| {
            let place = format!("`tools` of the hook `{}`", hook.name);
            at(&place, hook.tools.iter().flatten())
        });
        let limited = self.flow.tools_named();
        at("`disabled` in [tools]", self.disabled_tools.iter())
            .into_iter()
            .chain(at("`untrusted` in [tools]", self.untrusted_tools.iter()))
            .chain(at("`egress` in [sandbox]", self.sandbox.egress.keys()))
            .chain(hooks)
            .chain(limited.map(|name| (format!("[flow.tools.{name}]"), name)))
    }

    /// What says whether and where a call may run.
    fn restrictions(&self) -> impl PartialEq {
        (
            &self.disabled_tools,
            &self.untrusted_tools,
            &self.files,
            &self.sandbox,
        )
    }

    /// This one with what another says of whether and where a call may run; itself where that is the
    /// same. What else a call is run with stays as it was when it was approved, and its secrets looked for.
    pub(crate) fn restricted_as(self: &Arc<Self>, other: &Self) -> Arc<Self> {
        if self.restrictions() == other.restrictions() {
            return Arc::clone(self);
        }
        let restricted = Self {
            disabled_tools: other.disabled_tools.clone(),
            untrusted_tools: other.untrusted_tools.clone(),
            files: other.files.clone(),
            sandbox: other.sandbox.clone(),
            ..Self::clone(self)
        };
        Arc::new(restricted)
    }

    /// What commands need of the file system.
    pub fn needs(&self) -> impl Iterator<Item = Need<'_>> {
        let shell = Need::program("shell", &self.shell);
        let dir = self.working_dir.as_ref().map(|dir| Need {
            key: "working_dir",
            path: dir,
            kind: Needed::Directory,
        });
        std::iter::once(shell).chain(dir)
    }

    /// What else has no effect as it is set, for people to read.
    pub(super) fn idle(&self) -> Vec<String> {
        let mut idle = Vec::new();
        for dir in self.files.base_dirs.iter().filter(|_| self.files.enabled) {
            if let BaseDir::Named(dir) = dir
                && is_no_directory(dir)
            {
                idle.push(format!(
                    "[files] `base_dirs`: there is no directory `{}`",
                    dir.display()
                ));
            }
        }
        if is_no_directory(&self.sandbox.rootfs) {
            idle.push(format!(
                "[sandbox] `rootfs`: there is no directory `{}`, without which no untrusted call will be run",
                self.sandbox.rootfs.display()
            ));
        }
        idle.extend(self.sandbox.shown_files().map(|file| {
            format!(
                "[sandbox] `hidden`: `{}` is no directory, and only those can be hidden: no untrusted call will be run",
                file.display()
            )
        }));
        let patterns = self.secrets.patterns.iter().map(Regex::as_str);
        // Of what is no plain text it is not as plain how long it is.
        let is_short = |text: &&str| text.len() < SHORTEST_MASKED && regex::escape(text) == *text;
        idle.extend(patterns.filter(is_short).map(|pattern| {
            format!("[secrets] `patterns`: {pattern:?} masks nothing, for what it matches has less than {SHORTEST_MASKED} bytes")
        }));
        let variables = self.secrets.variables.iter();
        let unset = variables.filter(|name| !is_variable(name) && !self.env.contains_key(*name));
        idle.extend(unset.map(|name| {
            format!("[secrets] `variables`: {name:?} is hardly the name of a variable: expected letters, digits and `_`")
        }));
        idle
    }
}

/// What commands need of the file system.
#[derive(Clone, Copy, Debug)]
pub struct Need<'a> {
    /// Which key of the configuration names it.
    pub key: &'static str,
    /// Where it has to be.
    pub path: &'a Path,
    kind: Needed,
}

#[derive(Clone, Copy, Debug)]
enum Needed {
    Program,
    Directory,
}

impl<'a> Need<'a> {
    pub(super) fn program(key: &'static str, path: &'a Path) -> Self {
        Self {
            key,
            path,
            kind: Needed::Program,
        }
    }

    /// What is wrong with it, if anything. Asks the file system.
    pub fn lack(&self) -> Option<String> {
        let path = self.path.display();
        match self.kind {
            Needed::Program => (!can_run(self.path)).then(|| format!("cannot execute `{path}`")),
            Needed::Directory => {
                (!self.path.is_dir()).then(|| format!("there is no directory `{path}`"))
            }
        }
    }
}

/// Whether there certainly is none: what may not be looked at may be one.
fn is_no_directory(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => !found.is_dir(),
        Err(error) => [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()),
    }
}

/// Whether a shell could set a variable of that name (POSIX, XBD 3.216).
fn is_variable(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_allowed) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// Whether a file is a program that can be started, as far as its permissions say.
fn can_run(program: &Path) -> bool {
    program.is_file() && nix::unistd::access(program, AccessFlags::X_OK).is_ok()
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self {
            default_timeout: Duration::from_secs(30),
            max_timeout: Duration::from_secs(3600),
            max_output_bytes: 1 << 20,
            truncate: Truncate::Tail,
            working_dir: None,
            shell: PathBuf::from("/bin/sh"),
            kill_grace: Duration::from_secs(1),
            kill_wait: Duration::from_millis(500),
            drain: Duration::from_millis(200),
            env: BTreeMap::new(),
            limits: Limits::default(),
            cgroup: CgroupChoice::Group,
            subreaper: false,
            state_dir: None,
            spool: None,
            instance: None,
            own_files: Vec::new(),
            tools_file: None,
            secrets: SecretsConfig::default(),
            disabled_tools: ["execute_command", "check_condition"]
                .map(str::to_owned)
                .into(),
            untrusted_tools: BTreeSet::new(),
            metrics: true,
            tracing: TracingConfig::default(),
            ledger: None,
            audit: Audit::BestEffort,
            confirmation: ConfirmationConfig {
                has_approvers: false,
                self_approval: false,
                timeout: Duration::from_secs(300),
                async_timeout: Duration::from_secs(24 * 60 * 60),
                pending_max: 256,
            },
            remembered_dir: None,
            hooks: Vec::new(),
            skills: SkillsConfig::default(),
            socket: None,
            history: HistoryConfig {
                max_count: 1000,
                max_age: None,
                max_total_bytes: 2 << 30,
            },
            files: FilesConfig::default(),
            sandbox: SandboxConfig::default(),
            flow: FlowConfig::default(),
        }
    }
}

/// Where executions are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerConfig {
    /// A file of this process's own.
    pub file: PathBuf,
    /// What a commit survives.
    pub durability: Durability,
}

impl LedgerConfig {
    /// The files on which SQLite holds locks for this process: `close` of any other descriptor of one lets go of them
    /// (fcntl(2)), and the next program that reads the ledger then removes what is not in its file yet.
    pub(crate) fn locked(&self) -> [PathBuf; 2] {
        // SQLite names them after where a link leads.
        let file = self.file.canonicalize();
        let file = file.unwrap_or_else(|_| self.file.clone());
        let mut shared = file.clone().into_os_string();
        shared.push("-shm");
        [file, shared.into()]
    }
}

/// What a commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The death of the process.
    #[default]
    Process,
    /// A power cut, too: each commit waits for the disk.
    Fsync,
}

/// How somebody is asked about what the policy asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmationConfig {
    /// Whether there is anybody to be asked. Default no.
    pub has_approvers: bool,
    /// Whether who calls may approve the call. Default no.
    pub self_approval: bool,
    /// How long a call waits whose caller waits for it. Default five minutes.
    pub timeout: Duration,
    /// How long a call waits whose caller does not. Default a day.
    pub async_timeout: Duration,
    /// How many calls may wait at once. Default 256.
    pub pending_max: u32,
}

/// Where tools come from that are not built in, and how they may call one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillsConfig {
    /// The directory with a directory for each; `None` has none. Default none.
    pub dir: Option<PathBuf>,
    /// How many calls may be inside one another. Default 10.
    pub max_depth: u32,
    /// How many calls may come of one from outside. Default 1000.
    pub max_calls: u32,
    /// How many bytes the values may have that such calls share. Default 1 MiB.
    pub max_context_bytes: usize,
}

impl Default for SkillsConfig {
    fn default() -> Self {
        Self {
            dir: None,
            max_depth: 10,
            max_calls: 1000,
            max_context_bytes: 1 << 20,
        }
    }
}

/// What becomes of calls while they cannot be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audit {
    /// They are refused.
    Required,
    /// They run, and are recorded when that is possible again.
    BestEffort,
}

/// How much of what was executed is remembered. The oldest go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// At most so many executions that have ended. Default 1000.
    pub max_count: u64,
    /// None that is older. Default no limit.
    pub max_age: Option<Duration>,
    /// At most so many bytes in the ledger and the spool together. Default 2 GiB.
    pub max_total_bytes: u64,
}

/// What is masked in outputs.
#[derive(Clone, Debug)]
pub struct SecretsConfig {
    /// Whether the shapes of well-known providers' tokens are.
    pub tokens: bool,
    /// What matches one of these within a line.
    pub patterns: Arc<[Regex]>,
    /// The values of these variables, whether the configuration or a call sets them.
    pub variables: BTreeSet<String>,
}

impl Default for SecretsConfig {
    fn default() -> Self {
        Self {
            tokens: true,
            patterns: Arc::new([]),
            variables: BTreeSet::new(),
        }
    }
}

impl PartialEq for SecretsConfig {
    fn eq(&self, other: &Self) -> bool {
        let patterns = |config: &Self| -> Vec<String> {
            config.patterns.iter().map(Regex::to_string).collect()
        };
        self.tokens == other.tokens
            && self.variables == other.variables
            && patterns(self) == patterns(other)
    }
}

/// Which part of an output that is too long is cut away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Truncate {
    /// Its tail.
    Tail,
    /// Its middle.
    Middle,
}

/// Limits of one execution's cgroup (cgroup v2 interface files of the same names).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `memory.max`, in bytes.
    pub memory_max: Option<u64>,
    /// `pids.max`.
    pub pids_max: Option<u64>,
    /// `cpu.weight`, 1 to 10000.
    pub cpu_weight: Option<u64>,
}

/// How process trees are held together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupChoice {
    /// By cgroups where systemd has delegated some, by process groups elsewhere.
    Auto,
    /// By cgroups that systemd has delegated.
    Delegated,
    /// By cgroups below this directory, which must belong to this process alone.
    Path(PathBuf),
    /// By process groups.
    Group,
}

/// Where full outputs are kept, and how much of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolConfig {
    /// A directory of this process's own.
    pub dir: PathBuf,
    /// The most that is kept of one stream, in bytes.
    pub max_bytes: u64,
    /// The most that is kept in all, in bytes, not counting a history's answers, which
    /// [`HistoryConfig::max_total_bytes`] bounds (and this much more, should forgetting not keep up).
    pub total_bytes: u64,
    /// Whether what is kept outlasts this process, as a part of the history that the ledger keeps. Without a
    /// ledger nothing does.
    pub lasting: bool,
}
