//! A call from its start to its answer, for `exec`, `call` and `replay`. Signals cancel it.

use std::pin::{Pin, pin};
use std::time::Duration;

use shelly_executor::client::{Answer, Approval, Client, ClientError, EventKind, EventStream};
use tokio::sync::SetOnce;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::relay::Relay;
use crate::signals::Signals;
use crate::{clock, print};

/// How long the answer may take once the daemon has confirmed the cancelling. It is on its way by
/// then; longer means that standard output is stuck.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// How long a call that was interrupted at once may take to tell its id. It mostly is on its way:
/// the command runs before its first event is here.
const START_GRACE: Duration = Duration::from_secs(1);

/// How often the spool is looked at for output beyond the stream's cap. Events do not put it off: of
/// two streams one may have reached its cap while the other goes on.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Makes the call that `opening` stands for and passes its output on as it comes, if there is a
/// relay. None when a signal ended the waiting before there was an answer.
pub async fn to_its_answer(
    client: &Client,
    opening: impl Future<Output = Result<EventStream, ClientError>>,
    relay: Option<&mut Relay>,
) -> Result<Option<Answer>, Failure> {
    let mut signals = Signals::new()?;
    let id = SetOnce::new();
    let mut following = pin!(follow(opening, &id, relay));
    tokio::select! {
        answer = &mut following => answer.map(Some),
        () = signals.next() => tokio::select! {
            answer = cancel(client, &id, following) => answer,
            () = signals.next() => Ok(hung_up()),
        },
    }
}

/// The whole life of the execution: its answer in the end, its id in `id` as soon as it has one.
async fn follow(
    opening: impl Future<Output = Result<EventStream, ClientError>>,
    id: &SetOnce<String>,
    mut relay: Option<&mut Relay>,
) -> Result<Answer, Failure> {
    let mut stream = opening.await?;
    let mut due = Instant::now() + CATCH_UP;
    loop {
        if Instant::now() >= due {
            if let Some(relay) = &mut relay {
                relay.catch_up().await?;
            }
            due = Instant::now() + CATCH_UP;
        }
        let Ok(event) = tokio::time::timeout_at(due, stream.next()).await else {
            continue;
        };
        let event = event.transpose()?;
        let Some(event) = event else {
            let execution_id = id.get().cloned();
            return Err(ClientError::StreamCutShort {
                execution_id,
                source: None,
            }
            .into());
        };
        match event.kind {
            EventKind::Started { execution_id } => {
                if let Some(relay) = &mut relay {
                    relay.started(&execution_id);
                }
                // One that waited for approval has its id already.
                let _ = id.set(execution_id);
            }
            EventKind::Output {
                stream,
                text,
                offset,
            } => {
                if let Some(relay) = &mut relay {
                    relay.output(stream, &text, offset).await?;
                }
            }
            EventKind::ConfirmationRequired { approval } => {
                tell_it_waits(&approval);
                let _ = id.set(approval.execution_id.clone());
            }
            EventKind::Result(answer) => {
                if let Some(relay) = relay {
                    relay.finish(&answer.outcome).await?;
                }
                return Ok(*answer);
            }
            EventKind::Other { .. } => {}
        }
    }
}

fn tell_it_waits(approval: &Approval) {
    let Approval { id, summary, .. } = approval;
    print::note(&format!("waiting for approval {id}: {summary}"));
    print::hint(&who_decides(approval));
}

/// Whether callers decide on their own calls is the daemon's configuration, which callers are not told.
fn who_decides(approval: &Approval) -> String {
    let caller = approval.caller_uid.map(print::user);
    let until = approval.expires_at.as_deref().map(clock::stamp);
    let until = until
        .map(|until| format!("until {until} "))
        .unwrap_or_default();
    format!(
        "{until}an approver lets it run with `shellyctl approve {id}`, or not with `shellyctl deny {id}`; \
         {}, who called, may only where `self_approval` is set in [confirmation] of executor.toml",
        caller.as_deref().unwrap_or("the user"),
        id = print::one_line(&approval.id)
    )
}

/// Cancels, and goes on following meanwhile: the last output and the answer are still to come.
async fn cancel(
    client: &Client,
    id: &SetOnce<String>,
    mut following: Pin<&mut impl Future<Output = Result<Answer, Failure>>>,
) -> Result<Option<Answer>, Failure> {
    let id = tokio::select! {
        answer = &mut following => return answer.map(Some),
        id = tokio::time::timeout(START_GRACE, id.wait()) => match id {
            Ok(id) => id,
            // There is nothing to name; leaving hangs up, which cancels too.
            Err(_) => return Ok(hung_up()),
        },
    };
    tokio::select! {
        answer = &mut following => return answer.map(Some),
        cancelled = client.cancel(id) => if let Err(error) = cancelled {
            print::note(&format!("cannot cancel {id}, hanging up instead: {error}"));
            return Ok(None);
        },
    }
    match tokio::time::timeout(ANSWER_GRACE, following).await {
        Ok(answer) => answer.map(Some),
        Err(_) => Ok(hung_up()),
    }
}

/// Leaves without an answer.
fn hung_up() -> Option<Answer> {
    print::note("hung up before the answer came; the daemon cancels the execution");
    None
}
