use std::path::PathBuf;

use clap::{ArgGroup, Parser};

/// Run commands and tools for AI agents
///
/// Listens on a Unix socket with a small HTTP/JSON API (POST /execute, GET /tools), runs commands
/// with its own privileges and kills their whole process trees at their time limit. Usually
/// started by systemd; started by hand it needs no options, by an ordinary user neither.
///
/// SIGHUP reloads the configuration. SIGTERM and SIGINT stop the daemon: running commands get
/// shutdown_grace_secs to end, at a second signal none.
#[derive(Debug, Parser)]
#[command(name = "shelly-executord", version, max_term_width = 100)]
#[command(after_long_help = AFTER_HELP)]
#[command(group(ArgGroup::new("check").args(["check_config", "check_policy", "check_skill"])))]
pub struct Args {
    /// Read this configuration instead of /etc/shelly-executor/executor.toml
    ///
    /// policy.toml, tools.toml and skills/ are looked for beside it. Without this option a file that is not there stands
    /// for the built-in configuration.
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,

    /// Listen on this socket, in place of $SHELLY_SOCKET
    ///
    /// Where neither names one it is the socket systemd hands over, else /run/shelly-executor/executor.sock for
    /// root and $XDG_RUNTIME_DIR/shelly-executor/executor.sock for others (without that variable
    /// executor.sock in the state directory). An empty SHELLY_SOCKET counts as unset.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Keep state in this directory
    ///
    /// The default is $STATE_DIRECTORY, else /var/lib/shelly-executor for root and
    /// $XDG_STATE_HOME/shelly-executor for others. One daemon at a time can use it.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,

    /// Validate the configuration, say what is wrong with it, and exit
    #[arg(long)]
    pub check_config: bool,

    /// Validate a policy file and the examples in it, say what is wrong, and exit
    ///
    /// Without PATH it is policy.toml beside the configuration, with the remembered approvals in
    /// policy.d of the state directory.
    #[arg(long, value_name = "PATH", num_args = 0..=1)]
    pub check_policy: Option<Option<PathBuf>>,

    /// Say everything that is wrong with the skill in this directory, and exit
    ///
    /// What it calls is looked for among the tools that are built in, the skills beside it, and those of
    /// the daemon: `skills` beside the configuration.
    #[arg(long, value_name = "DIR")]
    pub check_skill: Option<PathBuf>,

    /// With --check-skill: look among the skills of this directory instead
    // Both: clap does not ask for what could not be given beside another check.
    #[arg(long, value_name = "DIR", requires = "check_skill", conflicts_with_all = ["check_config", "check_policy"])]
    pub skills_dir: Option<PathBuf>,

    /// With --check-config, --check-policy or --check-skill: print a JSON object of what was found
    #[arg(long, requires = "check")]
    pub json: bool,
}

const AFTER_HELP: &str = "\
Exit status:
  0   it was told to stop, and did; or what was to be checked is valid
  1   it could not start; or something is wrong with the skill (--check-skill)
  2   the command line is wrong
  78  the configuration or the policy is not valid

Environment:
  SHELLY_SOCKET    the socket, where --socket names none
  STATE_DIRECTORY  the state directory, where --state names none; set by systemd
  XDG_RUNTIME_DIR  where the daemon of an ordinary user has its socket
  XDG_STATE_HOME   where the daemon of an ordinary user keeps its state
  RUST_LOG         what is logged, in place of `level` in [log] of the configuration
  LISTEN_FDS       set by systemd with the socket that it hands over
  NOTIFY_SOCKET    set by systemd: where it is told of readiness, reloads and the end
  WATCHDOG_USEC    set by systemd: how often it expects a sign of life

The commands that the daemon runs see none of these.";
