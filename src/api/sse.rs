//! An execution as a stream of server-sent events (WHATWG HTML, section 9.2).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::Api;
use super::approvals::ApprovalBody;
use super::body::{Subject, response_of, result};
use super::execute::Watch;
use crate::domain::StreamName;
use crate::pipeline::{Execution, Finished, Record, Seen, Watcher, beside};

/// How many events wait for a slow reader before the stream waits for it. The command does not:
/// its output is captured whoever reads along. An event may hold 64 KiB of output, and more than
/// that as JSON, so a few of them are as much as a socket takes at once.
const EVENTS_AHEAD: usize = 4;

/// How much of what is kept is in one event: as much as in one of what is being written.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;

/// How often a comment tells the client, and whatever is between, that the stream lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The data of `started`.
#[derive(Serialize, ToSchema)]
#[schema(as = StartedEvent)]
pub(super) struct Started<'a> {
    /// The execution's name.
    #[schema(format = "uuid")]
    execution_id: &'a str,
}

/// The data of `stdout` and `stderr`: a piece of the stream.
#[derive(Serialize, ToSchema)]
#[schema(as = OutputEvent)]
pub(super) struct Piece<'a> {
    /// Whole characters; bytes that are not UTF-8 as U+FFFD.
    text: &'a str,
    /// Where the piece begins in the stream, in raw bytes.
    offset: u64,
}

/// Streams an execution from its start. One that is over before its process started is answered
/// like any other refused call. A client that hangs up ends it.
pub(super) async fn stream(api: Api, watch: Watch, cap: usize) -> Response {
    let execution = &watch.execution;
    let watcher = Watcher::new(execution, cap);
    let refused = watch.unless_gone(async {
        tokio::select! {
            biased;
            () = execution.started() => None,
            finished = execution.wait() => Some(finished).filter(|_| execution.started_at().is_none()),
            // It may take a while until it is decided whether it starts.
            () = execution.asking() => None,
        }
    });
    match refused.await {
        None => return Response::default(),
        Some(Some(finished)) => return response_of(execution, finished).await,
        Some(None) => {}
    }
    let (events, receiver) = mpsc::channel(EVENTS_AHEAD);
    tokio::spawn(async move {
        tokio::select! {
            sent = send(&api, &watch.execution, (watcher, cap), &events) => {
                if sent.is_none() {
                    watch.give_up();
                }
            }
            () = watch.peer.hung_up() => watch.give_up(),
            () = events.closed() => watch.give_up(),
        }
    });
    let events = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|event| (event, receiver))
    });
    Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

/// The stream of an execution that is over: its beginning, what is kept of its output, and its end.
pub(super) async fn replay(api: &Api, record: Box<Record>, finished: Arc<Finished>) -> Response {
    let cap = api.executor.config().max_output_bytes;
    let written = api.executor.written(&record, cap).await;
    let told = move || {
        let id = record.id.to_string();
        let mut told = vec![("started", json(&Started { execution_id: &id }))];
        for (name, bytes) in written {
            let mut text = TextStream::new(cap);
            for piece in bytes.chunks(PIECE_BYTES) {
                told.extend(output(name, text.take(piece.to_vec())));
            }
            told.extend(output(name, text.end()));
        }
        told.push(("result", last(&*record, &finished)));
        told
    };
    let events = beside(told).await.into_iter().zip(1u32..);
    let events = events.map(|((name, data), number)| {
        let event = Event::default().event(name).id(number.to_string());
        Ok::<_, Infallible>(event.data(data))
    });
    Sse::new(futures_util::stream::iter(events)).into_response()
}

/// Sends all events in order; `None` when nobody takes them any more.
async fn send(
    api: &Api,
    execution: &Arc<Execution>,
    (mut watcher, cap): (Watcher, usize),
    events: &mpsc::Sender<Result<Event, Infallible>>,
) -> Option<()> {
    let mut count = 0u64;
    let mut event = |name: &str, data: String| {
        count += 1;
        Ok(Event::default()
            .event(name)
            .id(count.to_string())
            .data(data))
    };
    let id = execution.id.to_string();
    let mut texts = [TextStream::new(cap), TextStream::new(cap)];
    while let Some(seen) = watcher.next().await {
        let told = match seen {
            Seen::Asked(asked) => {
                let summary = api.executor.summary_of(&asked);
                let asked = json(&ApprovalBody::new(&asked, summary));
                Some(("confirmation_required", asked))
            }
            Seen::Started => {
                texts = [TextStream::new(cap), TextStream::new(cap)];
                Some(("started", json(&Started { execution_id: &id })))
            }
            Seen::Output(name, bytes) => output(name, texts[name as usize].take(bytes)),
            Seen::End(name) => output(name, texts[name as usize].end()),
        };
        let Some((name, data)) = told else { continue };
        events.send(event(name, data)).await.ok()?;
    }
    let finished = execution.wait().await;
    let result = match finished.takes_long() {
        false => last(&**execution, finished),
        true => {
            let (execution, finished) = (Arc::clone(execution), Arc::clone(finished));
            beside(move || last(&*execution, &finished)).await
        }
    };
    events.send(event("result", result)).await.ok()
}

/// The name and the data of an event of output.
fn output(name: StreamName, piece: Option<(String, u64)>) -> Option<(&'static str, String)> {
    piece.map(|(text, offset)| {
        let piece = Piece {
            text: &text,
            offset,
        };
        (name.as_str(), json(&piece))
    })
}

/// The data of the last event.
fn last<'a>(subject: impl Into<Subject<'a>>, finished: &'a Finished) -> String {
    let (status, body) = result(subject, finished);
    with_status(body, status.as_u16())
}

/// Adds the HTTP status to a body, which as an event has no other place for it. A problem carries
/// it already.
fn with_status(body: Vec<u8>, status: u16) -> String {
    let mut body = String::from_utf8(body).unwrap_or_default();
    if status == 200 && body.pop() == Some('}') {
        body.push_str(",\"status\":200}");
    }
    body
}

fn json(value: &impl Serialize) -> String {
    String::from_utf8(super::json::to_json(value)).unwrap_or_default()
}

/// A stream as text: characters whole, other bytes as U+FFFD.
struct TextStream {
    /// The beginning of a character whose end has not come yet.
    held: Vec<u8>,
    offset: u64,
    cap: usize,
}

impl TextStream {
    fn new(cap: usize) -> Self {
        Self {
            held: Vec::new(),
            offset: 0,
            cap,
        }
    }

    /// Adds bytes to it; what they make whole, and where in the stream that begins, in bytes.
    fn take(&mut self, bytes: Vec<u8>) -> Option<(String, u64)> {
        self.held.extend(bytes);
        self.text(self.held.len() - incomplete_end(&self.held))
    }

    /// What is left of it where nothing follows.
    fn end(&mut self) -> Option<(String, u64)> {
        let rest = self.held.len();
        // A character that the cap has cut is left out, as it is in an answer.
        let is_cut = self.offset + rest as u64 >= self.cap as u64;
        self.text(if is_cut { 0 } else { rest })
    }

    fn text(&mut self, length: usize) -> Option<(String, u64)> {
        let rest = self.held.split_off(length);
        let bytes = std::mem::replace(&mut self.held, rest);
        let offset = self.offset;
        self.offset += length as u64;
        (length > 0).then(|| (String::from_utf8_lossy(&bytes).into_owned(), offset))
    }
}

/// How many bytes at the end are the beginning of a character: 0 to 3.
fn incomplete_end(bytes: &[u8]) -> usize {
    match std::str::from_utf8(&bytes[bytes.len().saturating_sub(3)..]) {
        Ok(_) => 0,
        Err(_) => (1..=bytes.len().min(3))
            .find(|&length| {
                let end = &bytes[bytes.len() - length..];
                matches!(std::str::from_utf8(end), Err(e) if e.valid_up_to() == 0 && e.error_len().is_none())
            })
            .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_character_is_held_back() {
        for (bytes, held) in [
            (&b"abc"[..], 0),
            ("aé".as_bytes(), 0),
            (b"a\xC3", 1),
            (b"a\xE2\x82", 2),
            (b"a\xF0\x9F\x98", 3),
            (b"\xF0\x9F\x98\x80", 0),
            (b"a\xFF", 0),
            (b"\x80\x80\x80", 0),
            (b"\xE2\x82a", 0),
            (b"", 0),
        ] {
            assert_eq!(incomplete_end(bytes), held, "{bytes:?}");
        }
    }
}
