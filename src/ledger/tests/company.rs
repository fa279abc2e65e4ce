//! How long what has been told to be safe waits for company before it is written.

use std::time::{Duration, Instant};

use super::super::queue::{FEW, Failing, Next, Rest, Shared};
use super::*;

/// How long the writer lets this many wait.
fn patience(writes: usize) -> Duration {
    let head = Head {
        number: 0,
        hash: Digest::ZERO,
    };
    let shared = Shared::new("/nowhere".into(), head, 1);
    for _ in 0..writes {
        shared.queue_then(Failing::never(0), None, |_| |_| Ok(()), |_| {});
    }
    let begun = Instant::now();
    assert!(matches!(shared.next(Rest::Nothing), Next::Write(tasks) if tasks.len() == writes));
    begun.elapsed()
}

#[test]
fn a_crowd_in_the_making_is_waited_for() {
    assert!(patience(1) >= Duration::from_millis(10));
    assert!(patience(FEW + 1) >= Duration::from_millis(50));
}
