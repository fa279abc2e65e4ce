//! A request's body into a call.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Frame;

use super::Api;
use super::pace::Paced;
use super::problem::{Code, Refusal};
use super::wire::{parse_call, tool_use_id};
use crate::Executor;
use crate::domain::{Call, Digest, brief};

/// A body longer than this is read on a thread of its own: parsing it would keep the event loop
/// from everybody else for about a millisecond a MiB.
const PARSE_INLINE_BYTES: usize = 256 * 1024;

/// How much of a body that is too large is read and thrown away, in multiples of the limit.
const DISCARD_LIMITS: usize = 4;

/// How long nothing of it may come until it is answered all the same.
const SILENCE: Duration = Duration::from_secs(1);

/// Reads all of the body, and the call in it; with the digest of the body.
pub(super) async fn call(
    body: Body,
    headers: &HeaderMap,
    api: &Api,
) -> Result<(Call, Digest), Refusal> {
    let bytes = self::body(body, headers, api).await?;
    let digest = if headers.contains_key("idempotency-key") {
        Digest::of(&bytes)
    } else {
        Digest::ZERO
    };
    Ok((parse(bytes, api).await?, digest))
}

/// How long a body may be, and what says so.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub(super) bytes: usize,
    pub(super) said_by: &'static str,
}

/// Reads all of the body.
pub(super) async fn body(body: Body, headers: &HeaderMap, api: &Api) -> Result<Bytes, Refusal> {
    let limit = Limit {
        bytes: api.edge.settings().max_request_bytes,
        said_by: "max_request_bytes",
    };
    within(limit, (body, headers), api).await
}

/// Reads all of a body that has a limit of its own.
pub(super) async fn within(
    limit: Limit,
    (body, headers): (Body, &HeaderMap),
    api: &Api,
) -> Result<Bytes, Refusal> {
    // Whatever becomes of it.
    let _room = Room(&api.executor);
    tokio::select! {
        biased;
        read = read(body, headers, limit) => read,
        () = api.health.ended() => {
            let detail = "the daemon was stopped before all of the body had come";
            Err(Refusal::new(Code::ShuttingDown, detail))
        }
    }
}

/// That a body took memory, which is given back when nothing happens any more.
struct Room<'a>(&'a Executor);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.stir();
    }
}

async fn read(
    body: Body,
    headers: &HeaderMap,
    Limit {
        bytes: limit,
        said_by,
    }: Limit,
) -> Result<Bytes, Refusal> {
    if let Some(detail) = encoded(headers) {
        return Err(Refusal::new(Code::MalformedRequest, detail));
    }
    let too_large = || {
        let detail = format!("the body is larger than {limit} bytes ({said_by})");
        Refusal::new(Code::PayloadTooLarge, detail)
    };
    let mut body = Paced::new(body);
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        // Who waits for a word before it sends waits for this one.
        if !headers.contains_key(header::EXPECT) {
            discard(&mut body, limit).await;
        }
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    let mut length = 0usize;
    while let Some(frame) = next_frame(&mut body).await? {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length > limit {
            discard(&mut body, limit).await;
            return Err(too_large());
        }
        if first.is_none() && whole.is_empty() {
            first = Some(data);
        } else {
            if let Some(first) = first.take() {
                whole.reserve(usize::try_from(announced).unwrap_or(0).min(limit));
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

/// What is wrong with a body that is not as it is: of codings only `chunked` is known here, and that to hyper.
fn encoded(headers: &HeaderMap) -> Option<String> {
    let of_content = headers.get_all(header::CONTENT_ENCODING).into_iter();
    let of_content = of_content.map(|value| ("content-encoding", "identity", value));
    let of_transfer = headers.get_all(header::TRANSFER_ENCODING).into_iter();
    let of_transfer = of_transfer.map(|value| ("transfer-encoding", "chunked", value));
    let mut given = of_content.chain(of_transfer);
    let (name, known, value) =
        given.find(|(_, known, value)| !value.as_bytes().eq_ignore_ascii_case(known.as_bytes()))?;
    let value = brief(String::from_utf8_lossy(value.as_bytes()).into_owned());
    Some(format!(
        "{name} is `{value}`: expected none or `{known}`; send the JSON as it is"
    ))
}

/// Reads on and throws away what is too large, so that a client which sends before it reads gets to see the answer.
async fn discard(body: &mut Paced, limit: usize) {
    let mut length = 0usize;
    while length <= limit.saturating_mul(DISCARD_LIMITS)
        && let Ok(Some(Ok(frame))) = tokio::time::timeout(SILENCE, body.frame()).await
    {
        length += frame.data_ref().map_or(0, Bytes::len);
    }
}

async fn next_frame(body: &mut Paced) -> Result<Option<Frame<Bytes>>, Refusal> {
    body.frame().await.transpose().map_err(|error| {
        let detail = format!("the body ended early: {error}");
        Refusal::new(Code::MalformedRequest, detail)
    })
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
