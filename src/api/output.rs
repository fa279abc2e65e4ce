use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use utoipa::IntoParams;

use super::executions::{comes, find, hold, longest_wait, unreadable};
use super::history::malformed;
use super::openapi::RawBytes;
use super::path::Name;
use super::peer::Peer;
use super::problem::{Code, Refusal};
use super::query::{self, bad_query};
use super::range::{ByteRange, Wanted, wanted, wanted_of_growing};
use super::{Api, withheld};
use crate::domain::{Status, StreamName, is_for_want};
use crate::pipeline::{Execution, Found};
use crate::runner::{Ahead, Follower, Kept};

/// How much of a file is read at once, in bytes.
const PIECE: usize = 256 * 1024;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct OutputQuery {
    /// Which of the two streams.
    #[param(required = true, nullable = false)]
    stream: Option<StreamName>,
    /// Whether to go on with what is still written until the execution has ended, or the try of one that is tried
    /// again. Who was cut off goes on with a `Range` from a byte, which may come later. The answer has no length, nor
    /// has its `Content-Range`, whose last byte is the one that was asked for, or 9007199254740991 (RFC 8673): it may
    /// end before.
    #[param(nullable = false)]
    #[serde(default, deserialize_with = "query::flag")]
    follow: Option<bool>,
    /// Hold the answer until the execution has ended, at most this many seconds (at most 60).
    #[param(minimum = 0, maximum = 60, nullable = false)]
    #[serde(default, deserialize_with = "query::seconds")]
    wait: Option<f64>,
}

/// Somebody who waits for the end of an execution, until a deadline.
struct Held<'a> {
    execution: &'a Arc<Execution>,
    deadline: Instant,
}

impl<'a> Held<'a> {
    /// Waits until it is known how it ended, which need not be on record by then. `None` when that is
    /// later than the deadline, or nobody waits any more.
    async fn by(
        execution: &'a Arc<Execution>,
        deadline: Instant,
        peer: &Peer,
        api: &Api,
    ) -> Option<Self> {
        let formed = comes(execution.wait_formed(), deadline, peer, api).await;
        formed.then_some(Self {
            execution,
            deadline,
        })
    }

    /// Waits until that is on record.
    async fn recorded(&self) {
        let _ = timeout_at(self.deadline, self.execution.wait()).await;
    }
}

/// Where an answer's bytes come from.
enum Source {
    Memory(Bytes),
    /// A file, from an offset on.
    File(Arc<File>, u64),
}

impl Source {
    /// What is kept, and how long it is; `None` where nothing is.
    async fn open(kept: Kept) -> io::Result<Option<(Self, u64)>> {
        match kept {
            Kept::Memory(bytes) => {
                let length = bytes.len() as u64;
                Ok(Some((Self::Memory(bytes), length)))
            }
            Kept::File {
                file,
                offset,
                length,
            } => {
                // Once it is open it stays readable, whatever becomes of the record.
                let opened = tokio::task::spawn_blocking(move || file.open()).await;
                let file = opened.map_err(io::Error::other).flatten()?;
                Ok(Some((Self::File(Arc::new(file), offset), length)))
            }
            Kept::Nowhere => Ok(None),
        }
    }
}

/// The raw bytes of one output stream, as far as they are kept.
///
/// Of an execution that still runs: what there is by now. Takes one `Range` of bytes.
#[utoipa::path(
    get, path = "/executions/{id}/output", tag = "executions", operation_id = "showOutput",
    params(
        ("id" = String, Path, format = "uuid", description = "The execution's id."),
        OutputQuery,
        ("range" = Option<String>, Header, nullable = false, description = "One range of bytes (RFC 9110, section 14); what is not one is ignored.", example = "bytes=0-1023"),
    ),
    responses(
        (status = 200, description = "The stream.", body = RawBytes, content_type = "application/octet-stream"),
        (status = 206, description = "The range that was asked for.", body = RawBytes, content_type = "application/octet-stream",
            headers(("content-range" = String, description = "Which bytes these are, of how many."))),
    )
)]
pub(super) async fn show(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Name(id): Name,
    query: Result<Query<OutputQuery>, axum::extract::rejection::QueryRejection>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let found = find(&api, &peer, &id).await?;
    let Query(OutputQuery {
        stream,
        follow,
        wait,
    }) = query.map_err(bad_query)?;
    let name =
        stream.ok_or_else(|| malformed("stream", "is missing: expected `stdout` or `stderr`"))?;
    let deadline = longest_wait(wait)?.map(|wait| Instant::now() + wait);
    let held = match (deadline, &found) {
        (Some(deadline), Found::Live(execution)) if follow != Some(true) => {
            Held::by(execution, deadline, &peer, &api).await
        }
        (Some(_) | None, _) => {
            hold(&api, &found, wait, &peer).await?;
            None
        }
    };
    // Of GET only (section 14.2), and nothing here has a validator that `If-Range` could hold to (13.1.5).
    let range = headers.get(header::RANGE);
    let range = range.filter(|_| method == Method::GET && !headers.contains_key(header::IF_RANGE));
    if let (Found::Live(execution), Some(true)) = (&found, follow) {
        let range = wanted_of_growing(range);
        let tail = Tail::new(api.clone(), execution, name, range);
        // What has ended may have let go already of what only followers need, and is all there otherwise.
        if execution.finished().is_none() && !execution.stream(name).is_given_up() {
            return Ok(following(range, stream_live(tail, peer)));
        }
    }
    let kept = match &found {
        Found::Live(execution) => kept(execution, name, held.as_ref()).await,
        Found::Past(record) => api
            .executor
            .kept(record.id, name)
            .await
            .map_err(unreadable)?,
    };
    let (source, length) = match Source::open(kept).await {
        Ok(Some(opened)) => opened,
        Ok(None) => return Err(missing(&api, &peer, name, &id, why_nowhere(&found)).await),
        Err(error) if is_for_want(&error) => {
            let detail = format!(
                "the {} of execution `{id}` cannot be read now: {error}",
                name.as_str()
            );
            return Err(Refusal::new(Code::Internal, detail));
        }
        Err(error) => {
            return Err(missing(&api, &peer, name, &id, &error.to_string()).await);
        }
    };
    let (status, range) = cut(range, length)?;
    let answer = respond(status, range, length, source);
    match held {
        Some(held) if withheld::length(&answer).is_some() => {
            Ok(withheld::until_recorded(held.execution, answer).await)
        }
        Some(held) => {
            held.recorded().await;
            Ok(answer)
        }
        None => Ok(answer),
    }
}

/// Where a stream is by now, or for who waits for the end of the execution, where it stays.
async fn kept(execution: &Execution, name: StreamName, held: Option<&Held<'_>>) -> Kept {
    let kept = execution.kept(name);
    match held {
        // What is not in memory is on its way to where it stays.
        Some(held) if !matches!(kept, Kept::Memory(_)) => {
            held.recorded().await;
            execution.kept(name)
        }
        Some(_) | None => kept,
    }
}

fn why_nowhere(found: &Found) -> &'static str {
    match found {
        Found::Past(record) if record.status == Status::Lost => {
            "the daemon was killed while it ran: nothing had been written by then, or within the last second or two"
        }
        Found::Live(_) | Found::Past(_) => {
            "the spool had no room for it (spool_total_bytes) or could not take it"
        }
    }
}

/// What of a stream of `length` bytes the value of `Range` asks for, and with which status that is answered.
fn cut(range: Option<&HeaderValue>, length: u64) -> Result<(StatusCode, ByteRange), Refusal> {
    match wanted(range, length) {
        Wanted::Whole => {
            let last = length.wrapping_sub(1);
            Ok((StatusCode::OK, ByteRange { first: 0, last }))
        }
        Wanted::Part(range) => Ok((StatusCode::PARTIAL_CONTENT, range)),
        Wanted::Unsatisfiable => {
            let detail = format!("the range is beyond the {length} bytes that are there");
            let refusal = Refusal::new(Code::RangeNotSatisfiable, detail);
            let whole = header_value(format!("bytes */{length}"));
            Err(refusal.with_header(header::CONTENT_RANGE, whole))
        }
    }
}

/// Why a stream cannot be had: its execution may have been forgotten meanwhile.
async fn missing(api: &Api, peer: &Peer, name: StreamName, id: &str, why: &str) -> Refusal {
    match find(api, peer, id).await {
        Ok(_) => not_kept(name, id, why),
        Err(unknown) => unknown,
    }
}

fn not_kept(stream: StreamName, id: &str, why: &str) -> Refusal {
    let stream = stream.as_str();
    let detail = format!("the {stream} of execution `{id}` is not kept: {why}");
    Refusal::new(Code::NotFound, detail)
}

fn respond(status: StatusCode, range: ByteRange, total: u64, source: Source) -> Response {
    let length = if total == 0 {
        0
    } else {
        range.last - range.first + 1
    };
    let body = match source {
        Source::Memory(bytes) => {
            let first = usize::try_from(range.first)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let end = first.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
            Body::from(bytes.slice(first..end.min(bytes.len())))
        }
        Source::File(file, offset) => stream_file(file, offset + range.first, length),
    };
    let mut response = octets(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if status == StatusCode::PARTIAL_CONTENT {
        let value = format!("bytes {}-{}/{total}", range.first, range.last);
        headers.insert(header::CONTENT_RANGE, header_value(value));
    }
    response
}

fn octets(body: Body) -> Response {
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The answer to who follows a stream, or a range of it: how long it becomes is not known.
fn following(range: Option<ByteRange>, body: Body) -> Response {
    let mut response = octets(body);
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(ByteRange { first, last }) = range {
        let value = header_value(format!("bytes {first}-{last}/*"));
        headers.insert(header::CONTENT_RANGE, value);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

/// Reads a stream as it grows, until the execution has ended, or the try, or the peer has gone.
fn stream_live(tail: Tail, peer: Peer) -> Body {
    let pieces = stream::try_unfold(tail, |mut tail| async move {
        let piece = tail.next().await?;
        Ok::<_, io::Error>(piece.map(|piece| (piece, tail)))
    });
    Body::from_stream(pieces.take_until(async move { peer.hung_up().await }))
}

/// Somebody who reads a stream while it is written.
struct Tail {
    api: Api,
    execution: Arc<Execution>,
    follower: Follower,
    offset: u64,
    /// The last byte that is wanted.
    last: u64,
    file: Option<Arc<File>>,
}

impl Tail {
    fn new(
        api: Api,
        execution: &Arc<Execution>,
        name: StreamName,
        range: Option<ByteRange>,
    ) -> Self {
        Self {
            api,
            follower: execution.stream(name).follow(0),
            execution: Arc::clone(execution),
            offset: range.map_or(0, |range| range.first),
            last: range.map_or(u64::MAX, |range| range.last),
            file: None,
        }
    }

    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.offset > self.last {
            return Ok(None);
        }
        let ahead = tokio::select! {
            biased;
            ahead = self.follower.ahead(self.offset) => ahead,
            // What never ran has written nothing.
            _ = self.execution.wait() => Ahead::End,
            () = self.api.health.ended() => Ahead::End,
        };
        let mut piece = match ahead {
            Ahead::Memory(bytes) => Bytes::from(bytes),
            Ahead::File(spooled) => {
                // Given up meanwhile, it has none.
                let left = spooled.len().checked_sub(self.offset);
                let left = left.ok_or(io::ErrorKind::UnexpectedEof)?;
                let length = usize::try_from(left).unwrap_or(PIECE);
                let (opened, offset) = (self.file.take(), self.offset);
                let read = tokio::task::spawn_blocking(move || {
                    let file = match opened {
                        Some(file) => file,
                        None => Arc::new(spooled.open()?),
                    };
                    let mut piece = vec![0; length.min(PIECE)];
                    file.read_exact_at(&mut piece, offset)?;
                    Ok::<_, io::Error>((file, piece))
                });
                let (file, piece) = read.await.map_err(io::Error::other)??;
                self.file = Some(file);
                Bytes::from(piece)
            }
            Ahead::End => return Ok(None),
            Ahead::GivenUp => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let wanted = (self.last - self.offset).saturating_add(1);
        piece.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        self.offset += piece.len() as u64;
        Ok(Some(piece))
    }
}

/// Reads a file piece by piece, off the event loop, as fast as the client takes it.
fn stream_file(file: Arc<File>, offset: u64, length: u64) -> Body {
    Body::from_stream(stream::try_unfold(
        (file, offset, length),
        |(file, offset, left)| async move {
            if left == 0 {
                return Ok::<_, io::Error>(None);
            }
            let limit = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
            let source = Arc::clone(&file);
            let piece = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; limit];
                // Given up meanwhile: breaking off tells the client that this is not all.
                source.read_exact_at(&mut piece, offset).map(|()| piece)
            });
            let piece = piece.await.map_err(io::Error::other)??;
            let read = piece.len() as u64;
            Ok(Some((
                Bytes::from(piece),
                (file, offset + read, left - read),
            )))
        },
    ))
}

fn header_value(text: String) -> HeaderValue {
    // Digits and punctuation only.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}
