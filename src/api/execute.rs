use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::response::Response;

use super::body::{record, response, response_of};
use super::json::{json_response, to_json};
use super::peer::{self, Peer};
use super::problem::{Code, Refusal};
use super::wire::CallBody;
use super::withheld::until_recorded;
use super::{Api, body, capability, request, sse};
use crate::domain::{Call, Digest, StopReason, TraceParent};
use crate::pipeline::{Begun, Execution, Idempotency, Record, Terms, beside};

/// The longest `Idempotency-Key`, in characters: a UUID and some more.
const MAX_KEY: usize = 255;

/// Run one tool call.
///
/// Answers 200 when a process started and ended by itself, whatever its exit code. With
/// `Prefer: respond-async` it answers 202 at once; with `Accept: text/event-stream` it streams.
#[utoipa::path(
    post, path = "/execute", tag = "executions", operation_id = "execute",
    request_body = CallBody,
    params(
        ("prefer" = Option<String>, Header, nullable = false, description = "`respond-async` asks for 202 at once (RFC 7240).", example = "respond-async"),
        ("idempotency-key" = Option<String>, Header, nullable = false, description = "The caller's own key for the call: sent again with the same body it answers as before and runs nothing."),
        ("authorization" = Option<String>, Header, nullable = false, description = "`Bearer` and the value of SHELLY_CAPABILITY, of a tool's own process: the call is made on behalf of its execution."),
        ("traceparent" = Option<String>, Header, nullable = false, description = "W3C Trace Context: the trace the call belongs to, as `trace_id` in the body."),
    ),
    responses(
        (status = 200, description = "The command started and ended by itself. As events: `confirmation_required` (`Approval`) for each question that is asked about it, `started` (`StartedEvent`; once more with each retry, and what came before is no part of the answer), `stdout` and `stderr` (`OutputEvent`), and last `result`, whose data is the final body with its HTTP status as `status`, whatever that is.",
            content((body::Answer<'static> = "application/json"), (String = "text/event-stream"))),
        (status = 202, description = "Begun.", body = body::RecordBody,
            headers(
                ("location" = String, description = "The path of the execution's record."),
                ("preference-applied" = String, description = "`respond-async`."),
            )),
    )
)]
pub(super) async fn execute(State(api): State<Api>, request: Request) -> Result<Response, Refusal> {
    let (peer, version, headers, body) = take_apart(request)?;
    let (call, digest) = request::call(body, &headers, &api).await?;
    let is_streamed = accepts_events(&headers);
    let terms = Terms {
        asynchronous: prefers_async(&headers),
        idempotency: None,
        replay_of: None,
    };
    let asked = Asked {
        api: api.clone(),
        peer,
        headers,
    };
    let begins = begin(asked, (call, digest), terms);
    let (opened, terms) = match version {
        Version::HTTP_2 => undivided(begins).await?,
        _ => begins.await?,
    };
    Ok(answer(&api, opened, Manner { is_streamed, terms }).await)
}

/// What is needed of a request, without the copies that extractors would make; the rest of it goes.
fn take_apart(request: Request) -> Result<(Peer, Version, HeaderMap, Body), Refusal> {
    let (mut parts, body) = request.into_parts();
    if let Some(query) = parts.uri.query().filter(|query| !query.is_empty()) {
        return Err(Refusal::new(
            Code::MalformedRequest,
            format!(
                "the query cannot be read: {query:?} is there, expected none; options of a call are members of its body"
            ),
        ));
    }
    let peer = parts.extensions.remove().ok_or_else(peer::missing)?;
    Ok((peer, parts.version, parts.headers, body))
}

/// Whose call it is, and what came with it: as HTTP headers, or metadata of gRPC, which is the same.
pub(crate) struct Asked {
    pub(crate) api: Api,
    pub(crate) peer: Peer,
    pub(crate) headers: HeaderMap,
}

/// Begins a call, on the terms that are given and those that its headers set. A refusal names it.
pub(crate) async fn begin(
    asked: Asked,
    (call, digest): (Call, Digest),
    terms: Terms,
) -> Result<(Opened, Terms), Refusal> {
    let tool_use_id = call.tool_use_id.clone();
    let begun = begin_unnamed(asked, (call, digest), terms).await;
    begun.map_err(|refusal| refusal.of_call(tool_use_id))
}

async fn begin_unnamed(
    Asked { api, peer, headers }: Asked,
    (mut call, digest): (Call, Digest),
    terms: Terms,
) -> Result<(Opened, Terms), Refusal> {
    trace(&mut call, &headers)?;
    let terms = Terms {
        idempotency: idempotency(&headers, digest)?,
        ..terms
    };
    not_while_stopping(&api)?;
    let begun = match &capability::shown(&headers, &api, &peer)? {
        Some(parent) => {
            let within = api.executor.begin_within(parent, call, terms.clone());
            within.await
        }
        None => {
            let own = api.executor.begin(call, peer.caller.clone(), terms.clone());
            own.await
        }
    };
    Ok((opened(begun, peer, &terms)?, terms))
}

/// Refuses what would begin an execution while the daemon stops.
pub(super) fn not_while_stopping(api: &Api) -> Result<(), Refusal> {
    match api.health.is_stopping() {
        true => {
            let detail = "the daemon is shutting down";
            Err(Refusal::new(Code::ShuttingDown, detail))
        }
        false => Ok(()),
    }
}

/// Does all of what a client might take back when half of it is done: over HTTP/2 a request is dropped
/// wherever it waits. What it comes to by then is dropped in its turn.
pub(crate) async fn undivided<T: Send + 'static>(
    work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| Err(Refusal::new(Code::Internal, error.to_string())))
}

/// What a call has become that was not refused.
pub(crate) enum Opened {
    /// It is under way.
    UnderWay(Watch),
    /// It has been answered before.
    Repeated(Box<Record>),
}

/// Somebody who waits for what was begun, or why nobody does.
pub(super) fn opened(begun: Begun, peer: Peer, terms: &Terms) -> Result<Opened, Refusal> {
    match begun {
        Begun::New(execution) => Ok(Opened::UnderWay(Watch {
            execution,
            peer,
            outlives_client: terms.asynchronous || terms.idempotency.is_some(),
        })),
        Begun::Repeated(record) => Ok(Opened::Repeated(record)),
        Begun::InProgress(id) => {
            let detail = format!(
                "this `Idempotency-Key` is that of execution `{id}`, which is under way: GET /executions/{id}?wait=60 tells how it ends"
            );
            Err(Refusal::new(Code::IdempotencyConflict, detail).for_execution(id))
        }
        Begun::OtherCall(id) => {
            let detail = format!(
                "this `Idempotency-Key` was used for another call, execution `{id}`: use a new key for a new call"
            );
            Err(Refusal::new(Code::IdempotencyConflict, detail).for_execution(id))
        }
        Begun::TooMuch(too_much) => Err(Refusal::new(Code::PayloadTooLarge, too_much.to_string())),
        Begun::TooLate => {
            let detail = "the execution whose call this would be is over";
            Err(Refusal::new(Code::BadCapability, detail))
        }
        Begun::Unrecorded(problem) => {
            let detail = format!(
                "the call cannot be recorded, so it was not run: {}",
                problem.detail
            );
            Err(Refusal::new(Code::AuditUnavailable, detail))
        }
        Begun::Unknown(problem) => {
            let detail = format!(
                "what became of the call under its `Idempotency-Key` cannot be looked up, so it was not run now; ask again under the same key: {}",
                problem.detail
            );
            Err(Refusal::new(Code::AuditUnavailable, detail))
        }
    }
}

/// How a caller wants to be answered.
pub(super) struct Manner {
    pub(super) is_streamed: bool,
    pub(super) terms: Terms,
}

/// Answers for what was begun.
pub(super) async fn answer(api: &Api, opened: Opened, manner: Manner) -> Response {
    let watch = match opened {
        Opened::UnderWay(watch) => watch,
        Opened::Repeated(record) => return repeated(api, record, &manner).await,
    };
    let Manner { is_streamed, terms } = manner;
    if terms.asynchronous {
        // What waits for the process should not wait for this answer to be written.
        tokio::task::yield_now().await;
        return accepted(&watch.execution.record());
    }
    if is_streamed {
        let cap = api.executor.config().max_output_bytes;
        return sse::stream(api.clone(), watch, cap).await;
    }
    wait(watch).await
}

/// Somebody who waits for an execution. Dropped before its end, they have gone: over HTTP/2 a client
/// takes back a request without hanging up.
pub(crate) struct Watch {
    pub(crate) execution: Arc<Execution>,
    pub(crate) peer: Peer,
    /// Whether it goes on without them.
    pub(crate) outlives_client: bool,
}

impl Watch {
    /// The client has gone: the execution ends, unless it may go on without.
    pub(crate) fn give_up(&self) {
        if !self.outlives_client {
            self.execution.stop(StopReason::Disconnect);
        }
    }

    /// What is awaited of the execution. A client that hangs up meanwhile ends the execution, and with it what is
    /// awaited; `None` where it may go on without: nobody is there to be answered, and their connection is given back.
    pub(super) async fn unless_gone<T>(&self, awaited: impl Future<Output = T>) -> Option<T> {
        let mut awaited = std::pin::pin!(awaited);
        tokio::select! {
            biased;
            awaited = &mut awaited => return Some(awaited),
            () = self.peer.hung_up() => self.give_up(),
        }
        match self.outlives_client {
            true => None,
            false => Some(awaited.await),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.execution.is_formed() {
            self.give_up();
        }
    }
}

/// Waits for the end of an execution; who has gone by then gets no answer.
async fn wait(watch: Watch) -> Response {
    let execution = &watch.execution;
    let answered = watch.unless_gone(async {
        // A long one is made, and sent, while its record is being written.
        let response = response_of(execution, execution.wait_formed().await).await;
        until_recorded(execution, response).await
    });
    answered.await.unwrap_or_default()
}

/// The answer of a call that has been answered before.
async fn repeated(api: &Api, past: Box<Record>, manner: &Manner) -> Response {
    let finished = past.finished.clone();
    match finished.filter(|_| !manner.terms.asynchronous) {
        Some(finished) if manner.is_streamed && past.started_at.is_some() => {
            sse::replay(api, past, finished).await
        }
        Some(finished) => beside(move || response(&*past, &finished)).await,
        None => beside(move || accepted(&past)).await,
    }
}

fn accepted(execution: &Record) -> Response {
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

/// Puts a call in the trace that its headers name. One that is not well-formed names none (W3C Trace
/// Context, section 3.2).
fn trace(call: &mut Call, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(named) = trace_parent(headers) else {
        return Ok(());
    };
    match &call.options.trace_id {
        Some(own) if *own != named.trace => {
            let detail = format!(
                "`trace_id` is {:?}, and `traceparent` says `{}`: expected the same, or one of them",
                own.as_str(),
                named.trace.as_str()
            );
            Err(Refusal::new(Code::MalformedRequest, detail))
        }
        Some(_) | None => {
            call.options.trace_id = Some(named.trace);
            call.options.parent = Some(named.parent);
            Ok(())
        }
    }
}

/// Where the caller is in a trace, if it says so.
pub(super) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut headers = headers.get_all("traceparent").into_iter();
    let header = headers.next()?;
    // Of two nobody can tell which one is meant.
    let is_only = headers.next().is_none();
    TraceParent::parse(header.to_str().ok()?).filter(|_| is_only)
}

/// The caller's key for the call, if it has one, with a digest of what it is for.
pub(super) fn idempotency(
    headers: &HeaderMap,
    body_digest: Digest,
) -> Result<Option<Idempotency>, Refusal> {
    let mut keys = headers.get_all("idempotency-key").into_iter();
    let Some(key) = keys.next() else {
        return Ok(None);
    };
    // No blank: it tells the keys of a skill's own calls from those of everybody else.
    let usable = |key: &&str| {
        (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match (key.to_str().ok().filter(usable), keys.next()) {
        (Some(key), None) => Ok(Some(Idempotency {
            key: key.to_owned(),
            body_digest,
        })),
        (Some(_) | None, _) => {
            let detail = format!(
                "`Idempotency-Key` cannot be read: expected one of 1 to {MAX_KEY} visible ASCII characters"
            );
            Err(Refusal::new(Code::MalformedRequest, detail))
        }
    }
}

/// `Prefer: respond-async` (RFC 7240), among other preferences maybe, which are ignored.
pub(super) fn prefers_async(headers: &HeaderMap) -> bool {
    listed(headers, "prefer").any(|preference| {
        let name = preference.split([';', '=']).next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("respond-async")
    })
}

/// Whether `Accept` names the event stream itself (a wildcard means JSON), and does not rather want JSON
/// (RFC 9110, section 12.4.2).
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    let weight_of = |wanted: &str| {
        let ranges = listed(headers, "accept").map(media_range);
        let weights = ranges.filter(|(kind, _)| kind.eq_ignore_ascii_case(wanted));
        weights.map(|(_, weight)| weight).reduce(f32::max)
    };
    let events = weight_of("text/event-stream").unwrap_or(0.0);
    // Of all that name JSON, the one that says the most of it (section 12.5.1).
    let json = ["application/json", "application/*", "*/*"];
    events > 0.0 && events >= json.into_iter().find_map(weight_of).unwrap_or(0.0)
}

/// A media range and how much it is wanted, from 0 to 1.
fn media_range(range: &str) -> (&str, f32) {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let weight = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let weight = name.eq_ignore_ascii_case("q").then_some(value)?;
        weight.parse::<f32>().ok()
    };
    (kind, parts.find_map(weight).unwrap_or(1.0))
}

fn listed<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(elements)
}

/// The elements of a list; a comma in a quoted string parts none (RFC 9110, section 5.6).
fn elements(list: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    list.split(move |c| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match c {
            '\\' if is_quoted => is_escaped = !was_escaped,
            '"' if !was_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        c == ',' && !is_quoted
    })
}
