//! The audit trail, for those who want proof.

use std::io;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::executions::unreadable;
use super::history::malformed;
use super::json::{json_response, to_json};
use super::problem::{Code, Refusal};
use super::query::{self, bad_query};
use crate::domain::Digest;
use crate::pipeline::{Altered, Chain, Head, Link, Verified};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    /// Begin after the record of this number.
    #[param(nullable = false)]
    #[serde(default, deserialize_with = "query::number")]
    after: Option<u64>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct VerifyQuery {
    /// An end of the trail that was written down earlier, as `NUMBER:HASH`, or several with commas between: the
    /// trail must go on from each. The journal has one every thousand records (`AUDIT_HEAD`).
    #[param(nullable = false)]
    head: Option<String>,
}

/// What a check of the audit trail found.
#[derive(Serialize, ToSchema)]
#[schema(as = Verification)]
pub(super) struct VerificationBody {
    /// Whether every record is as it was written, none is missing, and every execution is kept as they say.
    intact: bool,
    /// How many records hold.
    records: u64,
    /// How many executions are kept as the trail says; of one that does not hold, as far as it does.
    executions: u64,
    /// The end of the trail; null where it does not hold.
    #[schema(required)]
    head: Option<HeadBody>,
    /// What is wrong; null when nothing is.
    #[schema(required)]
    problem: Option<String>,
}

/// The end of an audit trail.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditHead)]
struct HeadBody {
    /// The number of its last record.
    number: u64,
    /// The hash of that record.
    hash: String,
}

/// The audit trail, a JSON object a line.
///
/// Every decision and every ending, each with its hash and the one before. As long as the daemon
/// is used it only grows.
#[utoipa::path(
    get, path = "/audit", tag = "audit", operation_id = "exportAudit",
    params(ExportQuery),
    responses((status = 200, description = "JSON lines.", body = String, content_type = "application/x-ndjson"))
)]
pub(super) async fn export(
    State(api): State<Api>,
    query: Result<Query<ExportQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(ExportQuery { after }) = query.map_err(bad_query)?;
    // Read as it is asked for: a slow reader keeps no thread.
    let pieces = stream::try_unfold(after.unwrap_or(0), move |after| {
        let executor = api.executor.clone();
        async move {
            let piece = executor.audit_after(after, lines).await;
            // Breaking off is how an answer that has begun says that it is not all.
            piece.map_err(|error| {
                tracing::error!(%error, "cannot read the audit trail");
                io::Error::other(error)
            })
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-ndjson"),
    );
    Ok(response)
}

/// Records as lines, and the number of the last.
fn lines(links: Vec<Link>) -> Option<(Bytes, u64)> {
    let last = links.last()?.number;
    let mut lines = Vec::new();
    for link in links {
        lines.extend_from_slice(link.to_json().as_bytes());
        lines.push(b'\n');
    }
    Some((lines.into(), last))
}

/// Check the audit trail.
///
/// Finds a record that was changed, removed or put elsewhere, and one that was cut off since the daemon was started;
/// with `head` one that was cut off before. Finds, too, an execution in the history of which the trail says otherwise, or
/// nothing.
#[utoipa::path(
    get, path = "/audit/verify", tag = "audit", operation_id = "verifyAudit",
    params(VerifyQuery),
    responses((status = 200, description = "What was found.", body = VerificationBody))
)]
pub(super) async fn verify(
    State(api): State<Api>,
    query: Result<Query<VerifyQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(VerifyQuery { head }) = query.map_err(bad_query)?;
    let known = match &head {
        Some(heads) => heads.split(',').map(parse_head).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let found = api.executor.verify_audit(known).await.map_err(unreadable)?;
    let found = found.ok_or_else(|| Refusal::new(Code::NotFound, "there is no audit trail"))?;
    let body = VerificationBody::new(&found);
    Ok(json_response(StatusCode::OK, to_json(&body)))
}

impl VerificationBody {
    fn new(found: &Verified) -> Self {
        let (records, head, problem) = match &found.chain {
            Chain::Holds(head) => (head.number, Some(head), altered(found)),
            Chain::Broken { at, detail } => (
                at.saturating_sub(1),
                None,
                Some(format!("record {at}: {detail}")),
            ),
        };
        Self {
            intact: problem.is_none(),
            records,
            executions: found.proven,
            head: head.map(|head| HeadBody {
                number: head.number,
                hash: head.hash.to_string(),
            }),
            problem,
        }
    }
}

fn altered(found: &Verified) -> Option<String> {
    let Altered { id, detail } = found.first.as_ref()?;
    let more = match found.altered - 1 {
        0 => String::new(),
        1 => ", and of another one".to_owned(),
        others => format!(", and of {others} others"),
    };
    Some(format!(
        "the history of execution {id}{more} was changed: {detail}"
    ))
}

fn parse_head(text: &str) -> Result<Head, Refusal> {
    let parsed = text.split_once(':').and_then(|(number, hash)| {
        Some(Head {
            number: number.parse().ok()?,
            hash: Digest::from_hex(hash)?,
        })
    });
    parsed.ok_or_else(|| {
        malformed(
            "head",
            &format!("{text:?} is none: expected NUMBER:HASH, with the 64 digits of a SHA-256"),
        )
    })
}
