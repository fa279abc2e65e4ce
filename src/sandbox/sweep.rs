//! Removes what a daemon that was killed has left of its sandboxes.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::runtime::Runtime;
use super::{PATIENCE, bundle};
use crate::config::SandboxConfig;

/// Removes what an earlier process has left in the directory of bundles, whose processes are dead.
/// Says how many bundles there were.
pub(crate) fn sweep(config: &SandboxConfig) -> usize {
    let Some(entries) = config.dir.as_ref().and_then(|dir| fs::read_dir(dir).ok()) else {
        return 0;
    };
    let runtime = Runtime::of(config).ok();
    // For all of them: the daemon says that it is ready after this.
    let until = Instant::now() + PATIENCE;
    let mut swept = 0;
    for entry in entries.flatten() {
        let path = entry.path();
        if let Some(runtime) = &runtime
            && let Err(error) = delete(runtime, &path, until)
        {
            tracing::warn!(%error, path = %path.display(), "the runtime cannot remove a sandbox");
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => swept += 1,
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "cannot remove a sandbox's bundle");
            }
        }
    }
    swept
}

/// Removes what the runtime keeps outside of the bundle at `path`.
fn delete(runtime: &Runtime, path: &Path, until: Instant) -> io::Result<()> {
    let (state, id) = (bundle::state(path), bundle::id(path));
    if !runtime.may_leave(&state) {
        return Ok(());
    }
    let mut command = Command::new(&runtime.program);
    let deleted = run(command.args(runtime.delete(&state, &id)), until);
    // Whatever came of that.
    deleted.and(runtime.clear(&id))
}

/// Runs a program to its end, before there is anything that could wait for it.
fn run(command: &mut Command, until: Instant) -> io::Result<()> {
    if Instant::now() >= until {
        return Err(io::ErrorKind::TimedOut.into());
    }
    command.stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn()?;
    loop {
        match running.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(io::Error::other(format!("it ended with {status}"))),
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            None => {
                running.kill()?;
                running.wait()?;
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}
