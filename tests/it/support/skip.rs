use std::io::Write;
use std::process::{Command, Stdio};

/// Says what is not tested here and why. Past the harness, which shows nothing of a test that
/// passes; `tests/run` counts and repeats it.
pub fn skip(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// Whether system calls can be traced here; says so when not. Some containers forbid it.
pub fn can_trace(what: &str) -> bool {
    let mut strace = Command::new("strace");
    strace
        .args(["-o", "/dev/null", "true"])
        .stderr(Stdio::null());
    let works = strace.status().is_ok_and(|status| status.success());
    if !works {
        skip(&format!("{what}, which takes strace"));
    }
    works
}
