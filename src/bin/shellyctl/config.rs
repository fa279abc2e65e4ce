//! `shellyctl config check` and `policy test`: the daemon's own program judges its files.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

const DAEMON: &str = "shelly-executord";

/// Becomes `shelly-executord --check-config`; comes back only when that cannot be started.
pub fn check(path: Option<&Path>, json: bool) -> Failure {
    become_daemon(json, |command| {
        command.arg("--check-config");
        if let Some(path) = path {
            command.arg("--config").arg(path);
        }
    })
}

/// Becomes `shelly-executord --check-policy`; comes back only when that cannot be started.
pub fn check_policy(path: Option<&Path>, json: bool) -> Failure {
    become_daemon(json, |command| {
        command.arg("--check-policy");
        command.args(path);
    })
}

fn become_daemon(json: bool, add: impl FnOnce(&mut Command)) -> Failure {
    let program = beside_this_program().unwrap_or_else(|| PathBuf::from(DAEMON));
    let mut command = Command::new(&program);
    add(&mut command);
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
