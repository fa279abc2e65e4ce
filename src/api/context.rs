//! The values that the skills of one call share.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::json::{json_response, to_json};
use super::peer::Peer;
use super::problem::{Code, Refusal};
use super::{Api, capability, request};
use crate::domain::{Scope, TOO_HEAVY, is_too_heavy};
use crate::pipeline::Execution;

/// All values of a scope.
#[utoipa::path(
    get, path = "/context/{scope}", tag = "context", operation_id = "listContext",
    params(("scope" = Scope, Path, description = "Whose they are.")),
    responses((status = 200, description = "The values by name.", body = serde_json::Map<String, serde_json::Value>))
)]
pub(super) async fn list(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    path: Result<Path<String>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Refusal> {
    let Path(scope) = path.map_err(|rejection| unreadable(rejection.body_text()))?;
    let execution = holder(&headers, &api, &peer)?;
    let values = execution.values(scope_of(&scope)?);
    Ok(json_response(StatusCode::OK, to_json(&values)))
}

/// One value.
#[utoipa::path(
    get, path = "/context/{scope}/{name}", tag = "context", operation_id = "getContext",
    params(
        ("scope" = Scope, Path, description = "Whose it is."),
        ("name" = String, Path, description = "Its name."),
    ),
    responses((status = 200, description = "The value.", body = serde_json::Value))
)]
pub(super) async fn show(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Refusal> {
    let Path((scope, name)) = path.map_err(|rejection| unreadable(rejection.body_text()))?;
    let execution = holder(&headers, &api, &peer)?;
    let value = execution.value(scope_of(&scope)?, &name);
    let value = value.ok_or_else(|| missing(&scope, &name))?;
    Ok(json_response(StatusCode::OK, to_json(&value)))
}

/// Keep a value.
#[utoipa::path(
    put, path = "/context/{scope}/{name}", tag = "context", operation_id = "setContext",
    params(
        ("scope" = Scope, Path, description = "Whose it is."),
        ("name" = String, Path, description = "Its name."),
    ),
    request_body = serde_json::Value,
    responses((status = 204, description = "It is kept."))
)]
pub(super) async fn set(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    body: Body,
) -> Result<Response, Refusal> {
    // First of all, for who is still sending does not read what is refused.
    let body = request::body(body, &headers, &api).await?;
    let Path((scope, name)) = path.map_err(|rejection| unreadable(rejection.body_text()))?;
    let execution = holder(&headers, &api, &peer)?;
    let scope = scope_of(&scope)?;
    let max_bytes = api.executor.config().skills.max_context_bytes;
    let value = request::read_by(body, value_of).await?;
    let kept = execution.keep_value(scope, &name, value, max_bytes);
    kept.map_err(|error| Refusal::new(Code::PayloadTooLarge, error.to_string()))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn value_of(body: &[u8]) -> Result<Value, Refusal> {
    if is_too_heavy(body) {
        let detail = format!("the body holds {TOO_HEAVY}");
        return Err(Refusal::new(Code::PayloadTooLarge, detail));
    }
    serde_json::from_slice(body)
        .map_err(|error| unreadable(format!("the body is no valid JSON: {error}")))
}

/// Forget a value.
#[utoipa::path(
    delete, path = "/context/{scope}/{name}", tag = "context", operation_id = "removeContext",
    params(
        ("scope" = Scope, Path, description = "Whose it is."),
        ("name" = String, Path, description = "Its name."),
    ),
    responses((status = 204, description = "It is gone."))
)]
pub(super) async fn remove(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Refusal> {
    let Path((scope, name)) = path.map_err(|rejection| unreadable(rejection.body_text()))?;
    let execution = holder(&headers, &api, &peer)?;
    match execution.forget_value(scope_of(&scope)?, &name) {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(missing(&scope, &name)),
    }
}

/// The execution whose values they are: without its token there are none.
fn holder(headers: &HeaderMap, api: &Api, peer: &Peer) -> Result<Arc<Execution>, Refusal> {
    let shown = capability::shown(headers, api, peer)?;
    shown.ok_or_else(capability::not_shown)
}

fn scope_of(word: &str) -> Result<Scope, Refusal> {
    Scope::from_word(word).ok_or_else(|| {
        let all = Scope::ALL.map(Scope::as_str).join("`, `");
        let detail = format!("there is no scope `{word}`: expected `{all}`");
        Refusal::new(Code::NotFound, detail)
    })
}

fn missing(scope: &str, name: &str) -> Refusal {
    Refusal::new(Code::NotFound, format!("`{scope}` has no value `{name}`"))
}

fn unreadable(detail: String) -> Refusal {
    Refusal::new(Code::MalformedRequest, detail)
}
