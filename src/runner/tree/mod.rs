//! Everything that descends from an execution's leader: found, counted, killed, and proven dead
//! as far as the machine allows. By cgroup where there is one, by process group elsewhere.

mod cgroup;
mod group;
mod kernel_file;
mod leaders;
mod marks;
mod procfs;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

pub(crate) use cgroup::LEAF_PREFIX;
pub(super) use cgroup::{CgroupParent, Leaf, LeafMembers};
use group::FEW;
pub(super) use group::GroupTree;
use leaders::Enlisted;
pub(super) use leaders::Leaders;
use marks::Marks;
pub(super) use procfs::{command_line, exit, has_executed, held_streams, kill_marked};

use super::beside;
use super::spawn::Leader;
use crate::domain::{EXECUTION_VARIABLE, ExecutionId, KillMode, Usage};

/// How long between two looks at a tree that was sent SIGKILL or is given its grace. The kernel
/// needs less than the first for a small tree; each look then waits twice as long as the last.
const FIRST_LOOK: Duration = Duration::from_micros(500);
const LONGEST_LOOK: Duration = Duration::from_millis(20);

/// The processes of one execution.
#[derive(Debug)]
pub(super) enum Tree {
    Cgroup(CgroupTree),
    Group(GroupTree),
}

/// One that has a leaf to itself.
#[derive(Debug)]
pub(super) struct CgroupTree {
    id: ExecutionId,
    leaf: Leaf,
    leaders: Arc<Leaders>,
    leader: Option<Enlisted>,
}

impl CgroupTree {
    pub(super) fn new(id: ExecutionId, leaf: Leaf, leaders: &Arc<Leaders>) -> Self {
        Self {
            id,
            leaf,
            leaders: Arc::clone(leaders),
            leader: None,
        }
    }

    fn bear<E>(
        &mut self,
        start: impl FnOnce(Option<BorrowedFd<'_>>) -> Result<Leader, E>,
    ) -> Result<Leader, E> {
        let fd = self.leaf.fd();
        let (leader, enlisted) = self.leaders.bear(self.id, || start(Some(fd)))?;
        self.leader = Some(enlisted);
        Ok(leader)
    }
}

/// By what it is told whether a process belongs to a tree, for whoever does not hold the tree.
#[derive(Clone, Debug)]
pub(super) enum Membership {
    /// All processes in its leaf.
    Cgroup(LeafMembers),
    /// All that share the leader's session, descend from it, or still say whose they are: the rest
    /// cannot be told.
    Leader {
        pid: Pid,
        id: ExecutionId,
        marks: Marks,
    },
}

impl Membership {
    /// Whether a process belongs to it now.
    pub(super) fn has(&self, pid: Pid) -> bool {
        match self {
            Self::Cgroup(leaf) => leaf.has(pid),
            Self::Leader {
                pid: leader,
                id,
                marks,
            } => {
                procfs::descends(pid, *leader)
                    || marks.of(pid, EXECUTION_VARIABLE) == procfs::Variable::Value(id.to_string())
            }
        }
    }
}

/// What was left of a tree after its kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remains {
    /// Processes known to be there still.
    pub known: u32,
    /// Whether there can be no others.
    pub proven: bool,
}

/// The living processes of a tree.
#[derive(Debug)]
pub(super) struct Members {
    pub pids: Vec<Pid>,
    /// Whether each process could be attributed by now. One that is just executing a program cannot be, and none can
    /// while there is no free descriptor to look with; another look may tell.
    pub is_settled: bool,
    /// Whether there is no process that may be one of them without any look ever telling.
    pub is_all: bool,
}

impl Tree {
    pub(super) fn mode(&self) -> KillMode {
        match self {
            Self::Cgroup(_) => KillMode::Cgroup,
            Self::Group(_) => KillMode::Group,
        }
    }

    /// Has `start` start the leader, in the cgroup it is given where there is one.
    pub(super) fn bear<E>(
        &mut self,
        start: impl FnOnce(Option<BorrowedFd<'_>>) -> Result<Leader, E>,
    ) -> Result<Leader, E> {
        match self {
            Self::Cgroup(tree) => tree.bear(start),
            Self::Group(group) => group.bear(|| start(None)),
        }
    }

    /// Whether a process besides the ended leader may be there. Cheap, and on the path of every
    /// execution.
    fn may_have_others(&self) -> bool {
        match self {
            Self::Cgroup(tree) => tree.leaf.is_populated(),
            Self::Group(group) => group.may_have_others(Instant::now()),
        }
    }

    /// As [`Self::may_have_others`], but executions that end in the same turn of the event loop share one
    /// look: the kernel goes through all children for each reading of their list.
    pub(super) async fn may_have_left_others(&self) -> bool {
        match self {
            Self::Cgroup(tree) => tree.leaf.is_populated(),
            Self::Group(group) => {
                let asked = Instant::now();
                if !group.is_alone() {
                    tokio::task::yield_now().await;
                }
                group.may_have_others(asked)
            }
        }
    }

    /// By what its processes are told.
    pub(super) fn membership(&self, leader: &Leader, id: ExecutionId) -> Membership {
        match self {
            Self::Cgroup(tree) => Membership::Cgroup(tree.leaf.membership()),
            Self::Group(group) => Membership::Leader {
                pid: leader.pid,
                id,
                marks: group.marks().clone(),
            },
        }
    }

    /// The living processes of the tree, the leader included as long as it lives.
    pub(super) async fn members(&self) -> Members {
        match self {
            Self::Cgroup(tree) => tree.leaf.members(),
            Self::Group(group) => group.members().await,
        }
    }

    /// The same once it is known who belongs to it, or as far as it is known after `wait`; and
    /// without those that end by themselves within `parting`.
    pub(super) async fn settled_members(&self, wait: Duration, parting: Duration) -> Members {
        let began = Instant::now();
        let mut pause = FIRST_LOOK;
        loop {
            let members = self.members().await;
            let settled = members.is_settled || began.elapsed() >= wait;
            if settled && (began.elapsed() >= parting || !any_parts(&members.pids).await) {
                return members;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
    }

    /// Whether a process besides the ended leader is there or may be.
    pub(super) async fn has_others(&self) -> bool {
        self.may_have_others() && {
            let members = self.members().await;
            !members.pids.is_empty() || !members.is_settled
        }
    }

    /// Sends SIGKILL to all of it until none is left or `wait` is over.
    pub(super) async fn kill(&self, leader: &Leader, wait: Duration) -> Remains {
        let mut deadline = None;
        let mut pause = FIRST_LOOK;
        loop {
            // A look that began in time says nothing about the end of it: on a busy machine one takes as long as that,
            // and whom it has killed are still dying.
            let is_last = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let remains = match self {
                Self::Cgroup(tree) => {
                    // Who has moved to another cgroup is still in its group, mostly.
                    let _ = signal_group(leader, Signal::SIGKILL);
                    tree.leaf.kill(leader)
                }
                Self::Group(group) => group.kill(leader).await,
            };
            if remains.known == 0 || is_last {
                return remains;
            }
            deadline.get_or_insert_with(|| Instant::now() + wait);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
    }

    /// Completes when nothing but the ended leader is left.
    pub(super) async fn emptied(&self) {
        let mut pause = FIRST_LOOK;
        while self.has_others().await {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
    }

    /// What the tree used up, of which its leader did so much, with those that it or they have waited for.
    pub(super) fn usage(&self, by_leader: Duration) -> Usage {
        match self {
            Self::Cgroup(tree) => Usage {
                cpu: tree.leaf.cpu().unwrap_or(by_leader),
                memory_peak: tree.leaf.memory_peak(),
            },
            Self::Group(group) => Usage {
                cpu: by_leader + group.used(),
                memory_peak: None,
            },
        }
    }

    /// Whether the kernel killed something in it for want of memory.
    pub(super) fn oom_killed(&self) -> bool {
        match self {
            Self::Cgroup(tree) => tree.leaf.oom_killed(),
            Self::Group(_) => false,
        }
    }
}

/// Whether any of them is about to end by itself.
async fn any_parts(pids: &[Pid]) -> bool {
    let any = |pids: &[Pid]| pids.iter().any(|pid| procfs::is_parting(*pid));
    if pids.len() <= FEW {
        return any(pids);
    }
    let pids = pids.to_vec();
    beside(move || any(&pids)).await
}

/// Asks the group that `leader` leads to end. Who is stopped hears of it only when it goes on, which systemd sees to as
/// well (systemd.kill(5)).
pub(super) fn ask_group(leader: &Leader) -> io::Result<()> {
    signal_group(leader, Signal::SIGTERM)?;
    signal_group(leader, Signal::SIGCONT)
}

/// Signals the group that `leader` leads. The only place that turns a leader into a group.
///
/// INVARIANT: a [`Leader`] has not been reaped, for reaping consumes it. So its pid, and with it the
/// group's id, is not anybody else's.
pub(super) fn signal_group(leader: &Leader, signal: Signal) -> io::Result<()> {
    match nix::sys::signal::killpg(leader.pid, signal) {
        // Just born: it leads no group yet, and has no children either.
        Err(Errno::ESRCH) => procfs::pidfd_send_signal(leader.pidfd.get_ref(), signal),
        sent => Ok(sent?),
    }
}
