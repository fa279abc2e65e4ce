use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::procfs::{self, Stat};
use super::{Remains, signal_group};
use crate::domain::ExecutionId;
use crate::runner::spawn::Leader;

/// The variable that says to which execution a process belongs.
pub(in crate::runner) const EXECUTION_VARIABLE: &str = "SHELLY_EXECUTION_ID";

/// The leaders of all executions whose trees are held together by process groups, those whose
/// background lives on included. Their pids are not reaped while they are in here.
#[derive(Debug)]
pub(in crate::runner) struct Leaders {
    subreaper: bool,
    running: Mutex<HashMap<Pid, ExecutionId>>,
}

/// One execution's processes: those that descend from the leader, those of its session, and those
/// that carry its id in their environment.
///
/// With a subreaper, what has lost its parent becomes a child of this process (prctl(2),
/// `PR_SET_CHILD_SUBREAPER`), so that everything is found by looking at children only. Without
/// one it becomes a child of init, and every process has to be looked at.
#[derive(Debug)]
pub(in crate::runner) struct GroupTree {
    id: ExecutionId,
    leader: Option<Pid>,
    leaders: Arc<Leaders>,
}

/// Whose an orphan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Mine,
    Another,
    Unknown,
}

impl Leaders {
    pub(in crate::runner) fn new(subreaper: bool) -> Self {
        Self {
            subreaper,
            running: Mutex::default(),
        }
    }

    pub(in crate::runner) fn tree(self: &Arc<Self>, id: ExecutionId) -> GroupTree {
        GroupTree {
            id,
            leader: None,
            leaders: Arc::clone(self),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Pid, ExecutionId>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The children of this process that are no leaders: orphans that came back to it.
    /// `None` where the kernel does not list children.
    fn orphans(&self) -> Option<Vec<Pid>> {
        let this = Pid::this();
        // Orphans go to the first living thread of a subreaper, which is its main thread
        // (find_new_reaper in kernel/exit.c).
        let children = procfs::children_of_thread(this, this)?;
        let leaders = self.lock();
        Some(
            children
                .into_iter()
                .filter(|pid| !leaders.contains_key(pid))
                .collect(),
        )
    }

    /// Reaps orphans that have ended, and kills those that belong to nobody: when no execution is
    /// left, whatever is still here was left behind unrecognisably.
    pub(in crate::runner) fn tidy(&self) {
        if !self.subreaper {
            return;
        }
        let alone = self.lock().is_empty();
        for pid in self.orphans().unwrap_or_default() {
            let seen = procfs::stat(pid);
            if alone && let Some(seen) = seen.filter(|seen| !seen.is_dead) {
                tracing::warn!(%pid, command = procfs::command_line(pid), "killing a process that an earlier command left behind");
                let _ = procfs::kill_if_same(pid, seen);
            }
            reap(pid);
        }
    }
}

impl GroupTree {
    /// Starts the leader and enters it into the list in one step, so that nobody who looks for
    /// orphans meanwhile takes it for one.
    pub(super) fn bear<E>(
        &mut self,
        start: impl FnOnce() -> Result<Leader, E>,
    ) -> Result<Leader, E> {
        let mut leaders = self.leaders.lock();
        let leader = start()?;
        leaders.insert(leader.pid, self.id);
        self.leader = Some(leader.pid);
        Ok(leader)
    }

    pub(super) fn may_have_others(&self) -> bool {
        match self
            .leaders
            .subreaper
            .then(|| self.leaders.orphans())
            .flatten()
        {
            Some(orphans) => !orphans.is_empty(),
            None => true,
        }
    }

    pub(super) fn members(&self) -> Vec<Pid> {
        self.look()
            .members
            .into_iter()
            .map(|(pid, _)| pid)
            .collect()
    }

    pub(super) fn kill(&self) -> Remains {
        if let Some(leader) = self.leader {
            // The whole group at once, before any of it can fork again.
            let _ = signal_group(leader, Signal::SIGKILL);
        }
        let before = self.look();
        for (pid, seen) in before.members {
            let _ = procfs::kill_if_same(pid, seen);
        }
        let after = self.look();
        Remains {
            known: u32::try_from(after.members.len()).unwrap_or(u32::MAX),
            proven: after.is_complete,
        }
    }

    fn look(&self) -> Look {
        let mut roots: Vec<Pid> = self.leader.into_iter().collect();
        let mut is_complete = false;
        match self
            .leaders
            .subreaper
            .then(|| self.leaders.orphans())
            .flatten()
        {
            Some(orphans) => {
                is_complete = true;
                for pid in orphans {
                    match self.owner(pid) {
                        Owner::Mine => roots.push(pid),
                        Owner::Another => {}
                        Owner::Unknown => is_complete = false,
                    }
                }
            }
            None => {
                let mine = |pid: &Pid| self.owner(*pid) == Owner::Mine;
                roots.extend(procfs::all().into_iter().filter(mine));
            }
        }
        Look {
            members: living_below(roots),
            is_complete,
        }
    }

    fn owner(&self, pid: Pid) -> Owner {
        let Some(stat) = procfs::stat(pid) else {
            return Owner::Another;
        };
        if stat.is_dead {
            // Whosever it was, it is nobody's now.
            if self.leaders.subreaper {
                reap(pid);
            }
            return Owner::Another;
        }
        let leaders = self.leaders.lock();
        if let Some(id) = leaders.get(&stat.session) {
            return if *id == self.id {
                Owner::Mine
            } else {
                Owner::Another
            };
        }
        let only_one = leaders.len() == 1 && self.leader.is_some_and(|l| leaders.contains_key(&l));
        drop(leaders);
        match procfs::environment_value(pid, EXECUTION_VARIABLE) {
            Some(id) if id == self.id.to_string() => Owner::Mine,
            Some(_) => Owner::Another,
            // It gave up session and environment. With no other execution about it can be but ours.
            None if only_one && self.leaders.subreaper => Owner::Mine,
            None => Owner::Unknown,
        }
    }
}

impl Drop for GroupTree {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            self.leaders.lock().remove(&leader);
        }
    }
}

/// What one look at a tree found.
struct Look {
    members: Vec<(Pid, Stat)>,
    /// Whether nothing can have escaped it.
    is_complete: bool,
}

/// The living among `roots` and their descendants.
fn living_below(roots: Vec<Pid>) -> Vec<(Pid, Stat)> {
    let mut seen = HashSet::new();
    let mut living = Vec::new();
    let mut pending = roots;
    while let Some(pid) = pending.pop() {
        if seen.insert(pid)
            && let Some(stat) = procfs::stat(pid)
            && !stat.is_dead
        {
            living.push((pid, stat));
            pending.extend(procfs::children(pid));
        }
    }
    living
}

/// Reaps a child that has ended, if it has.
fn reap(pid: Pid) {
    let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
}
