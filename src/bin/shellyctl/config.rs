//! `shellyctl config check`, `policy test` and `tools check`: the daemon's own program judges its files.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use shelly_executor::client::Client;

use crate::failure::Failure;
use crate::print;

const DAEMON: &str = "shelly-executord";

/// Says that the files are those of the usual place, where a daemon is named that may have others.
pub fn tell_whose(path: Option<&Path>, socket: Option<&Path>) {
    let named = socket.map(Path::to_owned).or_else(Client::socket_from_env);
    if let (None, Some(socket)) = (path, named) {
        print::note(&format!(
            "the daemon on `{}` is not asked, and may have other files: these are at the usual place; name PATH to check others",
            socket.display()
        ));
    }
}

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

/// Becomes `shelly-executord --check-skill`; comes back only when that cannot be started.
pub fn check_skill(dir: &Path, among: Option<&Path>, json: bool) -> Failure {
    become_daemon(json, |command| ask_of_skill(command, dir, among))
}

/// What `shelly-executord --check-skill --json` prints.
pub fn checked_skill(dir: &Path, among: &Path) -> Result<Vec<u8>, Failure> {
    let program = daemon_program();
    let mut command = Command::new(&program);
    ask_of_skill(&mut command, dir, Some(among));
    let output = command.arg("--json").stderr(Stdio::inherit()).output();
    let output = output.map_err(|source| Failure::Daemon { program, source })?;
    Ok(output.stdout)
}

fn ask_of_skill(command: &mut Command, dir: &Path, among: Option<&Path>) {
    command.arg("--check-skill").arg(dir);
    if let Some(among) = among {
        command.arg("--skills-dir").arg(among);
    }
}

fn become_daemon(json: bool, add: impl FnOnce(&mut Command)) -> Failure {
    let program = daemon_program();
    let mut command = Command::new(&program);
    add(&mut command);
    if json {
        command.arg("--json");
    }
    // What it says is said in the name of who was called.
    let source = command.arg0(env!("CARGO_BIN_NAME")).exec();
    Failure::Daemon { program, source }
}

/// The daemon of the same build or package comes before whatever PATH has: beside this program, or in
/// the `sbin` beside its directory, which is in no ordinary user's PATH.
fn daemon_program() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    let sbin = this.parent().and_then(Path::parent);
    let sbin = sbin.map(|above| above.join("sbin").join(DAEMON));
    let mut candidates = std::iter::once(this.with_file_name(DAEMON)).chain(sbin);
    let found = candidates.find(|candidate| candidate.is_file());
    found.unwrap_or_else(|| PathBuf::from(DAEMON))
}
