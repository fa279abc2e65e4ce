//! What happens in the daemon, execution by execution, as it tells everybody who listens. The feed
//! ends where the connection does: whoever wants more asks again, after the last number it had.

use std::task::{Context, Poll, ready};

use hyper::Method;
use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Client;
use super::documents::Received;
use super::error::ClientError;
use super::frames::Frames;
use super::sse::Frame;
use super::transport::Ask;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What to listen to; everything that the caller may see where nothing is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeedFilter {
    /// Of this execution.
    pub execution_id: Option<String>,
    /// Of this tool.
    pub tool: Option<String>,
    /// Of these types, like `executionCompleted`.
    pub types: Vec<String>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Happening {
    /// Its number; they only grow.
    pub number: u64,
    /// What happened, like `executionCompleted`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When (RFC 3339, UTC).
    pub time: String,
    /// The execution it happened to.
    pub execution_id: Option<String>,
    /// The tool of that execution.
    pub tool: Option<String>,
    /// Who called it.
    pub caller_uid: Option<u32>,
    /// What else there is to say, by type.
    #[serde(flatten)]
    pub details: Map<String, Value>,
}

impl Happening {
    /// A detail that is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.details.get(name).and_then(Value::as_str)
    }

    /// A detail that is a number.
    #[must_use]
    pub fn amount(&self, name: &str) -> Option<f64> {
        self.details.get(name).and_then(Value::as_f64)
    }
}

/// One item of a feed.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedItem {
    /// Something happened.
    Happened(Box<Received<Happening>>),
    /// What could not be told: from one number to another, both included.
    Missed {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
}

/// What happens, as it happens.
#[derive(Debug)]
pub struct Feed {
    frames: Frames,
    begins_after: Option<u64>,
}

impl Feed {
    /// The number of the last event before its first: from where to ask again if it breaks before that.
    #[must_use]
    pub fn begins_after(&self) -> Option<u64> {
        self.begins_after
    }

    /// The next item, or none where the daemon ended the feed.
    ///
    /// # Errors
    /// When the connection breaks, or carries something else than the API's events.
    pub async fn next(&mut self) -> Option<Result<FeedItem, ClientError>> {
        std::future::poll_fn(|context| self.poll_item(context)).await
    }

    fn poll_item(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<FeedItem, ClientError>>> {
        let taken = match ready!(self.frames.poll_frame(context)) {
            Some(Ok(frame)) => {
                let during = format!("the event `{}`", frame.event);
                decode(frame).map_err(|source| ClientError::Malformed { during, source })
            }
            Some(Err(broken)) => Err(self.frames.failure(broken)),
            None => return Poll::Ready(None),
        };
        Poll::Ready(Some(taken))
    }
}

#[derive(Deserialize)]
struct Missed {
    from: u64,
    to: u64,
}

fn decode(frame: Frame) -> Result<FeedItem, serde_json::Error> {
    if frame.event == "missed" {
        let Missed { from, to } = serde_json::from_str(&frame.data)?;
        return Ok(FeedItem::Missed { from, to });
    }
    Ok(FeedItem::Happened(Box::new(Received::parse(frame.data)?)))
}

impl Client {
    /// Listens to what happens from now on, or with `after` to what came after that number first.
    ///
    /// # Errors
    /// As [`Client::tools`].
    pub async fn feed(&self, filter: &FeedFilter, after: Option<u64>) -> Result<Feed, ClientError> {
        let ask = feed_ask(filter);
        let ask = match after {
            Some(number) => ask.header(LAST_EVENT_ID, HeaderValue::from(number)),
            None => ask,
        };
        self.open_feed(ask).await
    }

    /// What has happened after that number up to now; then the feed ends.
    ///
    /// # Errors
    /// As [`Client::tools`].
    pub async fn past(&self, filter: &FeedFilter, after: u64) -> Result<Feed, ClientError> {
        let ask = feed_ask(filter)
            .param("after", &after.to_string())
            .param("follow", "false");
        self.open_feed(ask).await
    }

    async fn open_feed(&self, ask: Ask) -> Result<Feed, ClientError> {
        let head = self.event_stream(ask).await?;
        let begins_after = head
            .header(&LAST_EVENT_ID)
            .and_then(|text| text.parse().ok());
        Ok(Feed {
            frames: Frames::new(head.into_body()),
            begins_after,
        })
    }
}

fn feed_ask(filter: &FeedFilter) -> Ask {
    let types = (!filter.types.is_empty()).then(|| filter.types.join(","));
    Ask::new(Method::GET, &["events"])
        .maybe("execution_id", filter.execution_id.as_deref())
        .maybe("tool", filter.tool.as_deref())
        .maybe("type", types.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(event: &str, data: &str) -> FeedItem {
        let frame = Frame {
            event: event.into(),
            data: data.into(),
            id: None,
        };
        decode(frame).expect("succeeds")
    }

    #[test]
    fn a_happening_has_its_details_beside_its_members() {
        let data = r#"{"number": 7, "type": "executionCompleted", "time": "2026-11-22T09:01:02.003Z",
            "execution_id": "1", "tool": "bash", "caller_uid": 0, "status": "success", "duration_ms": 12, "exit": "0"}"#;
        let FeedItem::Happened(happening) = decoded("executionCompleted", data) else {
            panic!("nothing happened");
        };
        assert_eq!((happening.number, happening.json.as_str()), (7, data));
        assert_eq!(happening.text("status"), Some("success"));
        assert_eq!(happening.amount("duration_ms"), Some(12.0));
        assert_eq!(happening.text("tool"), None);
    }

    #[test]
    fn what_was_missed_is_no_happening() {
        assert_eq!(
            decoded("missed", r#"{"from": 3, "to": 9}"#),
            FeedItem::Missed { from: 3, to: 9 }
        );
    }
}
