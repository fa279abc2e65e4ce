//! Token buckets: what the script is asked, and what it says.

use std::time::Duration;

use crate::flow::refusal::{Charge, Limited, Whose};

pub(super) const SCRIPT: &str = include_str!("take.lua");

/// What the names of all buckets begin with.
const PREFIX: &str = "shelly:rate:";

/// The buckets, one for each charge.
pub(super) fn keys(charges: &[Charge]) -> Vec<String> {
    let key = |charge: &Charge| match &charge.whose {
        Whose::Tool(name) => format!("{PREFIX}tool:{name}"),
        Whose::Caller(uid) => format!("{PREFIX}caller:{uid}"),
        Whose::Tenant(id) => format!("{PREFIX}tenant:{id}"),
    };
    charges.iter().map(key).collect()
}

pub(super) fn words(charges: &[Charge]) -> Vec<String> {
    let words = charges.iter().flat_map(|Charge { rate, .. }| {
        let interval = (rate.per / rate.calls).as_secs_f64() * 1e6;
        let ahead = interval * f64::from(rate.burst - 1);
        [interval, ahead].map(|micros| format!("{micros:.3}"))
    });
    words.collect()
}

/// What the script says: 0, or which bucket has no call left and for how many microseconds. `None` if
/// that is not it.
pub(super) fn read(numbers: &[i64], charges: &[Charge]) -> Option<Result<(), Limited>> {
    let &[which, micros] = numbers else {
        return None;
    };
    if which == 0 {
        return Some(Ok(()));
    }
    let charge = charges.get(usize::try_from(which).ok()?.checked_sub(1)?)?;
    // A bucket that another daemon filled at a rate of its own, or by another clock, is not waited for
    // beyond the time in which an empty one is full.
    let longest = charge.rate.per / charge.rate.calls * charge.rate.burst;
    let retry_after = Duration::from_micros(u64::try_from(micros).ok()?);
    Some(Err(Limited {
        charge: charge.clone(),
        retry_after: retry_after.min(longest),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Rate;

    #[test]
    fn a_wait_is_no_longer_than_the_rate_can_mean() {
        let rate = Rate {
            calls: 2,
            per: Duration::from_secs(10),
            burst: 3,
        };
        let whose = Whose::Caller(7);
        let charges = [Charge { whose, rate }];
        let wait = |numbers: &[i64]| {
            read(numbers, &charges).map(|taken| taken.map_err(|limited| limited.retry_after))
        };
        assert_eq!(wait(&[0, 0]), Some(Ok(())));
        let secs = |secs| Some(Err(Duration::from_secs(secs)));
        assert_eq!(wait(&[1, 4_000_000]), secs(4));
        assert_eq!(wait(&[1, i64::MAX]), secs(15));
        for wrong in [&[][..], &[1], &[2, 1], &[-1, 1], &[1, -1], &[1, 1, 1]] {
            assert_eq!(wait(wrong), None, "{wrong:?}");
        }
    }
}
