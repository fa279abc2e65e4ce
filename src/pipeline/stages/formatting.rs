use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::config::ExecutorConfig;
use crate::domain::{
    Digests, Display, Ending, ExecutorError, Exit, NESTS_AT_MOST, RiskLevel, RunReport, StopReason,
    ToolOutput, Violation, nests_too_deeply, summarize, whole_millis,
};
use crate::pipeline::hooks::ResultSeen;
use crate::runner::{Captured, Outcome};
use crate::tools::{Answer, Closing, Content, Context, Produced, Streams, Tool, content};

/// The longest line that is looked for in an output for people, in bytes.
const LINE_BYTES: usize = 1024;

/// What is known before the call runs and needed after.
pub(super) struct Format {
    tool: Arc<Tool>,
    tool_name: String,
    summary: String,
    config: Arc<ExecutorConfig>,
    risk: RiskLevel,
}

impl Format {
    pub(super) fn new(tool: &Arc<Tool>, risk: RiskLevel, context: &Context<'_>) -> Self {
        Self {
            tool: Arc::clone(tool),
            tool_name: tool.name().to_owned(),
            summary: context.summary.clone(),
            config: Arc::clone(&context.config),
            risk,
        }
    }

    /// Splits what the model reads from what a person is shown. Whatever ended by itself is an
    /// output, what was stopped an error that carries one.
    pub(super) fn apply(
        self,
        produced: Produced,
        took: Duration,
    ) -> Result<ToolOutput, ExecutorError> {
        match produced {
            Produced::Ran(outcome) => self.ran(outcome),
            Produced::Told(outcome, value) => {
                let mut output = self.ran(outcome)?;
                self.fits(&value)
                    .map_err(|violations| self.invalid(violations, &output))?;
                output.output = Some(value);
                Ok(output)
            }
            Produced::Spoke(outcome, answer) => {
                let mut output = self.ran(outcome)?;
                if let Some(violations) = self.misfit(&answer) {
                    return Err(self.invalid(violations, &output));
                }
                output.display.summary = line_of(&answer.content);
                output.content = answer.content;
                output.is_error = answer.is_error;
                output.output = answer.output;
                output.verbatim = Default::default();
                Ok(output)
            }
            Produced::Garbled(outcome, detail) => {
                let output = self.ran(outcome)?;
                Err(self.invalid(vec![Violation::of_all(detail)], &output))
            }
            Produced::Answered(answer) => {
                let violations = self.misfit(&answer);
                let output = self.answered(answer, took);
                match violations {
                    None => Ok(output),
                    Some(violations) => Err(self.invalid(violations, &output)),
                }
            }
        }
    }

    /// How an answer breaks its tool's output schema. What could not be done has no output to
    /// speak of.
    fn misfit(&self, answer: &Answer) -> Option<Vec<Violation>> {
        let output = answer.output.as_ref().filter(|_| !answer.is_error)?;
        self.fits(output).err()
    }

    fn fits(&self, output: &Value) -> Result<(), Vec<Violation>> {
        if nests_too_deeply(output) {
            let detail =
                format!("nests more than {NESTS_AT_MOST} levels deep, which cannot be kept");
            return Err(vec![Violation::of_all(detail)]);
        }
        let schema = self.tool.output_schema.as_ref();
        let violations = schema.map_or_else(Vec::new, |schema| schema.violations(output));
        violations.is_empty().then_some(()).ok_or(violations)
    }

    fn invalid(&self, violations: Vec<Violation>, output: &ToolOutput) -> ExecutorError {
        ExecutorError::OutputInvalid {
            tool_name: self.tool_name.clone(),
            input_summary: self.summary.clone(),
            violations,
            partial: Box::new(output.clone()),
        }
    }

    /// What the daemon did itself: there is no process to tell of.
    fn answered(&self, mut answer: Answer, took: Duration) -> ToolOutput {
        let (content, truncated) = answer.take_text(self.config.max_output_bytes);
        let Answer {
            output, is_error, ..
        } = answer;
        let run = RunReport {
            truncated,
            risk_level: self.risk,
            ..RunReport::of_no_process(took)
        };
        let display = Display {
            title: format!("{}: {}", self.tool_name, self.summary),
            summary: line_of(&content),
            duration_ms: whole_millis(took),
            exit: word(is_error).to_owned(),
        };
        ToolOutput {
            output,
            display,
            ..ToolOutput::new(content, is_error, run)
        }
    }

    fn ran(&self, outcome: Outcome) -> Result<ToolOutput, ExecutorError> {
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
            risk_level: self.risk,
            sandbox: outcome.sandbox,
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
                tool_name: self.tool_name.clone(),
                input_summary: self.summary.clone(),
                partial: Box::new(output),
                source,
            }),
            (Ending::Itself(_), None) => Ok(output),
        }
    }

    fn stopped(&self, reason: StopReason, output: ToolOutput) -> ExecutorError {
        let (tool_name, input_summary) = (self.tool_name.clone(), self.summary.clone());
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
            duration_ms: whole_millis(outcome.duration),
            exit: exit(closing),
        }
    }
}

/// What a hook is told of an outcome before it is formatted.
pub(super) fn seen(produced: &Produced, took: Duration) -> ResultSeen {
    let (exit, outcome) = match produced {
        Produced::Answered(answer) => (word(answer.is_error).to_owned(), None),
        Produced::Ran(outcome)
        | Produced::Told(outcome, _)
        | Produced::Spoke(outcome, _)
        | Produced::Garbled(outcome, _) => (exit(closing(outcome.ending)), Some(outcome)),
    };
    ResultSeen {
        exit,
        duration_ms: whole_millis(outcome.map_or(took, |outcome| outcome.duration)),
        stdout_bytes: outcome.map_or(0, |outcome| outcome.stdout.total),
        stderr_bytes: outcome.map_or(0, |outcome| outcome.stderr.total),
        content: None,
        display: None,
    }
}

/// How the daemon's own work ended, in a word.
fn word(is_error: bool) -> &'static str {
    match is_error {
        true => "failed",
        false => "done",
    }
}

/// The first line of a text with anything in it, for people.
fn line_of(text: &str) -> String {
    let beginning = &text[..text.floor_char_boundary(LINE_BYTES)];
    let line = lines(beginning.as_bytes()).next();
    line.as_deref().map(summarize).unwrap_or_default()
}

/// How it ended, in a word.
fn exit(closing: Closing) -> String {
    match closing {
        Closing::ExitCode(code) => code.to_string(),
        Closing::Signal(signal) => signal.name(),
        Closing::Timeout(_) => "timeout".to_owned(),
        Closing::Cancelled => "cancelled".to_owned(),
        Closing::Lost => "lost".to_owned(),
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
