//! What an answer means for the exit status, and what people should know about how it ended.

use shelly_executor::client::{Answer, ClientError, LeftBehind, Outcome};

use crate::print;

/// The time limit ended it.
pub const TIMED_OUT: u8 = 124;
/// The daemon refused, failed, cannot be reached, or did not keep all of an output.
pub const FAILED: u8 = 125;
/// It was cancelled.
pub const CANCELLED: u8 = 130;
/// What a shell adds to the number of the signal that ended a command.
const SIGNAL_BASE: i32 = 128;

/// What was asked for that matters once there is an answer.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The daemon's JSON in place of text.
    pub json: bool,
    /// The directory that the call was to write to in the sandbox.
    pub workspace: Option<&'a str>,
}

impl Wanted<'_> {
    /// Tells on standard error that a `--workspace` was for nothing: whether it is not, the tool, the operator
    /// and the policy have a say in, so that only the answer shows it.
    pub fn tell_what_was_not_used(self, answer: &Answer) {
        if let Some(note) = self.not_used(answer) {
            print::note(&note);
        }
    }

    fn not_used(self, answer: &Answer) -> Option<String> {
        let Outcome {
            risk_level,
            sandbox,
            ..
        } = &answer.outcome;
        let outside = risk_level.as_deref() == Some("trusted") && sandbox.is_none();
        self.workspace.filter(|_| outside).map(|dir| {
            format!(
                "--workspace {dir} was not used: it was trusted and ran outside of the sandbox, as the daemon's user; --untrusted has it run inside"
            )
        })
    }
}

/// The status that `exec` ends with where all of the output was passed on.
pub fn exit_status(answer: &Answer) -> u8 {
    if let Some(problem) = &answer.problem {
        return match problem.code.as_str() {
            "timeout" => TIMED_OUT,
            "cancelled" => CANCELLED,
            _ => FAILED,
        };
    }
    let signal = answer.outcome.signal.as_ref();
    let code = answer
        .outcome
        .exit_code
        .or_else(|| signal.map(|signal| SIGNAL_BASE + signal.number));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(FAILED)
}

/// Tells on standard error what the exit status alone does not.
pub fn tell(answer: &Answer) {
    for note in notes(answer) {
        print::note(&note);
    }
    if answer.problem.is_some() {
        let error = ClientError::Refused {
            answer: Box::new(answer.clone()),
        };
        print::note(&error.to_string());
        if let Some(hint) = error.hint() {
            print::hint(&hint);
        }
    }
}

fn notes(answer: &Answer) -> Vec<String> {
    let mut notes = Vec::new();
    if let (Some(signal), None) = (&answer.outcome.signal, &answer.problem) {
        let why = if answer.outcome.oom_killed {
            ", out of memory"
        } else {
            ""
        };
        notes.push(format!("the command was ended by {}{why}", signal.name));
    }
    notes.extend(answer.outcome.background.iter().map(left_behind));
    notes
}

/// A process that outlived its command, and what became of it.
pub fn left_behind(process: &LeftBehind) -> String {
    let done = if process.killed {
        "killed"
    } else {
        "left alone"
    };
    let LeftBehind { pid, command, .. } = process;
    format!("{done} a process that the command left in the background: {pid} {command}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(status: u16, json: &str) -> u8 {
        let record = format!(
            r#"{{"execution_id": "1", "status": "ended", "http_status": {status}, "result": {json}}}"#
        );
        let record: shelly_executor::client::Record =
            serde_json::from_str(&record).expect("succeeds");
        exit_status(&record.answer().expect("succeeds").expect("succeeds"))
    }

    fn problem(status: u16, code: &str) -> u8 {
        status_of(status, &format!(r#"{{"title": "t", "code": "{code}"}}"#))
    }

    #[test]
    fn a_command_that_ran_gives_its_own_status() {
        assert_eq!(status_of(200, r#"{"exit_code": 0}"#), 0);
        assert_eq!(status_of(200, r#"{"exit_code": 77}"#), 77);
        let segfault = r#"{"exit_code": null, "signal": {"number": 11, "name": "SIGSEGV"}}"#;
        assert_eq!(status_of(200, segfault), 139);
    }

    #[test]
    fn problems_have_their_three_statuses() {
        assert_eq!(problem(504, "timeout"), 124);
        assert_eq!(problem(409, "cancelled"), 130);
        assert_eq!(problem(403, "access_denied"), 125);
        assert_eq!(problem(503, "shutting_down"), 125);
    }

    #[test]
    fn an_end_without_code_and_signal_is_no_success() {
        assert_eq!(status_of(200, "{}"), 125);
        assert_eq!(status_of(200, r#"{"exit_code": -1}"#), 125);
    }
}
