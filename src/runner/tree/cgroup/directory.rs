//! A directory of cgroup v2 for one execution at a time: made, read, emptied, removed, and made as good
//! as new where that can be done. Interface files: `Documentation/admin-guide/cgroup-v2.rst` of the
//! kernel.

use std::fs::{self, File};
use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{Pid, SysconfVar, sysconf};

use super::touched::{Touched, Watch};
use crate::config::Limits;
use crate::domain::is_for_want;
use crate::runner::tree::kernel_file::KernelFile;
use crate::runner::tree::procfs;

/// How much memory may be charged to a leaf that is used again, in bytes, beside [`stocks`]: pages that
/// an earlier execution was the first to read.
const RESIDUE: u64 = 1 << 20;

/// How many pages the kernel charges at once for each processor, in the hope that they will be needed
/// (`MEMCG_CHARGE_BATCH`, mm/memcontrol.c).
const STOCK: u64 = 64;

/// The key in `cgroup.events` that covers everything in and below a cgroup, zombies excluded.
const POPULATED: &str = "populated";

/// What the kernel does for the leaves of one parent.
#[derive(Debug)]
pub(super) struct Services {
    /// What they can be limited by and account for.
    controllers: Vec<String>,
    /// Tells which of them were touched. `None` where the kernel does not, and none is used again.
    touched: Option<Arc<Touched>>,
    /// How much memory may be charged to a leaf that is used again, in bytes.
    residue: u64,
}

impl Services {
    pub(super) fn new(controllers: Vec<String>) -> Self {
        let touched = Touched::new().inspect_err(|error| {
            tracing::warn!(%error, "there is no inotify instance left (fs.inotify.max_user_instances): no cgroup is used again, which makes short commands slower");
        });
        Self {
            controllers,
            touched: touched.ok().map(Arc::new),
            residue: RESIDUE + stocks(),
        }
    }

    pub(super) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

/// What can be charged to a cgroup that nobody is in, in bytes, because it was set aside.
fn stocks() -> u64 {
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page.and_then(|bytes| u64::try_from(bytes).ok());
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    STOCK * page.unwrap_or(4096) * processors as u64
}

/// A directory, and what is read of it, opened beforehand.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The same by the descriptor, whatever somebody has mounted over it.
    inside: PathBuf,
    /// What was written to it before it was first used.
    pub limits: Limits,
    fd: File,
    /// `cgroup.events`.
    events: KernelFile,
    /// `cgroup.kill` (Linux 5.14): there may be no descriptor left to open it with when it is needed.
    kill: Option<KernelFile>,
    /// `cpu.stat`.
    cpu: KernelFile,
    /// Where the memory controller is there.
    memory: Option<Memory>,
    /// `pids.current`, where the number is limited.
    pids: Option<KernelFile>,
    /// Who has had to do with it. `None` where the kernel does not tell.
    watch: Option<Watch>,
    /// How much memory may be charged to it when it is used again, in bytes.
    residue: u64,
    /// What earlier executions in it have used up.
    before: Before,
}

#[derive(Debug)]
struct Memory {
    /// `memory.events`.
    events: KernelFile,
    /// `memory.current`.
    current: KernelFile,
    /// `memory.swap.current`, where the kernel can swap.
    swapped: Option<KernelFile>,
    /// `memory.peak`, where the kernel has it (Linux 5.19).
    peak: Option<KernelFile>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Before {
    cpu: Duration,
    memory: u64,
}

impl Directory {
    /// Makes `path`, which must not exist, and everything about it that an execution needs. What cannot
    /// be had is removed again.
    pub(super) fn make(path: PathBuf, limits: Limits, services: &Services) -> io::Result<Self> {
        fs::create_dir(&path)?;
        Self::open(&path, limits, services).inspect_err(|_| drop(fs::remove_dir(&path)))
    }

    fn open(path: &Path, limits: Limits, services: &Services) -> io::Result<Self> {
        for (file, limit) in [
            ("memory.max", limits.memory_max),
            ("pids.max", limits.pids_max),
            ("cpu.weight", limits.cpu_weight),
        ] {
            if let Some(limit) = limit {
                fs::write(path.join(file), limit.to_string()).map_err(|error| {
                    let text = format!(
                        "cannot set {file} to {limit} ({error}): is the controller delegated?"
                    );
                    io::Error::new(error.kind(), text)
                })?;
            }
        }
        let file = |name| KernelFile::open(path.join(name));
        let memory = services.has("memory").then(|| Memory::open(path));
        let touched = services.touched.as_ref();
        let fd = File::open(path)?;
        Ok(Self {
            limits,
            inside: PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())),
            fd,
            events: file("cgroup.events")?,
            kill: match KernelFile::open_to_write(path.join("cgroup.kill")) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                kill => Some(kill?),
            },
            cpu: file("cpu.stat")?,
            memory: memory.transpose()?,
            pids: limits.pids_max.map(|_| file("pids.current")).transpose()?,
            residue: services.residue,
            before: Before::default(),
            // Last of all: what was done up to here is not to be told of.
            watch: touched.and_then(|touched| touched.watch(path).ok()),
            path: path.to_owned(),
        })
    }

    /// For processes to be born in.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn is_populated(&self) -> bool {
        self.events.value(POPULATED) == Some(1)
    }

    /// Every living process in it and below it (a command may make cgroups of its own).
    ///
    /// # Errors
    /// When they cannot be listed: there may be no descriptor left to look with.
    pub(super) fn members(&self) -> io::Result<Vec<Pid>> {
        members(&self.inside)
    }

    /// Whether it can be killed as one (Linux 5.14).
    pub(super) fn can_be_killed(&self) -> bool {
        self.kill.is_some()
    }

    /// Sends SIGKILL to everything in it and below it.
    pub(super) fn kill(&self) {
        let killed = self.kill.as_ref().map(|kill| kill.write("1"));
        if let Some(Err(error)) = killed {
            tracing::error!(%error, cgroup = %self.path.display(), "cannot kill a cgroup");
        }
        kill_headless(&self.inside);
    }

    /// `usage_usec` of `cpu.stat`, of this execution.
    pub(super) fn cpu(&self) -> Option<Duration> {
        Some(self.all_cpu()?.saturating_sub(self.before.cpu))
    }

    fn all_cpu(&self) -> Option<Duration> {
        self.cpu.value("usage_usec").map(Duration::from_micros)
    }

    /// `memory.peak` of this execution, in bytes.
    pub(super) fn memory_peak(&self) -> Option<u64> {
        let peak = self.memory.as_ref()?.peak.as_ref()?.number()?;
        Some(peak.saturating_sub(self.before.memory))
    }

    /// Whether the kernel killed something in it for want of memory (`oom_kill` of `memory.events`).
    pub(super) fn oom_killed(&self) -> bool {
        let memory = self.memory.as_ref();
        memory.is_some_and(|memory| memory.events.value("oom_kill").is_some_and(|n| n > 0))
    }

    /// Whether an execution can be born in it: it is there, empty, and nobody but its owner is known to have
    /// had to do with it.
    pub(super) fn is_ready(&self) -> bool {
        // Touched comes after: whoever was in it can do no more then.
        let is_empty = self.events.value(POPULATED) == Some(0)
            && self
                .pids
                .as_ref()
                .is_none_or(|pids| pids.number() == Some(0));
        is_empty && !self.watch.as_ref().is_some_and(Watch::is_touched)
    }

    /// Makes it as good as new for another execution with the same limits. Returns whether that could
    /// be done.
    ///
    /// INVARIANT: what was used before is empty; as nobody has touched it since it was made it has the
    /// limits, children and owner it had then; and what it counted until then is subtracted.
    pub(super) fn renew(&mut self) -> bool {
        if self.watch.is_none() || !self.is_ready() || self.oom_killed() {
            return false;
        }
        let (Some(cpu), Some(memory)) = (self.all_cpu(), self.charged()) else {
            return false;
        };
        self.before = Before { cpu, memory };
        true
    }

    /// What memory is still charged to it, with its peak begun anew. `None` where that is too much, some of it
    /// may come back from swap, or there is a peak and the kernel cannot begin it anew (before Linux 6.12).
    fn charged(&self) -> Option<u64> {
        let Some(memory) = &self.memory else {
            return Some(0);
        };
        if let Some(peak) = &memory.peak {
            peak.write("reset").ok()?;
        }
        if let Some(swapped) = &memory.swapped {
            swapped.number().filter(|bytes| *bytes == 0)?;
        }
        memory
            .current
            .number()
            .filter(|bytes| *bytes <= self.residue)
    }

    /// Removes it and what is below it, killing what is in the way. Returns whether it is gone.
    pub(super) fn remove(&self) -> bool {
        // The common case first, in one system call.
        fs::remove_dir(&self.path).is_ok() || {
            empty(&self.inside);
            fs::remove_dir(&self.path).is_ok() || self.is_gone()
        }
    }

    /// Whether somebody has removed it: its files are dead then.
    fn is_gone(&self) -> bool {
        let read = self.events.read();
        read.is_err_and(|error| error.raw_os_error() == Some(libc::ENODEV))
    }
}

impl Memory {
    fn open(dir: &Path) -> io::Result<Self> {
        let peak = dir.join("memory.peak");
        Ok(Self {
            events: KernelFile::open(dir.join("memory.events"))?,
            current: KernelFile::open(dir.join("memory.current"))?,
            swapped: KernelFile::open(dir.join("memory.swap.current")).ok(),
            // Who may not write it (its owner, before Linux 6.12) can read it still.
            peak: KernelFile::open_writable(&peak)
                .or_else(|_| KernelFile::open(&peak))
                .ok(),
        })
    }
}

/// Whether there is anybody in `dir`.
pub(super) fn is_populated(dir: &Path) -> bool {
    let events = KernelFile::open(dir.join("cgroup.events")).ok();
    events.and_then(|events| events.value(POPULATED)) == Some(1)
}

fn child_dirs(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?.flatten();
    Ok(entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect())
}

/// Every living process in `dir` and below it.
fn members(dir: &Path) -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let listed = fs::read_to_string(dir.join("cgroup.procs"))
            .and_then(|procs| Ok((procs, child_dirs(&dir)?)));
        let (procs, children) = match listed {
            Ok(listed) => listed,
            // Nobody is in one that has been removed, or holds threads only (ENOTSUP), whose processes stand above.
            Err(error) if !is_for_want(&error) => continue,
            Err(error) => return Err(error),
        };
        pids.extend(
            procs
                .lines()
                .filter_map(|pid| pid.parse().ok())
                .map(Pid::from_raw),
        );
        dirs.extend(children);
    }
    Ok(pids)
}

/// Sends SIGKILL to everything in `dir` and below it.
fn kill(dir: &Path) -> io::Result<()> {
    let killed = fs::write(dir.join("cgroup.kill"), "1");
    kill_headless(dir);
    killed
}

/// The kernel signals main threads. Where that has ended before the others, nobody minds
/// (complete_signal in kernel/signal.c), so such a process gets a signal as a whole.
fn kill_headless(dir: &Path) {
    let is_headless = |pid: &Pid| procfs::stat(*pid).is_some_and(|stat| stat.is_headless);
    let headless: Vec<(Pid, OwnedFd)> = members(dir)
        .unwrap_or_default()
        .into_iter()
        .filter(is_headless)
        .filter_map(|pid| Some((pid, procfs::pidfd_open(pid).ok()?)))
        .collect();
    if headless.is_empty() {
        return;
    }
    // Whoever is in here now, and was when its pidfd was opened, is whom the pidfd names.
    let still = members(dir).unwrap_or_default();
    for (pid, pidfd) in headless {
        if still.contains(&pid) {
            let _ = procfs::pidfd_send_signal(&pidfd, Signal::SIGKILL);
        }
    }
}

/// Removes `dir` and what is below it, killing what is in the way. Returns whether it is gone.
pub(super) fn remove(dir: &Path) -> bool {
    // The common case first, in one system call.
    if fs::remove_dir(dir).is_ok() {
        return true;
    }
    empty(dir);
    match fs::remove_dir(dir) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Kills who is in `dir` and removes what is below it, as far as that can be done.
fn empty(dir: &Path) {
    if is_populated(dir) {
        // Where that fails it cannot be removed, either, which is told.
        let _ = kill(dir);
    }
    for child in child_dirs(dir).unwrap_or_default() {
        remove(&child);
    }
}
