use std::env;
use std::path::{Path, PathBuf};

use crate::domain::SOCKET_VARIABLE;

/// The directory of skills, beside the configuration.
pub const SKILLS_DIR: &str = "skills";

/// What the directories are called.
const NAME: &str = "shelly-executor";

/// Where the daemon's things are when no flag says otherwise.
#[derive(Clone, Debug)]
pub struct Places {
    /// The socket to listen on.
    pub socket: PathBuf,
    /// The main configuration file; `tools.toml` stands beside it.
    pub config: PathBuf,
    /// Lock, instance id and spool.
    pub state: PathBuf,
}

impl Places {
    /// The system's places for root, the XDG base directories for everybody else.
    pub fn for_this_user() -> Self {
        let root = nix::unistd::geteuid().is_root();
        Self {
            socket: default_socket(),
            config: Path::new("/etc").join(NAME).join("executor.toml"),
            state: state_dir(root),
        }
    }
}

/// The directory of skills that belongs to a configuration file: beside it, as an absolute path, for skills
/// are told where they are and run elsewhere.
pub fn skills_dir(config: &Path) -> PathBuf {
    let dir = config.with_file_name(SKILLS_DIR);
    std::path::absolute(&dir).unwrap_or(dir)
}

/// The socket that `SHELLY_SOCKET` names. An empty variable names none.
pub fn socket_from_environment() -> Option<PathBuf> {
    env::var_os(SOCKET_VARIABLE)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The socket when neither flag nor `SHELLY_SOCKET` names one: below `/run` for root, below
/// `$XDG_RUNTIME_DIR` (else the state directory) for a daemon of one's own.
pub fn default_socket() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return Path::new("/run").join(NAME).join("executor.sock");
    }
    let dir = absolute_var("XDG_RUNTIME_DIR")
        .map_or_else(|| state_dir(false), |runtime| runtime.join(NAME));
    dir.join("executor.sock")
}

fn state_dir(root: bool) -> PathBuf {
    // systemd gives a colon-separated list when the unit names several (systemd.exec(5)).
    if let Some(list) = env::var_os("STATE_DIRECTORY").filter(|list| !list.is_empty()) {
        let list = list.to_string_lossy().into_owned();
        return PathBuf::from(list.split(':').next().unwrap_or_default());
    }
    if root {
        return Path::new("/var/lib").join(NAME);
    }
    absolute_var("XDG_STATE_HOME")
        .or_else(|| absolute_var("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(|| env::temp_dir().join(format!("uid-{}", nix::unistd::geteuid())))
        .join(NAME)
}

/// The XDG base directory specification says to ignore what is not absolute.
fn absolute_var(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}
