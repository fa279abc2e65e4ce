use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use proptest::prelude::*;

use crate::config::{FlowConfig, ToolFlow};
use crate::flow::places::{Entered, Origin, Party, Places, Ticket};

const TOOLS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    Enter {
        tool: usize,
        party: u32,
        origin: Origin,
    },
    /// One of those that are there, whether it has a place or waits.
    Leave(prop::sample::Index),
    Configure(FlowConfig),
}

fn config() -> impl Strategy<Value = FlowConfig> {
    let cap = || proptest::option::of(1u32..4);
    (cap(), 0u32..6, cap(), cap()).prop_map(|(max_running, queue_max, a, b)| {
        let tool = |max_running| ToolFlow {
            max_running,
            ..ToolFlow::default()
        };
        let tools = [("a".to_owned(), tool(a)), ("b".to_owned(), tool(b))];
        FlowConfig {
            max_running,
            queue_max,
            tools: BTreeMap::from(tools),
            ..FlowConfig::default()
        }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let origin = prop_oneof![4 => Just(Origin::Outside), 1 => Just(Origin::Within)];
    let enter = (0..TOOLS.len(), 0u32..3, origin).prop_map(|(tool, party, origin)| Step::Enter {
        tool,
        party,
        origin,
    });
    let step = prop_oneof![
        6 => enter,
        5 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => config().prop_map(Step::Configure),
    ];
    proptest::collection::vec(step, 1..200)
}

#[derive(Clone, Debug, PartialEq)]
struct Call {
    ticket: Ticket,
    tool: &'static str,
    party: u32,
    origin: Origin,
}

/// Who has a place and who waits, in the order of their coming: all that may be said of them.
#[derive(Default)]
struct Model {
    config: FlowConfig,
    running: Vec<Call>,
    waiting: Vec<Call>,
    /// Of each party that waits for a tool, those that were served before it since it waits.
    passed: HashMap<(&'static str, u32), HashSet<u32>>,
}

impl Model {
    fn has_room(&self, tool: &str, origin: Origin) -> bool {
        let of_tool = self.running.iter().filter(|call| call.tool == tool);
        let outside = self.running.iter();
        let outside = outside.filter(|call| call.origin == Origin::Outside);
        let tool_max = self.config.tool(tool).max_running;
        let max = self
            .config
            .max_running
            .filter(|_| origin == Origin::Outside);
        tool_max.is_none_or(|max| of_tool.count() < max as usize)
            && max.is_none_or(|max| outside.count() < max as usize)
    }

    /// One of those that waited has got a place: whose turn was it?
    fn served(&mut self, ticket: Ticket) -> Result<(), TestCaseError> {
        let at = self.waiting.iter().position(|call| call.ticket == ticket);
        let at = at.expect("it waited");
        let call = self.waiting.remove(at);
        prop_assert!(
            self.has_room(call.tool, call.origin),
            "no room for {call:?}"
        );
        let same = |other: &&Call| other.tool == call.tool && other.origin == call.origin;
        let before = self.waiting[..at].iter().filter(same);
        match call.origin {
            // In the order of their coming.
            Origin::Within => prop_assert_eq!(before.count(), 0),
            Origin::Outside => {
                let own = before.filter(|other| other.party == call.party);
                prop_assert_eq!(own.count(), 0);
                self.passed.remove(&(call.tool, call.party));
                let others = self.waiting.iter().filter(same);
                for other in others.filter(|other| other.party != call.party) {
                    let passed = self.passed.entry((call.tool, other.party)).or_default();
                    passed.insert(call.party);
                }
            }
        }
        self.running.push(call);
        Ok(())
    }

    /// Nobody may be served twice while another waits.
    fn is_unfair(&self, ticket: Ticket) -> bool {
        let call = self.waiting.iter().find(|call| call.ticket == ticket);
        let call = call.expect("it waits");
        let others = self.waiting.iter().filter(|other| {
            call.origin == Origin::Outside
                && other.origin == Origin::Outside
                && other.tool == call.tool
                && other.party != call.party
        });
        others.into_iter().any(|other| {
            let passed = self.passed.get(&(call.tool, other.party));
            passed.is_some_and(|passed| passed.contains(&call.party))
        })
    }

    fn forget_parties_that_do_not_wait(&mut self) {
        let waiting = &self.waiting;
        self.passed.retain(|(tool, party), _| {
            let mut outside = waiting.iter();
            outside.any(|call| {
                call.origin == Origin::Outside && call.tool == *tool && call.party == *party
            })
        });
    }
}

fn advance(places: &mut Places, model: &mut Model) -> Result<(), TestCaseError> {
    while let Some(ticket) = places.advance(Duration::ZERO) {
        prop_assert!(!model.is_unfair(ticket), "a turn too many");
        model.served(ticket)?;
        model.forget_parties_that_do_not_wait();
    }
    // No place is free that somebody waits for.
    for call in &model.waiting {
        prop_assert!(
            !model.has_room(call.tool, call.origin),
            "{call:?} waits for nothing"
        );
    }
    let running = model.running.iter();
    let outside = running
        .filter(|call| call.origin == Origin::Outside)
        .count();
    prop_assert_eq!(places.running() as usize, outside);
    for (tool, running, waiting) in places.tools() {
        let of_tool = |calls: &[Call]| calls.iter().filter(|call| call.tool == tool).count();
        prop_assert_eq!(running as usize, of_tool(&model.running));
        prop_assert_eq!(waiting as usize, of_tool(&model.waiting));
    }
    Ok(())
}

fn leave(places: &mut Places, model: &mut Model, ticket: Ticket) {
    places.leave(ticket, Duration::ZERO);
    model.running.retain(|call| call.ticket != ticket);
    model.waiting.retain(|call| call.ticket != ticket);
    model.forget_parties_that_do_not_wait();
}

proptest! {
    #[test]
    fn places_are_like_their_model(first in config(), steps in steps()) {
        let (mut places, mut model) = (Places::default(), Model::default());
        places.configure(&first);
        model.config = first;
        for step in steps {
            match step {
                Step::Enter { tool, party, origin } => {
                    let tool = TOOLS[tool];
                    let whose = Party { uid: party, tenant: None };
                    let waiting = model.waiting.iter().filter(|call| call.tool == tool).count();
                    let has_room = model.has_room(tool, origin);
                    let is_full = waiting >= model.config.queue_max as usize;
                    let call = |ticket| Call { ticket, tool, party, origin };
                    match places.enter(tool, whose, origin, Duration::ZERO) {
                        Entered::Placed(ticket) => {
                            prop_assert!(has_room);
                            model.running.push(call(ticket));
                        }
                        Entered::Waits(ticket) => {
                            prop_assert!(!has_room && !is_full);
                            model.waiting.push(call(ticket));
                        }
                        Entered::Full { .. } => prop_assert!(!has_room && is_full),
                    }
                }
                Step::Leave(index) => {
                    let all = model.running.iter().chain(&model.waiting);
                    let all: Vec<Ticket> = all.map(|call| call.ticket).collect();
                    if !all.is_empty() {
                        leave(&mut places, &mut model, *index.get(&all));
                    }
                }
                Step::Configure(config) => {
                    places.configure(&config);
                    model.config = config;
                }
            }
            advance(&mut places, &mut model)?;
        }
        // All come to their turn when those that run end.
        while let Some(call) = model.running.first().cloned() {
            leave(&mut places, &mut model, call.ticket);
            advance(&mut places, &mut model)?;
        }
        prop_assert_eq!(&model.waiting, &[]);
    }
}

#[test]
fn a_place_in_the_queue_is_expected_as_soon_as_calls_have_ended_so_far() {
    let mut places = Places::default();
    let mut config = FlowConfig {
        queue_max: 0,
        ..FlowConfig::default()
    };
    let tool = ToolFlow {
        max_running: Some(2),
        ..ToolFlow::default()
    };
    config.tools.insert("a".to_owned(), tool);
    places.configure(&config);
    let whose = || Party {
        uid: 0,
        tenant: None,
    };
    let enter = |places: &mut Places, secs| {
        places.enter("a", whose(), Origin::Outside, Duration::from_secs(secs))
    };
    let Entered::Placed(first) = enter(&mut places, 0) else {
        panic!("there is room");
    };
    places.leave(first, Duration::from_secs(60));
    for _ in 0..2 {
        assert!(matches!(enter(&mut places, 60), Entered::Placed(_)));
    }
    // One of two ends every 30 s.
    let retry_after = Duration::from_secs(30);
    assert_eq!(enter(&mut places, 61), Entered::Full { retry_after });
}
