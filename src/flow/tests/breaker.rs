use std::time::Duration;

use proptest::prelude::*;

use crate::config::BreakerConfig;
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
