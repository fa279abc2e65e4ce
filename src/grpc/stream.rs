//! An execution as a stream of events.

use std::pin::Pin;

use futures_util::{Stream, stream};
use tokio::sync::mpsc;
use tonic::Status;

use super::proto::execute_tool_event::Event;
use super::proto::{ConfirmationRequired, ExecuteToolEvent, Output, Started};
use super::service::{Waiting, answered, repeated};
use super::status::of_refusal;
use crate::api::{Api, ApprovalBody, Code, PIECE_BYTES, Refusal};
use crate::domain::StreamName;
use crate::pipeline::{Execution, Record, Seen, Watcher, beside};

/// How many events wait for a slow reader before the stream waits for it; see `api`'s event streams. One
/// holds at most 64 KiB of output.
const EVENTS_AHEAD: usize = 4;

/// What is sent.
pub(super) type Events = Pin<Box<dyn Stream<Item = Result<ExecuteToolEvent, Status>> + Send>>;

type Sender = mpsc::Sender<Result<ExecuteToolEvent, Status>>;

/// Streams an execution from its start. One that is over before its process started is answered like any
/// other refused call.
pub(super) async fn follow(api: Api, waiting: Waiting) -> Result<Events, Status> {
    let execution = &waiting.watch.execution;
    let cap = api.executor.config().max_output_bytes;
    let watcher = Watcher::new(execution, cap);
    tokio::select! {
        biased;
        () = execution.started() => {}
        finished = execution.wait() => {
            if let (None, Some(_)) = (execution.started_at(), &finished.failure) {
                return answered(execution, finished).await.and(Err(never()));
            }
        }
        // It may take a while until it is decided whether it starts.
        () = execution.asking() => {}
        () = waiting.given_up() => {
            let finished = execution.wait().await;
            return answered(execution, finished).await.and(Err(never()));
        }
    }
    let (events, receiver) = mpsc::channel(EVENTS_AHEAD);
    tokio::spawn(async move {
        let told = async {
            let execution = &*waiting.watch.execution;
            tokio::select! {
                told = tell(&api, execution, watcher, &events) => told,
                // The client has taken its call back; dropping `waiting` says so.
                () = events.closed() => None,
                () = waiting.given_up() => {
                    // Whoever still listens is told how it ended, and no more of its output.
                    let finished = execution.wait().await;
                    let end = answered(execution, finished).await.map(result);
                    events.send(end).await.ok()
                }
            }
        };
        // `None` says that nobody listens any more.
        let _ = told.await;
    });
    Ok(Box::pin(stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|event| (event, receiver))
    })))
}

/// The stream of an execution that is over: its beginning, what is kept of its output, and its end.
pub(super) async fn repeat(api: &Api, record: Box<Record>) -> Result<Events, Status> {
    let cap = api.executor.config().max_output_bytes;
    let written = api.executor.written(&record, cap).await;
    let told = move || {
        let end = match (repeated(&record), record.started_at) {
            (Err(refused), None) => return Err(refused),
            (end, _) => end,
        };
        let mut told = vec![Ok(started(record.id.to_string()))];
        for (name, bytes) in written {
            let pieces = bytes.chunks(PIECE_BYTES).zip((0u64..).step_by(PIECE_BYTES));
            told.extend(pieces.map(|(piece, offset)| Ok(output(name, offset, piece.to_vec()))));
        }
        told.push(end.map(result));
        Ok(told)
    };
    let told = beside(told).await?;
    Ok(Box::pin(stream::iter(told)))
}

/// Sends all events in order; `None` when nobody takes them any more.
async fn tell(
    api: &Api,
    execution: &Execution,
    mut watcher: Watcher,
    events: &Sender,
) -> Option<()> {
    let mut offsets = [0; 2];
    while let Some(seen) = watcher.next().await {
        let told = match seen {
            Seen::Asked(asked) => {
                let body = ApprovalBody::new(&asked, api.executor.summary_of(&asked));
                event(Event::ConfirmationRequired(ConfirmationRequired {
                    approval_id: asked.id.to_string(),
                    approval_json: serde_json::to_string(&body).unwrap_or_default(),
                }))
            }
            Seen::Started => {
                offsets = [0; 2];
                started(execution.id.to_string())
            }
            Seen::Output(name, data) => {
                let offset = offsets[name as usize];
                offsets[name as usize] += data.len() as u64;
                output(name, offset, data)
            }
            Seen::End(_) => continue,
        };
        events.send(Ok(told)).await.ok()?;
    }
    let finished = execution.wait().await;
    let end = answered(execution, finished).await.map(result);
    events.send(end).await.ok()
}

fn event(event: Event) -> ExecuteToolEvent {
    ExecuteToolEvent { event: Some(event) }
}

fn started(execution_id: String) -> ExecuteToolEvent {
    event(Event::Started(Started { execution_id }))
}

fn output(name: StreamName, offset: u64, data: Vec<u8>) -> ExecuteToolEvent {
    event(Event::Output(Output {
        stream: name.as_str().to_owned(),
        offset,
        data,
    }))
}

fn result(answer: super::proto::ExecuteToolResponse) -> ExecuteToolEvent {
    event(Event::Result(answer))
}

/// In the place of an answer that there cannot be.
fn never() -> Status {
    of_refusal(Refusal::new(Code::Internal, "it ended before it began"))
}
