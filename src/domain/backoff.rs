use std::time::Duration;

/// The longest wait before the try of this number, from 1 on: `first` before the first, twice that before each
/// that follows, and never more than `most`.
pub(crate) fn doubled(first: Duration, number: u32, most: Duration) -> Duration {
    let times = 2u32.saturating_pow(number - 1);
    first.saturating_mul(times).min(most)
}

/// A random share of a wait, from 0 to 1: those that failed together do not come again together. Without a random
/// number all of it, which is the best guess.
pub(crate) fn share() -> f64 {
    let random = getrandom::u32().unwrap_or(u32::MAX);
    f64::from(random) / f64::from(u32::MAX)
}
