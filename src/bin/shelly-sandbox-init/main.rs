//! The first process inside of a sandbox, started by the daemon through an OCI runtime. A program of
//! its own so that it starts fast, and where there are no libraries but the C library.

use std::process::ExitCode;

fn main() -> ExitCode {
    shelly_executor::sandbox_init()
}
