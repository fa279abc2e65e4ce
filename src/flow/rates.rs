//! Token buckets in memory. Time is given, so that tests need not wait for it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::clock::Clock;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};
use governor::{Quota, RateLimiter};

use super::refusal::{Charge, Limited, Whose};
use crate::config::Rate;

/// How many buckets there may be, which callers fill with tenants of their own invention: some
/// 10 MiB. Beyond it calls of more tenants are refused until one is full again: no bucket goes before it is
/// full, or its tenant would begin with a full one.
const MAX_BUCKETS: usize = 65_536;

/// How many buckets are kept before it is looked for full ones, which are as good as none.
const PRUNE_AT: usize = 1024;

/// All buckets. Times are since some moment in the past.
#[derive(Debug)]
pub(super) struct Rates {
    clock: Given,
    buckets: HashMap<Whose, Bucket>,
    prune_at: usize,
}

#[derive(Debug)]
struct Bucket {
    rate: Rate,
    began: u64,
    state: State,
    limiter: RateLimiter<NotKeyed, State, Given>,
}

/// The time that was told last, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Given(Arc<AtomicU64>);

impl Clock for Given {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(self.0.load(Ordering::Relaxed))
    }
}

/// When a bucket will be full, in nanoseconds since it began: where the limiter has it, and where a
/// call that another bucket refuses can be taken back.
#[derive(Clone, Debug, Default)]
struct State(Arc<AtomicU64>);

impl StateStore for State {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _key: &NotKeyed, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        // Nobody else has it meanwhile: buckets are reached through `&mut Rates`.
        let (result, full_at) = measure(Some(Nanos::from(self.0.load(Ordering::Relaxed))))?;
        self.0.store(full_at.into(), Ordering::Relaxed);
        Ok(result)
    }
}

impl Bucket {
    /// A full one.
    fn new(rate: Rate, clock: &Given) -> Self {
        let calls = NonZeroU32::new(rate.calls).unwrap_or(NonZeroU32::MIN);
        let burst = NonZeroU32::new(rate.burst).unwrap_or(NonZeroU32::MIN);
        let interval = (rate.per / calls.get()).max(Duration::from_nanos(1));
        let quota = Quota::with_period(interval).unwrap_or(Quota::per_second(calls));
        let state = State::default();
        Self {
            rate,
            began: clock.now().into(),
            limiter: RateLimiter::new(quota.allow_burst(burst), state.clone(), clock.clone()),
            state,
        }
    }

    fn is_full(&self, now: u64) -> bool {
        self.state.0.load(Ordering::Relaxed) <= now.saturating_sub(self.began)
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            clock: Given::default(),
            buckets: HashMap::new(),
            prune_at: PRUNE_AT,
        }
    }
}

impl Rates {
    /// Takes a call out of each bucket, or out of none.
    pub(super) fn take(&mut self, charges: &[Charge], now: Duration) -> Result<(), Limited> {
        let taken = self.try_each(charges, now);
        let worst = taken
            .iter()
            .filter_map(|(_, _, refused)| refused.clone())
            .max_by_key(|refused| refused.retry_after);
        let Some(worst) = worst else { return Ok(()) };
        for (state, before, _) in taken {
            state.0.store(before, Ordering::Relaxed);
        }
        Err(worst)
    }

    /// Takes a call out of each bucket that has one: it was let through elsewhere.
    pub(super) fn note(&mut self, charges: &[Charge], now: Duration) {
        drop(self.try_each(charges, now));
    }

    /// Takes a call out of each bucket that has one, and says what it was like before.
    fn try_each(
        &mut self,
        charges: &[Charge],
        now: Duration,
    ) -> Vec<(State, u64, Option<Limited>)> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.clock.0.store(now, Ordering::Relaxed);
        let each = charges.iter().map(|charge| {
            let refused = |retry_after| Limited {
                charge: charge.clone(),
                retry_after,
            };
            let Some(bucket) = self.bucket(charge, now) else {
                let none = Some(refused(Duration::from_secs(1)));
                return (State::default(), 0, none);
            };
            let state = bucket.state.clone();
            let before = state.0.load(Ordering::Relaxed);
            let checked = bucket.limiter.check();
            let refusal = checked.err().map(|not_until| {
                let since = Nanos::from(now);
                refused(not_until.wait_time_from(since))
            });
            (state, before, refusal)
        });
        each.collect()
    }

    /// The bucket of a charge; `None` when there are too many.
    fn bucket(&mut self, charge: &Charge, now: u64) -> Option<&mut Bucket> {
        let known = self.buckets.get(&charge.whose);
        if known.is_none_or(|bucket| bucket.rate != charge.rate) {
            if known.is_none() && self.buckets.len() >= self.prune_at {
                self.buckets.retain(|_, bucket| !bucket.is_full(now));
                self.prune_at = (self.buckets.len() * 2).clamp(PRUNE_AT, MAX_BUCKETS);
                // Users and tools nobody can make up: however many tenants somebody invents, nothing is refused
                // to those who name none.
                let is_made_up = matches!(charge.whose, Whose::Tenant(_));
                if self.buckets.len() >= MAX_BUCKETS && is_made_up {
                    return None;
                }
            }
            let bucket = Bucket::new(charge.rate, &self.clock);
            self.buckets.insert(charge.whose.clone(), bucket);
        }
        self.buckets.get_mut(&charge.whose)
    }
}
