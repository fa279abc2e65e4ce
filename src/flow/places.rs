//! Who has a place to run in, who waits for one, and whose turn it is. Pure: time is given.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

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
        if !has_room && waiting >= queue_max {
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
                self.running -= u32::from(holder.origin == Origin::Outside);
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
        let of_tool = self.config.tool(tool).max_running;
        let running = self.tools.get(tool).map_or(0, |known| known.running);
        let in_all = match origin {
            Origin::Outside => self.config.max_running,
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
