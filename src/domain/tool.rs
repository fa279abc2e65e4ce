use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

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
    /// JSON Schema of the structured output; null when the tool answers text only.
    pub output_schema: Option<Value>,
    /// Where the tool comes from: `builtin`, or the file that defines it.
    pub source: String,
}

/// How far a tool is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RiskLevel {
    /// Runs with the daemon's privileges.
    Trusted,
}
