use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::body::{record, response};
use super::json::{json_response, to_json};
use super::peer::Peer;
use super::problem::{Code, Refusal};
use super::wire::{CallBody, parse_call, tool_use_id};
use super::{Api, body, sse};
use crate::domain::{Call, StopReason, TraceId};
use crate::pipeline::Execution;

/// A body longer than this is read on a thread of its own: parsing it would keep the event loop
/// from everybody else for about a millisecond a MiB.
const PARSE_INLINE_BYTES: usize = 256 * 1024;

/// How much of a body that is too large is read and thrown away, in multiples of the limit, so
/// that a client which sends before it reads gets to see the answer.
const DISCARD_LIMITS: usize = 4;

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
    let bytes = read(body, &headers, api.edge.settings().max_request_bytes).await?;
    let mut call = parse(bytes, &api).await?;
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

pub(super) async fn read(body: Body, headers: &HeaderMap, limit: usize) -> Result<Bytes, Refusal> {
    let too_large = || {
        let detail = format!("the body is larger than {limit} bytes (max_request_bytes)");
        Refusal::new(Code::PayloadTooLarge, detail)
    };
    let announced = body.size_hint().lower();
    if announced > limit as u64 && headers.contains_key(header::EXPECT) {
        // It waits for a word before it sends: this is the word.
        return Err(too_large());
    }
    let mut body = body;
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    let mut length = 0usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Refusal::new(
                Code::MalformedRequest,
                format!("the body ended early: {error}"),
            )
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length > limit.saturating_mul(DISCARD_LIMITS) {
            return Err(too_large());
        }
        if length > limit {
            whole = BytesMut::new();
            first = None;
        } else if first.is_none() && whole.is_empty() {
            first = Some(data);
        } else {
            if let Some(first) = first.take() {
                whole.reserve(usize::try_from(announced).unwrap_or(0).min(limit));
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&data);
        }
    }
    if length > limit {
        return Err(too_large());
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

pub(super) async fn parse(bytes: Bytes, api: &Api) -> Result<Call, Refusal> {
    let config = api.executor.config();
    let inline = bytes.len() <= PARSE_INLINE_BYTES;
    let parse = move || {
        parse_call(&bytes, &config).map_err(|detail| {
            Refusal::new(Code::MalformedRequest, detail).of_call(tool_use_id(&bytes))
        })
    };
    if inline {
        return parse();
    }
    tokio::task::spawn_blocking(parse)
        .await
        .map_err(|error| Refusal::new(Code::Internal, error.to_string()))?
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
