//! One write: what it does, who is told what came of it, and what becomes of it where the disk fails.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{broadcast, oneshot};

use super::LedgerError;
use super::event::{Events, NumberedEvents};
use super::store::{Fault, Store};

/// A write that was asked for. Resolves once it is on file (or with the reason why not); dropped,
/// the write happens all the same.
#[derive(Debug)]
#[must_use = "the write may fail; drop it where that does not matter"]
pub struct Receipt<T>(pub(super) oneshot::Receiver<Result<T, LedgerError>>);

impl<T> Future for Receipt<T> {
    type Output = Result<T, LedgerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|received| received.unwrap_or(Err(LedgerError::Closed)))
    }
}

impl<T> Receipt<T> {
    /// Waits on a thread that may block.
    ///
    /// # Errors
    /// As the write's.
    pub fn wait(self) -> Result<T, LedgerError> {
        self.0.blocking_recv().unwrap_or(Err(LedgerError::Closed))
    }
}

/// What becomes of a write that fails for the disk's sake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failing {
    /// It has been told to be safe, for it is in the log: it waits for company, and is tried until
    /// it succeeds.
    Never {
        /// What it holds that may be long.
        bytes: usize,
    },
    /// It is tried again when the disk is back: history should not lack it.
    Kept {
        /// What it holds that may be long.
        bytes: usize,
    },
    /// It is dropped: whoever asked decides.
    Dropped,
}

impl Failing {
    /// What is kept, with so much that may be long.
    pub(super) fn kept(bytes: usize) -> Self {
        Self::Kept { bytes }
    }

    /// What is never given up, with so much that may be long.
    pub(super) fn never(bytes: usize) -> Self {
        Self::Never { bytes }
    }

    pub(super) fn with_events(self, events: Option<&Events>) -> Self {
        let more = events.map_or(0, Events::held_bytes);
        match self {
            Self::Never { bytes } => Self::never(bytes + more),
            Self::Kept { bytes } => Self::kept(bytes + more),
            Self::Dropped => Self::Dropped,
        }
    }

    /// What of it counts as taken on trust.
    pub(super) fn on_trust(self) -> OnTrust {
        match self {
            Self::Never { bytes } => OnTrust { count: 1, bytes },
            Self::Kept { .. } | Self::Dropped => OnTrust::default(),
        }
    }
}

/// What was told to be safe and is not in the file yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OnTrust {
    pub count: usize,
    pub bytes: usize,
}

/// What is to be written.
pub(super) trait Write<T>: Send + 'static {
    /// Does it within a transaction; done again when that failed.
    fn write(&mut self, store: &mut Store) -> Result<T, Fault>;

    /// Has it wait where the next start finds it, if there is such a place: the disk has failed, and who waits for it
    /// is about to be told so.
    fn secure(&mut self, events: Option<&Events>) {
        let _ = events;
    }

    /// Lets go of what may be long and can be done without, and says how much is left of what may be long, in
    /// bytes; `None` where that is all of it.
    fn lighten(&mut self) -> Option<usize> {
        None
    }
}

impl<T, F> Write<T> for F
where
    F: FnMut(&mut Store) -> Result<T, Fault> + Send + 'static,
{
    fn write(&mut self, store: &mut Store) -> Result<T, Fault> {
        self(store)
    }
}

/// One write, its type forgotten.
pub(super) trait Work: Send {
    /// Does it within a transaction; done again when that failed.
    fn apply(&mut self, store: &mut Store) -> Result<(), Fault>;
    /// Tells whoever waits.
    fn acknowledge(&mut self, committed: Result<(), LedgerError>);
    fn failing(&self) -> Failing;
    /// Has it wait where the next start finds it, if there is such a place.
    fn secure(&mut self);
    /// Lets go of what can be done without, where there is no room for all of it until the disk is back.
    fn lighten(&mut self);
}

/// Who is told what came of a write.
pub(super) enum Reply<T> {
    Receipt(oneshot::Sender<Result<T, LedgerError>>),
    /// What is then done, here, on the writer's thread.
    Then(Box<dyn FnOnce(Result<T, LedgerError>) + Send>),
}

pub(super) struct Task<T, W> {
    pub write: W,
    pub events: Option<NumberedEvents>,
    pub done: Option<T>,
    pub reply: Option<Reply<T>>,
    pub failing: Failing,
    pub told: broadcast::Sender<Arc<NumberedEvents>>,
}

impl<T: Send, W: Write<T>> Work for Task<T, W> {
    fn apply(&mut self, store: &mut Store) -> Result<(), Fault> {
        self.done = Some(self.write.write(store)?);
        match &self.events {
            Some(events) => store.events(events),
            None => Ok(()),
        }
    }

    fn acknowledge(&mut self, committed: Result<(), LedgerError>) {
        // What is not on file has not happened yet, as far as listeners are concerned.
        if committed.is_ok()
            && let Some(events) = self.events.take()
        {
            // Nobody may be listening.
            let _ = self.told.send(Arc::new(events));
        }
        let Some(reply) = self.reply.take() else {
            return;
        };
        let result = committed.and_then(|()| self.done.take().ok_or(LedgerError::Closed));
        match reply {
            Reply::Receipt(receipt) => {
                // Nobody waits for most of them.
                let _ = receipt.send(result);
            }
            Reply::Then(then) => then(result),
        }
    }

    fn failing(&self) -> Failing {
        self.failing
    }

    fn secure(&mut self) {
        let events = self.events.as_ref().map(|events| &events.events);
        self.write.secure(events);
    }

    fn lighten(&mut self) {
        // What is taken on trust is accounted for as it was.
        if let Failing::Kept { .. } = self.failing
            && let Some(bytes) = self.write.lighten()
        {
            let events = self.events.as_ref().map(|events| &events.events);
            self.failing = Failing::kept(bytes).with_events(events);
        }
    }
}
