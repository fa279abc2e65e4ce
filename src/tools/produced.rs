use serde_json::Value;

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
    /// How much an answer is made of, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let captured = |outcome: &Outcome| {
            let streams = [&outcome.stdout, &outcome.stderr];
            let kept = streams.map(|stream| stream.head.len() + stream.tail.len());
            kept.iter().sum::<usize>()
        };
        match self {
            Self::Ran(outcome) | Self::Told(outcome, _) | Self::Garbled(outcome, _) => {
                captured(outcome)
            }
            Self::Spoke(outcome, answer) => captured(outcome) + answer.content.len(),
            Self::Answered(answer) => answer.content.len(),
        }
    }
}

/// What a tool answers in its own words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// The text for the model.
    pub content: String,
    /// The structured output, which fits the tool's output schema.
    pub output: Option<Value>,
    /// Whether it could not do what it was asked for.
    pub is_error: bool,
}
