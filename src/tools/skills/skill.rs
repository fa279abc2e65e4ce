use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use semver::Version;
use serde_json::Value;

use super::FILE;
use crate::domain::RiskLevel;
use crate::tools::InputSchema;
use crate::tools::expression::{Expression, Template};

/// A skill that was read and holds together.
#[derive(Debug)]
pub(crate) struct Skill {
    pub name: String,
    pub version: Version,
    pub description: String,
    pub category: String,
    pub risk_level: RiskLevel,
    pub timeout: Option<Duration>,
    pub input: InputSchema,
    /// None: it may answer anything.
    pub output: Option<InputSchema>,
    /// The tools it may call.
    pub calls: BTreeSet<String>,
    pub mode: Mode,
    /// Its directory.
    pub dir: PathBuf,
}

impl Skill {
    /// Whether somebody has removed it since. Asks the disk.
    pub(crate) fn is_removed(&self) -> bool {
        let manifest = std::fs::symlink_metadata(self.dir.join(FILE));
        manifest.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }
}

/// What running it means.
#[derive(Debug)]
pub(crate) enum Mode {
    /// A program: JSON in, JSON out.
    Code(Command),
    /// Calls of other tools. `result` is what it answers, by default the last step's output.
    Composite {
        items: Vec<Item>,
        result: Option<Template>,
    },
    /// A prompt over `input` for a model.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "read and checked, for when there is a model")
    )]
    Llm { prompt: Template, model: Model },
}

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// An absolute path.
    pub program: PathBuf,
    pub args: Vec<String>,
}

/// What is done next: one step, or several at once.
#[derive(Debug)]
pub(crate) enum Item {
    One(Box<Step>),
    Parallel {
        #[cfg_attr(not(test), expect(dead_code, reason = "for people who read the file"))]
        description: Option<String>,
        steps: Vec<Step>,
    },
}

impl Item {
    pub(crate) fn steps(&self) -> &[Step] {
        match self {
            Self::One(step) => std::slice::from_ref(step),
            Self::Parallel { steps, .. } => steps,
        }
    }
}

/// One call of a tool.
#[derive(Debug)]
pub(crate) struct Step {
    /// Where it stands in the file (RFC 6901).
    pub pointer: String,
    pub tool: String,
    /// None: the default one.
    pub version: Option<Version>,
    pub description: Option<String>,
    pub parameters: Template,
    /// The same as they are written.
    pub given: Value,
    pub save_output_as: Option<String>,
    /// A step whose condition does not hold is left out, and saves None.
    pub condition: Option<Expression>,
    pub on_error: OnError,
    pub timeout: Option<Duration>,
}

/// What becomes of the skill when a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnError {
    Stop,
    Continue,
}

/// Which model to ask, and how; what is not said is the provider's.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    pub name: Option<String>,
    pub max_tokens: Option<u64>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub stop: Vec<String>,
}
