use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::json::{json_response, to_json};
use super::peer::Peer;
use super::problem::Refusal;
use super::{Api, request, wire};
use crate::domain::Judgement;

/// What the policy says of a call, which is not run.
///
/// The verdict, the rule and where it stands, the command in a script that decided, and what would
/// change it.
#[utoipa::path(
    post, path = "/permissions/explain", tag = "permissions", operation_id = "explainPermission",
    request_body = wire::CallBody,
    responses((status = 200, description = "The judgement.", body = Judgement))
)]
pub(super) async fn explain(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let (call, _) = request::call(body, &headers, &api).await?;
    let tool_use_id = call.tool_use_id.clone();
    match api.executor.explain(call, peer.caller).await {
        Ok(judgement) => Ok(json_response(StatusCode::OK, to_json(&judgement))),
        Err((stage, error)) => Err(Refusal::of_error(&error, stage).of_call(tool_use_id)),
    }
}
