//! The raw bytes that a command wrote, as they come from the daemon's spool.

use std::ops::{Bound, RangeBounds};
use std::pin::Pin;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::Body as _;
use hyper::header::CONTENT_RANGE;

use super::error::ClientError;
use super::transport::{Body, Head};

/// A stretch of one output stream, from [`Output::start`] on.
#[derive(Debug)]
pub struct Output {
    /// Where the first byte stands in its stream.
    pub start: u64,
    /// How much of the stream is kept in all, where the daemon says.
    pub total: Option<u64>,
    body: Option<Body>,
}

impl Output {
    /// Takes 200 (all of it), 206 (the range) and 416 (nothing there, or not yet).
    pub(super) fn new(head: Head) -> Self {
        let status = head.status();
        let range = head.header(&CONTENT_RANGE).and_then(content_range);
        let (start, total) = range.unwrap_or((0, None));
        let body = (status != StatusCode::RANGE_NOT_SATISFIABLE).then(|| head.into_body());
        Self { start, total, body }
    }

    /// The next bytes, or none at the end.
    ///
    /// # Errors
    /// When the connection breaks before the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        let Some(body) = &mut self.body else {
            return Ok(None);
        };
        loop {
            let frame =
                std::future::poll_fn(|context| Pin::new(&mut body.incoming).poll_frame(context))
                    .await;
            match frame {
                Some(Ok(frame)) => {
                    // Trailers are of no use here.
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(error)) => return Err(body.broken(error)),
                None => return Ok(None),
            }
        }
    }

    /// All of it at once; for outputs whose size is known to be modest.
    ///
    /// # Errors
    /// When the connection breaks before the end.
    pub async fn bytes(mut self) -> Result<Vec<u8>, ClientError> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }
}

/// The `Range` header for `range`: none for all of it, an error for a range that is empty.
pub(super) fn range_header(range: impl RangeBounds<u64>) -> Result<Option<String>, EmptyRange> {
    let first = match range.start_bound() {
        Bound::Included(&first) => first,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let last = match range.end_bound() {
        Bound::Included(&last) => Some(last),
        Bound::Excluded(&end) => Some(end.checked_sub(1).ok_or(EmptyRange)?),
        Bound::Unbounded => None,
    };
    match last {
        Some(last) if last < first => Err(EmptyRange),
        Some(last) => Ok(Some(format!("bytes={first}-{last}"))),
        None if first == 0 => Ok(None),
        None => Ok(Some(format!("bytes={first}-"))),
    }
}

/// HTTP has no way to ask for no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the range is empty")]
pub(super) struct EmptyRange;

/// `bytes 2-5/10` is a start of 2 and a total of 10; `bytes */10` is nothing of 10.
fn content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let start = match range.split_once('-') {
        Some((first, _)) => first.parse().ok()?,
        None => 0,
    };
    Some((start, total.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_headers() {
        assert_eq!(range_header(..), Ok(None));
        assert_eq!(range_header(0..), Ok(None));
        assert_eq!(range_header(5..), Ok(Some("bytes=5-".into())));
        assert_eq!(range_header(5..9), Ok(Some("bytes=5-8".into())));
        assert_eq!(range_header(..=9), Ok(Some("bytes=0-9".into())));
        assert_eq!(range_header(0..0), Err(EmptyRange));
        assert_eq!(range_header(5..5), Err(EmptyRange));
    }

    #[test]
    fn content_ranges_give_start_and_total() {
        assert_eq!(content_range("bytes 2-5/10"), Some((2, Some(10))));
        assert_eq!(content_range("bytes 2-5/*"), Some((2, None)));
        assert_eq!(content_range("bytes */10"), Some((0, Some(10))));
        assert_eq!(content_range("lines 2-5/10"), None);
    }
}
