use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use proptest::prelude::*;

use crate::config::{FlowConfig, ToolFlow};
use crate::flow::places::{Entered, Origin, Party, Places, Ticket};
use crate::flow::shares::{Cap, Claims, Demand, Shares};

const TOOLS: [&str; 3] = ["a", "b", "c"];
const DAEMONS: usize = 3;

/// What the script does (`redis/hold.lua`), but that claims do not lapse.
#[derive(Default)]
struct Server {
    /// Those that were there first come first.
    claims: BTreeMap<Cap, Vec<String>>,
}

impl Server {
    fn hold(&mut self, told: &Claims) -> Vec<bool> {
        let all = self.claims.entry(told.cap.clone()).or_default();
        all.retain(|id| !told.gone.contains(id));
        for claim in &told.claims {
            if claim.is_held {
                all.retain(|id| *id != claim.id);
                all.insert(0, claim.id.clone());
            } else if !all.contains(&claim.id) {
                all.push(claim.id.clone());
            }
        }
        let held = |id: &String| all.iter().position(|other| other == id);
        let held = told.claims.iter().map(|claim| held(&claim.id));
        held.map(|at| at.is_some_and(|at| at < told.places as usize))
            .collect()
    }
}

struct Daemon {
    places: Places,
    calls: HashMap<Ticket, (&'static str, Origin)>,
    placed: Vec<Ticket>,
}

impl Daemon {
    fn new(name: usize, config: &FlowConfig) -> Self {
        let mut places = Places::default();
        places.configure(config);
        places.share_anew(name.to_string());
        Self {
            places,
            calls: HashMap::new(),
            placed: Vec::new(),
        }
    }

    fn enter(&mut self, tool: &'static str, origin: Origin) {
        let party = Party {
            uid: 0,
            tenant: None,
        };
        match self.places.enter(tool, party, origin, Duration::ZERO) {
            Entered::Placed(ticket) => {
                self.calls.insert(ticket, (tool, origin));
                self.placed.push(ticket);
            }
            Entered::Waits(ticket) => drop(self.calls.insert(ticket, (tool, origin))),
            Entered::Full { .. } => {}
        }
    }

    fn leave(&mut self, ticket: Ticket) {
        self.places.leave(ticket, Duration::ZERO);
        self.calls.remove(&ticket);
        self.placed.retain(|other| *other != ticket);
        self.advance();
    }

    fn advance(&mut self) {
        while let Some(ticket) = self.places.advance(Duration::ZERO) {
            self.placed.push(ticket);
        }
    }

    /// Until there is nothing new to say.
    fn talk(&mut self, server: &mut Server) {
        loop {
            for claims in self.places.claims() {
                let held = server.hold(&claims);
                self.places.learn(&claims, &held);
                self.advance();
            }
            if !self.places.has_news() {
                return;
            }
        }
    }

    fn keep_alone(&mut self) {
        self.places.keep_alone();
        self.advance();
    }

    fn running(&self, counts: impl Fn(&'static str, Origin) -> bool) -> usize {
        let placed = self.placed.iter();
        let calls = placed.map(|ticket| self.calls[ticket]);
        calls.filter(|(tool, origin)| counts(tool, *origin)).count()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enter(usize, usize, Origin),
    /// One that runs or waits.
    Leave(usize, prop::sample::Index),
    Talk(usize),
    /// A daemon's server is gone for it, until it talks.
    Lose(usize),
    /// The server has forgotten everything.
    Forget,
}

fn config() -> impl Strategy<Value = FlowConfig> {
    let cap = || proptest::option::of(1u32..4);
    (cap(), cap(), cap(), cap(), cap()).prop_map(|(max, all, of_a, shared_a, shared_b)| {
        let tool = |max_running, max_running_shared| ToolFlow {
            max_running,
            max_running_shared,
            ..ToolFlow::default()
        };
        let tools = [
            ("a".to_owned(), tool(of_a, shared_a)),
            ("b".to_owned(), tool(None, shared_b)),
        ];
        FlowConfig {
            max_running: max,
            max_running_shared: all,
            queue_max: 5,
            tools: BTreeMap::from(tools),
            ..FlowConfig::default()
        }
    })
}

fn steps(with_losses: bool) -> impl Strategy<Value = Vec<Step>> {
    let origin = prop_oneof![4 => Just(Origin::Outside), 1 => Just(Origin::Within)];
    let enter = (0..DAEMONS, 0..TOOLS.len(), origin)
        .prop_map(|(daemon, tool, origin)| Step::Enter(daemon, tool, origin));
    let leave = (0..DAEMONS, any::<prop::sample::Index>())
        .prop_map(|(daemon, which)| Step::Leave(daemon, which));
    let lost = u32::from(with_losses);
    let step = prop_oneof![
        6 => enter,
        5 => leave,
        8 => (0..DAEMONS).prop_map(Step::Talk),
        lost => (0..DAEMONS).prop_map(Step::Lose),
        lost => Just(Step::Forget),
    ];
    proptest::collection::vec(step, 1..200)
}

struct World {
    config: FlowConfig,
    daemons: Vec<Daemon>,
    server: Server,
}

impl World {
    fn new(config: FlowConfig) -> Self {
        let mut server = Server::default();
        let mut daemons: Vec<Daemon> = (0..DAEMONS)
            .map(|name| Daemon::new(name, &config))
            .collect();
        for daemon in &mut daemons {
            daemon.talk(&mut server);
        }
        Self {
            config,
            daemons,
            server,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Enter(daemon, tool, origin) => self.daemons[*daemon].enter(TOOLS[*tool], *origin),
            Step::Leave(daemon, which) => {
                let daemon = &mut self.daemons[*daemon];
                let mut calls: Vec<Ticket> = daemon.calls.keys().copied().collect();
                calls.sort();
                if !calls.is_empty() {
                    daemon.leave(*which.get(&calls));
                }
            }
            Step::Talk(daemon) => self.daemons[*daemon].talk(&mut self.server),
            Step::Lose(daemon) => self.daemons[*daemon].keep_alone(),
            Step::Forget => self.server = Server::default(),
        }
    }

    fn running(&self, counts: impl Fn(&'static str, Origin) -> bool) -> usize {
        let daemons = self.daemons.iter();
        daemons.map(|daemon| daemon.running(&counts)).sum()
    }

    /// No more run anywhere than may.
    fn keeps_to_the_caps(&self) -> Result<(), TestCaseError> {
        for tool in TOOLS {
            let running = self.running(|other, _| other == tool);
            if let Some(max) = self.config.tool(tool).max_running_shared {
                prop_assert!(running <= max as usize, "{running} calls of {tool}");
            }
        }
        let outside = self.running(|_, origin| origin == Origin::Outside);
        if let Some(max) = self.config.max_running_shared {
            prop_assert!(outside <= max as usize, "{outside} calls in all");
        }
        Ok(())
    }

    /// All come to their turn when those that run end, however little each daemon knows of the others.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        let calls = |world: &Self| -> usize { world.daemons.iter().map(|it| it.calls.len()).sum() };
        loop {
            // What the last gave up is heard of by the first.
            for at in (0..DAEMONS).chain(0..DAEMONS) {
                self.daemons[at].talk(&mut self.server);
            }
            if calls(self) == 0 {
                break;
            }
            let placed = self.daemons.iter().any(|daemon| !daemon.placed.is_empty());
            prop_assert!(placed, "they wait for each other");
            for daemon in &mut self.daemons {
                for ticket in daemon.placed.clone() {
                    daemon.leave(ticket);
                }
            }
        }
        let left: Vec<_> = self.server.claims.values().flatten().collect();
        prop_assert!(left.is_empty(), "{left:?}");
        Ok(())
    }
}

proptest! {
    #[test]
    fn no_more_run_on_all_daemons_than_may(config in config(), steps in steps(false)) {
        let mut world = World::new(config);
        for step in steps {
            world.step(&step);
            world.keeps_to_the_caps()?;
        }
        world.drain()?;
    }

    #[test]
    fn a_server_that_is_lost_holds_nobody_up_and_is_found_again(config in config(), steps in steps(true)) {
        let mut world = World::new(config.clone());
        for step in steps {
            world.step(&step);
            for daemon in &world.daemons {
                // By itself each keeps to them, whatever the server says.
                for tool in TOOLS {
                    let running = daemon.running(|other, _| other == tool);
                    let max = config.tool(tool).max_running_shared;
                    prop_assert!(max.is_none_or(|max| running <= max as usize));
                }
            }
        }
        // It may know of claims that a daemon gave up while it could not be told.
        world.drain()?;
        for daemon in 0..DAEMONS {
            world.step(&Step::Enter(daemon, 0, Origin::Outside));
            world.step(&Step::Talk(daemon));
        }
        world.keeps_to_the_caps()?;
        world.drain()?;
    }
}

#[test]
fn who_came_first_is_served_first_wherever_that_was() {
    let tool = ToolFlow {
        max_running_shared: Some(1),
        ..ToolFlow::default()
    };
    let config = FlowConfig {
        tools: BTreeMap::from([("a".to_owned(), tool)]),
        ..FlowConfig::default()
    };
    let mut world = World::new(config);
    for daemon in [0, 0, 1, 0, 2] {
        world.step(&Step::Enter(daemon, 0, Origin::Outside));
        world.step(&Step::Talk(daemon));
    }
    let mut served = Vec::new();
    while let Some(at) = (0..DAEMONS).find(|at| !world.daemons[*at].placed.is_empty()) {
        served.push(at);
        let ticket = world.daemons[at].placed[0];
        world.daemons[at].leave(ticket);
        // Those before the last have not heard of what it gave up.
        for daemon in (0..DAEMONS).chain(0..DAEMONS) {
            world.step(&Step::Talk(daemon));
        }
    }
    // At most as many claims as there are places wait for a daemon: its second call claims when its first has ended.
    assert_eq!(served, [0, 1, 2, 0, 0]);
}

/// As after a reload, before which there was no cap.
#[test]
fn of_more_calls_than_there_can_be_places_for_as_many_hold_one() {
    let mut shares = Shares::new("a".to_owned());
    let want = |shares: &mut Shares, running| {
        shares.want(vec![Demand {
            cap: Cap::All,
            places: 4,
            running,
            wanted: 4,
        }]);
        shares.told().remove(0)
    };
    let told = want(&mut shares, 1025);
    assert_eq!(told.claims.len(), 1000, "a reply has room for so many");
    assert!(told.claims.iter().all(|claim| claim.is_held));
    // Each that ends makes room for nobody while there are more.
    for running in [1024, 1000, 999] {
        shares.give_up(&Cap::All);
        assert_eq!(
            want(&mut shares, running).claims.len(),
            running.min(1000) as usize
        );
    }
}

/// Calls come and go while the server cannot be told of them.
#[test]
fn what_is_to_be_told_does_not_grow_without_end() {
    let mut shares = Shares::new("a".to_owned());
    for _ in 0..10_000 {
        shares.want(vec![Demand {
            cap: Cap::All,
            places: 4,
            running: 1,
            wanted: 2,
        }]);
        shares.give_up(&Cap::All);
    }
    let told = shares.told();
    assert!(told[0].gone.len() <= 1024, "{}", told[0].gone.len());
    // What ended last is what the server still knows of.
    assert!(shares.has_news() && told[0].gone.iter().any(|id| id == "a/9999"));
}
