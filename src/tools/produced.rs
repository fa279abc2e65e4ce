use std::collections::HashSet;

use serde_json::Value;

use super::Answer;
use crate::domain::{Ending, LeftBehind, StopReason, json_bytes};
use crate::runner::Outcome;

/// What came of a tool's work, before it is put into words.
#[derive(Debug)]
pub(crate) enum Produced {
    /// A process ran, and its streams are the text.
    Ran(Outcome),
    /// A process ran, and its streams are the text; this is what they come to for a program.
    Told(Outcome, Value),
    /// A process ran, and what it wrote is the answer of its tool.
    Spoke(Outcome, Answer),
    /// A process ran, and what it wrote should have been its tool's output and is none: why.
    Garbled(Outcome, String),
    /// The daemon did it itself.
    Answered(Answer),
}

impl Produced {
    /// The process that ran, and what the tool answered in its own words.
    fn parts(&self) -> (Option<&Outcome>, Option<&Answer>) {
        match self {
            Self::Ran(outcome) | Self::Told(outcome, _) | Self::Garbled(outcome, _) => {
                (Some(outcome), None)
            }
            Self::Spoke(outcome, answer) => (Some(outcome), Some(answer)),
            Self::Answered(answer) => (None, Some(answer)),
        }
    }

    fn outcome_mut(&mut self) -> Option<&mut Outcome> {
        match self {
            Self::Ran(outcome)
            | Self::Told(outcome, _)
            | Self::Garbled(outcome, _)
            | Self::Spoke(outcome, _) => Some(outcome),
            Self::Answered(_) => None,
        }
    }

    /// The same of a process that was to end for that reason, whatever it ended by; `None` where none ran.
    pub(crate) fn stopped(mut self, reason: StopReason) -> Option<Self> {
        let outcome = self.outcome_mut()?;
        let exit = outcome.ending.exit();
        outcome.ending = Ending::Stopped { reason, exit };
        Some(self)
    }

    /// How much an answer is made of, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let (outcome, answer) = self.parts();
        let streams = outcome.map(|outcome| [&outcome.stdout, &outcome.stderr]);
        let kept = streams.iter().flatten();
        let kept: usize = kept.map(|one| one.head.len() + one.tail.len()).sum();
        let output = match self {
            Self::Told(_, output) => Some(output),
            Self::Ran(_) | Self::Spoke(..) | Self::Garbled(..) | Self::Answered(_) => {
                answer.and_then(|answer| answer.output.as_ref())
            }
        };
        let text = answer.map_or(0, |answer| answer.content.len() + answer.note.len());
        kept + text + output.map_or(0, json_bytes)
    }

    /// Lists more processes that are left in the background, before its own. One that still lives is listed by it, too,
    /// and as it is now.
    pub(crate) fn add_background(&mut self, mut earlier: Vec<LeftBehind>) {
        let Some(outcome) = self.outcome_mut().filter(|_| !earlier.is_empty()) else {
            return;
        };
        let listed: HashSet<u32> = outcome.background.iter().map(|one| one.pid).collect();
        // Of one that was killed the pid may be another's by now, as it always is in sandboxes.
        earlier.retain(|one| one.killed || !listed.contains(&one.pid));
        outcome.background.splice(0..0, earlier);
    }

    /// Whether processes were left running on purpose.
    pub(crate) fn keeps(&self) -> bool {
        let (outcome, _) = self.parts();
        outcome.is_some_and(|outcome| outcome.background.iter().any(|one| !one.killed))
    }

    /// The processes that it lists.
    pub(crate) fn into_background(mut self) -> Vec<LeftBehind> {
        let outcome = self.outcome_mut();
        outcome.map_or_else(Vec::new, |outcome| std::mem::take(&mut outcome.background))
    }
}
