//! The daemon's program: arguments, configuration, daemon, exit code.

mod args;
mod check;

use std::error::Error;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use shelly_executor::daemon::{self, DaemonError, Options};

use args::Args;

/// `EX_CONFIG` of sysexits.h, which systemd knows by that name (systemd.exec(5)).
const INVALID_CONFIGURATION: u8 = 78;

fn main() -> ExitCode {
    let Args {
        config,
        socket,
        state,
        check_config,
        check_policy,
        check_skill,
        skills_dir,
        json,
    } = match Args::try_parse() {
        Ok(args) => args,
        Err(said) => return tell(&said),
    };
    let options = Options {
        config,
        socket,
        state,
    };
    if check_config {
        return check::config(&options, json).tell();
    }
    if let Some(path) = check_policy {
        return check::policy(&options, path, json).tell();
    }
    if let Some(path) = check_skill {
        return check::skill(&options, path, skills_dir, json).tell();
    }
    match daemon::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ (DaemonError::Config(_) | DaemonError::Policy(_))) => {
            fail(&error, INVALID_CONFIGURATION)
        }
        Err(error) => fail(&error, 1),
    }
}

/// Says what clap has to say: help, a version, or what is wrong with the command line.
fn tell(said: &clap::Error) -> ExitCode {
    match said.print() {
        // Whoever reads no further has read enough.
        Err(error) if !said.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("cannot write to standard output: {error}"));
            ExitCode::FAILURE
        }
        Ok(()) | Err(_) => u8::try_from(said.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
    }
}

/// Prints an error with its causes.
fn fail(error: &dyn Error, code: u8) -> ExitCode {
    complain(&chain(error));
    ExitCode::from(code)
}

/// Says something on standard error. Where even that cannot be written, nobody listens.
fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "{}: {message}", program());
}

/// What was called: `shellyctl`, too, becomes this program, under its own name.
fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called.as_deref().and_then(Path::file_name);
    name.map_or_else(
        || "shelly-executord".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
