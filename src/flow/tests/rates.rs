use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::config::Rate;
use crate::flow::rates::Rates;
use crate::flow::refusal::{Charge, Whose};

/// A bucket as one would explain it: a level that rises with time up to the brim.
#[derive(Clone, Copy)]
struct Level {
    nanos: u128,
    at: Duration,
}

fn interval(rate: Rate) -> u128 {
    (rate.per / rate.calls).as_nanos()
}

fn brim(rate: Rate) -> u128 {
    interval(rate) * u128::from(rate.burst)
}

#[derive(Default)]
struct Model {
    levels: HashMap<Whose, Level>,
}

impl Model {
    fn level(&self, charge: &Charge, now: Duration) -> u128 {
        let brim = brim(charge.rate);
        self.levels.get(&charge.whose).map_or(brim, |level| {
            (level.nanos + (now - level.at).as_nanos()).min(brim)
        })
    }

    /// The longest wait for any of the buckets, if one has to be waited for.
    fn take(&mut self, charges: &[Charge], now: Duration) -> Option<Duration> {
        let waits = charges.iter().map(|charge| {
            let lacks = interval(charge.rate).saturating_sub(self.level(charge, now));
            Duration::from_nanos(u64::try_from(lacks).expect("not that long"))
        });
        let wait = waits.max().filter(|wait| *wait > Duration::ZERO);
        if wait.is_none() {
            for charge in charges {
                let nanos = self.level(charge, now) - interval(charge.rate);
                let level = Level { nanos, at: now };
                self.levels.insert(charge.whose.clone(), level);
            }
        }
        wait
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pass(Duration),
    /// By which buckets.
    Take(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0u64..3_000_000_000).prop_map(|nanos| Step::Pass(Duration::from_nanos(nanos))),
        proptest::sample::subsequence((0..6).collect::<Vec<u8>>(), 1..=3).prop_map(Step::Take),
    ];
    proptest::collection::vec(step, 1..120)
}

fn rates() -> impl Strategy<Value = Vec<Rate>> {
    let rate = (1u32..20, 1u64..5, 1u32..10).prop_map(|(calls, secs, burst)| Rate {
        calls,
        per: Duration::from_secs(secs),
        burst,
    });
    proptest::collection::vec(rate, 6)
}

proptest! {
    #[test]
    fn buckets_are_like_their_model(rates in rates(), steps in steps()) {
        let whose = |n: u8| match n {
            0 | 1 => Whose::Tool(format!("tool{n}")),
            2 | 3 => Whose::Caller(n.into()),
            _ => Whose::Tenant(format!("tenant{n}")),
        };
        let (mut buckets, mut model, mut now) = (Rates::default(), Model::default(), Duration::ZERO);
        for step in steps {
            match step {
                Step::Pass(time) => now += time,
                Step::Take(which) => {
                    let charges: Vec<Charge> = which
                        .into_iter()
                        .map(|n| Charge { whose: whose(n), rate: rates[usize::from(n)] })
                        .collect();
                    let taken = buckets.take(&charges, now);
                    let wait = model.take(&charges, now);
                    prop_assert_eq!(taken.as_ref().err().map(|limited| limited.retry_after), wait);
                    if let Err(limited) = taken {
                        // Waiting so long is enough, and a nanosecond less is not.
                        let alone = std::slice::from_ref(&limited.charge);
                        let early = now + limited.retry_after - Duration::from_nanos(1);
                        prop_assert!(buckets.take(alone, early).is_err());
                    }
                }
            }
        }
    }
}

fn tenant(n: usize) -> Charge {
    Charge {
        whose: Whose::Tenant(n.to_string()),
        rate: Rate {
            calls: 1,
            per: Duration::from_secs(10),
            burst: 1,
        },
    }
}

#[test]
fn invented_tenants_do_not_fill_the_memory() {
    let mut buckets = Rates::default();
    let start = Duration::from_secs(1);
    let refused = (0..100_000).find(|n| buckets.take(&[tenant(*n)], start).is_err());
    assert_eq!(refused, Some(65_536));
    // Whoever names none has a bucket of their own, and of their tool.
    for whose in [Whose::Caller(7), Whose::Tool("bash".to_owned())] {
        let charge = Charge { whose, ..tenant(0) };
        assert!(buckets.take(std::slice::from_ref(&charge), start).is_ok());
        assert!(buckets.take(&[charge], start).is_err());
    }
    // Those that are there go on as they were.
    assert!(buckets.take(&[tenant(7)], start).is_err());
    let later = Duration::from_secs(12);
    assert!(buckets.take(&[tenant(7)], later).is_ok());
    assert!(buckets.take(&[tenant(100_001)], later).is_ok());
}

#[test]
fn another_rate_begins_with_a_full_bucket() {
    let mut buckets = Rates::default();
    let now = Duration::from_secs(1);
    let mut charge = tenant(1);
    assert!(buckets.take(std::slice::from_ref(&charge), now).is_ok());
    assert!(buckets.take(std::slice::from_ref(&charge), now).is_err());
    charge.rate.burst = 2;
    assert!(buckets.take(std::slice::from_ref(&charge), now).is_ok());
}
