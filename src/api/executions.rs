use std::time::Duration;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use utoipa::IntoParams;

use super::Api;
use super::body::{self, record_with};
use super::json::{json_response, to_json};
use super::path::Name;
use super::peer::Peer;
use super::problem::{Code, Refusal};
use super::query::{self, NoQuery, bad_query};
use crate::config::Access;
use crate::domain::StopReason;
use crate::pipeline::{Found, LedgerError, beside};

/// The longest `wait`, in seconds.
const MAX_WAIT_SECS: f64 = 60.0;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitQuery {
    /// Hold the answer until the execution has ended, at most this many seconds (at most 60).
    #[param(minimum = 0, maximum = 60, nullable = false)]
    #[serde(default, deserialize_with = "query::seconds")]
    wait: Option<f64>,
}

/// An execution's record.
#[utoipa::path(
    get, path = "/executions/{id}", tag = "executions", operation_id = "showExecution",
    params(("id" = String, Path, format = "uuid", description = "The execution's id."), WaitQuery),
    responses((status = 200, description = "The record as it stands.", body = body::RecordBody))
)]
pub(super) async fn show(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Name(id): Name,
    query: Result<Query<WaitQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let found = find(&api, &peer, &id).await?;
    let Query(WaitQuery { wait }) = query.map_err(bad_query)?;
    hold(&api, &found, wait, &peer).await?;
    Ok(answer(&api, found).await)
}

/// Cancel an execution.
///
/// Answers once its process tree is dead. One that has ended already is left as it is.
#[utoipa::path(
    delete, path = "/executions/{id}", tag = "executions", operation_id = "cancelExecution",
    params(("id" = String, Path, format = "uuid", description = "The execution's id.")),
    responses((status = 200, description = "The final record.", body = body::RecordBody))
)]
pub(super) async fn cancel(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Name(id): Name,
    query: Result<Query<NoQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    query.map_err(bad_query)?;
    let found = find(&api, &peer, &id).await?;
    if let Found::Live(execution) = &found {
        execution.stop(StopReason::Cancelled);
        tokio::select! {
            biased;
            _ = execution.wait() => {}
            // Nothing ends any more.
            () = api.health.ended() => {}
        }
    }
    Ok(answer(&api, found).await)
}

async fn answer(api: &Api, found: Found) -> Response {
    // Without its children a record is no less true.
    let descendants = api.executor.descendants(found.id()).await;
    let descendants = descendants.unwrap_or_default();
    let record = found.into_record();
    let takes_long = record.takes_long();
    let answer = move || {
        let body = record_with(&record, &descendants);
        json_response(StatusCode::OK, to_json(&body))
    };
    match takes_long {
        false => answer(),
        true => beside(answer).await,
    }
}

/// Waits for the end of an execution, as long as the caller asked for and is there, and the daemon is.
pub(super) async fn hold(
    api: &Api,
    found: &Found,
    wait: Option<f64>,
    peer: &Peer,
) -> Result<(), Refusal> {
    if let (Some(wait), Found::Live(execution)) = (longest_wait(wait)?, found) {
        let deadline = Instant::now() + wait;
        comes(execution.wait(), deadline, peer, api).await;
    }
    Ok(())
}

/// Whether what is awaited comes while there is time, somebody waits for it, and the daemon is there.
pub(super) async fn comes(awaited: impl Future, deadline: Instant, peer: &Peer, api: &Api) -> bool {
    tokio::select! {
        biased;
        awaited = timeout_at(deadline, awaited) => awaited.is_ok(),
        () = peer.hung_up() => false,
        // What waits for an approval outlasts it.
        () = api.health.ended() => false,
    }
}

/// How long a caller asks an answer to be held.
pub(super) fn longest_wait(wait: Option<f64>) -> Result<Option<Duration>, Refusal> {
    match wait {
        Some(secs) if !(0.0..=MAX_WAIT_SECS).contains(&secs) => {
            let detail = format!(
                "`wait`: {secs} is out of range: expected seconds from 0 to {MAX_WAIT_SECS}"
            );
            Err(Refusal::new(Code::MalformedRequest, detail))
        }
        wait => Ok(wait.map(Duration::from_secs_f64)),
    }
}

/// The execution of that id, if it is `peer`'s to see: its own uid's, or anybody's for an admin.
/// What is not reads like what is not there.
pub(super) async fn find(api: &Api, peer: &Peer, id: &str) -> Result<Found, Refusal> {
    let unknown = || {
        let detail = format!("there is no execution `{id}`, or it is not kept any more");
        Refusal::new(Code::UnknownExecution, detail)
    };
    let parsed = id.parse().map_err(|_| unknown())?;
    let found = api.executor.find(parsed).await.map_err(unreadable)?;
    let found = found.ok_or_else(unknown)?;
    if found.caller_uid() == peer.caller.uid || is_admin(api, peer) {
        Ok(found)
    } else {
        Err(unknown())
    }
}

pub(super) fn is_admin(api: &Api, peer: &Peer) -> bool {
    Access::admits(&api.edge.settings().access.admins, &peer.caller)
}

/// The history cannot be read.
pub(super) fn unreadable(error: LedgerError) -> Refusal {
    Refusal::new(Code::Internal, error.to_string())
}
