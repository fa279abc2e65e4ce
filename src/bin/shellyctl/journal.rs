//! The ends of the audit trail that the daemon has noted in the journal, where who changes the ledger does not reach.

use std::collections::HashSet;
use std::io;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;

const PROGRAM: &str = "journalctl";

/// Where the daemon's packages put it.
pub const UNIT: &str = "shelly-executor.service";

/// Why the journal says nothing.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The program that reads it did not start.
    #[error("cannot run `{PROGRAM}`: {source}")]
    Program { source: io::Error },
    /// It failed.
    #[error("`{PROGRAM}` failed with {status}: {said}", said = if said.is_empty() { "it does not say why" } else { said })]
    Failed { status: String, said: String },
    /// There is nothing about the trail.
    #[error("the journal of `{unit}` names no end of an audit trail that you may see")]
    Silent { unit: String },
}

/// One record of the journal, as `journalctl --output=json` has it.
#[derive(Deserialize)]
struct Entry {
    /// Something else than a text is nothing that the daemon has written.
    #[serde(rename = "AUDIT_HEAD")]
    head: Option<serde_json::Value>,
}

/// All ends that were noted at this time or later, as `NUMBER:HASH`, the earliest first. What somebody else in the unit has forged is among them: it
/// makes an alarm where there is no reason for one, and never hides any.
///
/// # Errors
/// When the journal cannot be read or has none.
pub fn audit_heads(unit: &str, since: Option<SystemTime>) -> Result<Vec<String>, JournalError> {
    let unit = full_name(unit);
    // Before 1970 there was no journal.
    let since = since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    let read = Command::new(PROGRAM)
        .args(["--quiet", "--no-pager", "--output=json"])
        .arg("--output-fields=AUDIT_HEAD")
        // By what journald itself knows of the writer, which --unit goes beyond.
        .arg(format!("_SYSTEMD_UNIT={unit}"))
        .arg("TARGET=audit_head")
        .args(since.map(|since| format!("--since=@{}", since.as_secs())))
        .stdin(Stdio::null())
        .output()
        .map_err(|source| JournalError::Program { source })?;
    if !read.status.success() {
        return Err(JournalError::Failed {
            status: read.status.to_string(),
            said: String::from_utf8_lossy(&read.stderr).trim().to_owned(),
        });
    }
    let heads = heads(&read.stdout);
    if heads.is_empty() {
        return Err(JournalError::Silent { unit });
    }
    Ok(heads)
}

/// As systemctl takes it.
fn full_name(unit: &str) -> String {
    if unit.contains('.') {
        unit.to_owned()
    } else {
        format!("{unit}.service")
    }
}

/// What of it can be an end of the trail, each once.
fn heads(entries: &[u8]) -> Vec<String> {
    let (mut heads, mut known) = (Vec::new(), HashSet::new());
    for line in entries.split(|byte| *byte == b'\n') {
        let entry = serde_json::from_slice(line).ok();
        let head = entry.and_then(|entry: Entry| Some(entry.head?.as_str()?.to_owned()));
        let head = head.filter(|head| crate::args::events::audit_head(head).is_ok());
        heads.extend(head.filter(|head| known.insert(head.clone())));
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_head_is_passed_over_and_what_is_repeated_told_once() {
        let hash = "0f".repeat(32);
        let entries = format!(
            "{{\"AUDIT_HEAD\": \"3:{hash}\", \"_BOOT_ID\": \"x\"}}\n{{\"AUDIT_HEAD\": \"3:{hash}\"}}\n\
             {{\"AUDIT_HEAD\": [\"4:{hash}\", \"5:{hash}\"]}}\n{{\"AUDIT_HEAD\": \"4\"}}\n{{\"MESSAGE\": \"x\"}}\n\
             not JSON\n{{\"AUDIT_HEAD\": \"7:{hash}\"}}\n{{\"AUDIT_HEAD\": \"3:{hash}\"}}\n"
        );
        let expected = [format!("3:{hash}"), format!("7:{hash}")];
        assert_eq!(heads(entries.as_bytes()), expected);
        assert_eq!(heads(b""), [""; 0]);
    }

    #[test]
    fn a_unit_without_a_type_is_a_service() {
        assert_eq!(full_name("shelly-executor"), UNIT);
        assert_eq!(full_name("shelly@a.service"), "shelly@a.service");
    }
}
