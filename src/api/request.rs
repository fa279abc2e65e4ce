//! A request's body into a call.

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::Api;
use super::problem::{Code, Refusal};
use super::wire::{parse_call, tool_use_id};
use crate::domain::{Call, Digest};

/// A body longer than this is read on a thread of its own: parsing it would keep the event loop
/// from everybody else for about a millisecond a MiB.
const PARSE_INLINE_BYTES: usize = 256 * 1024;

/// How much of a body that is too large is read and thrown away, in multiples of the limit, so
/// that a client which sends before it reads gets to see the answer.
const DISCARD_LIMITS: usize = 4;

/// Reads all of the body, and the call in it; with the digest of the body.
pub(super) async fn call(
    body: Body,
    headers: &HeaderMap,
    api: &Api,
) -> Result<(Call, Digest), Refusal> {
    let bytes = read(body, headers, api.edge.settings().max_request_bytes).await?;
    let digest = if headers.contains_key("idempotency-key") {
        Digest::of(&bytes)
    } else {
        Digest::ZERO
    };
    Ok((parse(bytes, api).await?, digest))
}

/// Reads all of the body.
pub(super) async fn body(body: Body, headers: &HeaderMap, api: &Api) -> Result<Bytes, Refusal> {
    read(body, headers, api.edge.settings().max_request_bytes).await
}

async fn read(body: Body, headers: &HeaderMap, limit: usize) -> Result<Bytes, Refusal> {
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

/// The call in a body that is there.
pub(crate) async fn parse(bytes: Bytes, api: &Api) -> Result<Call, Refusal> {
    let config = api.executor.config();
    read_by(bytes, move |bytes| {
        parse_call(bytes, &config).map_err(|detail| {
            Refusal::new(Code::MalformedRequest, detail).of_call(tool_use_id(bytes))
        })
    })
    .await
}

/// Has `read` read a body that is there, a long one on another thread.
pub(super) async fn read_by<T: Send + 'static>(
    bytes: Bytes,
    read: impl FnOnce(&[u8]) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    if bytes.len() <= PARSE_INLINE_BYTES {
        return read(&bytes);
    }
    tokio::task::spawn_blocking(move || read(&bytes))
        .await
        .map_err(|error| Refusal::new(Code::Internal, error.to_string()))?
}
