//! The daemon's program: arguments, configuration, daemon, exit code.

mod args;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use shelly_executor::daemon::{self, Options};

use args::Args;

/// `EX_CONFIG` of sysexits.h, which systemd knows by that name (systemd.exec(5)).
const INVALID_CONFIGURATION: u8 = 78;

fn main() -> ExitCode {
    let Args {
        config,
        socket,
        state,
        check_config,
    } = Args::parse();
    let options = Options {
        config,
        socket,
        state,
    };
    if check_config {
        return match daemon::check_config(&options) {
            Ok(report) => {
                println!("{report}");
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error, INVALID_CONFIGURATION),
        };
    }
    match daemon::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ daemon::DaemonError::Config(_)) => fail(&error, INVALID_CONFIGURATION),
        Err(error) => fail(&error, 1),
    }
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
