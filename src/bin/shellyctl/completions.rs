//! `shellyctl completions`: what a shell needs to complete a command line.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::failure::Failure;
use crate::print;

/// Prints the script for `shell`.
pub fn print(shell: Shell) -> Result<ExitCode, Failure> {
    // Into memory first: clap_complete panics when standard output is closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "shellyctl", &mut script);
    print::text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
