use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::kernel_file::KernelFile;
use super::{Remains, procfs};
use crate::config::Limits;
use crate::runner::spawn::Leader;

/// A cgroup v2 directory in which this process may make leaves, one for each execution.
/// Interface files: `Documentation/admin-guide/cgroup-v2.rst` of the kernel.
#[derive(Debug)]
pub(in crate::runner) struct CgroupParent {
    dir: PathBuf,
    /// Held on the directory as long as it is ours.
    _lock: Flock<File>,
    made: AtomicU64,
    /// What leaves can be limited by and account for.
    controllers: Vec<String>,
    /// The next leaf's, made while there was time for it.
    spare: Mutex<Option<Arc<Directory>>>,
    stale: Arc<Stale>,
}

/// The directory of a leaf and what is read of it, opened beforehand.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    fd: File,
    /// `cgroup.events`.
    events: KernelFile,
    /// `cpu.stat`.
    cpu: KernelFile,
    /// `memory.events`, where the controller is there.
    memory_events: Option<KernelFile>,
    /// `memory.peak`, where the kernel has it, too (Linux 5.19).
    memory_peak: Option<KernelFile>,
}

/// Leaves whose executions have ended, to be removed and closed when there is time for it; or
/// whenever it can be done, for somebody in them may be in an uninterruptible sleep.
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
            let error = format!("`{}` is no cgroup v2 directory", dir.display());
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
            controllers,
            spare: Mutex::default(),
            stale: Arc::default(),
        };
        // Found out now rather than at the first call: may leaves be made, and killed as one?
        let probe = parent.leaf(Limits::default())?;
        if !probe.dir.path.join("cgroup.kill").exists() {
            let error = "there is no `cgroup.kill`: Linux 5.14 or newer is needed";
            return Err(io::Error::new(io::ErrorKind::Unsupported, error));
        }
        drop(probe);
        parent.tidy();
        Ok((parent, swept))
    }

    /// Uses what systemd has delegated to this process's unit (`Delegate=yes`), which it marks
    /// with an extended attribute (systemd.resource-control(5)). `None` where it has not.
    pub(in crate::runner) fn delegated() -> io::Result<Option<(Self, usize)>> {
        match delegated_dir() {
            Some(dir) => Self::at(dir).map(Some),
            None => Ok(None),
        }
    }

    /// Whether leaves have that controller.
    pub(in crate::runner) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    /// An empty leaf of one's own.
    pub(in crate::runner) fn leaf(&self, limits: Limits) -> io::Result<Leaf> {
        let spare = lock(&self.spare).take();
        let leaf = Leaf {
            dir: spare.map_or_else(|| self.new_dir(), Ok)?,
            stale: Arc::clone(&self.stale),
        };
        for (file, limit) in [
            ("memory.max", limits.memory_max),
            ("pids.max", limits.pids_max),
            ("cpu.weight", limits.cpu_weight),
        ] {
            if let Some(limit) = limit {
                fs::write(leaf.dir.path.join(file), limit.to_string()).map_err(|error| {
                    let text = format!(
                        "cannot set {file} to {limit} ({error}): is the controller delegated?"
                    );
                    io::Error::new(error.kind(), text)
                })?;
            }
        }
        Ok(leaf)
    }

    /// Removes the leaves of executions that have ended, and makes one for the next. Meant for
    /// the moment after a process was started, when there is nothing to do but wait for it: making
    /// and removing a cgroup costs a tenth of what a short command takes.
    pub(in crate::runner) fn prepare_next(&self) {
        self.remove_stale();
        let mut spare = lock(&self.spare);
        if spare.is_none() {
            // The next execution will tell why there is none.
            *spare = self.new_dir().ok();
        }
    }

    /// Removes every leaf that no execution uses. Call it now and then.
    pub(in crate::runner) fn tidy(&self) {
        lock(&self.stale.0).extend(lock(&self.spare).take());
        self.remove_stale();
    }

    fn remove_stale(&self) {
        lock(&self.stale.0).retain(|dir| !remove(&dir.path));
    }

    fn new_dir(&self) -> io::Result<Arc<Directory>> {
        loop {
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            let path = self.dir.join(format!("{LEAF_PREFIX}{number}"));
            match fs::create_dir(&path) {
                Ok(()) => return Directory::open(path, self.has("memory")).map(Arc::new),
                // One of an earlier process that could not be removed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The directory above the daemon's own leaf that carries systemd's mark of delegation.
fn delegated_dir() -> Option<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = membership
        .lines()
        .find_map(|line| line.strip_prefix("0::"))?;
    let own = v2_mount()?.join(path.trim_start_matches('/'));
    // With DelegateSubgroup= the daemon is one below the unit's cgroup.
    [own.parent()?, own.as_path()]
        .into_iter()
        .find(|dir| is_delegated(dir))
        .map(Path::to_owned)
}

/// Where cgroup v2 is mounted: `/sys/fs/cgroup`, or below it on a hybrid host.
fn v2_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, path, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path))
    })
}

fn is_delegated(dir: &Path) -> bool {
    // systemd sets the trusted one always, the user one (readable without privileges) besides.
    ["trusted.delegate", "user.delegate"]
        .iter()
        .any(|name| xattr_is_one(dir, name))
}

fn xattr_is_one(path: &Path, name: &str) -> bool {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    let (Ok(path), Ok(name)) = (
        CString::new(path.as_os_str().as_bytes()),
        CString::new(name),
    ) else {
        return false;
    };
    let mut value = [0u8; 8];
    // SAFETY: both strings end in NUL, and the kernel writes at most `value.len()` bytes.
    let length = unsafe {
        libc::getxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    length == 1 && value[0] == b'1'
}

/// Kills and removes the leaves that an earlier process has left in `dir`.
fn sweep(dir: &Path) -> io::Result<usize> {
    let mut swept = 0;
    let mut leaves = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(LEAF_PREFIX) {
            let populated = is_populated(&entry.path());
            swept += usize::from(populated);
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

impl Directory {
    /// Opens what was just made; what cannot be opened is removed again.
    fn open(path: PathBuf, counts_memory: bool) -> io::Result<Self> {
        Self::try_open(&path, counts_memory).inspect_err(|_| drop(fs::remove_dir(&path)))
    }

    fn try_open(path: &Path, counts_memory: bool) -> io::Result<Self> {
        let of_memory = |file| {
            let opened = counts_memory.then(|| KernelFile::open(path.join(file)));
            opened.and_then(Result::ok)
        };
        Ok(Self {
            fd: File::open(path)?,
            events: KernelFile::open(path.join("cgroup.events"))?,
            cpu: KernelFile::open(path.join("cpu.stat"))?,
            memory_events: of_memory("memory.events"),
            memory_peak: of_memory("memory.peak"),
            path: path.to_owned(),
        })
    }
}

/// The cgroup of one execution. What is dropped is killed and removed by its parent, later.
#[derive(Debug)]
pub(in crate::runner) struct Leaf {
    dir: Arc<Directory>,
    stale: Arc<Stale>,
}

impl Leaf {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.dir.fd.as_fd()
    }

    pub(super) fn path(&self) -> &Path {
        &self.dir.path
    }

    pub(super) fn is_populated(&self) -> bool {
        value(&self.dir.events, POPULATED) == Some(1)
    }

    /// Every living process in it and below it (a command may make cgroups of its own).
    pub(super) fn members(&self) -> Vec<Pid> {
        members(&self.dir.path)
    }

    /// Sends SIGKILL to everything in it, and says what is left: in here, and of the leader should
    /// it have gone elsewhere.
    pub(super) fn kill(&self, leader: &Leader) -> Remains {
        kill(&self.dir.path);
        let members = if self.is_populated() {
            self.members()
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

    /// `usage_usec` of `cpu.stat`.
    pub(super) fn cpu(&self) -> Option<Duration> {
        value(&self.dir.cpu, "usage_usec").map(Duration::from_micros)
    }

    /// `memory.peak`, in bytes.
    pub(super) fn memory_peak(&self) -> Option<u64> {
        let peak = self.dir.memory_peak.as_ref()?.read().ok()?;
        peak.trim().parse().ok()
    }

    /// `oom_kill` of `memory.events`.
    pub(super) fn oom_killed(&self) -> bool {
        let events = self.dir.memory_events.as_ref();
        events.is_some_and(|events| value(events, "oom_kill").is_some_and(|count| count > 0))
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        lock(&self.stale.0).push(Arc::clone(&self.dir));
    }
}

/// The key in `cgroup.events` that covers everything in and below a cgroup, zombies excluded.
const POPULATED: &str = "populated";

/// A value of a flat keyed interface file.
fn value(file: &KernelFile, key: &str) -> Option<u64> {
    let text = file.read().ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
}

fn is_populated(dir: &Path) -> bool {
    let events = KernelFile::open(dir.join("cgroup.events")).ok();
    events.and_then(|events| value(&events, POPULATED)) == Some(1)
}

fn child_dirs(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Every living process in `dir` and below it.
pub(super) fn members(dir: &Path) -> Vec<Pid> {
    let mut pids = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        pids.extend(
            procs
                .lines()
                .filter_map(|pid| pid.parse().ok())
                .map(Pid::from_raw),
        );
        dirs.extend(child_dirs(&dir));
    }
    pids
}

/// Sends SIGKILL to everything in `dir` and below it.
fn kill(dir: &Path) {
    if let Err(error) = fs::write(dir.join("cgroup.kill"), "1") {
        tracing::error!(%error, cgroup = %dir.display(), "cannot kill a cgroup");
    }
    // The kernel signals main threads. Where that has ended before the others, nobody minds
    // (complete_signal in kernel/signal.c), so such a process gets a signal as a whole.
    let is_headless = |pid: &Pid| procfs::stat(*pid).is_some_and(|stat| stat.is_headless);
    let headless: Vec<(Pid, OwnedFd)> = members(dir)
        .into_iter()
        .filter(is_headless)
        .filter_map(|pid| Some((pid, procfs::pidfd_open(pid).ok()?)))
        .collect();
    if headless.is_empty() {
        return;
    }
    // Whoever is in here now, and was when its pidfd was opened, is whom the pidfd names.
    let still = members(dir);
    for (pid, pidfd) in headless {
        if still.contains(&pid) {
            let _ = procfs::pidfd_send_signal(&pidfd, Signal::SIGKILL);
        }
    }
}

/// Removes `dir` and what is below it, killing what is in the way. Returns whether it is gone.
fn remove(dir: &Path) -> bool {
    // The common case first, in one system call.
    if fs::remove_dir(dir).is_ok() {
        return true;
    }
    if is_populated(dir) {
        kill(dir);
    }
    for child in child_dirs(dir) {
        remove(&child);
    }
    match fs::remove_dir(dir) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}
