use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::json::{json_response, to_json};
use super::path::Name;
use super::problem::{Code, Refusal};
use super::query::{NoQuery, bad_query};
use crate::domain::{RiskLevel, ToolDetails};
use crate::pipeline::beside;

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
    /// All versions that can be called, the default first.
    versions: Vec<String>,
    /// How far it is trusted.
    risk_level: RiskLevel,
    /// What kind of tool it is, in a word.
    category: String,
    /// The time limit of a call that names none, in seconds.
    timeout_secs: f64,
    /// JSON Schema of its structured output; null when it answers text only, or whatever it likes.
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
            versions: vec![tool.version.clone()],
            version: tool.version,
            risk_level: tool.risk_level,
            category: tool.category,
            timeout_secs: tool.timeout.as_secs_f64(),
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
pub(super) async fn list(
    State(api): State<Api>,
    query: Result<Query<NoQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    query.map_err(bad_query)?;
    // Their descriptions are read from a file.
    let tools = beside(move || api.executor.tools()).await;
    let tools: Vec<ToolBody> = tools
        .into_iter()
        .map(|tool| ToolDetailsBody::from(tool).definition)
        .collect();
    Ok(json_response(StatusCode::OK, to_json(&tools)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct VersionQuery {
    /// One of the tool's versions; absent, its default.
    #[param(nullable = false)]
    version: Option<String>,
}

/// One tool with its version, risk level, output schema and source.
#[utoipa::path(
    get, path = "/tools/{name}", tag = "tools", operation_id = "showTool",
    params(
        ("name" = String, Path, description = "The tool's name."),
        VersionQuery,
    ),
    responses((status = 200, description = "The tool.", body = ToolDetailsBody))
)]
pub(super) async fn show(
    State(api): State<Api>,
    Name(name): Name,
    query: Result<Query<VersionQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(VersionQuery { version }) = query.map_err(bad_query)?;
    // What comes with a `+` is read as a form would be, and no version has blanks.
    let version = version.map(|version| version.replace(' ', "+"));
    let (executor, named) = (api.executor.clone(), name.clone());
    let tool = beside(move || executor.tool(&named, version.as_deref())).await;
    let tool = tool.map_err(|error| Refusal::new(Code::UnknownTool, error.to_string()))?;
    let body = ToolDetailsBody {
        versions: api.executor.tool_versions(&name),
        ..ToolDetailsBody::from(tool)
    };
    Ok(json_response(StatusCode::OK, to_json(&body)))
}
