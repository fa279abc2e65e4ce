//! Server-sent frames as they come over a connection. What a frame means, and whether an end is a
//! loss, is left to `events` and `feed`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::Body as _;

use super::error::ClientError;
use super::sse::{Frame, FrameTooLarge, MAX_FRAME_BYTES, Parser};
use super::transport::Body;

/// The frames of one answer.
#[derive(Debug)]
pub(super) struct Frames {
    body: Body,
    parser: Parser,
}

/// Why there are no more frames.
#[derive(Debug)]
pub(super) enum Broken {
    /// The connection broke.
    Connection(hyper::Error),
    /// The peer sends what it should not.
    TooLarge(FrameTooLarge),
}

impl Frames {
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            parser: Parser::new(MAX_FRAME_BYTES),
        }
    }

    /// The next frame, or none where the peer ended its answer.
    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame, Broken>>> {
        loop {
            if let Some(frame) = self.parser.next_frame() {
                return Poll::Ready(Some(Ok(frame)));
            }
            let read = match ready!(Pin::new(&mut self.body.incoming).poll_frame(context)) {
                Some(Ok(read)) => read,
                Some(Err(source)) => return Poll::Ready(Some(Err(Broken::Connection(source)))),
                None => return Poll::Ready(None),
            };
            if let Ok(bytes) = read.into_data()
                && let Err(source) = self.parser.push(&bytes)
            {
                return Poll::Ready(Some(Err(Broken::TooLarge(source))));
            }
        }
    }

    /// What is broken, as the failure of the request that this answers.
    pub(super) fn failure(&self, broken: Broken) -> ClientError {
        match broken {
            Broken::Connection(source) => self.body.broken(source),
            Broken::TooLarge(source) => source.into(),
        }
    }
}
