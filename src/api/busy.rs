//! How many requests a connection has under way.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;

/// Counts them.
#[derive(Clone, Debug)]
pub(super) struct Busy(watch::Sender<usize>);

impl Default for Busy {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Busy {
    /// One more, until what is returned is dropped.
    pub(super) fn one(&self) -> One {
        self.0.send_modify(|count| *count += 1);
        One(self.clone())
    }

    pub(super) fn watch(&self) -> Idle {
        Idle(self.0.subscribe())
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct One(Busy);

impl One {
    /// It is under way until all of its answer has been taken.
    pub(super) fn until_sent(self, response: Response) -> Response {
        response.map(|body| Body::new(Counted { body, _one: self }))
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// Waits for there being none.
pub(super) struct Idle(watch::Receiver<usize>);

impl Idle {
    /// Waits until there has been no request for so long.
    pub(super) async fn lasts(&mut self, time: Duration) {
        loop {
            // No count any more: the connection is going.
            let _ = self.0.wait_for(|count| *count == 0).await;
            let disturbed = tokio::time::timeout(time, self.0.changed()).await;
            if !matches!(disturbed, Ok(Ok(()))) {
                return;
            }
        }
    }
}

struct Counted {
    body: Body,
    _one: One,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_request_puts_the_end_off_until_its_answer_is_taken() {
        let busy = Busy::default();
        let mut idle = busy.watch();
        let response = busy.one().until_sent(Response::new(Body::empty()));
        assert!(idle.lasts(Duration::ZERO).now_or_never().is_none());
        drop(response);
        idle.lasts(Duration::ZERO).await;
    }
}
