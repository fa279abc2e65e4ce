use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::Api;
use super::json::{json_response, to_json};
use super::path::Name;
use super::problem::{Code, Refusal};
use crate::domain::{RiskLevel, ToolDetails};

/// One element of a Messages request's `tools`.
#[derive(Serialize, ToSchema)]
#[schema(as = Tool)]
pub(super) struct ToolBody {
    /// The name a call uses.
    name: String,
    /// What it does, for the model.
    description: String,
    /// JSON Schema of its input.
    #[schema(value_type = Object)]
    input_schema: Value,
}

/// A tool with all there is to know of it.
#[derive(Serialize, ToSchema)]
#[schema(as = ToolDetails)]
pub(super) struct ToolDetailsBody {
    #[serde(flatten)]
    definition: ToolBody,
    /// The tool's own version.
    version: String,
    /// How far it is trusted.
    risk_level: RiskLevel,
    /// JSON Schema of its structured output; null when it answers text only.
    #[schema(value_type = Option<Object>, required)]
    output_schema: Option<Value>,
    /// Where it comes from: `builtin`, or the file that defines it.
    source: String,
}

impl From<ToolDetails> for ToolDetailsBody {
    fn from(tool: ToolDetails) -> Self {
        Self {
            definition: ToolBody {
                name: tool.definition.name,
                description: tool.definition.description,
                input_schema: tool.definition.input_schema,
            },
            version: tool.version,
            risk_level: tool.risk_level,
            output_schema: tool.output_schema,
            source: tool.source,
        }
    }
}

/// All tools, fit to be pasted into a Messages request.
#[utoipa::path(
    get, path = "/tools", tag = "tools", operation_id = "listTools",
    responses((status = 200, description = "The tools.", body = Vec<ToolBody>))
)]
pub(super) async fn list(State(api): State<Api>) -> Response {
    let tools: Vec<ToolBody> = api
        .executor
        .tools()
        .into_iter()
        .map(|tool| ToolDetailsBody::from(tool).definition)
        .collect();
    json_response(StatusCode::OK, to_json(&tools))
}

/// One tool with its version, risk level, output schema and source.
#[utoipa::path(
    get, path = "/tools/{name}", tag = "tools", operation_id = "showTool",
    params(("name" = String, Path, description = "The tool's name.")),
    responses((status = 200, description = "The tool.", body = ToolDetailsBody))
)]
pub(super) async fn show(State(api): State<Api>, Name(name): Name) -> Result<Response, Refusal> {
    let tool = api
        .executor
        .tools()
        .into_iter()
        .find(|tool| tool.definition.name == name);
    match tool {
        Some(tool) => Ok(json_response(
            StatusCode::OK,
            to_json(&ToolDetailsBody::from(tool)),
        )),
        None => {
            let near = api.executor.nearest_tool(&name);
            let hint = near.map_or_else(
                || "GET /tools lists what there is".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            Err(Refusal::new(
                Code::UnknownTool,
                format!("there is no tool `{name}`; {hint}"),
            ))
        }
    }
}
