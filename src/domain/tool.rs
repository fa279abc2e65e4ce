use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::words;

/// What the tools are called that are built in.
pub const BUILT_IN_TOOLS: [&str; 8] = [
    "bash",
    "execute_command",
    "read_file",
    "write_file",
    "edit_file",
    "list_dir",
    "search_files",
    "check_condition",
];

/// What a model is told of a tool: one element of the Anthropic Messages API's `tools` array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// The name a call uses.
    pub name: String,
    /// What the tool does and when to use it, for the model.
    pub description: String,
    /// JSON Schema (2020-12) of the input.
    pub input_schema: Value,
}

/// A definition and what an operator or a program wants to know besides.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDetails {
    /// What the model is told.
    pub definition: ToolDefinition,
    /// The tool's own version.
    pub version: String,
    /// How far the tool is trusted.
    pub risk_level: RiskLevel,
    /// What kind of tool it is, in a word: tools are listed by it.
    pub category: String,
    /// The time limit of a call that names none.
    pub timeout: Duration,
    /// JSON Schema of the structured output; `None` when the tool answers text only, or whatever it likes.
    pub output_schema: Option<Value>,
    /// Where the tool comes from: `builtin`, or the file that defines it.
    pub source: String,
}

impl ToolDetails {
    /// A tool of the program itself, of which nothing more is known than this.
    pub(crate) fn built_in(definition: ToolDefinition, category: &str, timeout: Duration) -> Self {
        Self {
            definition,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            risk_level: RiskLevel::Trusted,
            category: category.to_owned(),
            timeout,
            output_schema: None,
            source: "builtin".to_owned(),
        }
    }
}

words! {
    /// How far a tool, or a call of it, is trusted. Ordered: of several levels the greatest counts, so
    /// that nobody lowers what somebody else has raised.
    #[derive(Default, PartialOrd, Ord, ToSchema)]
    pub enum RiskLevel {
        /// Runs with the daemon's privileges.
        #[default]
        Trusted = "trusted",
        /// Runs in a sandbox only.
        Untrusted = "untrusted",
    }
}
