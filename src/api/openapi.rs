use axum::http::StatusCode;
use axum::response::Response;
use utoipa::OpenApi;

use super::body::{json_response, to_json};

/// The description of this API, generated from its handlers.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Shelly Executor",
        description = "Runs commands and tools for AI agents, over a Unix socket.",
    ),
    paths(
        super::execute::execute,
        super::executions::cancel,
        super::executions::show,
        super::health::show,
        super::openapi::show,
        super::output::show,
        super::tools::list,
        super::tools::show,
    )
)]
struct Document;

/// The OpenAPI 3.1 description.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "openapi",
    responses((status = 200, description = "OpenAPI 3.1.", body = serde_json::Value))
)]
pub(super) async fn show() -> Response {
    json_response(StatusCode::OK, to_json(&document()))
}
