use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::kernel_file::KernelFile;
use super::procfs::{self, Stat, Variable};
use super::{Members, Remains, signal_group};
use crate::domain::{EXECUTION_VARIABLE, ExecutionId, summarize};
use crate::runner::spawn::Leader;

/// The leaders of all executions whose trees are held together by process groups, those whose
/// background lives on included.
#[derive(Debug)]
pub(in crate::runner) struct Leaders {
    subreaper: bool,
    /// Whether all children of this process are its executions'. Others come to it without a subreaper, too: by
    /// `CLONE_PARENT` (clone(2)), or because it is the first process of a container.
    reaps: bool,
    /// The list of this process's children; `None` where the kernel makes none.
    children: OnceLock<Option<KernelFile>>,
    /// When it was last found out whether there are orphans, and the answer.
    looked: Mutex<Option<(Instant, bool)>>,
    known: Mutex<Known>,
}

/// What is known of who started which process.
#[derive(Debug, Default)]
struct Known {
    leaders: HashMap<Pid, ExecutionId>,
    /// Those of them whose processes always say whose they are.
    recognisable: HashSet<Pid>,
    /// Orphans that were told apart once. They are told once only: however many executions there
    /// are, each looks at the environment of its own orphans and nobody else's. Nobody but this
    /// process reaps them, so their pids are their own while they are in here.
    orphans: HashMap<Pid, ExecutionId>,
    /// The others, each with the leaders that were here when it was first seen: its own is among
    /// them, or has ended before.
    strays: HashMap<Pid, HashSet<Pid>>,
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
    is_recognisable: bool,
    leader: Option<Enlisted>,
    leaders: Arc<Leaders>,
}

/// That a process is the leader of an execution, and no orphan, as long as this is there.
#[derive(Debug)]
pub(in crate::runner) struct Enlisted {
    pid: Pid,
    id: ExecutionId,
    leaders: Arc<Leaders>,
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        let mut known = self.leaders.lock();
        // It was reaped before: its pid may be another leader's by now.
        if known.leaders.get(&self.pid) == Some(&self.id) {
            known.leaders.remove(&self.pid);
            known.recognisable.remove(&self.pid);
        }
    }
}

/// Whose an orphan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Mine,
    Another,
    /// It has ended, perhaps only since it was listed.
    Nobody,
    /// Cannot be told yet.
    Undecided,
    /// Cannot be told.
    Unknown,
}

/// How far something may be an execution's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspicion {
    /// Not at all: it was here before.
    None,
    /// It or another's.
    Shared,
    /// It or nobody's.
    Only,
}

impl Leaders {
    pub(in crate::runner) fn new(subreaper: bool) -> Self {
        Self {
            subreaper,
            reaps: subreaper,
            children: OnceLock::new(),
            looked: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Those of trees that are held together otherwise, in a process that exists for them.
    pub(in crate::runner) fn of_cgroups() -> Self {
        Self {
            reaps: true,
            ..Self::new(false)
        }
    }

    /// Starts the leader of an execution and enters it into the list in one step, so that nobody who looks for
    /// orphans meanwhile takes it for one.
    pub(super) fn bear<E>(
        self: &Arc<Self>,
        id: ExecutionId,
        start: impl FnOnce() -> Result<Leader, E>,
    ) -> Result<(Leader, Enlisted), E> {
        let mut known = self.lock();
        let leader = start()?;
        known.leaders.insert(leader.pid, id);
        let enlisted = Enlisted {
            pid: leader.pid,
            id,
            leaders: Arc::clone(self),
        };
        Ok((leader, enlisted))
    }

    /// A tree of that id; `is_recognisable` if none of its processes can give up session and
    /// environment.
    pub(in crate::runner) fn tree(
        self: &Arc<Self>,
        id: ExecutionId,
        is_recognisable: bool,
    ) -> GroupTree {
        GroupTree {
            id,
            is_recognisable,
            leader: None,
            leaders: Arc::clone(self),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// The children of this process that are no leaders: orphans that came back to it.
    /// `None` where the kernel does not list children.
    fn orphans(&self) -> Option<Vec<Pid>> {
        // Orphans go to the first living thread of a subreaper, which is its main thread
        // (find_new_reaper in kernel/exit.c).
        let list = self.children.get_or_init(|| {
            let this = Pid::this();
            KernelFile::open(procfs::children_file(this, this)).ok()
        });
        let children = list.as_ref()?.read().ok()?;
        let known = self.lock();
        Some(
            procfs::pids(&children)
                .into_iter()
                .filter(|pid| !known.leaders.contains_key(pid))
                .collect(),
        )
    }

    /// The execution of that id, if its leader is here.
    fn execution(&self, id: &str) -> Option<ExecutionId> {
        let id = id.parse().ok()?;
        let is_here = self.lock().leaders.values().any(|known| *known == id);
        is_here.then_some(id)
    }

    /// To which of the executions that are here a process says that it belongs, by its session or its
    /// environment; else what the latter says.
    fn told(&self, pid: Pid, stat: Stat) -> Result<ExecutionId, Variable> {
        if let Some(id) = self.lock().leaders.get(&stat.session) {
            return Ok(*id);
        }
        match procfs::variable(pid, EXECUTION_VARIABLE) {
            Variable::Value(id) => self.execution(&id).ok_or(Variable::Value(id)),
            untold @ (Variable::Unset | Variable::Unreadable) => Err(untold),
        }
    }

    /// Whether there are orphans: found out now, or by somebody else since `asked`.
    fn has_orphans(&self, asked: Instant) -> bool {
        let mut looked = self.looked.lock();
        match *looked {
            Some((at, found)) if at >= asked => found,
            _ => {
                let at = Instant::now();
                let found = self.orphans().is_none_or(|orphans| !orphans.is_empty());
                *looked = Some((at, found));
                found
            }
        }
    }

    /// Reaps orphans that have ended, and kills those that belong to nobody: when no execution is
    /// left that was there when it came, nor one that it says it belongs to, it was left behind
    /// unrecognisably.
    pub(in crate::runner) fn tidy(&self) {
        if !self.reaps {
            return;
        }
        let orphans = self.orphans().unwrap_or_default();
        let abandoned = match self.subreaper {
            true => self.lock().abandoned(&orphans),
            // A cgroup tells whose they are.
            false => Vec::new(),
        };
        for pid in orphans {
            let seen = procfs::stat(pid);
            if abandoned.contains(&pid)
                && let Some(seen) = seen.filter(|seen| !seen.is_dead)
                && self.told(pid, seen).is_err()
            {
                tracing::warn!(%pid, command = summarize(&procfs::command_line(pid)), "killing a process that an earlier command left behind");
                let _ = procfs::kill_if_same(pid, seen);
            }
            self.reap(pid);
        }
    }

    /// Reaps an orphan, if it has ended.
    fn reap(&self, pid: Pid) {
        let mut known = self.lock();
        if known.leaders.contains_key(&pid) {
            // It has become one since it was listed.
            return;
        }
        // Not nix's, which fails at real-time signals, when the process is gone already.
        let ended = rustix::process::Pid::from_raw(pid.as_raw()).map(|pid| {
            waitid(
                WaitId::Pid(pid),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            )
        });
        if let Some(Ok(Some(_))) = ended {
            known.orphans.remove(&pid);
            known.strays.remove(&pid);
        }
    }
}

impl Known {
    /// The leaders whose processes may be anybody's, by the look of them.
    fn suspects(&self) -> impl Iterator<Item = Pid> {
        let all = self.leaders.keys().copied();
        all.filter(|leader| !self.recognisable.contains(leader))
    }

    /// How far an orphan that does not say whose it is may be the one's of that leader: one of those that
    /// were here when it was first seen.
    fn suspicion(&mut self, pid: Pid, leader: Option<Pid>, says: &Variable) -> Suspicion {
        let suspects: HashSet<Pid> = self.suspects().collect();
        let is_only = suspects.iter().eq(leader.iter());
        let first_suspects = match says {
            Variable::Unreadable => self.strays.get(&pid),
            Variable::Value(_) | Variable::Unset => Some(&*self.stray(pid, &suspects)),
        };
        let is_suspect =
            |first: &HashSet<Pid>| leader.is_some_and(|leader| first.contains(&leader));
        match first_suspects {
            Some(first) if !is_suspect(first) => Suspicion::None,
            Some(_) | None if is_only => Suspicion::Only,
            Some(_) | None => Suspicion::Shared,
        }
    }

    /// Whose an orphan may be that does not say so: those who are suspects now, if it is seen for the first time.
    fn stray(&mut self, pid: Pid, suspects: &HashSet<Pid>) -> &mut HashSet<Pid> {
        self.strays.entry(pid).or_insert_with(|| {
            tracing::debug!(%pid, "it cannot be told whose it is");
            suspects.clone()
        })
    }

    /// Which of `orphans` can belong to none of the executions that are here.
    fn abandoned(&mut self, orphans: &[Pid]) -> Vec<Pid> {
        let suspects: HashSet<Pid> = self.suspects().collect();
        let here: HashSet<&Pid> = orphans.iter().collect();
        self.strays.retain(|pid, _| here.contains(pid));
        let mut abandoned = Vec::new();
        for pid in orphans {
            let told = self.orphans.get(pid);
            if told.is_some_and(|id| self.leaders.values().any(|known| known == id)) {
                continue;
            }
            let mut candidates = std::mem::take(self.stray(*pid, &suspects));
            candidates.retain(|leader| self.leaders.contains_key(leader));
            if candidates.is_empty() {
                abandoned.push(*pid);
            }
            self.strays.insert(*pid, candidates);
        }
        abandoned
    }
}

impl GroupTree {
    /// Starts the leader.
    pub(super) fn bear<E>(
        &mut self,
        start: impl FnOnce() -> Result<Leader, E>,
    ) -> Result<Leader, E> {
        let (leader, enlisted) = self.leaders.bear(self.id, start)?;
        if self.is_recognisable {
            self.leaders.lock().recognisable.insert(leader.pid);
        }
        self.leader = Some(enlisted);
        Ok(leader)
    }

    fn leader(&self) -> Option<Pid> {
        self.leader.as_ref().map(|leader| leader.pid)
    }

    /// Whether there is no other tree.
    pub(super) fn is_alone(&self) -> bool {
        self.leaders.lock().leaders.len() <= 1
    }

    pub(super) fn may_have_others(&self, asked: Instant) -> bool {
        !self.leaders.subreaper || self.leaders.has_orphans(asked)
    }

    pub(super) fn members(&self) -> Members {
        let look = self.look();
        Members {
            pids: look.members.into_iter().map(|(pid, _)| pid).collect(),
            is_settled: look.undecided == 0,
            is_all: !look.has_unknown,
        }
    }

    pub(super) fn kill(&self, leader: &Leader) -> Remains {
        // The whole group at once, before any of it can fork again.
        let _ = signal_group(leader, Signal::SIGKILL);
        let before = self.look();
        for (pid, seen) in before.members {
            let _ = procfs::kill_if_same(pid, seen);
        }
        let after = self.look();
        let known = after.members.len() + after.undecided;
        Remains {
            known: u32::try_from(known).unwrap_or(u32::MAX),
            proven: after.is_complete,
        }
    }

    /// Who is there. Looks again as long as somebody has turned up or ended meanwhile: who ends
    /// takes nobody along, its children come back as orphans.
    fn look(&self) -> Look {
        /// What changes as often as this forks faster than it can be followed.
        const LOOKS: usize = 16;
        let mut candidates = self.candidates(&mut Look::default());
        let mut look = Look::default();
        for _ in 0..LOOKS {
            let mut walk = Walk::default();
            walk.descend(self.leader().into_iter().chain(candidates).collect());
            look = Look::default();
            candidates = self.candidates(&mut look);
            let nobody_new = candidates.iter().all(|pid| walk.seen.contains(pid));
            let is_stable = nobody_new && !look.is_stale && walk.all_live();
            look.members = walk.found;
            if is_stable {
                return look;
            }
        }
        look.is_complete = false;
        look
    }

    /// The orphans that belong to this tree, as roots to walk from besides the leader. Notes in `look` of whom
    /// it cannot be told, now or at all, whose they are.
    fn candidates(&self, look: &mut Look) -> Vec<Pid> {
        let orphans = self.leaders.subreaper.then(|| self.leaders.orphans());
        let Some(orphans) = orphans.flatten() else {
            look.is_complete = false;
            let mine = |pid: &Pid| self.owner(*pid) == Owner::Mine;
            return procfs::all().into_iter().filter(mine).collect();
        };
        look.is_complete = true;
        let mut mine = Vec::new();
        for pid in orphans {
            match self.owner(pid) {
                Owner::Mine => mine.push(pid),
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

    fn owner(&self, pid: Pid) -> Owner {
        let told = self.leaders.lock().orphans.get(&pid).copied();
        if told.is_some_and(|id| id != self.id) {
            return Owner::Another;
        }
        let stat = match procfs::look(pid) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Owner::Nobody,
            Err(_) => return Owner::Undecided,
        };
        if stat.is_dead {
            if self.leaders.subreaper {
                self.leaders.reap(pid);
            }
            return Owner::Nobody;
        }
        let id = match told {
            Some(id) => id,
            None => match self.tell(pid, stat) {
                Ok(id) => id,
                Err(untold) => return untold,
            },
        };
        if self.leaders.subreaper {
            self.leaders.lock().orphans.insert(pid, id);
        }
        if id == self.id {
            Owner::Mine
        } else {
            Owner::Another
        }
    }

    /// To which execution a living process belongs.
    fn tell(&self, pid: Pid, stat: Stat) -> Result<ExecutionId, Owner> {
        let variable = match self.leaders.told(pid, stat) {
            Ok(id) => return Ok(id),
            Err(variable) => variable,
        };
        if !self.leaders.subreaper {
            // One of all there are on this machine.
            return Err(Owner::Unknown);
        }
        let suspicion = self.leaders.lock().suspicion(pid, self.leader(), &variable);
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
}

/// A walk down a tree.
#[derive(Default)]
struct Walk {
    seen: HashSet<Pid>,
    found: Vec<(Pid, Stat)>,
}

impl Walk {
    /// Finds the living among `roots` and their descendants.
    fn descend(&mut self, roots: Vec<Pid>) {
        let mut pending = roots;
        while let Some(pid) = pending.pop() {
            if self.seen.insert(pid)
                && let Some(stat) = procfs::stat(pid)
                && !stat.is_dead
            {
                self.found.push((pid, stat));
                pending.extend(procfs::children(pid));
            }
        }
    }

    /// Whether everybody found still lives.
    fn all_live(&self) -> bool {
        self.found.iter().all(|(pid, seen)| {
            procfs::stat(*pid).is_some_and(|now| !now.is_dead && now.started == seen.started)
        })
    }
}
