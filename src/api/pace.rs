//! How slowly the body of a request may come: who sends it holds one of the places for connections meanwhile.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Error;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long nothing of a body may come, as long as a connection may say nothing between two requests; and how much
/// longer than that its bytes may take in all. 4 KiB a second is what a modem does, and gives 16 MiB more than
/// an hour; a byte now and then is broken off after these five minutes.
const USUAL: Pace = Pace {
    silence: Duration::from_secs(300),
    bytes_a_sec: 4096,
};

#[derive(Clone, Copy)]
struct Pace {
    silence: Duration,
    bytes_a_sec: u64,
}

impl Pace {
    /// How long after its beginning a body may be no further than `length`.
    fn time(self, length: u64) -> Duration {
        let sending = Duration::from_millis(length.saturating_mul(1000) / self.bytes_a_sec);
        self.silence.saturating_add(sending)
    }
}

/// A body that ends in an error when it comes too slowly.
pub(crate) struct Paced {
    body: Body,
    pace: Pace,
    begun: Instant,
    length: u64,
    /// When the wait for what comes next is over, while there is one.
    alarm: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "{length} bytes came in {} s: send it faster than {bytes_a_sec} bytes a second, with no pause of {} s",
    taken.as_secs(), silence.as_secs()
)]
struct TooSlow {
    length: u64,
    taken: Duration,
    bytes_a_sec: u64,
    silence: Duration,
}

impl Paced {
    /// What is sent from now on.
    pub(crate) fn new(body: Body) -> Self {
        Self::at(USUAL, body)
    }

    fn at(pace: Pace, body: Body) -> Self {
        Self {
            body,
            pace,
            begun: Instant::now(),
            length: 0,
            alarm: None,
        }
    }

    fn too_slow(&self) -> TooSlow {
        TooSlow {
            length: self.length,
            taken: self.begun.elapsed(),
            bytes_a_sec: self.pace.bytes_a_sec,
            silence: self.pace.silence,
        }
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let data = frame
                .as_ref()
                .and_then(|frame| frame.as_ref().ok()?.data_ref());
            self.length += data.map_or(0, |data| data.len() as u64);
            self.alarm = None;
            return Poll::Ready(frame);
        }
        let (pace, begun, length) = (self.pace, self.begun, self.length);
        let alarm = self.alarm.get_or_insert_with(|| {
            let all = begun + pace.time(length);
            Box::pin(sleep_until(all.min(Instant::now() + pace.silence)))
        });
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Some(Err(Error::new(self.too_slow()))))
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
    use std::convert::Infallible;

    use futures_util::stream::unfold;
    use http_body_util::BodyExt as _;

    use super::*;

    /// A byte now and then, without end.
    fn dribbled() -> Body {
        Body::from_stream(unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Some((Ok::<_, Infallible>(Bytes::from_static(b"x")), ()))
        }))
    }

    #[tokio::test]
    async fn who_sends_a_byte_now_and_then_is_broken_off() {
        let pace = Pace {
            silence: Duration::from_millis(200),
            bytes_a_sec: 1 << 20,
        };
        let read = Paced::at(pace, dribbled()).collect();
        let read = tokio::time::timeout(Duration::from_secs(30), read).await;
        let error = read.expect("it has an end").expect_err("too slow");
        assert!(
            error.to_string().contains("1048576 bytes a second"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn so_is_who_sends_nothing_more() {
        let pace = Pace {
            silence: Duration::from_millis(10),
            bytes_a_sec: 1,
        };
        let begun = stream_of([Bytes::from(vec![0; 4096])]);
        let read = Paced::at(pace, begun).collect();
        let read = tokio::time::timeout(Duration::from_secs(30), read).await;
        read.expect("it has an end").expect_err("too slow");
    }

    /// These, and no end.
    fn stream_of(pieces: [Bytes; 1]) -> Body {
        use futures_util::StreamExt as _;
        let pieces = futures_util::stream::iter(pieces.map(Ok::<_, Infallible>));
        Body::from_stream(pieces.chain(futures_util::stream::pending()))
    }

    #[test]
    fn a_long_body_has_its_time_and_a_dribble_has_not() {
        let minutes = |length| USUAL.time(length).as_secs() / 60;
        assert_eq!(minutes(0), 5);
        assert_eq!(minutes(300), 5);
        // What a modem takes half an hour for.
        assert!(minutes(10 << 20) >= 45);
        assert!(minutes(16 << 20) < 80);
        assert!(USUAL.time(u64::MAX) > USUAL.time(16 << 20));
    }
}
