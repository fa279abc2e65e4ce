//! What happens, as server-sent events that can be taken up again where they broke off.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::executions::is_admin;
use super::history::{malformed, named};
use super::json::to_json;
use super::peer::Peer;
use super::problem::{Code, Refusal};
use super::query::{self, bad_query};
use crate::config::Access;
use crate::domain::{EVENT_TYPES, ExecutionId, timestamp};
use crate::pipeline::{EventFilter, NumberedEvent, NumberedEvents};

/// How often a comment tells the client, and whatever is between, that the stream lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The number of the last event that was heard of (WHATWG HTML, section 9.2.4); in an answer, of the last before it.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How many batches are read from the file at once.
const PAGE: usize = 64;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Of this execution only.
    #[param(format = "uuid", nullable = false)]
    execution_id: Option<String>,
    /// Of executions of this tool only.
    #[param(nullable = false)]
    tool: Option<String>,
    /// Of these types only, separated by commas.
    #[param(nullable = false)]
    r#type: Option<String>,
    /// Begin after the event of this number, as with `Last-Event-ID`. Without either a stream that stays begins with what
    /// happens from now on, and one that does not with the first event that is kept.
    #[param(nullable = false)]
    #[serde(default, deserialize_with = "query::number")]
    after: Option<u64>,
    /// Whether to stay for what happens next, which is the rule; `false` ends the stream after
    /// what there is.
    #[param(nullable = false)]
    #[serde(default, deserialize_with = "query::flag")]
    follow: Option<bool>,
}

/// The data of an event; what else belongs to its type stands beside these.
#[derive(Serialize, ToSchema)]
#[schema(as = Event)]
pub(super) struct EventBody<'a> {
    /// Rises with time.
    number: u64,
    /// Such as `executionStarted`.
    #[serde(rename = "type")]
    kind: &'a str,
    /// When (RFC 3339, UTC, milliseconds).
    #[schema(format = "date-time")]
    time: String,
    /// The execution it is about.
    #[schema(required, format = "uuid")]
    execution_id: Option<String>,
    /// Its tool.
    #[schema(required)]
    tool: Option<&'a str>,
    /// Its caller.
    #[schema(required, format = "int64")]
    caller_uid: Option<u32>,
    /// The rest; with `trace_id`, `tenant_id` and `session_id` where the call has them.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    body: &'a Map<String, Value>,
}

/// The data of `missed`: what cannot be told any more.
#[derive(Serialize, ToSchema)]
#[schema(as = MissedEvents)]
pub(super) struct Missed {
    /// The first number.
    from: u64,
    /// The last number.
    to: u64,
}

/// Follow what happens.
///
/// A caller hears of its own uid's executions, an approver of every question, an admin of
/// everything. With `Last-Event-ID` (or
/// `after`) what came after that is told first; without, only what happens from now on, or with `follow=false` all that is
/// kept. The answer's own `Last-Event-ID` says after which event it begins.
#[utoipa::path(
    get, path = "/events", tag = "events", operation_id = "followEvents",
    params(
        EventsQuery,
        ("last-event-id" = Option<String>, Header, nullable = false, description = "The number of the last event that was heard of.", example = "42"),
    ),
    responses((status = 200, description = "Events (`Event`), each under its type's name with its number as `id`; `missed` (`MissedEvents`) for what is forgotten by now.", body = String, content_type = "text/event-stream", headers(("last-event-id" = u64, description = "After which event the stream begins."))))
)]
pub(super) async fn follow(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(bad_query)?;
    let (edge, access) = (Arc::clone(&api.edge), api.edge.settings().access.clone());
    let Some(receiver) = api.executor.follow_events() else {
        return Err(Refusal::new(Code::NotFound, "there is no ledger to follow"));
    };
    let id = query.execution_id.map(|text| {
        let parsed = text.parse::<ExecutionId>();
        let detail = || format!("{text:?} is no id: expected a UUID");
        parsed.map_err(|_| malformed("execution_id", &detail()))
    });
    let filter = EventFilter {
        execution_id: id.transpose()?,
        tool: named(query.tool)?,
        caller_uid: (!is_admin(&api, &peer)).then_some(peer.caller.uid),
        of_everybody: of_everybody(&api, &peer),
        kinds: query.r#type.map_or(Ok(Vec::new()), |list| kinds(&list))?,
    };
    let follows = query.follow.unwrap_or(true);
    // Who has heard of more than there is knew another ledger: there is nothing of it to wait for.
    let last = api.executor.last_event();
    let after = last_event_id(&headers)?
        .or(query.after)
        .map(|after| after.min(last));
    // Whoever does not say where and does not stay wants all there is.
    let begins_after = after.unwrap_or(if follows { last } else { 0 });
    let listener = Listener {
        after: begins_after,
        wants_file: after.is_some() || !follows,
        follows,
        filter,
        receiver,
        ready: VecDeque::new(),
        api,
    };
    let events = futures_util::stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    // What somebody may hear of was settled above: whoever calls again, as clients do, hears what they may by then.
    let end = async move {
        tokio::select! {
            () = peer.hung_up() => {}
            () = edge.access_differs(&access) => {}
        }
    };
    let events = events.take_until(end);
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    // Where it is to be taken up again that breaks off before its first event.
    let begins_after = [(LAST_EVENT_ID, HeaderValue::from(begins_after))];
    Ok((begins_after, stream).into_response())
}

/// The types in a list with commas between.
fn kinds(list: &str) -> Result<Vec<String>, Refusal> {
    let named = list.split(',').map(str::trim);
    let known = |kind: &str| {
        if EVENT_TYPES.contains(&kind) {
            return Ok(kind.to_owned());
        }
        let types = EVENT_TYPES.join(", ");
        let detail = format!("{kind:?} is no type of event; expected some of {types}");
        Err(malformed("type", &detail))
    };
    named.map(known).collect()
}

/// What somebody hears of that is about others: an approver is asked by everybody.
fn of_everybody(api: &Api, peer: &Peer) -> Vec<String> {
    const QUESTIONS: [&str; 3] = [
        "confirmationRequired",
        "confirmationDecided",
        "confirmationExpired",
    ];
    let approvers = &api.edge.settings().access.approvers;
    if Access::lists(approvers, &peer.caller) {
        QUESTIONS.map(str::to_owned).to_vec()
    } else {
        Vec::new()
    }
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let Some(value) = headers.get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    let refusal = || {
        let detail = format!("{value:?} is no number: expected that of an event");
        malformed("Last-Event-ID", &detail)
    };
    number.map(Some).ok_or_else(refusal)
}

/// Somebody who listens. A slow one holds nobody up: what it cannot be told as it happens it is
/// read from the file.
struct Listener {
    api: Api,
    filter: EventFilter,
    /// What it has been told of, or did not want to hear.
    after: u64,
    /// Whether there is something in the file that it has not been told.
    wants_file: bool,
    follows: bool,
    receiver: Receiver<Arc<NumberedEvents>>,
    ready: VecDeque<Event>,
}

impl Listener {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.wants_file {
                self.read().await?;
            } else if self.follows {
                self.listen().await;
            } else {
                return None;
            }
        }
    }

    /// Reads the next page; `None` when it cannot be read.
    async fn read(&mut self) -> Option<()> {
        let page = self
            .api
            .executor
            .events(self.after, self.filter.clone(), PAGE);
        let page = page.await.inspect_err(|error| {
            tracing::error!(%error, "cannot read events");
        });
        let page = page.ok()?;
        let next = self.after.saturating_add(1);
        if page.kept_from > next {
            let missed = Missed {
                from: next,
                to: page.kept_from - 1,
            };
            self.ready.push_back(
                Event::default()
                    .event("missed")
                    .data(String::from_utf8_lossy(&to_json(&missed))),
            );
        }
        self.ready.extend(page.events.iter().map(event));
        self.after = page.through;
        self.wants_file = page.has_more;
        Some(())
    }

    async fn listen(&mut self) {
        let batch = tokio::select! {
            batch = self.receiver.recv() => batch,
            () = self.api.health.ended() => Err(RecvError::Closed),
        };
        match batch {
            Ok(batch) => {
                let picked = batch.pick(self.after, &self.filter);
                self.ready.extend(picked.iter().map(event));
                self.after = self.after.max(batch.last());
            }
            Err(RecvError::Lagged(_)) => self.wants_file = true,
            Err(RecvError::Closed) => {
                // The last ones, then the end.
                self.wants_file = true;
                self.follows = false;
            }
        }
    }
}

fn event(numbered: &NumberedEvent) -> Event {
    let body = EventBody {
        number: numbered.number,
        kind: &numbered.kind,
        time: timestamp(numbered.time),
        execution_id: numbered.execution_id.map(|id| id.to_string()),
        tool: numbered.tool.as_deref(),
        caller_uid: numbered.caller_uid,
        body: &numbered.body,
    };
    Event::default()
        .id(numbered.number.to_string())
        .event(&numbered.kind)
        .data(String::from_utf8_lossy(&to_json(&body)))
}
