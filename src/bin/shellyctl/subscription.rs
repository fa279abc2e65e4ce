//! The daemon's events for as long as somebody wants them: connected again after each loss, and
//! from where it left off.

use std::time::Duration;

use shelly_executor::client::{Client, ClientError, Feed, FeedFilter, FeedItem};
use tokio::time::Instant;

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
    /// When the next try to connect is due. A moment, so that it comes nearer also where the future
    /// that waits for it is dropped.
    due: Instant,
    /// How far a try is put off the next time.
    wait: Duration,
}

/// What a subscription tells.
pub enum Told {
    /// What the feed did.
    Item(FeedItem),
    /// The connection is lost. The next call tries to have it again.
    Lost,
    /// It is there again, and what happened meanwhile is told next.
    Again,
}

impl Told {
    /// What people should know of it besides the event.
    pub fn message(&self) -> Option<String> {
        match self {
            Self::Item(FeedItem::Happened(_)) => None,
            Self::Item(FeedItem::Missed { from, to }) => Some(missed(*from, *to)),
            Self::Lost => Some("lost the daemon, waiting for it to come back".to_owned()),
            Self::Again => Some("the daemon is back".to_owned()),
        }
    }
}

/// A gap in the feed, for people.
pub fn missed(from: u64, to: u64) -> String {
    format!("the daemon cannot tell events #{from} to #{to} any more")
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
            last: feed.begins_after().or(after),
            feed: Some(feed),
            due: Instant::now(),
            wait: FIRST_WAIT,
        })
    }

    /// Gives the connection up, for whoever could not take in what was told: it is told where it is
    /// there again.
    pub fn begin_again(&mut self) {
        self.feed = None;
        self.put_off();
    }

    /// Puts the next try off, and the one behind it for longer.
    fn put_off(&mut self) {
        self.due = Instant::now() + self.wait;
        self.wait = LONGEST_WAIT.min(self.wait * 2);
    }

    /// Waits for what happens next. Nothing is lost by dropping the future.
    pub async fn next(&mut self) -> Result<Told, ClientError> {
        loop {
            let Some(feed) = &mut self.feed else {
                tokio::time::sleep_until(self.due).await;
                // Before the try: one that is dropped was one.
                self.put_off();
                match self.client.feed(&self.filter, self.last).await {
                    Ok(feed) => {
                        self.feed = Some(feed);
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
                    self.begin_again();
                    return Ok(Told::Lost);
                }
            }
        }
    }
}

/// Whether a daemon that restarts is enough to explain it.
pub fn may_pass(error: &ClientError) -> bool {
    const SERVICE_UNAVAILABLE: u16 = 503;
    if let ClientError::Refused { answer } = error {
        return answer.status == SERVICE_UNAVAILABLE;
    }
    matches!(
        error,
        ClientError::CannotConnect { .. } | ClientError::Interrupted { .. }
    )
}
