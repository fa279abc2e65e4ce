use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::leaders::{Enlisted, Leaders, Suspicion};
use super::marks::Marks;
use super::procfs::{self, Stat, Variable};
use super::{Members, Remains, signal_group};
use crate::domain::ExecutionId;
use crate::runner::beside;
use crate::runner::spawn::Leader;

/// How many processes are looked at on the event loop, some 20 µs each. Where there are more of them that is done
/// elsewhere.
pub(super) const FEW: usize = 128;

/// How far a look goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Of few processes what the kernel tells at once.
    Few,
    /// All of them, and what they say themselves.
    All,
}

impl Reach {
    /// How many processes are looked at.
    fn max(self) -> usize {
        match self {
            Self::Few => FEW,
            Self::All => usize::MAX,
        }
    }
}

/// One execution's processes, held together by a process group.
#[derive(Debug)]
pub(in crate::runner) struct GroupTree {
    search: Search,
    leader: Option<Enlisted>,
}

/// What finds one execution's processes: those that descend from the leader, those of its session, and those
/// that carry its id in their environment.
///
/// With a subreaper, what has lost its parent becomes a child of this process (prctl(2),
/// `PR_SET_CHILD_SUBREAPER`), so that everything is found by looking at children only. Without
/// one it becomes a child of init, and every process has to be looked at.
#[derive(Clone, Debug)]
struct Search {
    id: ExecutionId,
    is_recognisable: bool,
    leader: Option<Pid>,
    leaders: Arc<Leaders>,
}

/// Whose an orphan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Mine,
    Another,
    /// It has ended, perhaps only since it was listed.
    Nobody,
    /// Would have to be asked, and was not to be.
    Unasked,
    /// Cannot be told yet.
    Undecided,
    /// Cannot be told.
    Unknown,
}

impl GroupTree {
    /// That of an execution; `is_recognisable` if none of its processes can give up session and environment.
    pub(in crate::runner) fn new(
        id: ExecutionId,
        is_recognisable: bool,
        leaders: &Arc<Leaders>,
    ) -> Self {
        Self {
            search: Search {
                id,
                is_recognisable,
                leader: None,
                leaders: Arc::clone(leaders),
            },
            leader: None,
        }
    }

    /// Starts the leader.
    pub(super) fn bear<E>(
        &mut self,
        start: impl FnOnce() -> Result<Leader, E>,
    ) -> Result<Leader, E> {
        let Search {
            id,
            is_recognisable,
            leaders,
            ..
        } = &self.search;
        let (leader, enlisted) = leaders.bear(*id, start)?;
        if *is_recognisable {
            enlisted.mark_recognisable();
        }
        self.search.leader = Some(leader.pid);
        self.leader = Some(enlisted);
        Ok(leader)
    }

    /// What processes say of themselves.
    pub(super) fn marks(&self) -> &Marks {
        self.search.leaders.marks()
    }

    /// Whether there is no other tree.
    pub(super) fn is_alone(&self) -> bool {
        self.search.leaders.count() <= 1
    }

    pub(super) fn may_have_others(&self, asked: Instant) -> bool {
        self.search.leaders.may_have_orphans(asked)
    }

    pub(super) async fn members(&self) -> Members {
        let look = self.search(Search::look).await;
        Members {
            pids: look.members.into_iter().map(|(pid, _)| pid).collect(),
            is_settled: look.undecided == 0 && !look.is_outrun,
            is_all: !look.has_unknown,
        }
    }

    pub(super) async fn kill(&self, leader: &Leader) -> Remains {
        // The whole group at once, before any of it can fork again.
        let _ = signal_group(leader, Signal::SIGKILL);
        let after = self.search(Search::kill).await;
        let known = after.members.len() + after.undecided;
        Remains {
            known: u32::try_from(known).unwrap_or(u32::MAX),
            proven: after.is_complete,
        }
    }

    /// How much processor time those have used that nobody of it has waited for, as far as it was seen.
    pub(super) fn used(&self) -> Duration {
        self.search.leaders.used(self.search.id)
    }

    /// Has `how` look at few processes here and now, and at more of them, or closer, beside the event loop.
    async fn search(&self, how: fn(&Search, Reach) -> Look) -> Look {
        let few = how(&self.search, Reach::Few);
        if !few.is_cut {
            return few;
        }
        let search = self.search.clone();
        beside(move || how(&search, Reach::All)).await
    }
}

impl Search {
    /// Sends SIGKILL to who is there, and says who is left.
    fn kill(&self, reach: Reach) -> Look {
        let before = self.look(reach);
        for (pid, seen) in &before.members {
            self.leaders.note_killed(self.id, *pid, *seen);
            let _ = procfs::kill_if_same(*pid, *seen);
        }
        if before.is_cut {
            return before;
        }
        self.look(reach)
    }

    /// Who is there. Looks again as long as somebody has turned up or ended meanwhile: who ends takes nobody along,
    /// its children come back as orphans.
    fn look(&self, reach: Reach) -> Look {
        /// What changes as often as this forks faster than it can be followed.
        const LOOKS: usize = 16;
        let mut look = Look::default();
        let mut candidates = self.candidates(&mut look, reach);
        // What turns up and ends meanwhile may be others', of whom some always do on a busy machine.
        let mut has_own = self.leaders.count() <= 1;
        for _ in 0..LOOKS {
            let mut walk = Walk::default();
            let roots = self.leader.into_iter().chain(candidates).collect();
            let is_cut = walk.descend(roots, reach.max());
            if look.is_cut || is_cut {
                look.is_cut = true;
                look.members = walk.found;
                return look;
            }
            look = Look::default();
            candidates = self.candidates(&mut look, reach);
            let nobody_new = candidates.iter().all(|pid| walk.seen.contains(pid));
            let is_stable = nobody_new && !look.is_stale && walk.all_live();
            look.members = walk.found;
            if is_stable {
                return look;
            }
            has_own |= look
                .members
                .iter()
                .any(|(pid, _)| Some(*pid) != self.leader);
        }
        look.is_complete = false;
        look.is_outrun = has_own;
        look
    }

    /// The orphans that belong to this tree, as roots to walk from besides the leader. Notes in `look` of whom
    /// it cannot be told, now or at all, whose they are.
    fn candidates(&self, look: &mut Look, reach: Reach) -> Vec<Pid> {
        let max = reach.max();
        let orphans = self.leaders.subreaper().then(|| self.leaders.orphans());
        let Some(orphans) = orphans.flatten() else {
            let all = procfs::all();
            look.is_cut = all.len() > max;
            let mut mine = Vec::new();
            for pid in all.into_iter().take(max) {
                match self.owner(pid, reach) {
                    Owner::Mine => mine.push(pid),
                    Owner::Unasked => look.is_cut = true,
                    Owner::Another | Owner::Nobody | Owner::Undecided | Owner::Unknown => {}
                }
            }
            return mine;
        };
        look.is_complete = true;
        look.is_cut = orphans.len() > max;
        let mut mine = Vec::new();
        for pid in orphans.into_iter().take(max) {
            match self.owner(pid, reach) {
                Owner::Mine => mine.push(pid),
                Owner::Unasked => look.is_cut = true,
                Owner::Another => {}
                Owner::Nobody => look.is_stale = true,
                Owner::Undecided => look.undecided += 1,
                Owner::Unknown => {
                    look.is_complete = false;
                    look.has_unknown = true;
                }
            }
        }
        mine
    }

    fn owner(&self, pid: Pid, reach: Reach) -> Owner {
        let told = self.leaders.owner(pid);
        if told.is_some_and(|id| id != self.id) {
            return Owner::Another;
        }
        let stat = match procfs::look(pid) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Owner::Nobody,
            Err(_) => return Owner::Undecided,
        };
        if stat.is_dead {
            if self.leaders.subreaper() {
                self.leaders.reap(pid, Some(stat));
            }
            return Owner::Nobody;
        }
        let id = match told {
            Some(id) => id,
            None => match self.tell(pid, stat, reach) {
                Ok(id) => id,
                Err(untold) => return untold,
            },
        };
        if self.leaders.subreaper() {
            self.leaders.remember(pid, id);
        }
        if id == self.id {
            Owner::Mine
        } else {
            Owner::Another
        }
    }

    /// To which execution a living process belongs.
    fn tell(&self, pid: Pid, stat: Stat, reach: Reach) -> Result<ExecutionId, Owner> {
        if reach == Reach::Few {
            return self.leaders.told_by_session(stat).ok_or(Owner::Unasked);
        }
        let variable = match self.leaders.told(pid, stat) {
            Ok(id) => return Ok(id),
            Err(variable) => variable,
        };
        if !self.leaders.subreaper() {
            // One of all there are on this machine.
            return Err(Owner::Unknown);
        }
        let suspicion = self.leaders.suspicion(pid, self.leader, &variable);
        match (suspicion, variable) {
            // It gave up session and environment, or changed it. With no other execution about it
            // can be but ours.
            (Suspicion::Only, _) => Ok(self.id),
            (Suspicion::None, _) => Err(Owner::Another),
            (_, Variable::Value(_) | Variable::Unset) if self.is_recognisable => {
                Err(Owner::Another)
            }
            (_, Variable::Unreadable) => Err(Owner::Undecided),
            (_, Variable::Value(_) | Variable::Unset) => Err(Owner::Unknown),
        }
    }
}

/// What one look at a tree found.
#[derive(Default)]
struct Look {
    members: Vec<(Pid, Stat)>,
    /// Whether somebody ended while it was looked at.
    is_stale: bool,
    /// How many there are of whom it cannot be told yet whose they are.
    undecided: usize,
    /// Whether nothing can have escaped it.
    is_complete: bool,
    /// Whether there is somebody of whom it cannot be told whose they are, and who may be of this tree.
    has_unknown: bool,
    /// Whether there was more to look at than was to be looked at.
    is_cut: bool,
    /// Whether processes of this tree come and end faster than they can be looked at.
    is_outrun: bool,
}

/// A walk down a tree.
#[derive(Default)]
struct Walk {
    seen: HashSet<Pid>,
    found: Vec<(Pid, Stat)>,
}

impl Walk {
    /// Finds the living among `roots` and their descendants, or says that there are more than `max`.
    fn descend(&mut self, roots: Vec<Pid>, max: usize) -> bool {
        let mut pending = roots;
        while let Some(pid) = pending.pop() {
            if self.seen.len() >= max {
                return true;
            }
            if self.seen.insert(pid)
                && let Some(stat) = procfs::stat(pid)
                && !stat.is_dead
            {
                self.found.push((pid, stat));
                pending.extend(procfs::children(pid));
            }
        }
        false
    }

    /// Whether everybody found still lives.
    fn all_live(&self) -> bool {
        self.found.iter().all(|(pid, seen)| {
            procfs::stat(*pid).is_some_and(|now| !now.is_dead && now.started == seen.started)
        })
    }
}
