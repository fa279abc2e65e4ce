//! The life of a streamed execution: typed events out of server-sent frames, ending with the
//! result.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use serde::Deserialize;

use super::answer::Answer;
use super::approvals::Approval;
use super::documents::{OutputStream, Received};
use super::error::{ClientError, TransportError};
use super::frames::{Broken, Frames};
use super::sse::Frame;
use super::transport::Head;

/// One event, with the daemon's count if it gave one.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The event's `id:`, which counts.
    pub id: Option<String>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened in an execution.
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// The execution has its id, and goes ahead.
    Started {
        /// The id to cancel it by.
        execution_id: String,
    },
    /// The command wrote something.
    Output {
        /// Where it wrote.
        stream: OutputStream,
        /// What it wrote, with U+FFFD for what is not UTF-8.
        text: String,
        /// Where the text begins, in raw bytes from the start of its stream.
        offset: u64,
    },
    /// A person has to agree before the command runs.
    ConfirmationRequired {
        /// What they are asked.
        approval: Box<Received<Approval>>,
    },
    /// The execution ended; the last event.
    Result(Box<Answer>),
    /// An event that this client does not know.
    Other {
        /// Its name.
        name: String,
        /// Its data as it came.
        data: String,
    },
}

/// The events of one execution, as they happen.
///
/// After an [`EventKind::Result`] or an error it ends. Dropping it earlier hangs up, and that
/// cancels the execution.
#[derive(Debug)]
pub struct EventStream {
    frames: Frames,
    execution_id: Option<String>,
    ended: bool,
}

impl EventStream {
    pub(super) fn new(head: Head) -> Self {
        Self {
            frames: Frames::new(head.into_body()),
            execution_id: None,
            ended: false,
        }
    }

    /// The next event, or none after the result.
    ///
    /// # Errors
    /// When the connection breaks, or ends without a result, or carries something else than the
    /// API's events.
    pub async fn next(&mut self) -> Option<Result<Event, ClientError>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    fn take(&mut self, frame: Frame) -> Result<Event, ClientError> {
        let name = frame.event.clone();
        let event = decode(frame).map_err(|source| ClientError::Malformed {
            during: format!("the event `{name}`"),
            source,
        })?;
        match &event.kind {
            EventKind::Started { execution_id } => self.execution_id = Some(execution_id.clone()),
            EventKind::ConfirmationRequired { approval } => {
                self.execution_id = Some(approval.execution_id.clone());
            }
            EventKind::Output { .. } | EventKind::Result(_) | EventKind::Other { .. } => {}
        }
        Ok(event)
    }

    fn cut_short(&self, source: Option<TransportError>) -> ClientError {
        ClientError::StreamCutShort {
            execution_id: self.execution_id.clone(),
            source,
        }
    }
}

impl Stream for EventStream {
    type Item = Result<Event, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let taken = match ready!(self.frames.poll_frame(context)) {
            Some(Ok(frame)) => self.take(frame),
            // A killed daemon breaks the connection where a stopped one ends it; the loss is the
            // same.
            Some(Err(Broken::Connection(source))) => Err(self.cut_short(Some(source.into()))),
            Some(Err(Broken::TooLarge(source))) => Err(source.into()),
            None => Err(self.cut_short(None)),
        };
        self.ended = match &taken {
            Ok(event) => matches!(event.kind, EventKind::Result(_)),
            Err(_) => true,
        };
        Poll::Ready(Some(taken))
    }
}

#[derive(Deserialize)]
struct Started {
    execution_id: String,
}

#[derive(Deserialize)]
struct Output {
    text: String,
    offset: u64,
}

/// What the result event says besides the body: the HTTP status, or the record's word for the end.
#[derive(Deserialize)]
struct Ended {
    status: StatusMember,
    code: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StatusMember {
    Http(u16),
    Word(#[expect(dead_code, reason = "only its being a word matters")] String),
}

impl Ended {
    /// The status that a waiting caller would have got. Only what can befall a command that was
    /// started needs a row.
    fn http_status(&self) -> u16 {
        match (&self.status, self.code.as_deref()) {
            (StatusMember::Http(status), _) => *status,
            (StatusMember::Word(_), None) => 200,
            (StatusMember::Word(_), Some("timeout")) => 504,
            (StatusMember::Word(_), Some("cancelled")) => 409,
            (StatusMember::Word(_), Some("shutting_down")) => 503,
            (StatusMember::Word(_), Some(_)) => 500,
        }
    }
}

/// The body that a waiting caller would have got. A result has no member `status`; the daemon adds
/// one at the end of the event, where HTTP has no other place for it.
fn body(mut data: String) -> String {
    if let Some(kept) = data.strip_suffix(r#","status":200}"#).map(str::len) {
        data.truncate(kept);
        data.push('}');
    }
    data
}

fn decode(frame: Frame) -> Result<Event, serde_json::Error> {
    let output = |stream| {
        serde_json::from_str(&frame.data).map(|Output { text, offset }| EventKind::Output {
            stream,
            text,
            offset,
        })
    };
    let kind = match frame.event.as_str() {
        "started" => {
            let Started { execution_id } = serde_json::from_str(&frame.data)?;
            EventKind::Started { execution_id }
        }
        "stdout" => output(OutputStream::Stdout)?,
        "stderr" => output(OutputStream::Stderr)?,
        "confirmation_required" => EventKind::ConfirmationRequired {
            approval: Box::new(Received::parse(frame.data)?),
        },
        "result" => {
            let status = serde_json::from_str::<Ended>(&frame.data)?.http_status();
            EventKind::Result(Box::new(Answer::parse(status, body(frame.data))?))
        }
        _ => EventKind::Other {
            name: frame.event,
            data: frame.data,
        },
    };
    Ok(Event { id: frame.id, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(event: &str, data: &str) -> Result<EventKind, serde_json::Error> {
        decode(Frame {
            event: event.into(),
            data: data.into(),
            id: None,
        })
        .map(|event| event.kind)
    }

    #[test]
    fn output_carries_its_stream_and_offset() {
        let expected = EventKind::Output {
            stream: OutputStream::Stderr,
            text: "é\n".into(),
            offset: 3,
        };
        assert_eq!(
            decoded("stderr", r#"{"text": "é\n", "offset": 3}"#).expect("succeeds"),
            expected
        );
    }

    fn result(data: &str) -> (u16, Option<String>) {
        match decoded("result", data) {
            Ok(EventKind::Result(answer)) => {
                (answer.status, answer.problem.map(|problem| problem.code))
            }
            other => panic!("not a result: {other:?}"),
        }
    }

    #[test]
    fn a_result_is_the_answer_with_its_status() {
        assert_eq!(result(r#"{"status": 200, "content": "x"}"#), (200, None));
        let cancelled = r#"{"status": 409, "title": "Cancelled", "code": "cancelled"}"#;
        assert_eq!(result(cancelled), (409, Some("cancelled".into())));
    }

    #[test]
    fn a_result_is_kept_as_a_waiting_caller_gets_it() {
        for (data, kept) in [
            (r#"{"content":"x","status":200}"#, r#"{"content":"x"}"#),
            (
                r#"{"title":"t","status":504,"code":"timeout"}"#,
                r#"{"title":"t","status":504,"code":"timeout"}"#,
            ),
        ] {
            match decoded("result", data) {
                Ok(EventKind::Result(answer)) => assert_eq!(answer.json, kept),
                other => panic!("not a result: {other:?}"),
            }
        }
    }

    #[test]
    fn the_records_word_does_for_a_status() {
        assert_eq!(
            result(r#"{"status": "error", "content": "x", "exit_code": 1}"#),
            (200, None)
        );
        let timeout = r#"{"status": "timeout", "title": "Time limit", "code": "timeout"}"#;
        assert_eq!(result(timeout), (504, Some("timeout".into())));
    }

    #[test]
    fn a_question_to_people_is_the_approval_they_are_asked_for() {
        let data = r#"{"id": "7", "execution_id": "8", "status": "pending", "new": 1}"#;
        match decoded("confirmation_required", data) {
            Ok(EventKind::ConfirmationRequired { approval }) => {
                assert_eq!((approval.id.as_str(), approval.json.as_str()), ("7", data));
            }
            other => panic!("not a question: {other:?}"),
        }
    }

    #[test]
    fn unknown_events_pass_and_broken_ones_do_not() {
        assert_eq!(
            decoded("progress", "50%").expect("succeeds"),
            EventKind::Other {
                name: "progress".into(),
                data: "50%".into()
            }
        );
        assert!(decoded("started", "{}").is_err());
        assert!(decoded("result", r#"{"content": "no status"}"#).is_err());
    }
}
