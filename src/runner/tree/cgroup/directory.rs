//! A directory of cgroup v2 for one execution at a time: made, read, emptied, removed, and made as good
//! as new where that can be done. Interface files: `Documentation/admin-guide/cgroup-v2.rst` of the
//! kernel.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::touched::{Touched, Watch};
use crate::config::Limits;
use crate::runner::tree::kernel_file::KernelFile;
use crate::runner::tree::procfs;

/// How much memory may be charged to a leaf that is used again, in bytes: pages that an earlier
/// execution was the first to read, and what the kernel has set aside for each processor (64 pages,
/// `MEMCG_CHARGE_BATCH`). The next one's limit and `memory.peak` can be off by no more.
const RESIDUE: u64 = 1 << 20;

/// The key in `cgroup.events` that covers everything in and below a cgroup, zombies excluded.
const POPULATED: &str = "populated";

/// A directory, and what is read of it, opened beforehand.
#[derive(Debug)]
pub(super) struct Directory {
    pub path: PathBuf,
    /// What was written to it before it was first used.
    pub limits: Limits,
    fd: File,
    /// `cgroup.events`.
    events: KernelFile,
    /// `cpu.stat`.
    cpu: KernelFile,
    /// Where the memory controller is there.
    memory: Option<Memory>,
    /// `pids.current`, where the number is limited.
    pids: Option<KernelFile>,
    /// Who has had to do with it. `None` where the kernel does not tell.
    watch: Option<Watch>,
    /// What earlier executions in it have used up.
    before: Before,
}

#[derive(Debug)]
struct Memory {
    /// `memory.events`.
    events: KernelFile,
    /// `memory.current`.
    current: KernelFile,
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
    pub(super) fn make(
        path: PathBuf,
        limits: Limits,
        counts_memory: bool,
        touched: Option<&Arc<Touched>>,
    ) -> io::Result<Self> {
        fs::create_dir(&path)?;
        Self::open(&path, limits, counts_memory, touched)
            .inspect_err(|_| drop(fs::remove_dir(&path)))
    }

    fn open(
        path: &Path,
        limits: Limits,
        counts_memory: bool,
        touched: Option<&Arc<Touched>>,
    ) -> io::Result<Self> {
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
        Ok(Self {
            limits,
            fd: File::open(path)?,
            events: file("cgroup.events")?,
            cpu: file("cpu.stat")?,
            memory: counts_memory.then(|| Memory::open(path)).transpose()?,
            pids: limits.pids_max.map(|_| file("pids.current")).transpose()?,
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
    pub(super) fn members(&self) -> Vec<Pid> {
        members(&self.path)
    }

    /// Sends SIGKILL to everything in it and below it.
    pub(super) fn kill(&self) {
        kill(&self.path);
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

    /// Whether somebody besides its owner is known to have had to do with it.
    pub(super) fn is_touched(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_touched)
    }

    /// Makes it as good as new for another execution with the same limits. Returns whether that could
    /// be done.
    ///
    /// INVARIANT: what was used before is empty, as nobody has touched it since it was made it has the
    /// limits, children and owner it had then, and nothing counts in it but what is subtracted.
    pub(super) fn renew(&mut self) -> bool {
        // Touched comes after: whoever was in it can do no more then.
        let is_empty = self.events.value(POPULATED) == Some(0)
            && self
                .pids
                .as_ref()
                .is_none_or(|pids| pids.number() == Some(0));
        if !is_empty || self.watch.is_none() || self.is_touched() || self.oom_killed() {
            return false;
        }
        let (Some(cpu), Some(memory)) = (self.all_cpu(), self.residue()) else {
            return false;
        };
        self.before = Before { cpu, memory };
        true
    }

    /// What memory is still charged to it, with its peak begun anew. `None` where that is too much, or the kernel
    /// cannot (before Linux 6.12).
    fn residue(&self) -> Option<u64> {
        let Some(memory) = &self.memory else {
            return Some(0);
        };
        if let Some(peak) = &memory.peak {
            peak.write("reset").ok()?;
        }
        memory.current.number().filter(|left| *left <= RESIDUE)
    }
}

impl Memory {
    fn open(dir: &Path) -> io::Result<Self> {
        let peak = dir.join("memory.peak");
        Ok(Self {
            events: KernelFile::open(dir.join("memory.events"))?,
            current: KernelFile::open(dir.join("memory.current"))?,
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
fn members(dir: &Path) -> Vec<Pid> {
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
pub(super) fn remove(dir: &Path) -> bool {
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
