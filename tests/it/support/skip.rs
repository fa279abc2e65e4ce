use std::io::Write;

/// Says what is not tested here and why. Past the harness, which shows nothing of a test that
/// passes; `tests/run` counts and repeats it.
pub fn skip(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}
