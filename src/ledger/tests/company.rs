//! How long what has been told to be safe waits for company before it is written.

use std::time::{Duration, Instant};

use super::super::queue::{CROWD, FEW, Next, Rest, Shared};
use super::super::store::Store;
use super::super::work::Failing;
use super::*;

fn shared() -> Shared {
    let head = Head {
        number: 0,
        hash: Digest::ZERO,
    };
    Shared::new("/nowhere".into(), head, 1)
}

/// How long the writer lets this many wait.
fn patience(writes: usize, rest: Rest) -> Duration {
    let shared = shared();
    for _ in 0..writes {
        shared.queue_then(Failing::never(0), None, |_| |_: &mut Store| Ok(()), |_| {});
    }
    let begun = Instant::now();
    assert!(matches!(shared.next(rest), Next::Write(tasks) if tasks.len() == writes));
    begun.elapsed()
}

/// The shortest of many tries: what a busy machine adds to one is not the writer's.
fn at_best(tries: usize, writes: usize, rest: Rest) -> Duration {
    let tries = (0..tries).map(|_| patience(writes, rest));
    tries.min().expect("tries")
}

#[test]
fn more_than_a_few_are_the_beginning_of_a_crowd() {
    assert!(patience(1, Rest::Nothing) >= Duration::from_millis(10));
    assert!(patience(FEW + 1, Rest::Nothing) >= Duration::from_millis(50));
    let a_few = at_best(20, FEW, Rest::Nothing);
    assert!(a_few < Duration::from_millis(50), "{a_few:?}");
    let a_crowd = at_best(20, CROWD, Rest::Nothing);
    assert!(a_crowd < Duration::from_millis(10), "{a_crowd:?}");
}

#[test]
fn a_file_that_cannot_be_written_is_tried_again_at_the_usual_time() {
    let once = at_best(3, FEW + 1, Rest::Failing);
    assert!(once >= Duration::from_millis(500), "{once:?}");
    assert!(once < Duration::from_millis(1000), "{once:?}");
}

#[test]
fn a_damage_is_told_for_as_long_as_the_file_is_there() {
    let shared = shared();
    let code = || shared.problem().map(|problem| problem.code);
    let file = PathBuf::from("/nowhere");
    shared.set_problem(Some(&LedgerError::Full { file: file.clone() }));
    assert_eq!(code(), Some("ledger_full"));
    shared.set_problem(None);
    assert_eq!(code(), None);
    let detail = "a page of it".to_owned();
    shared.set_problem(Some(&LedgerError::Damaged { file, detail }));
    // Another write went well.
    shared.set_problem(None);
    assert_eq!(code(), Some("ledger_damaged"));
}
