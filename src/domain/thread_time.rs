//! What a thread took of a processor.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time that the calling thread has run, in whatever mode (`CLOCK_THREAD_CPUTIME_ID` of `clock_gettime(2)`). It stands
/// still while others are on the processor.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is ever negative.
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn it_stands_still_while_a_thread_sleeps() {
        let before = thread_time();
        thread::sleep(Duration::from_millis(200));
        let slept = thread_time() - before;
        assert!(slept < Duration::from_millis(100), "{slept:?}");
        while thread_time() - before < Duration::from_millis(10) {}
    }
}
