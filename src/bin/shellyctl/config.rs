//! `shellyctl config check`: the daemon's own program judges its configuration.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

const DAEMON: &str = "shelly-executord";

/// Becomes `shelly-executord --check-config`; comes back only when that cannot be started.
pub fn check(path: Option<&Path>, json: bool) -> Failure {
    let program = beside_this_program().unwrap_or_else(|| PathBuf::from(DAEMON));
    let mut command = Command::new(&program);
    command.arg("--check-config");
    if let Some(path) = path {
        command.arg("--config").arg(path);
    }
    if json {
        command.arg("--json");
    }
    let source = command.exec();
    Failure::Daemon { program, source }
}

/// The daemon of the same build or package comes before whatever PATH has.
fn beside_this_program() -> Option<PathBuf> {
    let candidate = std::env::current_exe().ok()?.with_file_name(DAEMON);
    candidate.is_file().then_some(candidate)
}
