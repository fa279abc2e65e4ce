use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long something took, and how late the machine was meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    pub wall: Duration,
    /// By how much a thread that did nothing but sleep was woken late, in all. Where a duration is
    /// the promise, this much of it is a busy machine's doing and not the daemon's.
    pub lateness: Duration,
}

impl Took {
    /// Whether it took at most `limit`, the machine's own lateness aside.
    pub fn within(self, limit: Duration) -> bool {
        self.wall <= limit + self.lateness
    }
}

/// Runs `work` and says how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Took) {
    const NAP: Duration = Duration::from_millis(10);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut lateness = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let before = Instant::now();
                thread::sleep(NAP);
                lateness += before.elapsed().saturating_sub(NAP);
            }
            lateness
        });
        let before = Instant::now();
        let result = work();
        let wall = before.elapsed();
        done.store(true, Ordering::Relaxed);
        let lateness = sleeper.join().expect("a thread that sleeps");
        (result, Took { wall, lateness })
    })
}
