use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::Api;
use super::problem::{Code, Refusal};
use crate::pipeline::NoMetrics;

/// The format, which is what Prometheus asks for if it is not told of others.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is counted and timed, for Prometheus.
///
/// The names are in docs/metrics.md. Nothing of a single call is in it: no command, no path, no
/// user.
#[utoipa::path(
    get, path = "/metrics", tag = "daemon", operation_id = "metrics",
    responses((status = 200, description = "Prometheus' text format, version 0.0.4.", body = String, content_type = "text/plain; version=0.0.4; charset=utf-8"))
)]
pub(super) async fn show(State(api): State<Api>) -> Result<Response, Refusal> {
    let text = api.executor.metrics(&api.degradations().await);
    let text = text.map_err(|error| match error {
        NoMetrics::Off => Refusal::new(Code::NotFound, error.to_string()),
        NoMetrics::Broken | NoMetrics::Unreadable(_) => {
            Refusal::new(Code::Internal, error.to_string())
        }
    })?;
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(TEXT))];
    Ok((kind, text).into_response())
}
