use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use tokio::runtime::Handle;

use super::kernel_file::KernelFile;
use super::marks::Marks;
use super::procfs::{self, Stat, Variable};
use crate::domain::{EXECUTION_VARIABLE, ExecutionId};
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
    marks: Marks,
    /// Held by who sees to orphans.
    tidying: Mutex<()>,
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
    /// Of executions that have had any.
    used: HashMap<ExecutionId, Used>,
}

/// How much processor time those of an execution have used, in ticks, that nobody of it has waited for.
#[derive(Debug, Default)]
struct Used {
    /// All that were reaped here.
    reaped: u64,
    /// Those that were killed, as they were seen before. Whoever waits for one of them has its time, and ends here
    /// in turn.
    killed: HashMap<Pid, Stat>,
}

/// That a process is the leader of an execution, and no orphan, as long as this is there.
#[derive(Debug)]
pub(in crate::runner) struct Enlisted {
    pid: Pid,
    id: ExecutionId,
    leaders: Arc<Leaders>,
}

impl Enlisted {
    /// Says that its processes always say whose they are.
    pub(super) fn mark_recognisable(&self) {
        self.leaders.lock().recognisable.insert(self.pid);
    }
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        let mut known = self.leaders.lock();
        // It was reaped before: its pid may be another leader's by now.
        if known.leaders.get(&self.pid) == Some(&self.id) {
            known.leaders.remove(&self.pid);
            known.recognisable.remove(&self.pid);
        }
        known.used.remove(&self.id);
    }
}

/// How far something may be an execution's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
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
            marks: Marks::default(),
            tidying: Mutex::default(),
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

    /// Whether what has lost its parent comes back to this process.
    pub(super) fn subreaper(&self) -> bool {
        self.subreaper
    }

    /// What processes say of themselves.
    pub(super) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lock().leaders.len()
    }

    /// Whose an orphan is, if that was told before.
    pub(super) fn owner(&self, orphan: Pid) -> Option<ExecutionId> {
        self.lock().orphans.get(&orphan).copied()
    }

    /// Notes whose an orphan is.
    pub(super) fn remember(&self, orphan: Pid, owner: ExecutionId) {
        self.lock().orphans.insert(orphan, owner);
    }

    /// How far an orphan that does not say whose it is may be the one's of that leader.
    pub(super) fn suspicion(&self, pid: Pid, leader: Option<Pid>, says: &Variable) -> Suspicion {
        self.lock().suspicion(pid, leader, says)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// The children of this process that are no leaders: orphans that came back to it.
    /// `None` where the kernel does not list children.
    pub(super) fn orphans(&self) -> Option<Vec<Pid>> {
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
        self.lock().is_here(id).then_some(id)
    }

    /// To which of the executions that are here a process belongs by its session.
    pub(super) fn told_by_session(&self, stat: Stat) -> Option<ExecutionId> {
        self.lock().leaders.get(&stat.session).copied()
    }

    /// The same by its session or its environment; else what the latter says. Takes a moment of one that does
    /// not say it.
    pub(super) fn told(&self, pid: Pid, stat: Stat) -> Result<ExecutionId, Variable> {
        if let Some(id) = self.told_by_session(stat) {
            return Ok(id);
        }
        match self.marks.of(pid, EXECUTION_VARIABLE) {
            Variable::Value(id) => self.execution(&id).ok_or(Variable::Value(id)),
            untold @ (Variable::Unset | Variable::Unreadable) => Err(untold),
        }
    }

    /// Whether there may be orphans: found out now, or by somebody else since `asked`.
    pub(super) fn may_have_orphans(&self, asked: Instant) -> bool {
        if !self.subreaper {
            return true;
        }
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
    pub(in crate::runner) fn tidy(self: &Arc<Self>) {
        if !self.reaps {
            return;
        }
        let orphans = self.orphans().unwrap_or_default();
        if orphans.is_empty() {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => {
                let this = Arc::clone(self);
                drop(runtime.spawn_blocking(move || this.see_to(orphans)));
            }
            Err(_) => self.see_to(orphans),
        }
    }

    fn see_to(&self, orphans: Vec<Pid>) {
        let Some(_alone) = self.tidying.try_lock() else {
            return;
        };
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
                // Not its arguments: whose secrets may be in them is not known.
                tracing::warn!(%pid, program = procfs::program(pid), "killing a process that an earlier command left behind");
                let _ = procfs::kill_if_same(pid, seen);
            }
            self.reap(pid, seen);
        }
    }

    /// Notes that a process of an execution is killed, by which it is known where it is reaped.
    pub(super) fn note_killed(&self, owner: ExecutionId, pid: Pid, seen: Stat) {
        let mut known = self.lock();
        // Of a leader more is known when it is reaped.
        if known.is_here(owner) && known.leaders.get(&pid) != Some(&owner) {
            known
                .used
                .entry(owner)
                .or_default()
                .killed
                .insert(pid, seen);
        }
    }

    /// How much processor time those have used that nobody of an execution has waited for.
    pub(super) fn used(&self, id: ExecutionId) -> Duration {
        let known = self.lock();
        let Some(used) = known.used.get(&id) else {
            return Duration::ZERO;
        };
        procfs::ticks(match self.subreaper {
            true => used.reaped,
            // Init reaps them.
            false => used.killed.values().map(|seen| seen.used).sum(),
        })
    }

    /// Reaps an orphan, if it has ended; what it has used, as was `seen`, is its execution's.
    pub(super) fn reap(&self, pid: Pid, seen: Option<Stat>) {
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
            let told = known.orphans.remove(&pid);
            known.strays.remove(&pid);
            if let Some(seen) = seen {
                known.account(told, pid, seen);
            }
        }
    }
}

impl Known {
    /// Whether the leader of an execution is here.
    fn is_here(&self, id: ExecutionId) -> bool {
        self.leaders.values().any(|known| *known == id)
    }

    /// Adds what a process has used that was reaped to what its execution has, as far as it can be told whose it was.
    fn account(&mut self, told: Option<ExecutionId>, pid: Pid, seen: Stat) {
        let is_same = |killed: &Stat| killed.started == seen.started;
        let mut all = self.used.iter();
        let killed = all.find(|(_, used)| used.killed.get(&pid).is_some_and(is_same));
        let owner = told
            .or(killed.map(|(id, _)| *id))
            .or_else(|| self.leaders.get(&seen.session).copied());
        if let Some(owner) = owner.filter(|owner| self.is_here(*owner)) {
            let used = self.used.entry(owner).or_default();
            used.reaped += seen.used;
            used.killed.remove(&pid);
        }
    }

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
