use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::json::{json_response, to_json};
use super::peer::Peer;
use super::problem::Refusal;
use super::query::bad_query;
use super::{Api, request, wire};
use crate::domain::Judgement;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainQuery {
    /// The tools that would have led to the call, the outermost first, with commas between.
    #[param(nullable = false)]
    called_by: Option<String>,
}

/// What the policy says of a call, which is not run.
///
/// The verdict, the rule and where it stands, the command in a script that decided, and what would
/// change it.
#[utoipa::path(
    post, path = "/permissions/explain", tag = "permissions", operation_id = "explainPermission",
    params(ExplainQuery),
    request_body = wire::CallBody,
    responses((status = 200, description = "The judgement.", body = Judgement))
)]
pub(super) async fn explain(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<ExplainQuery>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let Query(ExplainQuery { called_by }) = query.map_err(bad_query)?;
    let called_by = called_by.unwrap_or_default();
    let chain = called_by.split(',').filter(|name| !name.is_empty());
    let chain = chain.map(str::to_owned).collect();
    let (call, _) = request::call(body, &headers, &api).await?;
    let tool_use_id = call.tool_use_id.clone();
    match api.executor.explain(call, peer.caller, chain).await {
        Ok(judgement) => Ok(json_response(StatusCode::OK, to_json(&judgement))),
        Err((stage, error)) => Err(Refusal::of_error(&error, stage).of_call(tool_use_id)),
    }
}
