//! Files into validated values. A snapshot of the configuration is immutable; a change on disk
//! makes a new one or, when any part of it is wrong, none at all.

mod access;
mod backend;
mod egress;
mod error;
mod executor;
mod file;
mod files;
mod flow;
mod hooks;
mod log;
mod places;
mod remembered;
mod sandbox;
mod settings;
mod text;
mod tools_file;
mod tracing;
mod trust;
mod values;
mod watch;

pub use access::Access;
pub(crate) use access::{found, principal};
pub use backend::{FlowBackend, RedisAddress, RedisServer};
pub use egress::{Destination, EgressLists, Host};
pub use error::ConfigError;
pub use executor::{
    Audit, CgroupChoice, ConfirmationConfig, Durability, ExecutorConfig, HistoryConfig,
    LedgerConfig, Limits, SecretsConfig, SkillsConfig, SpoolConfig, Truncate,
};
pub use files::{BaseDir, FilesConfig};
pub(crate) use flow::MOST_SHARED;
pub use flow::{BreakerConfig, FlowConfig, Rate, RetryConfig, ToolFlow};
pub use hooks::{Asked, Hook, OnFailure};
pub use log::{AUDIT_HEAD, LogConfig, LogFormat, log_filter};
pub use places::{Places, SKILLS_DIR, default_socket, skills_dir, socket_from_environment};
pub use remembered::{REMEMBERED_DIR, remembered_files, remove_remembered, write_remembered};
pub use sandbox::{SandboxConfig, SandboxUser};
pub use settings::{DEFAULT_EXECUTOR_TOML, Settings};
pub use text::{is_absent, read_text};
pub use tools_file::{CheckedTools, DEFAULT_TOOLS_TOML, ToolDescriptions};
pub use tracing::{OtlpEndpoint, TracingConfig};
pub(crate) use trust::{foreign_hand, refuse_foreign};
pub use watch::{Watch, leads_to, watch_files, watch_tree};
