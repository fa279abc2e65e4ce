use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::body::{record, response};
use super::json::{json_response, to_json};
use super::peer::Peer;
use super::problem::{Code, Refusal};
use super::wire::CallBody;
use super::{Api, body, request, sse};
use crate::domain::{StopReason, TraceId};
use crate::pipeline::Execution;

/// Run one tool call.
///
/// Answers 200 when a process started and ended by itself, whatever its exit code. With
/// `Prefer: respond-async` it answers 202 at once; with `Accept: text/event-stream` it streams.
#[utoipa::path(
    post, path = "/execute", tag = "executions", operation_id = "execute",
    request_body = CallBody,
    params(
        ("prefer" = Option<String>, Header, nullable = false, description = "`respond-async` asks for 202 at once (RFC 7240).", example = "respond-async"),
        ("traceparent" = Option<String>, Header, nullable = false, description = "W3C Trace Context; its trace id goes into the log."),
    ),
    responses(
        (status = 200, description = "The command started and ended by itself. As events: `started` (`StartedEvent`), `stdout` and `stderr` (`OutputEvent`), and last `result`, whose data is the final body with its HTTP status as `status`, whatever that is.",
            content((body::Answer<'static> = "application/json"), (String = "text/event-stream"))),
        (status = 202, description = "Begun.", body = body::RecordBody,
            headers(
                ("location" = String, description = "The path of the execution's record."),
                ("preference-applied" = String, description = "`respond-async`."),
            )),
    )
)]
pub(super) async fn execute(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let mut call = request::call(body, &headers, &api).await?;
    call.options.trace_id = headers
        .get("traceparent")
        .and_then(|value| value.to_str().ok())
        .and_then(TraceId::from_traceparent);
    if headers.contains_key("idempotency-key") {
        let detail = "`Idempotency-Key` is not supported: nothing is kept yet that could replay an answer; send the call without it";
        let refusal = Refusal::new(Code::MalformedRequest, detail);
        return Err(refusal.of_call(call.tool_use_id));
    }
    if api.health.is_stopping() {
        let refusal = Refusal::new(Code::ShuttingDown, "the daemon is shutting down");
        return Err(refusal.of_call(call.tool_use_id));
    }

    let execution = api.executor.begin(call, peer.caller.clone());
    if prefers_async(&headers) {
        // What waits for the process should not wait for this answer to be written.
        tokio::task::yield_now().await;
        return Ok(accepted(&execution));
    }
    if accepts_events(&headers) {
        let cap = api.executor.config().max_output_bytes;
        return Ok(sse::stream(execution, peer, cap).await);
    }
    Ok(wait(&execution, &peer).await)
}

/// Waits for the end of an execution; a client that hangs up meanwhile ends it.
async fn wait(execution: &Arc<Execution>, peer: &Peer) -> Response {
    let finished = tokio::select! {
        finished = execution.wait() => finished,
        () = peer.hung_up() => {
            execution.stop(StopReason::Disconnect);
            execution.wait().await
        }
    };
    response(execution, finished)
}

fn accepted(execution: &Execution) -> Response {
    let mut response = json_response(StatusCode::ACCEPTED, to_json(&record(execution)));
    let headers = response.headers_mut();
    headers.insert(
        "preference-applied",
        HeaderValue::from_static("respond-async"),
    );
    if let Ok(location) = HeaderValue::from_str(&format!("/executions/{}", execution.id)) {
        headers.insert(header::LOCATION, location);
    }
    response
}

/// `Prefer: respond-async` (RFC 7240), among other preferences maybe, which are ignored.
fn prefers_async(headers: &HeaderMap) -> bool {
    listed(headers, "prefer").any(|preference| {
        let name = preference.split([';', '=']).next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("respond-async")
    })
}

/// Whether `Accept` names the event stream itself (a wildcard means JSON), and not to rule it out
/// (RFC 9110, section 12.4.2).
fn accepts_events(headers: &HeaderMap) -> bool {
    listed(headers, "accept").any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let mut weights = parts.filter_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        kind.eq_ignore_ascii_case("text/event-stream") && weights.all(|weight| weight > 0.0)
    })
}

fn listed<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        refusal.into_response()
    }
}
