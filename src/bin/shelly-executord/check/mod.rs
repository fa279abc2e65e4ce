//! `--check-config`, `--check-policy` and `--check-skill`: what was found, and what that makes of the exit code.

mod config;
mod policy;
mod skill;

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

pub use config::config;
pub use policy::policy;
pub use skill::skill;

use crate::{INVALID_CONFIGURATION, chain, complain};

/// What a check comes to.
pub struct Found {
    /// For standard output.
    said: String,
    /// For standard error, where it is not valid.
    error: Option<String>,
    code: u8,
}

impl Found {
    fn valid(said: String) -> Self {
        Self {
            said,
            error: None,
            code: 0,
        }
    }

    fn invalid(said: String, error: &dyn Error) -> Self {
        Self {
            said,
            error: Some(chain(error)),
            code: INVALID_CONFIGURATION,
        }
    }

    /// Says it. Whoever reads no further has read enough, and may still ask for the exit code.
    pub fn tell(self) -> ExitCode {
        let mut stdout = io::stdout().lock();
        let said = stdout.write_all(self.said.as_bytes());
        match said.and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                complain(&format!("cannot write to standard output: {error}"));
                return ExitCode::FAILURE;
            }
            Ok(()) | Err(_) => {}
        }
        if let Some(error) = &self.error {
            complain(error);
        }
        ExitCode::from(self.code)
    }
}

/// A line for each.
fn warnings(warnings: &[String]) -> String {
    let lines = warnings
        .iter()
        .map(|warning| format!("warning: {warning}\n"));
    lines.collect()
}
