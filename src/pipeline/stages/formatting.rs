use std::sync::Arc;

use crate::config::ExecutorConfig;
use crate::domain::{
    Digests, Display, Ending, ExecutorError, Exit, RunReport, StopReason, ToolOutput, summarize,
};
use crate::pipeline::hooks::ResultSeen;
use crate::runner::{Captured, Outcome};
use crate::tools::{Closing, Content, Context, Streams, content};

/// The longest line that is looked for in an output for people, in bytes.
const LINE_BYTES: usize = 1024;

/// What is known before the call runs and needed after.
pub(super) struct Format {
    tool_name: String,
    summary: String,
    config: Arc<ExecutorConfig>,
}

impl Format {
    pub(super) fn new(tool_name: &str, context: &Context<'_>) -> Self {
        Self {
            tool_name: tool_name.to_owned(),
            summary: context.summary.clone(),
            config: Arc::clone(&context.config),
        }
    }

    /// Splits what the model reads from what a person is shown. Whatever ended by itself is an
    /// output (seed 000), what was stopped an error that carries one.
    pub(super) fn apply(self, outcome: Outcome) -> Result<ToolOutput, ExecutorError> {
        let (ending, closing) = (outcome.ending, closing(outcome.ending));
        let streams = Streams {
            stdout: &outcome.stdout,
            stderr: &outcome.stderr,
        };
        let config = &self.config;
        let Content {
            text,
            truncated,
            verbatim,
        } = content(streams, config.max_output_bytes, config.truncate, closing);
        let display = self.display(&outcome, closing);
        let run = RunReport {
            exit: outcome.ending.exit(),
            oom_killed: outcome.oom_killed,
            duration: outcome.duration,
            truncated,
            stdout_bytes: outcome.stdout.total,
            stderr_bytes: outcome.stderr.total,
            background: outcome.background,
            usage: outcome.usage,
            kill: outcome.kill,
        };
        let output = ToolOutput {
            verbatim,
            display,
            digests: Digests {
                stdout: outcome.stdout.digest,
                stderr: outcome.stderr.digest,
            },
            ..ToolOutput::new(text, closing != Closing::ExitCode(0), run)
        };
        match (ending, outcome.capture_error) {
            (Ending::Stopped { reason, .. }, _) => Err(self.stopped(reason, output)),
            (Ending::Itself(_), Some(source)) => Err(ExecutorError::OutputCaptureFailed {
                tool_name: self.tool_name,
                input_summary: self.summary,
                partial: Box::new(output),
                source,
            }),
            (Ending::Itself(_), None) => Ok(output),
        }
    }

    fn stopped(self, reason: StopReason, output: ToolOutput) -> ExecutorError {
        let (tool_name, input_summary) = (self.tool_name, self.summary);
        match reason {
            StopReason::Timeout(limit) => ExecutorError::Timeout {
                tool_name,
                input_summary,
                limit,
                partial: Box::new(output),
            },
            StopReason::Cancelled | StopReason::Disconnect | StopReason::Shutdown => {
                ExecutorError::Cancelled {
                    tool_name,
                    input_summary,
                    reason,
                    partial: Some(Box::new(output)),
                }
            }
        }
    }

    fn display(&self, outcome: &Outcome, closing: Closing) -> Display {
        let said = if closing == Closing::ExitCode(0) {
            first_line(&outcome.stdout).or_else(|| last_line(&outcome.stderr))
        } else {
            last_line(&outcome.stderr).or_else(|| last_line(&outcome.stdout))
        };
        Display {
            title: format!("{}: {}", self.tool_name, self.summary),
            summary: said.as_deref().map(summarize).unwrap_or_default(),
            duration_ms: duration_ms(outcome),
            exit: exit(closing),
        }
    }
}

/// What a hook is told of an outcome before it is formatted.
pub(super) fn seen(outcome: &Outcome) -> ResultSeen {
    ResultSeen {
        exit: exit(closing(outcome.ending)),
        duration_ms: duration_ms(outcome),
        stdout_bytes: outcome.stdout.total,
        stderr_bytes: outcome.stderr.total,
        display: None,
    }
}

fn duration_ms(outcome: &Outcome) -> u64 {
    u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX)
}

/// How it ended, in a word.
fn exit(closing: Closing) -> String {
    match closing {
        Closing::ExitCode(code) => code.to_string(),
        Closing::Signal(signal) => signal.name(),
        Closing::Timeout(_) => "timeout".to_owned(),
        Closing::Cancelled => "cancelled".to_owned(),
    }
}

fn closing(ending: Ending) -> Closing {
    match ending {
        Ending::Itself(Exit::Code(code)) => Closing::ExitCode(code),
        Ending::Itself(Exit::Signal(signal)) => Closing::Signal(signal),
        Ending::Stopped {
            reason: StopReason::Timeout(limit),
            ..
        } => Closing::Timeout(limit),
        Ending::Stopped { .. } => Closing::Cancelled,
    }
}

/// The first line with anything in it.
fn first_line(stream: &Captured) -> Option<String> {
    let head = &stream.head[..stream.head.len().min(LINE_BYTES)];
    lines(head).next()
}

/// The last line with anything in it, of what is in memory.
fn last_line(stream: &Captured) -> Option<String> {
    let end = if stream.tail.is_empty() {
        &stream.head
    } else {
        &stream.tail
    };
    let end = &end[end.len().saturating_sub(LINE_BYTES)..];
    lines(end).next_back()
}

fn lines(bytes: &[u8]) -> impl DoubleEndedIterator<Item = String> + '_ {
    bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty())
        .map(|line| String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(head: &str, tail: &str) -> Captured {
        Captured {
            head: head.to_owned().into(),
            tail: tail.to_owned().into(),
            total: (head.len() + tail.len()) as u64,
            digest: None,
        }
    }

    #[test]
    fn a_person_is_shown_the_line_that_tells_most() {
        let stream = captured("\n  first \nsecond\n\n", "");
        assert_eq!(first_line(&stream).as_deref(), Some("first"));
        assert_eq!(last_line(&stream).as_deref(), Some("second"));
        let cut = captured("a\nb\n", "y\nz\n");
        assert_eq!(first_line(&cut).as_deref(), Some("a"));
        assert_eq!(last_line(&cut).as_deref(), Some("z"));
        assert_eq!(first_line(&captured("", "")), None);
        assert_eq!(last_line(&captured("\n \n", "")), None);
        // However long a line is, only so much of it is looked at.
        let long = captured(&"x".repeat(5000), "");
        assert_eq!(first_line(&long).map(|line| line.len()), Some(LINE_BYTES));
    }
}
