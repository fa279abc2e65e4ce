use std::path::PathBuf;

use clap::Parser;

/// Run commands and tools for AI agents
///
/// Listens on a Unix socket with a small HTTP/JSON API (POST /execute, GET /tools), runs commands
/// with its own privileges and kills their whole process trees at their time limit. Usually
/// started by systemd; started by hand it needs no options, by an ordinary user neither.
///
/// SIGHUP reloads the configuration. SIGTERM and SIGINT stop the daemon: running commands get
/// shutdown_grace_secs to end, at a second signal none.
#[derive(Debug, Parser)]
#[command(name = "shelly-executord", version)]
pub struct Args {
    /// Read this configuration instead of /etc/shelly-executor/executor.toml
    ///
    /// tools.toml is looked for beside it. Without this option a file that is not there stands
    /// for the built-in configuration.
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,

    /// Listen on this socket
    ///
    /// The default is the socket systemd hands over, else /run/shelly-executor/executor.sock for
    /// root and $XDG_RUNTIME_DIR/shelly-executor/executor.sock for others.
    #[arg(long, value_name = "PATH", env = "SHELLY_SOCKET")]
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
}
