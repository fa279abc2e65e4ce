//! The daemon's program: arguments, configuration, daemon, exit code.

mod args;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};
use shelly_executor::daemon::{self, ConfigCheck, Options};

use args::Args;

/// `EX_CONFIG` of sysexits.h, which systemd knows by that name (systemd.exec(5)).
const INVALID_CONFIGURATION: u8 = 78;

fn main() -> ExitCode {
    let Args {
        config,
        socket,
        state,
        check_config,
        json,
    } = Args::parse();
    let options = Options {
        config,
        socket,
        state,
    };
    if check_config {
        return check(&options, json);
    }
    match daemon::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ daemon::DaemonError::Config(_)) => fail(&error, INVALID_CONFIGURATION),
        Err(error) => fail(&error, 1),
    }
}

/// Says what a check of the configuration found; on standard error too, when it is not valid.
fn check(options: &Options, json: bool) -> ExitCode {
    let found = daemon::check_config(options);
    if json {
        println!("{}", as_json(&found));
    }
    match &found.verdict {
        Err(error) => return fail(error, INVALID_CONFIGURATION),
        Ok(warnings) if !json => {
            let found_there = match found.exists {
                true => "valid",
                false => "not there; the built-in configuration is used",
            };
            println!("{}: {found_there}", found.path.display());
            for warning in warnings {
                println!("warning: {warning}");
            }
        }
        Ok(_) => {}
    }
    ExitCode::SUCCESS
}

fn as_json(found: &ConfigCheck) -> Value {
    let (warnings, error) = match &found.verdict {
        Ok(warnings) => (warnings.as_slice(), None),
        Err(error) => (Default::default(), Some(error.chain())),
    };
    json!({
        "path": found.path.display().to_string(),
        "exists": found.exists,
        "valid": error.is_none(),
        "warnings": warnings,
        "error": error,
    })
}

/// Prints an error with its causes.
fn fail(error: &dyn Error, code: u8) -> ExitCode {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    eprintln!("shelly-executord: {text}");
    ExitCode::from(code)
}
