//! Plan to outcome: starts a process, waits for it in one loop, captures its output and ends its
//! whole tree. Has not heard of HTTP, JSON, users or databases.

mod beside;
mod capture;
mod conclude;
mod environment;
mod handover;
mod hashing;
mod husks;
mod inherited;
mod keep;
mod pipes;
mod plan;
mod raw;
mod reader;
mod ready;
mod run;
mod spawn;
mod spool;
mod start;
mod tree;

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

pub use beside::beside;
pub use capture::{Ahead, Capture, Captured, Follower, Release};
pub(crate) use environment::{FIXED, last_of_each};
pub use plan::{Live, Outcome, Plan, RunError, Script};
pub(crate) use ready::watch;
pub use spool::{KEPT_WITH_RECORD, Kept, Spool, SpoolFile};
pub(crate) use start::Born;

use crate::config::{CgroupChoice, ExecutorConfig, Limits, SpoolConfig};
use crate::domain::{ExecutionId, INSTANCE_VARIABLE, KillMode};
use environment::BaseEnvironment;
use handover::Handover;
use husks::Husks;
use inherited::Corrections;
use keep::Keepers;
pub(crate) use tree::LEAF_PREFIX;
use tree::{CgroupParent, CgroupTree, GroupTree, Leaders, Tree};

/// Runs plans.
#[derive(Debug)]
pub struct Runner {
    environment: BaseEnvironment,
    corrections: OnceLock<Arc<Corrections>>,
    cgroups: Option<CgroupParent>,
    /// Why there are none, where some were delegated.
    fell_back: Option<String>,
    leaders: Arc<Leaders>,
    keepers: Keepers,
    husks: Husks,
    /// Where scripts too long for an argument are put.
    scripts: PathBuf,
}

/// What an earlier process on the same state had left running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Processes that carried this instance's mark.
    pub processes: usize,
    /// Those that were in cgroups of this instance.
    pub in_cgroups: usize,
}

/// Takes up the descriptors that children take with them. Best done before this process opens anything
/// else: what is lower costs each of them. The first run does it, where nobody else has.
pub fn prepare_descriptors() {
    let _ = Handover::of_this_process();
}

/// Has every process that is started from now on hold a lock together with this one until it executes its
/// program: only then does its environment say whose it is. Takes a duplicate of `lock`, for good.
///
/// # Errors
/// When there is no such file open.
pub fn hold_until_execve(lock: impl AsFd) -> io::Result<()> {
    match Handover::of_this_process() {
        Some(handover) => handover.hold(lock),
        // It begins with a copy of all that is open.
        None => Ok(()),
    }
}

impl Runner {
    /// A runner that holds trees together by process groups and touches nothing yet.
    pub fn new(config: &ExecutorConfig) -> Self {
        Self {
            environment: BaseEnvironment::new(config.instance.clone()),
            corrections: OnceLock::new(),
            cgroups: None,
            fell_back: None,
            leaders: Arc::new(Leaders::new(config.subreaper)),
            keepers: Keepers::default(),
            husks: Husks::default(),
            scripts: match &config.spool {
                Some(SpoolConfig { dir, .. }) => dir.clone(),
                None => std::env::temp_dir(),
            },
        }
    }

    /// Does what `config` asks of the process as a whole: becomes a subreaper, takes up cgroups.
    /// Kills what an earlier process with the same instance id, or on the same cgroup, has left.
    ///
    /// # Errors
    /// When cgroups are demanded and cannot be had.
    pub fn prepare(&mut self, config: &ExecutorConfig) -> io::Result<Leftovers> {
        let found = match &config.cgroup {
            CgroupChoice::Group => None,
            CgroupChoice::Auto => CgroupParent::delegated().unwrap_or_else(|error| {
                tracing::warn!(%error, "the delegated cgroup cannot be used; falling back to process groups");
                self.fell_back = Some(error.to_string());
                None
            }),
            CgroupChoice::Delegated => Some(CgroupParent::delegated()?.ok_or_else(|| {
                let text = "systemd has delegated no cgroup to this process: is `Delegate=yes` set in its unit?";
                io::Error::new(io::ErrorKind::NotFound, text)
            })?),
            CgroupChoice::Path(path) => Some(CgroupParent::at(path.clone())?),
        };
        let (cgroups, swept) = found.map_or((None, 0), |(parent, swept)| (Some(parent), swept));
        self.cgroups = cgroups;
        if self.mode() == KillMode::Cgroup {
            self.leaders = Arc::new(Leaders::of_cgroups());
        } else if config.subreaper {
            nix::sys::prctl::set_child_subreaper(true)?;
        }
        let processes = config
            .instance
            .as_deref()
            .map_or(0, |instance| tree::kill_marked(INSTANCE_VARIABLE, instance));
        Ok(Leftovers {
            processes,
            in_cgroups: swept,
        })
    }

    /// Why trees are held together by process groups although a cgroup was delegated.
    pub fn fell_back(&self) -> Option<&str> {
        self.fell_back.as_deref()
    }

    /// By what trees are held together.
    pub fn mode(&self) -> KillMode {
        match self.cgroups {
            Some(_) => KillMode::Cgroup,
            None => KillMode::Group,
        }
    }

    /// Lets go of the descriptors of runs that are over. Call it on a thread for which nobody waits.
    pub fn let_go(&self) {
        self.husks.clear();
    }

    /// Reaps and kills what came back to this process as an orphan, removes cgroups that could not be
    /// removed before, and lets go of what else is left. Call it now and then.
    pub fn tidy(&self) {
        self.let_go();
        self.leaders.tidy();
        if let Some(cgroups) = &self.cgroups {
            cgroups.tidy();
        }
    }

    /// Kills everything that `background: keep` has left alive, and waits for it.
    pub async fn end_kept(&self) {
        self.keepers.end_all().await;
    }

    /// Kills what `background: keep` has left alive of what this execution called, and waits for it.
    pub async fn end_kept_for(&self, parent: ExecutionId) {
        self.keepers.end_of(parent).await;
    }

    /// The cgroup controllers that `limits` needs and that are not there. A plan with such limits
    /// is not run.
    pub fn lacks(&self, limits: Limits) -> Vec<&'static str> {
        let has = |controller| {
            let parent = self.cgroups.as_ref();
            parent.is_some_and(|parent| parent.has(controller))
        };
        [
            ("memory", limits.memory_max),
            ("pids", limits.pids_max),
            ("cpu", limits.cpu_weight),
        ]
        .into_iter()
        .filter_map(|(controller, limit)| limit.map(|_| controller))
        .filter(|controller| !has(controller))
        .collect()
    }

    fn tree(&self, id: ExecutionId, plan: &Plan) -> io::Result<Tree> {
        match &self.cgroups {
            Some(parent) => {
                let leaf = parent.leaf(plan.limits)?;
                Ok(Tree::Cgroup(CgroupTree::new(id, leaf, &self.leaders)))
            }
            None if plan.limits != Limits::default() => {
                let text = "[limits] are set, which only cgroups can hold";
                Err(io::Error::new(io::ErrorKind::Unsupported, text))
            }
            None => Ok(Tree::Group(GroupTree::new(
                id,
                plan.is_recognisable,
                &self.leaders,
            ))),
        }
    }
}
