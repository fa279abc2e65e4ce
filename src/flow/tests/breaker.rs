use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::config::{BreakerConfig, FlowConfig, ToolFlow};
use crate::flow::Flow;
use crate::flow::breaker::{Breakers, CircuitState, Pass, Verdict};

#[derive(Clone, Debug)]
enum Step {
    Pass(Duration),
    Call,
    /// One of the calls under way ends.
    End(prop::sample::Index, Verdict),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let verdict = prop_oneof![
        4 => Just(Verdict::Failure),
        2 => Just(Verdict::Success),
        1 => Just(Verdict::Nothing),
    ];
    let step = prop_oneof![
        1 => (0u64..8).prop_map(|secs| Step::Pass(Duration::from_secs(secs))),
        3 => Just(Step::Call),
        3 => (any::<prop::sample::Index>(), verdict).prop_map(|(index, verdict)| Step::End(index, verdict)),
    ];
    proptest::collection::vec(step, 1..200)
}

/// What a breaker is: a count of failures in a row, and since when it is open.
#[derive(Default)]
struct Model {
    in_a_row: u32,
    opened: Option<Duration>,
    /// Whether the time is over and it is known: somebody has called since.
    is_half_open: bool,
}

proptest! {
    #[test]
    fn a_breaker_is_like_its_model(failures in 1u32..4, open in 1u64..10, steps in steps()) {
        let config = BreakerConfig {
            failures,
            open: Duration::from_secs(open),
            exit_codes: false,
        };
        let (mut breakers, mut model) = (Breakers::default(), Model::default());
        let (mut now, mut under_way) = (Duration::ZERO, Vec::<Pass>::new());
        for step in steps {
            let has_trial = under_way.contains(&Pass::Trial);
            match step {
                Step::Pass(time) => now += time,
                Step::Call => match (breakers.enter("a", now), model.opened) {
                    (Ok(pass), None) => {
                        prop_assert_eq!(pass, Pass::Ordinary);
                        under_way.push(pass);
                    }
                    (Ok(pass), Some(opened)) => {
                        prop_assert_eq!(pass, Pass::Trial);
                        prop_assert!(!has_trial && now >= opened + config.open);
                        model.is_half_open = true;
                        under_way.push(pass);
                    }
                    (Err(refused), opened) => {
                        let opens = opened.expect("it is open") + config.open;
                        if has_trial {
                            prop_assert!(opens <= now);
                        } else {
                            // Who waits that long is the trial.
                            prop_assert_eq!(now + refused.retry_after, opens);
                        }
                    }
                },
                Step::End(index, verdict) => {
                    if under_way.is_empty() {
                        continue;
                    }
                    let pass = under_way.swap_remove(index.index(under_way.len()));
                    let changed = breakers.record("a", pass, verdict, &config, now);
                    let counts = model.opened.is_none() || pass == Pass::Trial;
                    let expected = match (counts, verdict) {
                        (false, _) | (true, Verdict::Nothing) => None,
                        (true, Verdict::Success) => {
                            model.in_a_row = 0;
                            model.is_half_open = false;
                            model.opened.take().map(|_| CircuitState::Closed)
                        }
                        (true, Verdict::Failure) => {
                            model.in_a_row += 1;
                            let opens = model.is_half_open || model.in_a_row >= failures;
                            if opens {
                                model.opened = Some(now);
                                model.is_half_open = false;
                            }
                            opens.then_some(CircuitState::Open)
                        }
                    };
                    prop_assert_eq!(changed, expected);
                }
            }
            let state = breakers.states(now).next().map_or(CircuitState::Closed, |(_, state, _)| state);
            let expected = match (model.opened, model.is_half_open) {
                (None, _) => CircuitState::Closed,
                (Some(opened), false) if now < opened + config.open => CircuitState::Open,
                (Some(_), false) => CircuitState::HalfOpen,
                (Some(_), true) => CircuitState::HalfOpen,
            };
            prop_assert_eq!(state, expected);
        }
    }
}

/// Does `work` as far as it comes without what somebody else holds.
fn until_it_waits<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) {
    let (tell, told) = mpsc::channel();
    scope.spawn(move || {
        let thread = std::fs::read_link("/proc/thread-self").expect("it runs");
        tell.send(thread).expect("it listens");
        work();
    });
    let thread = Path::new("/proc").join(told.recv().expect("it begins"));
    let deadline = Instant::now() + Duration::from_secs(20);
    let is_waiting = || {
        let stat = std::fs::read_to_string(thread.join("stat"));
        stat.is_ok_and(|stat| stat.contains(") S "))
    };
    while !is_waiting() {
        assert!(Instant::now() < deadline, "it does not wait");
        thread::yield_now();
    }
}

/// It ends while a reload takes the circuit away, in between of all that the reload does.
#[test]
fn a_circuit_that_is_taken_away_is_not_opened_by_a_call_that_is_under_way() {
    let breaker = BreakerConfig {
        failures: 1,
        open: Duration::from_secs(3600),
        exit_codes: false,
    };
    let tool = ToolFlow {
        breaker: Some(breaker),
        ..ToolFlow::default()
    };
    let with = FlowConfig {
        tools: BTreeMap::from([("a".to_owned(), tool)]),
        ..FlowConfig::default()
    };
    let flow = Flow::new(&with, "host".to_owned());
    let passage = flow.pass("a").ok().flatten().expect("a new circuit");
    thread::scope(|scope| {
        let held = flow.shared.breakers.lock();
        // Whoever waits first is next.
        until_it_waits(scope, || flow.configure(&FlowConfig::default()));
        until_it_waits(scope, || {
            passage.record(Verdict::Failure);
        });
        drop(held);
    });
    assert!(flow.look("a").is_ok(), "it is open");
}
