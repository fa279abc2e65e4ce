//! Trees held together by cgroups: one leaf for each execution that nobody else is in, below a
//! directory that is ours.

mod delegated;
mod directory;
mod touched;

use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Pid;
use parking_lot::Mutex;

use self::delegated::delegated_dir;
use self::directory::{Directory, Services, is_populated, remove};
use super::{Members, Remains};
use crate::config::Limits;
use crate::runner::spawn::Leader;

/// A cgroup v2 directory in which this process may make leaves, one for each execution.
#[derive(Debug)]
pub(in crate::runner) struct CgroupParent {
    dir: PathBuf,
    /// Held on the directory as long as it is ours.
    _lock: Flock<File>,
    made: AtomicU64,
    services: Services,
    spares: Mutex<Spares>,
    stale: Arc<Stale>,
}

/// Leaves that wait for an execution, the one used last at the end: what the kernel needs of it is in
/// the processor's caches.
#[derive(Debug, Default)]
struct Spares {
    leaves: Vec<Directory>,
    /// The fewest that there were since somebody looked: so many were not needed.
    unneeded: usize,
}

/// Leaves whose executions have ended, to be used again, or to be removed and closed, when there is time for it;
/// or whenever it can be done, for somebody in them may be in an uninterruptible sleep.
#[derive(Debug, Default)]
struct Stale(Mutex<Vec<Arc<Directory>>>);

/// How long the leaves of an earlier process are given to become empty. Killing takes the kernel
/// milliseconds; a leaf that is not empty then is in nobody's way.
const SWEEP_WAIT: Duration = Duration::from_secs(1);

/// The leaves' names. What begins with it in the parent is ours to sweep.
pub(crate) const LEAF_PREFIX: &str = "execution-";

impl CgroupParent {
    /// Uses `dir`, which must exist and belong to this process alone: leaves of an earlier one
    /// are killed and removed. Returns how many there were.
    pub(in crate::runner) fn at(dir: PathBuf) -> io::Result<(Self, usize)> {
        if !dir.join("cgroup.procs").exists() {
            let error = format!(
                "`{}` is no cgroup v2 directory: is `path` in [cgroup] right?",
                dir.display()
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, error));
        }
        let lock = Flock::lock(File::open(&dir)?, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|(_, errno)| {
            let text = format!(
                "another daemon uses the cgroup `{}` ({errno})",
                dir.display()
            );
            io::Error::new(io::ErrorKind::ResourceBusy, text)
        })?;
        let swept = sweep(&dir)?;
        // Controllers that are not there (a hybrid host) or not delegated are simply not used.
        for controller in ["memory", "pids", "cpu"] {
            let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        let controllers = fs::read_to_string(dir.join("cgroup.subtree_control"))?;
        let controllers = controllers.split_whitespace().map(str::to_owned).collect();
        let parent = Self {
            dir,
            _lock: lock,
            made: AtomicU64::new(0),
            services: Services::new(controllers),
            spares: Mutex::default(),
            stale: Arc::default(),
        };
        // Found out now rather than at the first call: may leaves be made, and killed as one?
        let probe = parent.new_leaf(Limits::default())?;
        let can_kill = probe.can_be_killed();
        parent.discard(probe);
        if !can_kill {
            let error = "there is no `cgroup.kill`: Linux 5.14 or newer is needed";
            return Err(io::Error::new(io::ErrorKind::Unsupported, error));
        }
        Ok((parent, swept))
    }

    /// Uses what systemd has delegated to this process's unit (`Delegate=yes`). `None` where it has
    /// not.
    pub(in crate::runner) fn delegated() -> io::Result<Option<(Self, usize)>> {
        match delegated_dir() {
            Some(dir) => Self::at(dir).map(Some),
            None => Ok(None),
        }
    }

    /// Whether leaves have that controller.
    pub(in crate::runner) fn has(&self, controller: &str) -> bool {
        self.services.has(controller)
    }

    /// An empty leaf of one's own.
    pub(in crate::runner) fn leaf(&self, limits: Limits) -> io::Result<Leaf> {
        let dir = loop {
            let Some(spare) = self.spares.lock().take(limits) else {
                break self.new_leaf(limits)?;
            };
            if spare.is_ready() {
                break spare;
            }
            self.stale.put(Arc::new(spare));
        };
        Ok(Leaf {
            dir: Arc::new(dir),
            stale: Arc::clone(&self.stale),
        })
    }

    /// Sees to the leaves of executions that have ended, and that there is one for the next with
    /// such limits. Meant for the moment after a process was started, when there is nothing to do but
    /// wait for it: making and removing a cgroup costs a seventh of what a short command takes.
    pub(in crate::runner) fn prepare_next(&self, limits: Limits) {
        self.sort_stale();
        if !self.spares.lock().has(limits) {
            // The next execution will tell why there is none.
            let made = self.new_leaf(limits).ok();
            self.spares.lock().leaves.extend(made);
        }
    }

    /// Removes the leaves that no execution uses, and none has needed since the last time. Call it now and
    /// then.
    pub(in crate::runner) fn tidy(&self) {
        self.sort_stale();
        let unneeded = self.spares.lock().take_unneeded();
        for dir in unneeded {
            self.discard(dir);
        }
    }

    /// Takes in what can be used again, and removes the others.
    fn sort_stale(&self) {
        for dir in self.stale.take() {
            match Arc::try_unwrap(dir) {
                Ok(mut dir) => match dir.renew() {
                    true => self.spares.lock().leaves.push(dir),
                    false => self.discard(dir),
                },
                // Somebody looks who is in it.
                Err(dir) => self.stale.put(dir),
            }
        }
    }

    /// Removes a leaf, now or when that can be done.
    fn discard(&self, dir: Directory) {
        if !dir.remove() {
            self.stale.put(Arc::new(dir));
        }
    }

    fn new_leaf(&self, limits: Limits) -> io::Result<Directory> {
        loop {
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            let path = self.dir.join(format!("{LEAF_PREFIX}{number}"));
            match Directory::make(path, limits, &self.services) {
                // One of an earlier process that could not be removed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }
}

impl Drop for CgroupParent {
    fn drop(&mut self) {
        for dir in std::mem::take(&mut self.spares.lock().leaves) {
            self.discard(dir);
        }
        for dir in self.stale.take() {
            dir.remove();
        }
    }
}

impl Spares {
    fn has(&self, limits: Limits) -> bool {
        self.leaves.iter().any(|leaf| leaf.limits == limits)
    }

    fn take(&mut self, limits: Limits) -> Option<Directory> {
        let at = self.leaves.iter().rposition(|leaf| leaf.limits == limits)?;
        let leaf = self.leaves.remove(at);
        self.unneeded = self.unneeded.min(self.leaves.len());
        Some(leaf)
    }

    /// Those that nobody has taken since the last time.
    fn take_unneeded(&mut self) -> Vec<Directory> {
        let unneeded = self.leaves.drain(..self.unneeded).collect();
        self.unneeded = self.leaves.len();
        unneeded
    }
}

impl Stale {
    fn put(&self, dir: Arc<Directory>) {
        self.0.lock().push(dir);
    }

    fn take(&self) -> Vec<Arc<Directory>> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Kills and removes the leaves that an earlier process has left in `dir`. Says how many processes were in them.
fn sweep(dir: &Path) -> io::Result<usize> {
    let mut swept = 0;
    let mut leaves = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(LEAF_PREFIX) {
            if is_populated(&entry.path()) {
                let members = fs::read_to_string(entry.path().join("cgroup.procs"));
                // Those that only cgroups below it have are some, too.
                swept += members.map_or(0, |pids| pids.lines().count()).max(1);
            }
            leaves.push(entry.path());
        }
    }
    let deadline = Instant::now() + SWEEP_WAIT;
    loop {
        leaves.retain(|dir| !remove(dir));
        if leaves.is_empty() || Instant::now() >= deadline {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(swept)
}

/// The cgroup of one execution, which has it to itself. What is dropped is killed and removed by its
/// parent, later, or another execution's.
#[derive(Debug)]
pub(in crate::runner) struct Leaf {
    dir: Arc<Directory>,
    stale: Arc<Stale>,
}

/// Who is in a leaf, for whoever does not hold it. Nobody is, once the leaf can be another's.
#[derive(Clone, Debug)]
pub(in crate::runner) struct LeafMembers(Weak<Directory>);

impl LeafMembers {
    pub(super) fn has(&self, pid: Pid) -> bool {
        let dir = self.0.upgrade();
        let members = dir.and_then(|dir| dir.members().ok());
        members.is_some_and(|members| members.contains(&pid))
    }
}

impl Leaf {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.dir.fd()
    }

    pub(super) fn is_populated(&self) -> bool {
        self.dir.is_populated()
    }

    /// Every living process in it and below it.
    pub(super) fn members(&self) -> Members {
        let members = self.dir.members();
        Members {
            is_settled: members.is_ok(),
            is_all: members.is_ok(),
            pids: members.unwrap_or_default(),
        }
    }

    /// The same for whoever does not hold it.
    pub(super) fn membership(&self) -> LeafMembers {
        LeafMembers(Arc::downgrade(&self.dir))
    }

    /// Sends SIGKILL to everything in it, and says what is left: in here, and of the leader should
    /// it have gone elsewhere.
    pub(super) fn kill(&self, leader: &Leader) -> Remains {
        self.dir.kill();
        let members = if self.is_populated() {
            self.members().pids
        } else {
            Vec::new()
        };
        let outside = leader.is_alive() && !members.contains(&leader.pid);
        let inside = members.len().max(usize::from(self.is_populated()));
        Remains {
            known: u32::try_from(inside + usize::from(outside)).unwrap_or(u32::MAX),
            proven: true,
        }
    }

    /// What everybody in it has computed.
    pub(super) fn cpu(&self) -> Option<Duration> {
        self.dir.cpu()
    }

    /// The most memory that there was in it at a time, in bytes.
    pub(super) fn memory_peak(&self) -> Option<u64> {
        self.dir.memory_peak()
    }

    /// Whether the kernel killed something in it for want of memory.
    pub(super) fn oom_killed(&self) -> bool {
        self.dir.oom_killed()
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.stale.put(Arc::clone(&self.dir));
    }
}
