//! An execution as a stream of events.

use std::pin::Pin;

use futures_util::{Stream, stream};
use tokio::sync::mpsc;
use tonic::Status;

use super::answer::Subject;
use super::proto::execute_tool_event::Event;
use super::proto::{ConfirmationRequired, ExecuteToolEvent, Output, Started};
use super::service::{Waiting, answer, repeated};
use super::status::of_refusal;
use crate::api::{Api, ApprovalBody, Code, Refusal};
use crate::domain::StreamName;
use crate::pipeline::{Execution, Record};
use crate::runner::Follower;

/// How many events wait for a slow reader before the stream waits for it; see `api`'s event streams. One
/// holds at most 64 KiB of output.
const EVENTS_AHEAD: usize = 4;

/// What is sent.
pub(super) type Events = Pin<Box<dyn Stream<Item = Result<ExecuteToolEvent, Status>> + Send>>;

type Sender = mpsc::Sender<Result<ExecuteToolEvent, Status>>;

/// Streams an execution from its start. One that is over before its process started is answered like any
/// other refused call.
pub(super) async fn follow(api: Api, waiting: Waiting) -> Result<Events, Status> {
    let execution = &*waiting.watch.execution;
    let cap = api.executor.config().max_output_bytes;
    let stdout = Pieces::new(execution, StreamName::Stdout, cap);
    let stderr = Pieces::new(execution, StreamName::Stderr, cap);
    tokio::select! {
        biased;
        () = execution.started() => {}
        finished = execution.wait() => {
            if let (None, Some(_)) = (execution.started_at(), &finished.failure) {
                return answer(Subject::from(execution), finished).and(Err(never()));
            }
        }
        // It may take a while until it is decided whether it starts.
        () = execution.asking() => {}
        () = waiting.given_up() => {
            let finished = execution.wait().await;
            return answer(Subject::from(execution), finished).and(Err(never()));
        }
    }
    let (events, receiver) = mpsc::channel(EVENTS_AHEAD);
    tokio::spawn(async move {
        let told = async {
            let execution = &*waiting.watch.execution;
            tokio::select! {
                told = tell(&api, execution, stdout, stderr, &events) => told,
                // The client has taken its call back; dropping `waiting` says so.
                () = events.closed() => None,
                () = waiting.given_up() => {
                    // Whoever still listens is told how it ended, and no more of its output.
                    let finished = execution.wait().await;
                    let end = answer(Subject::from(execution), finished).map(result);
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

/// The stream of an execution that is over: its beginning and its end.
pub(super) fn repeat(record: &Record) -> Result<Events, Status> {
    let answer = repeated(record)?;
    let started = started(answer.execution_id.clone());
    let events = [Ok(started), Ok(result(answer))];
    Ok(Box::pin(stream::iter(events)))
}

/// Sends all events in order; `None` when nobody takes them any more.
async fn tell(
    api: &Api,
    execution: &Execution,
    mut stdout: Pieces,
    mut stderr: Pieces,
    events: &Sender,
) -> Option<()> {
    let starts = tell_questions(api, execution, events).await?;
    if starts {
        events
            .send(Ok(started(execution.id.to_string())))
            .await
            .ok()?;
    }
    let (mut stdout_open, mut stderr_open, mut over) = (starts, starts, false);
    while stdout_open || stderr_open {
        let (piece, open) = tokio::select! {
            piece = stdout.next(), if stdout_open => (piece, &mut stdout_open),
            piece = stderr.next(), if stderr_open => (piece, &mut stderr_open),
            // Nobody closes the streams of what could not execute its program.
            finished = execution.wait(), if !over => {
                over = true;
                if finished.ran.is_none() {
                    break;
                }
                continue;
            }
        };
        match piece {
            Some(output) => events.send(Ok(event(Event::Output(output)))).await.ok()?,
            None => *open = false,
        }
    }
    let finished = execution.wait().await;
    let end = answer(Subject::from(execution), finished).map(result);
    events.send(end).await.ok()
}

/// Tells what is asked about it until it starts, or ends without, which is `false`.
async fn tell_questions(api: &Api, execution: &Execution, events: &Sender) -> Option<bool> {
    let mut questions = execution.questions();
    loop {
        let asked = questions.borrow_and_update().clone();
        if let Some(asked) = asked {
            let body = ApprovalBody::new(&asked, api.executor.summary_of(&asked));
            let question = ConfirmationRequired {
                approval_id: asked.id.to_string(),
                approval_json: serde_json::to_string(&body).unwrap_or_default(),
            };
            let question = event(Event::ConfirmationRequired(question));
            events.send(Ok(question)).await.ok()?;
        }
        tokio::select! {
            biased;
            () = execution.started() => return Some(true),
            _ = execution.wait() => return Some(false),
            // It lives as long as the execution does.
            _ = questions.changed() => {}
        }
    }
}

fn event(event: Event) -> ExecuteToolEvent {
    ExecuteToolEvent { event: Some(event) }
}

fn started(execution_id: String) -> ExecuteToolEvent {
    event(Event::Started(Started { execution_id }))
}

fn result(answer: super::proto::ExecuteToolResponse) -> ExecuteToolEvent {
    event(Event::Result(answer))
}

/// In the place of an answer that there cannot be.
fn never() -> Status {
    of_refusal(Refusal::new(Code::Internal, "it ended before it began"))
}

/// A stream piece by piece.
struct Pieces {
    follower: Follower,
    name: StreamName,
    offset: u64,
}

impl Pieces {
    fn new(execution: &Execution, name: StreamName, cap: usize) -> Self {
        Self {
            follower: execution.stream(name).follow(cap),
            name,
            offset: 0,
        }
    }

    /// The next one. Cancel-safe.
    async fn next(&mut self) -> Option<Output> {
        let data = self.follower.next().await?;
        let offset = self.offset;
        self.offset += data.len() as u64;
        Some(Output {
            stream: self.name.as_str().to_owned(),
            offset,
            data,
        })
    }
}
