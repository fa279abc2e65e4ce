//! What of the places that several daemons share is this daemon's. Pure: what is to be said to the server
//! is given out, what it says is taken in.

use std::collections::BTreeMap;

use crate::config::MOST_SHARED;

/// How many claims the server is told of that are none any more. It forgets each by itself some seconds later, which is what
/// becomes of more when it could not be told for long.
const MOST_GONE: usize = 1024;

/// What places are shared for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cap {
    /// Calls from outside of whatever tool.
    All,
    Tool(String),
}

/// What is wanted of the places of a cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    pub(super) cap: Cap,
    /// How many places there are on all daemons together.
    pub(super) places: u32,
    /// How many calls have one here, whatever the server knows of it.
    pub(super) running: u32,
    /// How many could be used here, with those.
    pub(super) wanted: u32,
}

/// A place that is held or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// What it is called among those of all daemons.
    pub(super) id: String,
    pub(super) is_held: bool,
}

/// What the server is to know of a cap. To say it twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) cap: Cap,
    pub(super) places: u32,
    pub(super) claims: Vec<Claim>,
    /// Claims that are none any more.
    pub(super) gone: Vec<String>,
}

/// The claims of one daemon.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// What the names of its claims begin with, for who looks at them in the server.
    name: String,
    next: u64,
    /// What `next` was when the server was told last.
    told: u64,
    caps: BTreeMap<Cap, Share>,
}

#[derive(Debug, Default)]
struct Share {
    places: u32,
    claims: Vec<Claim>,
    gone: Vec<String>,
}

impl Shares {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// How many places are held.
    pub(super) fn held(&self, cap: &Cap) -> u32 {
        let claims = self.caps.get(cap).map_or(&[][..], |share| &share.claims);
        let held = claims.iter().filter(|claim| claim.is_held).count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// A call that had a place has ended. Whoever has waited the longest, wherever that is, comes next.
    pub(super) fn give_up(&mut self, cap: &Cap) {
        let Some(share) = self.caps.get_mut(cap) else {
            return;
        };
        if let Some(at) = share.claims.iter().position(|claim| claim.is_held) {
            share.let_go(at);
        }
    }

    /// This is what is wanted from now on, and nothing else.
    pub(super) fn want(&mut self, demands: Vec<Demand>) {
        for (cap, share) in &mut self.caps {
            if !demands.iter().any(|demand| demand.cap == *cap) {
                share.shrink(0);
            }
        }
        for demand in demands {
            let share = self.caps.entry(demand.cap).or_default();
            share.places = demand.places;
            let counted = |calls: u32| calls.min(MOST_SHARED) as usize;
            let (running, wanted) = (counted(demand.running), counted(demand.wanted));
            share.shrink(wanted.max(running));
            let mut claim = |is_held| {
                self.next += 1;
                let id = format!("{}/{}", self.name, self.next);
                Claim { id, is_held }
            };
            // Who runs has a place, whether the server was asked for it or not. More than there can be may run where
            // there was no cap when they began: nobody gets a place before they have become fewer.
            let held = |claims: &[Claim]| claims.iter().filter(|claim| claim.is_held).count();
            while held(&share.claims) < running {
                match share.claims.iter_mut().find(|claim| !claim.is_held) {
                    Some(waiting) => waiting.is_held = true,
                    None => share.claims.push(claim(true)),
                }
            }
            while share.claims.len() < wanted {
                share.claims.push(claim(false));
            }
        }
    }

    /// What the server is to be told.
    pub(super) fn told(&mut self) -> Vec<Claims> {
        self.told = self.next;
        let caps = self.caps.iter();
        let caps = caps.filter(|(_, share)| !share.is_empty());
        let claims = caps.map(|(cap, share)| Claims {
            cap: cap.clone(),
            places: share.places,
            claims: share.claims.clone(),
            gone: share.gone.clone(),
        });
        claims.collect()
    }

    /// The server knows, and says of each claim whether it is a place now.
    pub(super) fn learn(&mut self, told: &Claims, held: &[bool]) {
        let Some(share) = self.caps.get_mut(&told.cap) else {
            return;
        };
        share.gone.retain(|id| !told.gone.contains(id));
        // A place that is held stays held, whatever the server says: a call runs in it.
        let held = told.claims.iter().zip(held).filter(|(_, held)| **held);
        for (Claim { id, .. }, _) in held {
            // It may have been given up meanwhile.
            if let Some(claim) = share.claims.iter_mut().find(|claim| claim.id == *id) {
                claim.is_held = true;
            }
        }
        if share.is_empty() {
            self.caps.remove(&told.cap);
        }
    }

    /// Whether it was not told of a claim, or of the end of one.
    pub(super) fn has_news(&self) -> bool {
        let mut shares = self.caps.values();
        self.next > self.told || shares.any(|share| !share.gone.is_empty())
    }

    /// Whether anything is waited for.
    pub(super) fn is_waiting(&self) -> bool {
        let mut claims = self.caps.values().flat_map(|share| &share.claims);
        claims.any(|claim| !claim.is_held)
    }
}

impl Share {
    fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.gone.is_empty()
    }

    /// Gives up claims beyond so many: what is waited for first, and of that what came last.
    fn shrink(&mut self, wanted: usize) {
        while self.claims.len() > wanted {
            let waiting = self.claims.iter().rposition(|claim| !claim.is_held);
            let at = waiting.unwrap_or(self.claims.len() - 1);
            self.let_go(at);
        }
    }

    fn let_go(&mut self, at: usize) {
        if self.gone.len() >= MOST_GONE {
            self.gone.remove(0);
        }
        self.gone.push(self.claims.remove(at).id);
    }
}
