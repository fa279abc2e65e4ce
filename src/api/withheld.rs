//! Answers that begin before the end that they tell of is on record.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::task::JoinHandle;

use crate::pipeline::Execution;

/// From how many bytes on it takes long enough to send an answer.
const LONG: u64 = 64 * 1024;

/// Hands out an answer about how `execution` ended, which need not be on record yet: of a long one all but
/// the last byte, so that it is sent while the record is written. Whoever lacks that has no answer, and
/// knows by the length.
pub(super) async fn until_recorded(execution: &Arc<Execution>, answer: Response) -> Response {
    match length(&answer).filter(|_| execution.finished().is_none()) {
        Some(length) => answer.map(|body| {
            let execution = Arc::clone(execution);
            Body::new(Withheld {
                body,
                left: length,
                last: None,
                // Of its own: what has ended is not kept in memory by somebody who reads slowly.
                recorded: tokio::spawn(async move {
                    execution.wait().await;
                }),
            })
        }),
        None => {
            execution.wait().await;
            answer
        }
    }
}

/// How long an answer is that takes long enough to send, in bytes.
pub(super) fn length(answer: &Response) -> Option<u64> {
    let length = answer.body().size_hint().exact();
    length.filter(|length| *length >= LONG)
}

struct Withheld {
    body: Body,
    /// How much of `body` is to come, in bytes.
    left: u64,
    /// What waits for the record.
    last: Option<Bytes>,
    recorded: JoinHandle<()>,
}

impl hyper::body::Body for Withheld {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.last.is_some() {
            let recorded = ready!(Pin::new(&mut self.recorded).poll(context));
            let last = self.last.take();
            return Poll::Ready(match recorded {
                Ok(()) => last.map(|last| Ok(Frame::data(last))),
                // The daemon is ending: it is not on record.
                Err(error) => Some(Err(axum::Error::new(error))),
            });
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let Some(Ok(frame)) = frame else {
            return Poll::Ready(frame);
        };
        let frame = frame.map_data(|mut data| {
            self.left -= data.len() as u64;
            if self.left == 0 {
                self.last = Some(data.split_off(data.len().saturating_sub(1)));
            }
            data
        });
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && self.last.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left + self.last.as_ref().map_or(0, Bytes::len) as u64)
    }
}
