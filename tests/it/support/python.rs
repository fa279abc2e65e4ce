use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A Python that has these modules: that of `tests/run`, else the machine's own.
pub fn python_with(modules: &str) -> Option<PathBuf> {
    let installed = std::env::var_os("SHELLY_GRPC_PYTHON").map(PathBuf::from);
    let mut candidates = installed.into_iter().chain([PathBuf::from("python3")]);
    let has_them = |python: &PathBuf| {
        let mut command = Command::new(python);
        command
            .args(["-c", &format!("import {modules}")])
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    candidates.find(has_them)
}
