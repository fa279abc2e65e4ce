//! Who has a place to run in, who waits for one, and whose turn it is. Pure: time is given.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::shares::{Cap, Claims, Demand, Shares};
use crate::config::FlowConfig;

/// What is waited for where nothing is known of how long calls take.
const USUAL_WAIT: Duration = Duration::from_secs(1);

/// How much the last call counts in how long calls of a tool take: as 1 in so many.
const SMOOTHING: u32 = 4;

/// A call that has a place or waits for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// Who calls, for taking turns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Party {
    pub(crate) uid: u32,
    pub(crate) tenant: Option<String>,
}

/// Where a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Outside,
    /// From a call that has a place, in which it runs: to wait for another in all would be to wait
    /// for its own caller.
    Within,
}

/// What came of the wish for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    Placed(Ticket),
    Waits(Ticket),
    Full { retry_after: Duration },
}

/// All places and queues.
#[derive(Debug, Default)]
pub(super) struct Places {
    config: FlowConfig,
    /// How many from outside have a place.
    running: u32,
    tools: HashMap<String, Tool>,
    /// The tools that are waited for, in the order of their turns.
    turns: VecDeque<String>,
    tickets: HashMap<Ticket, Holder>,
    next: u64,
    /// What this daemon has of the places that several share.
    shares: Shares,
    /// Whether the server that shares them out is asked. Without it this daemon has all of them.
    is_sharing: bool,
}

#[derive(Debug, Default)]
struct Tool {
    running: u32,
    /// They come first: others wait for what they come of.
    within: VecDeque<Ticket>,
    outside: HashMap<Party, VecDeque<Ticket>>,
    /// The parties that wait, in the order of their turns.
    turns: VecDeque<Party>,
    waiting: u32,
    /// How long its calls have taken.
    usual: Option<Duration>,
}

#[derive(Debug)]
struct Holder {
    tool: String,
    party: Party,
    origin: Origin,
    /// Since when it has a place; `None` while it waits.
    since: Option<Duration>,
}

impl Places {
    /// Puts other limits in force. Who has a place keeps it.
    pub(super) fn configure(&mut self, config: &FlowConfig) {
        self.config = config.clone();
    }

    /// Has the shared places shared out anew, by a server that knows nothing of this daemon.
    pub(super) fn share_anew(&mut self, name: String) {
        self.shares = Shares::new(name);
        self.is_sharing = true;
    }

    /// Nobody shares the places out any more: this daemon has all of them.
    pub(super) fn keep_alone(&mut self) {
        self.is_sharing = false;
    }

    /// Whether a call has to wait for what the server says.
    pub(super) fn is_sharing(&self) -> bool {
        self.is_sharing
    }

    /// What the server that shares places out is to be told, which can be asked.
    pub(super) fn claims(&mut self) -> Vec<Claims> {
        self.is_sharing = true;
        let demands = self.demands();
        self.shares.want(demands);
        self.shares.told()
    }

    /// The server says which of the claims are places.
    pub(super) fn learn(&mut self, told: &Claims, held: &[bool]) {
        self.shares.learn(told, held);
    }

    /// Whether there is anything that the server was not told.
    pub(super) fn has_news(&mut self) -> bool {
        let demands = self.demands();
        self.shares.want(demands);
        self.shares.has_news()
    }

    /// Whether any claim is waiting for others to end, elsewhere.
    pub(super) fn is_waiting(&self) -> bool {
        self.shares.is_waiting()
    }

    /// How many shared places could be put to use, by cap. A call needs one of its tool first and only then one of
    /// those for all tools: if one daemon held the first kind and another the second, each would wait for the other.
    fn demands(&self) -> Vec<Demand> {
        let mut demands = Vec::new();
        let mut outside = self.running;
        for (name, tool) in &self.tools {
            let config = self.config.tool(name);
            let usable = |max: Option<u32>, waiting: u32| {
                let room = max.map_or(waiting, |max| max.saturating_sub(tool.running));
                tool.running + waiting.min(room)
            };
            if let Some(places) = config.max_running_shared {
                demands.push(Demand {
                    cap: Cap::Tool(name.clone()),
                    places,
                    running: tool.running,
                    wanted: usable(config.max_running, tool.waiting).min(places),
                });
            }
            let from_outside = tool.outside.values().map(VecDeque::len).sum::<usize>();
            let from_outside = u32::try_from(from_outside).unwrap_or(u32::MAX);
            outside += usable(self.tool_max(name), from_outside) - tool.running;
        }
        if let Some(places) = self.config.max_running_shared {
            let max = self.config.max_running.unwrap_or(places).min(places);
            demands.push(Demand {
                cap: Cap::All,
                places,
                running: self.running,
                wanted: outside.min(max),
            });
        }
        demands
    }

    /// How many calls of a tool may run here.
    fn tool_max(&self, tool: &str) -> Option<u32> {
        let config = self.config.tool(tool);
        let shared = config.max_running_shared;
        let shared = shared.map(|all| self.shared_max(all, || Cap::Tool(tool.to_owned())));
        least(config.max_running, shared)
    }

    /// How many calls from outside may run here.
    fn max(&self) -> Option<u32> {
        let shared = self.config.max_running_shared;
        let shared = shared.map(|all| self.shared_max(all, || Cap::All));
        least(self.config.max_running, shared)
    }

    /// How many more calls there would be room for if the shared places were all this daemon's.
    fn room_alone(&self, tool: &str, origin: Origin) -> u32 {
        let config = self.config.tool(tool);
        let running = self.tools.get(tool).map_or(0, |known| known.running);
        let of_tool = least(config.max_running, config.max_running_shared);
        let of_tool = of_tool.map(|max| max.saturating_sub(running));
        let in_all = match origin {
            Origin::Outside => least(self.config.max_running, self.config.max_running_shared),
            Origin::Within => None,
        };
        let in_all = in_all.map(|max| max.saturating_sub(self.running));
        least(of_tool, in_all).unwrap_or(0)
    }

    fn shared_max(&self, all: u32, cap: impl FnOnce() -> Cap) -> u32 {
        match self.is_sharing {
            true => self.shares.held(&cap()),
            false => all,
        }
    }

    /// A call wants a place.
    pub(super) fn enter(
        &mut self,
        tool: &str,
        party: Party,
        origin: Origin,
        now: Duration,
    ) -> Entered {
        let has_room = self.has_room(tool, origin);
        let queue_max = self.config.queue_max;
        let waiting = self.tools.get(tool).map_or(0, |known| known.waiting);
        // Who only waits to hear from the server does not wait for anybody.
        let is_full = || waiting >= queue_max.saturating_add(self.room_alone(tool, origin));
        if !has_room && is_full() {
            return Entered::Full {
                retry_after: self.usual_wait(tool),
            };
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        let holder = Holder {
            tool: tool.to_owned(),
            party: party.clone(),
            origin,
            since: None,
        };
        self.tickets.insert(ticket, holder);
        if has_room {
            // Nobody who waits could have it, or they would.
            self.place(ticket, now);
            return Entered::Placed(ticket);
        }
        let known = self.tools.entry(tool.to_owned()).or_default();
        if known.waiting == 0 {
            self.turns.push_back(tool.to_owned());
        }
        known.waiting += 1;
        match origin {
            Origin::Within => known.within.push_back(ticket),
            Origin::Outside => {
                let queue = known.outside.entry(party.clone()).or_default();
                if queue.is_empty() {
                    known.turns.push_back(party);
                }
                queue.push_back(ticket);
            }
        }
        Entered::Waits(ticket)
    }

    /// Somebody who waits has got a place: who, as long as there is one to be had.
    pub(super) fn advance(&mut self, now: Duration) -> Option<Ticket> {
        for _ in 0..self.turns.len() {
            let tool = self.turns.pop_front()?;
            let inside = self.has_room(&tool, Origin::Within);
            let outside = self.has_room(&tool, Origin::Outside);
            let known = self.tools.get_mut(&tool)?;
            let mut chosen = None;
            if inside {
                chosen = known.within.pop_front();
            }
            if outside && chosen.is_none() {
                chosen = known.next_outside();
            }
            known.waiting -= u32::from(chosen.is_some());
            if known.waiting > 0 {
                self.turns.push_back(tool);
            }
            if let Some(ticket) = chosen {
                self.place(ticket, now);
                return Some(ticket);
            }
        }
        None
    }

    /// A call is over, or does not want to wait any more.
    pub(super) fn leave(&mut self, ticket: Ticket, now: Duration) {
        let Some(holder) = self.tickets.remove(&ticket) else {
            return;
        };
        let Some(tool) = self.tools.get_mut(&holder.tool) else {
            return;
        };
        match holder.since {
            Some(since) => {
                tool.running -= 1;
                tool.learn(now.saturating_sub(since));
                self.shares.give_up(&Cap::Tool(holder.tool));
                if holder.origin == Origin::Outside {
                    self.running -= 1;
                    self.shares.give_up(&Cap::All);
                }
            }
            None => {
                tool.forget(ticket, &holder);
                tool.waiting -= 1;
                if tool.waiting == 0 {
                    self.turns.retain(|name| *name != holder.tool);
                }
            }
        }
    }

    /// When somebody who waits for the tool is likely to have got a place: one becomes free for each
    /// call that ends.
    pub(super) fn usual_wait(&self, tool: &str) -> Duration {
        let known = self.tools.get(tool);
        let usual = known.and_then(|known| known.usual).unwrap_or(USUAL_WAIT);
        let running = known.map_or(1, |known| known.running.max(1));
        usual / running
    }

    /// How many from outside have a place.
    pub(super) fn running(&self) -> u32 {
        self.running
    }

    /// Each tool with how many of its calls have a place and how many wait.
    pub(super) fn tools(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        let tools = self.tools.iter();
        tools.map(|(name, tool)| (name.as_str(), tool.running, tool.waiting))
    }

    fn has_room(&self, tool: &str, origin: Origin) -> bool {
        let of_tool = self.tool_max(tool);
        let running = self.tools.get(tool).map_or(0, |known| known.running);
        let in_all = match origin {
            Origin::Outside => self.max(),
            Origin::Within => None,
        };
        of_tool.is_none_or(|max| running < max) && in_all.is_none_or(|max| self.running < max)
    }

    fn place(&mut self, ticket: Ticket, now: Duration) {
        let Some(holder) = self.tickets.get_mut(&ticket) else {
            return;
        };
        holder.since = Some(now);
        self.running += u32::from(holder.origin == Origin::Outside);
        self.tools.entry(holder.tool.clone()).or_default().running += 1;
    }
}

impl Tool {
    /// Takes the first of the party whose turn it is.
    fn next_outside(&mut self) -> Option<Ticket> {
        let party = self.turns.pop_front()?;
        let queue = self.outside.get_mut(&party)?;
        let ticket = queue.pop_front();
        if queue.is_empty() {
            self.outside.remove(&party);
        } else {
            self.turns.push_back(party);
        }
        ticket
    }

    /// Takes one out of its queue.
    fn forget(&mut self, ticket: Ticket, holder: &Holder) {
        match holder.origin {
            Origin::Within => self.within.retain(|other| *other != ticket),
            Origin::Outside => {
                let queue = self.outside.entry(holder.party.clone()).or_default();
                queue.retain(|other| *other != ticket);
                if queue.is_empty() {
                    self.outside.remove(&holder.party);
                    self.turns.retain(|party| *party != holder.party);
                }
            }
        }
    }

    fn learn(&mut self, took: Duration) {
        let usual = self.usual.unwrap_or(took);
        self.usual = Some((usual * (SMOOTHING - 1) + took) / SMOOTHING);
    }
}

/// What holds where both do.
fn least(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.into_iter().chain(other).min()
}
