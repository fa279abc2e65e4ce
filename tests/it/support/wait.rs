use std::fmt::Debug;
use std::time::{Duration, Instant};

/// How long anything in these tests may take to come about. Far beyond what it does take: it is
/// there so that a defect fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `find` finds something, and fails the test with `what` when it never does.
#[track_caller]
pub fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "never came about: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until `holds` holds.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Waits as [`wait_for`], while the event loop goes on.
pub async fn wait_on<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find().await {
            return found;
        }
        assert!(Instant::now() < deadline, "never came about: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until `find` finds `expected`, and fails the test with what it found last.
#[track_caller]
pub fn wait_to_equal<T: Debug + PartialEq>(what: &str, expected: T, mut find: impl FnMut() -> T) {
    let deadline = Instant::now() + PATIENCE;
    let mut found = find();
    while found != expected && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
        found = find();
    }
    assert_eq!(found, expected, "{what}");
}
