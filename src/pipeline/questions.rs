use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::approvals::Asked;

/// How an execution stands with those who may approve it. Of most nobody ever asks, so that there is nothing behind
/// it until somebody does.
#[derive(Debug, Default)]
pub(super) struct Questions(OnceLock<Box<Channels>>);

#[derive(Debug, Default)]
struct Channels {
    /// Whether it waits for an approval.
    waiting: watch::Sender<bool>,
    /// What was asked about it, if something was.
    asked: watch::Sender<Option<Asked>>,
    /// Whether something is run under the answer.
    is_used: AtomicBool,
    /// Whether it is left to the next daemon.
    is_parked: AtomicBool,
}

impl Questions {
    /// Something is asked about it, in the place of what was asked before; or nothing any more.
    pub(super) fn set_asked(&self, asked: Option<Asked>) {
        self.channels().asked.send_replace(asked);
    }

    pub(super) fn asked(&self) -> Option<Asked> {
        self.0.get()?.asked.borrow().clone()
    }

    /// From here on something is run under what was answered, if anything was asked.
    pub(super) fn set_used(&self) {
        if let Some(channels) = self.0.get() {
            channels.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// What was asked and nothing is run under.
    pub(super) fn unused(&self) -> Option<Asked> {
        let channels = self.0.get()?;
        let is_used = channels.is_used.load(Ordering::Relaxed);
        self.asked().filter(|_| !is_used)
    }

    /// From here on it waits for the next daemon.
    pub(super) fn park(&self) {
        self.channels().is_parked.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_parked(&self) -> bool {
        let channels = self.0.get();
        channels.is_some_and(|channels| channels.is_parked.load(Ordering::Relaxed))
    }

    pub(super) fn follow(&self) -> watch::Receiver<Option<Asked>> {
        self.channels().asked.subscribe()
    }

    /// Says whether it waits for an approval; returns the previous value.
    pub(super) fn set_waiting(&self, waits: bool) -> bool {
        match self.0.get() {
            Some(channels) => channels.waiting.send_replace(waits),
            None => waits && self.channels().waiting.send_replace(waits),
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        let channels = self.0.get();
        channels.is_some_and(|channels| *channels.waiting.borrow())
    }

    /// Waits until it waits for an approval.
    pub(super) async fn waiting(&self) {
        let mut waiting = self.channels().waiting.subscribe();
        // It lives as long as this does.
        let _ = waiting.wait_for(|waits| *waits).await;
    }

    fn channels(&self) -> &Channels {
        self.0.get_or_init(Box::default)
    }
}
