//! The daemon's events for as long as somebody wants them: connected again after each loss, and
//! from where it left off.

use std::time::Duration;

use shelly_executor::client::{Client, ClientError, Feed, FeedFilter, FeedItem};

use crate::print;

/// How long it waits before it tries to connect again; twice as long after each failure.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// What it waits at most. A restart takes less, and a daemon that stays away for longer is found
/// soon after it is back without anybody having been bothered.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A feed that outlives its connections.
pub struct Subscription {
    client: Client,
    filter: FeedFilter,
    last: Option<u64>,
    feed: Option<Feed>,
    wait: Duration,
}

/// What a subscription tells.
pub enum Told {
    /// What the feed did.
    Item(FeedItem),
    /// The connection was lost and is there again. Where nothing had been told before, what
    /// happened meanwhile is not told.
    Again,
}

impl Subscription {
    /// Listens, with `after` to what came after that number first.
    pub async fn open(
        client: &Client,
        filter: FeedFilter,
        after: Option<u64>,
    ) -> Result<Self, ClientError> {
        let feed = client.feed(&filter, after).await?;
        Ok(Self {
            client: client.clone(),
            filter,
            last: after,
            feed: Some(feed),
            wait: FIRST_WAIT,
        })
    }

    /// Waits for what happens next. Nothing is lost by dropping the future.
    pub async fn next(&mut self) -> Result<Told, ClientError> {
        loop {
            let Some(feed) = &mut self.feed else {
                tokio::time::sleep(self.wait).await;
                self.wait = LONGEST_WAIT.min(self.wait * 2);
                match self.client.feed(&self.filter, self.last).await {
                    Ok(feed) => {
                        self.feed = Some(feed);
                        print::note("the daemon is back");
                        return Ok(Told::Again);
                    }
                    Err(error) if may_pass(&error) => continue,
                    Err(error) => return Err(error),
                }
            };
            match feed.next().await {
                Some(Ok(item)) => {
                    self.wait = FIRST_WAIT;
                    self.last = Some(match &item {
                        FeedItem::Happened(happening) => happening.number,
                        FeedItem::Missed { to, .. } => *to,
                    });
                    return Ok(Told::Item(item));
                }
                Some(Err(error)) if !may_pass(&error) => return Err(error),
                Some(Err(_)) | None => {
                    self.feed = None;
                    print::note("lost the daemon, waiting for it to come back");
                }
            }
        }
    }
}

/// Whether a daemon that restarts is enough to explain it.
fn may_pass(error: &ClientError) -> bool {
    const SERVICE_UNAVAILABLE: u16 = 503;
    if let ClientError::Refused { answer } = error {
        return answer.status == SERVICE_UNAVAILABLE;
    }
    matches!(
        error,
        ClientError::CannotConnect { .. } | ClientError::Interrupted { .. }
    )
}
