//! What was executed: listed, cleared away, done again.

use std::time::SystemTime;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::body;
use super::execute::{
    Manner, accepts_events, answer, idempotency, not_while_stopping, opened, prefers_async,
    trace_parent, undivided,
};
use super::executions::{find, is_admin, unreadable};
use super::json::{json_response, to_json};
use super::path::Name;
use super::peer::Peer;
use super::problem::{Code, Refusal};
use super::query::{self, NoQuery, bad_query};
use super::request::{self, Limit};
use crate::domain::{Digest, Status, TraceId, parse_timestamp, timestamp};
use crate::pipeline::{Brief, CannotReplay, Filter, LedgerError, Terms};

/// How many executions a page has where nobody says.
const PAGE: usize = 50;

/// The most it can have.
const MAX_PAGE: usize = 1000;

/// How much of a body is looked at where none is expected: what is longer says something.
const NO_BODY: Limit = Limit {
    bytes: 64,
    said_by: "as much as says nothing",
};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// Of calls that came in at this time or later (RFC 3339).
    #[param(format = "date-time", nullable = false)]
    since: Option<String>,
    /// Of calls that came in before this time (RFC 3339).
    #[param(format = "date-time", nullable = false)]
    until: Option<String>,
    /// Of this tool.
    #[param(nullable = false)]
    tool: Option<String>,
    /// In this status.
    #[param(nullable = false)]
    status: Option<String>,
    /// Of this user's calls.
    #[param(nullable = false, format = "int64")]
    #[serde(default, deserialize_with = "query::number")]
    caller: Option<u32>,
    /// Of the calls that belong to this trace.
    #[param(nullable = false, max_length = 256)]
    trace_id: Option<String>,
    /// With all of these words in the first 4,096 characters of what the caller said, or of an answer that is no
    /// longer than 4 KiB; `word*` stands for what begins so. Of Chinese, Japanese and Korean any characters that stand
    /// in a row. Finds what has ended.
    #[param(nullable = false)]
    text: Option<String>,
    /// At most so many; 50 unless told, at most 1000.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    #[serde(default, deserialize_with = "query::number")]
    limit: Option<usize>,
    /// `next` of the page before.
    #[param(nullable = false)]
    cursor: Option<String>,
}

/// A page of history.
#[derive(Serialize, ToSchema)]
#[schema(as = History)]
pub(super) struct HistoryBody {
    /// Newest first.
    executions: Vec<EntryBody>,
    /// What to ask for as `cursor` to go on; null at the end.
    #[schema(required)]
    next: Option<String>,
}

/// An execution in brief.
#[derive(Serialize, ToSchema)]
#[schema(as = HistoryEntry)]
struct EntryBody {
    /// Its name.
    #[schema(format = "uuid")]
    execution_id: String,
    /// Where it stands or how it ended.
    status: Status,
    /// The tool that was called.
    tool: String,
    /// What it was about, in a line.
    summary: String,
    /// Who called it.
    #[schema(format = "int64")]
    caller_uid: u32,
    /// When the call came in.
    #[schema(format = "date-time")]
    created_at: String,
    /// When its process was started; null when none was, or not yet, and where nobody knows (`lost`).
    #[schema(required, format = "date-time")]
    started_at: Option<String>,
    /// When it ended; null until then.
    #[schema(required, format = "date-time")]
    ended_at: Option<String>,
    /// From the start of the process to its end, in milliseconds; null without one.
    #[schema(required)]
    duration_ms: Option<u64>,
    /// How it ended: an exit code, a signal's name, `timeout` or `cancelled`; null without a
    /// process.
    #[schema(required)]
    exit: Option<String>,
    /// The execution that it repeats.
    #[schema(required, format = "uuid")]
    replay_of: Option<String>,
}

/// How many were forgotten.
#[derive(Serialize, ToSchema)]
#[schema(as = Cleared)]
pub(super) struct ClearedBody {
    /// How many executions.
    deleted: usize,
}

impl From<Brief> for EntryBody {
    fn from(brief: Brief) -> Self {
        let (duration_ms, exit) = match brief.ending {
            Some(ending) => (Some(ending.duration_ms), Some(ending.exit)),
            None => (None, None),
        };
        Self {
            execution_id: brief.id.to_string(),
            status: brief.status,
            tool: brief.tool,
            summary: brief.summary,
            caller_uid: brief.caller_uid,
            created_at: timestamp(brief.created_at),
            started_at: brief.started_at.map(timestamp),
            ended_at: brief.ended_at.map(timestamp),
            duration_ms,
            exit,
            replay_of: brief.replay_of.map(|id| id.to_string()),
        }
    }
}

/// What was executed, newest first.
///
/// A caller sees its own uid's executions, an admin all. What is under way is among them.
#[utoipa::path(
    get, path = "/executions", tag = "executions", operation_id = "listExecutions",
    params(HistoryQuery),
    responses((status = 200, description = "A page of history.", body = HistoryBody))
)]
pub(super) async fn list(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(bad_query)?;
    let mut filter = filter(query)?;
    if !is_admin(&api, &peer) {
        if filter.caller_uid.is_some_and(|uid| uid != peer.caller.uid) {
            let detail = "`caller`: only an admin sees the executions of others";
            return Err(Refusal::new(Code::AccessDenied, detail));
        }
        filter.caller_uid = Some(peer.caller.uid);
    }
    let page = api.executor.history(filter).await.map_err(|error| {
        if let LedgerError::NoWords { .. } = error {
            malformed("text", &error.to_string())
        } else {
            unreadable(error)
        }
    })?;
    let body = HistoryBody {
        executions: page.executions.into_iter().map(EntryBody::from).collect(),
        next: page.next.map(|cursor| cursor.to_string()),
    };
    Ok(json_response(StatusCode::OK, to_json(&body)))
}

/// Forget every execution that has ended.
///
/// The audit trail stays, and says who did it.
#[utoipa::path(
    delete, path = "/executions", tag = "executions", operation_id = "clearExecutions",
    responses((status = 200, description = "They are forgotten.", body = ClearedBody))
)]
pub(super) async fn clear(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<NoQuery>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    query.map_err(bad_query)?;
    let why = "to clear takes none, for it forgets all that has ended";
    no_body((body, &headers), &api, why).await?;
    let clearing = async move {
        let cleared = api.executor.clear_history(&peer.caller).await;
        cleared.map_err(|error| Refusal::new(Code::AuditUnavailable, error.to_string()))
    };
    let deleted = undivided(clearing).await?;
    Ok(json_response(
        StatusCode::OK,
        to_json(&ClearedBody { deleted }),
    ))
}

/// Replay a recorded call.
///
/// A new execution of the caller's own, judged anew, and linked by `replay_of`. It is answered as
/// `POST /execute` would be.
#[utoipa::path(
    post, path = "/executions/{id}/replay", tag = "executions", operation_id = "replayExecution",
    params(
        ("id" = String, Path, format = "uuid", description = "The execution to repeat."),
        ("prefer" = Option<String>, Header, nullable = false, description = "`respond-async` asks for 202 at once (RFC 7240).", example = "respond-async"),
        ("idempotency-key" = Option<String>, Header, nullable = false, description = "As of `POST /execute`: under it the execution is repeated once.", example = "deploy-42-again"),
        ("traceparent" = Option<String>, Header, nullable = false, description = "As of `POST /execute`. Without one it belongs to no trace.", example = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ),
    responses(
        (status = 200, description = "As `POST /execute`.",
            content((body::Answer<'static> = "application/json"), (String = "text/event-stream"))),
        (status = 202, description = "Begun.", body = body::RecordBody,
            headers(
                ("location" = String, description = "The path of the execution's record."),
                ("preference-applied" = String, description = "`respond-async`."),
            )),
    )
)]
pub(super) async fn replay(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Name(id): Name,
    query: Result<Query<NoQuery>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    query.map_err(bad_query)?;
    let why = "a replay takes none, for it makes the call again as it is on record; make another call with `POST /execute`";
    no_body((body, &headers), &api, why).await?;
    let id = find(&api, &peer, &id).await?.id();
    let repeated = Digest::of(format!("replay {id}").as_bytes());
    let terms = Terms {
        asynchronous: prefers_async(&headers),
        idempotency: idempotency(&headers, repeated)?,
        ..Terms::default()
    };
    not_while_stopping(&api)?;
    let (executor, own_terms) = (api.executor.clone(), terms.clone());
    let trace = trace_parent(&headers);
    let replaying = async move {
        let caller = peer.caller.clone();
        let begun = executor.replay(id, trace, caller, own_terms.clone()).await;
        let begun = begun.map_err(|error| match error {
            CannotReplay::Masked => Refusal::new(Code::NotReplayable, error.to_string()),
            CannotReplay::Unknown => Refusal::new(Code::UnknownExecution, error.to_string()),
            CannotReplay::Ledger(error) => unreadable(error),
        })?;
        // In here: it stops what nobody waits for any more.
        opened(begun, peer, &own_terms)
    };
    let opened = undivided(replaying).await?;
    let manner = Manner {
        is_streamed: accepts_events(&headers),
        terms,
    };
    Ok(answer(&api, opened, manner).await)
}

/// Refuses a body that says something, and says `why` it is not heeded. Some clients send an empty object with every request.
async fn no_body(body: (Body, &HeaderMap), api: &Api, why: &str) -> Result<(), Refusal> {
    let is_empty = match request::within(NO_BODY, body, api).await {
        Ok(bytes) => matches!(bytes.trim_ascii(), b"" | b"{}"),
        Err(refusal) if refusal.code == Code::PayloadTooLarge => false,
        Err(refusal) => return Err(refusal),
    };
    if is_empty {
        return Ok(());
    }
    let detail = format!("the body cannot be heeded: {why}");
    Err(Refusal::new(Code::MalformedRequest, detail))
}

fn filter(query: HistoryQuery) -> Result<Filter, Refusal> {
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        let detail = format!("{limit} is out of range: expected 1 to {MAX_PAGE}");
        return Err(malformed("limit", &detail));
    }
    let status = query.status.map(|word| {
        Status::from_word(&word).ok_or_else(|| {
            let words = Status::ALL.map(Status::as_str).join(", ");
            malformed(
                "status",
                &format!("{word:?} is none: expected one of {words}"),
            )
        })
    });
    let trace_id = query.trace_id.map(|name| {
        let named: Result<TraceId, _> = name.parse();
        named.map_err(|error| Refusal::new(Code::MalformedRequest, error.to_string()))
    });
    let cursor = query.cursor.map(|text| {
        text.parse()
            .map_err(|error| malformed("cursor", &format!("{text:?}: {error}")))
    });
    Ok(Filter {
        since: query.since.map(|text| time("since", &text)).transpose()?,
        until: query.until.map(|text| time("until", &text)).transpose()?,
        tool: named(query.tool)?,
        status: status.transpose()?,
        caller_uid: query.caller,
        trace_id: trace_id.transpose()?,
        text: query.text,
        cursor: cursor.transpose()?,
        limit,
    })
}

fn time(member: &str, text: &str) -> Result<SystemTime, Refusal> {
    parse_timestamp(text).ok_or_else(|| {
        let detail = format!(
            "{text:?} is no time: expected one such as 2026-01-31T12:00:00Z or 2026-01-31T14:00:00+02:00 (`+` as %2B)"
        );
        malformed(member, &detail)
    })
}

/// The name of a tool that is asked for. None is empty, which would find nothing and say so of all.
pub(super) fn named(tool: Option<String>) -> Result<Option<String>, Refusal> {
    match tool.as_deref() {
        Some("") => Err(malformed("tool", "is empty: expected the name of a tool")),
        Some(_) | None => Ok(tool),
    }
}

pub(super) fn malformed(member: &str, detail: &str) -> Refusal {
    Refusal::new(Code::MalformedRequest, format!("`{member}`: {detail}"))
}
