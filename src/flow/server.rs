//! The server that several daemons share, and what is agreed on with it about places.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::Shared;
use super::redis::{RENEW, Redis};
use crate::config::RedisAddress;

/// How often it is asked whether it is the turn of who waits for a place.
const POLL: Duration = Duration::from_millis(50);

/// How long those who want a place wait for a server that does not answer before each daemon keeps to the
/// numbers by itself. Claims hold for longer than that and the time between their renewals.
const PATIENCE: Duration = Duration::from_secs(3);

/// When a server is asked again that did not answer.
const RETRY: Duration = Duration::from_millis(250);

/// A server that keeps rates and places for several daemons.
#[derive(Debug)]
pub(super) struct Server {
    address: RedisAddress,
    shared: Weak<Shared>,
    redis: OnceLock<Redis>,
    /// Something is wanted of it, or it is found or lost.
    changed: Arc<Notify>,
    /// Since when nothing was agreed on although it was tried; at first since it is looked for.
    missed: Mutex<Option<Instant>>,
}

impl Server {
    pub(super) fn new(address: RedisAddress, shared: Weak<Shared>) -> Self {
        Self {
            address,
            shared,
            redis: OnceLock::new(),
            changed: Arc::default(),
            missed: Mutex::new(Some(Instant::now())),
        }
    }

    pub(super) fn is_at(&self, address: &RedisAddress) -> bool {
        self.address == *address
    }

    /// What it keeps. `None` outside of a tokio runtime.
    pub(super) fn redis(self: &Arc<Self>) -> Option<&Redis> {
        let is_inside = tokio::runtime::Handle::try_current().is_ok();
        let start = || {
            tokio::spawn(share_places(
                self.shared.clone(),
                Arc::downgrade(self),
                Arc::clone(&self.changed),
            ));
            Redis::start(self.address.clone(), Arc::clone(&self.changed))
        };
        is_inside.then(|| self.redis.get_or_init(start))
    }

    /// Whether it does what it is asked, as far as is known.
    pub(super) fn is_well(&self) -> bool {
        self.redis.get().is_some_and(Redis::is_well)
    }

    /// Other places are wanted than before, or others are to be had.
    pub(super) fn places_changed(self: &Arc<Self>) {
        // It may be the first time that there is a runtime.
        let _ = self.redis();
        self.changed.notify_one();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody is left to agree with.
        self.changed.notify_one();
    }
}

/// Agrees on places with the server as often as there is reason to, until one of both is gone.
async fn share_places(shared: Weak<Shared>, server: Weak<Server>, changed: Arc<Notify>) {
    loop {
        let Some((shared, server)) = shared.upgrade().zip(server.upgrade()) else {
            return;
        };
        let until = shared.agree(&server).await;
        drop((shared, server));
        match until {
            // Either may be the reason.
            Some(until) => drop(timeout(until, changed.notified()).await),
            None => changed.notified().await,
        }
    }
}

impl Shared {
    /// Tells the server what places are wanted here, and passes on what it says. Returns when that is to be
    /// done again, if nothing is heard before.
    async fn agree(&self, server: &Arc<Server>) -> Option<Duration> {
        let redis = server.redis()?;
        loop {
            if !redis.is_up() {
                return self.do_without(server);
            }
            let told = {
                // Not in the name of one that has taken its place.
                let current = self.server.lock();
                let is_current = current.as_ref().is_some_and(|it| Arc::ptr_eq(it, server));
                is_current.then(|| self.queues.lock().places.claims())?
            };
            for claims in &told {
                let Ok(held) = redis.hold(claims).await else {
                    return self.do_without(server);
                };
                let mut queues = self.queues.lock();
                queues.places.learn(claims, &held);
                queues.advance(self.now());
            }
            // One that refuses claims and lets them be given up has not been found again.
            if redis.is_well() || told.iter().any(|claims| !claims.claims.is_empty()) {
                *server.missed.lock() = None;
            }
            let mut queues = self.queues.lock();
            if !queues.places.has_news() {
                if !self.config().shares_places() {
                    // It has heard of what was given up for that, and there is nothing more to ask.
                    queues.places.keep_alone();
                }
                let wait = if queues.places.is_waiting() {
                    POLL
                } else {
                    RENEW
                };
                return (!told.is_empty()).then_some(wait);
            }
        }
    }

    /// What to do while the server does not answer: this daemon has all places once it is clear that that
    /// lasts. Returns when to ask again.
    fn do_without(&self, server: &Server) -> Option<Duration> {
        let missed = *server.missed.lock().get_or_insert_with(Instant::now);
        let mut queues = self.queues.lock();
        let is_wanted = queues.places.is_sharing() && self.config().shares_places();
        if is_wanted && missed.elapsed() < PATIENCE {
            return Some(RETRY);
        }
        queues.places.keep_alone();
        queues.advance(self.now());
        self.config().shares_places().then_some(RETRY)
    }
}
