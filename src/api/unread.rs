//! Request bodies that an early answer leaves unread. A connection is closed on them, or a stream of HTTP/2 reset, and
//! whoever is still sending by then gets an error instead of the answer (RFC 9112, section 9.6); so they are read, and dropped.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How much is read of what nobody wants, in bytes: four times the largest request by default.
const MOST: usize = 64 << 20;

/// How long that may take.
const TIME: Duration = Duration::from_secs(1);

/// Whether something of a body is still to come on a connection, which has one request at a time.
#[derive(Clone, Default)]
pub(super) struct Coming(Arc<AtomicBool>);

impl Coming {
    pub(super) fn is_some(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, is_some: bool) {
        self.0.store(is_some, Ordering::Relaxed);
    }
}

/// A request's body, which comes back when it is dropped before its end.
pub(super) struct Returning {
    body: Option<Incoming>,
    is_begun: bool,
    coming: Coming,
    back: Option<oneshot::Sender<Left>>,
}

/// A request's body of HTTP/2, the rest of which is read when it is dropped before its end. Nothing waits for that: what
/// is answered goes out beside it, and the stream ends with either, whichever is later.
pub(super) struct Drained(Option<Incoming>);

impl Drained {
    pub(super) fn new(body: Incoming) -> Self {
        Self(Some(body))
    }
}

/// What is left of a body.
struct Left {
    body: Incoming,
    /// Whether anybody has begun to read it: who waits for `100 Continue` sends it then.
    is_begun: bool,
}

/// Has a request of HTTP/1 answered. What is not read of it by then is, within bounds; where that is not all, the
/// answer says that the connection closes. `coming` is told meanwhile.
pub(super) async fn answered<F>(
    request: Request<Incoming>,
    coming: &Coming,
    answer: impl FnOnce(Request<Returning>) -> F,
) -> Result<Response, Infallible>
where
    F: Future<Output = Result<Response, Infallible>>,
{
    let waits = request.headers().contains_key(header::EXPECT);
    let (mut back, mut left) = (None, None);
    if !request.body().is_end_stream() {
        coming.set(true);
        let (sender, receiver) = oneshot::channel();
        (back, left) = (Some(sender), Some(receiver));
    }
    let response = answer(request.map(|body| Returning {
        body: Some(body),
        is_begun: false,
        coming: coming.clone(),
        back,
    }));
    let mut response = response.await?;
    if let Some(Ok(left)) = left.map(|mut left| left.try_recv()) {
        let is_sent = left.is_begun || !waits;
        if !(is_sent && discard(left.body).await) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
    }
    coming.set(false);
    Ok(response)
}

/// Reads what is left of a body. Returns whether that was all.
pub(super) async fn discard(mut body: Incoming) -> bool {
    let reading = async {
        let mut length = 0usize;
        while let Some(frame) = body.frame().await {
            let data = frame.ok()?.into_data().unwrap_or_default();
            length += data.len();
            (length <= MOST).then_some(())?;
        }
        Some(())
    };
    matches!(tokio::time::timeout(TIME, reading).await, Ok(Some(())))
}

impl Body for Drained {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.0.as_ref();
        body.map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let left = self.0.take().filter(|body| !body.is_end_stream());
        // There is no runtime any more where the last connections go down with it.
        if let (Some(body), Ok(runtime)) = (left, Handle::try_current()) {
            runtime.spawn(discard(body));
        }
    }
}

impl Body for Returning {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.is_begun = true;
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = Pin::new(&mut *body).poll_frame(context);
        if body.is_end_stream() || matches!(frame, Poll::Ready(None)) {
            self.coming.set(false);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take())
            && !body.is_end_stream()
        {
            let is_begun = self.is_begun;
            // Nobody waits where it outlives its answer.
            let _ = back.send(Left { body, is_begun });
        }
    }
}
