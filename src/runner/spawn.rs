//! Starts a process: clone3 into its cgroup, corrections, execve.
//!
//! The child shares this process's memory (`CLONE_VM`) instead of copying its page tables, so
//! that starting costs the same however large the daemon is; see `docs/performance.md`. Unless
//! it must (`CLONE_VFORK`, see `start`) this thread does not wait for the `execve`.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::environment::Environment;
use super::handover::{self, Handover, Token};
use super::inherited::{self, Corrections};
use super::pipes::Ends;
use super::raw::{self, CloneArgs, syscall};
use super::ready::watch;
use super::tree;
use crate::domain::{self, Exit};

/// The stack on which a child prepares itself. It calls nothing deep; a debug build uses less
/// than 4 KiB of it.
const STACK_BYTES: usize = 16 * 1024;

/// Exit code of a child that could not execute its program. Nobody sees it: the reason stands in
/// the memory it shares with its parent.
const CANNOT_EXECUTE: usize = 127;

/// What to execute and with what.
pub(super) struct Program<'a> {
    pub path: CString,
    pub args: Vec<CString>,
    pub env: Environment,
    pub working_dir: Option<CString>,
    /// Become descriptors 0, 1 and 2.
    pub ends: Ends,
    /// The cgroup to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
}

/// A process that was started and not yet reaped, so that its pid and its process group's id are
/// its own.
#[derive(Debug)]
pub(super) struct Leader {
    pub pid: Pid,
    /// Readable once it has ended.
    pub pidfd: AsyncFd<OwnedFd>,
    birth: InUse,
}

/// What a child uses until it has executed its program or exited.
#[derive(Debug)]
struct InUse(Option<Box<Birth>>);

/// The kernel's account of one that was reaped, and the descriptor that nobody needs any more.
pub(super) type Reaped = (Ended, AsyncFd<OwnedFd>);

/// The kernel's account of a process that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub exit: Exit,
    pub cpu: Duration,
}

fn duration(time: libc::timeval) -> Duration {
    let micros = time.tv_sec.max(0) as u64 * 1_000_000 + time.tv_usec.max(0) as u64;
    Duration::from_micros(micros)
}

/// What a child could not do.
#[derive(Debug)]
pub(super) struct BirthFailure {
    pub step: BirthStep,
    pub error: io::Error,
}

/// The steps that can fail in a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum BirthStep {
    Clone = 1,
    Session,
    WorkingDir,
    Stdio,
    Execute,
}

/// Everything the child needs, prepared by the parent, for the child may not allocate.
struct Birth {
    stack: Box<Stack>,
    path: CString,
    working_dir: Option<CString>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    stdio: [RawFd; 3],
    /// Own these: with a `handover` the child takes them only once it runs, and their numbers must not
    /// be anybody else's by then. `None` when it has ended.
    ends: Option<Ends>,
    /// How it gets a table of descriptors of its own, where it does not begin with one.
    handover: Option<&'static Handover>,
    corrections: Arc<Corrections>,
    /// Own the strings `argv` and `envp` point to.
    _strings: (Vec<CString>, Environment),
    failed_step: AtomicU32,
    errno: AtomicI32,
}

#[repr(C, align(16))]
struct Stack([MaybeUninit<u8>; STACK_BYTES]);

impl std::fmt::Debug for Birth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Birth")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

// SAFETY: the raw pointers point into `_strings`, whose buffers live on the heap, move with the
// value and are never changed.
unsafe impl Send for Birth {}
// SAFETY: as above; what the child writes are atomics.
unsafe impl Sync for Birth {}

/// Starts `program` as leader of a new session and process group.
///
/// Returns as soon as the process exists; whether it could execute its program is known when it
/// has ended (see [`Leader::birth_failure`]).
pub(super) fn start(
    program: Program<'_>,
    corrections: &Arc<Corrections>,
    handover: Option<&'static Handover>,
) -> Result<Leader, BirthFailure> {
    let mut flags = libc::CLONE_VM | libc::CLONE_PIDFD;
    if handover.is_some() {
        flags |= libc::CLONE_FILES;
    }
    // A child that shares memory and writes its oom_score_adj would change this process's too,
    // unless its parent is suspended (`__set_oom_adj` in fs/proc/base.c spares a vfork).
    if corrections.oom_score_adj {
        flags |= libc::CLONE_VFORK;
    }
    let cgroup = program.cgroup;
    let mut birth = Box::new(Birth::new(program, corrections, handover));
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: flags as u64 | CLONE_CLEAR_SIGHAND,
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        stack: birth.stack.0.as_mut_ptr() as u64,
        stack_size: STACK_BYTES as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: stack and argument live in `birth`, which the returned Leader keeps until the child
    // is known to have ended. With CLONE_CLEAR_SIGHAND no handler of ours can run in the child,
    // and `be_born` keeps to raw system calls.
    let result = unsafe { raw::clone3(&args, be_born, (&raw mut *birth).cast()) };
    if result < 0 {
        let error = io::Error::from_raw_os_error(-result as i32);
        return Err(BirthFailure {
            step: BirthStep::Clone,
            error,
        });
    }
    // SAFETY: the kernel has put a new descriptor there (CLONE_PIDFD), which nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = Pid::from_raw(result as libc::pid_t);
    match watch(pidfd, Interest::READABLE) {
        Ok(pidfd) => Ok(Leader {
            pid,
            pidfd,
            birth: InUse(Some(birth)),
        }),
        Err(error) => {
            // Nobody could watch this process, so it must go; it still uses its memory meanwhile.
            end_at_once(pid);
            birth.close_ends();
            Err(BirthFailure {
                step: BirthStep::Clone,
                error,
            })
        }
    }
}

/// Kills a child that nobody waits for, and reaps it.
fn end_at_once(pid: Pid) {
    let _ = kill(pid, Signal::SIGKILL);
    let _ = waitpid(pid, Some(WaitPidFlag::__WALL));
}

/// Linux 5.5 and 5.7; `libc` has them for some targets only.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

impl Birth {
    fn new(
        program: Program<'_>,
        corrections: &Arc<Corrections>,
        handover: Option<&'static Handover>,
    ) -> Self {
        let argv = program.args.iter().map(|arg| arg.as_ptr());
        let argv = argv.chain([ptr::null()]).collect();
        let envp = program.env.pointers().chain([ptr::null()]).collect();
        Self {
            stack: new_stack(),
            argv,
            envp,
            path: program.path,
            working_dir: program.working_dir,
            stdio: program.ends.stdio().map(|fd| fd.as_raw_fd()),
            ends: Some(program.ends),
            handover,
            corrections: Arc::clone(corrections),
            _strings: (program.args, program.env),
            failed_step: AtomicU32::new(0),
            errno: AtomicI32::new(0),
        }
    }

    /// Nobody else is born with what is at this address meanwhile.
    fn token(&self) -> Token {
        ptr::from_ref(self).addr()
    }

    /// Closes this process's ends of its pipes. Once the child has ended.
    fn close_ends(&mut self) {
        if let Some(handover) = &self.handover {
            handover.clear(self.token());
        }
        self.ends = None;
    }
}

fn new_stack() -> Box<Stack> {
    // SAFETY: bytes that may be uninitialized are valid whatever they are. This form never puts
    // the stack on this thread's own.
    unsafe { Box::<Stack>::new_uninit().assume_init() }
}

impl Leader {
    /// Closes this process's ends of its pipes, so that those come to their end. Once it has ended.
    pub(super) fn close_ends(&mut self) {
        if let Some(birth) = &mut self.birth.0 {
            birth.close_ends();
        }
    }

    /// Kills and reaps it where it cannot be attended.
    pub(super) fn abandon(mut self) {
        end_at_once(self.pid);
        self.close_ends();
        self.birth.0 = None;
    }

    /// Why the program was not executed, if it was not. Meaningful once the process has ended.
    pub(super) fn birth_failure(&self) -> Option<BirthFailure> {
        let birth = self.birth.0.as_ref()?;
        let step = match birth.failed_step.load(Ordering::Acquire) {
            0 => return None,
            s if s == BirthStep::Session as u32 => BirthStep::Session,
            s if s == BirthStep::WorkingDir as u32 => BirthStep::WorkingDir,
            s if s == BirthStep::Stdio as u32 => BirthStep::Stdio,
            _ => BirthStep::Execute,
        };
        let error = io::Error::from_raw_os_error(birth.errno.load(Ordering::Acquire));
        Some(BirthFailure { step, error })
    }

    /// How the process ended and the processor time it and what it waited for have used, without
    /// reaping it: pid and group stay its own. `None` while it has not ended, or while a tracer of
    /// somebody else's has not let go of it (ptrace(2)).
    pub(super) fn observe(&self) -> io::Result<Option<Ended>> {
        self.wait(libc::WEXITED | libc::WNOWAIT)
    }

    /// The same of one that a tracer holds, as far as the kernel tells: not what it has used.
    pub(super) fn observe_held(&self) -> Option<Ended> {
        let exit = tree::exit(self.pid)?;
        let cpu = Duration::ZERO;
        Some(Ended { exit, cpu })
    }

    /// Whether it has not ended; as far as can be told, for which it must not have been reaped.
    pub(super) fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(self.pidfd.get_ref().as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut fds, PollTimeout::ZERO) {
                // A signal is about to be taken, which says nothing of the process.
                Err(Errno::EINTR) => {}
                looked => return looked == Ok(0),
            }
        }
    }

    /// Reaps the process. From here on its pid may be anybody's. Gives the leader back where
    /// [`Leader::observe`] would find nothing.
    pub(super) fn reap(mut self) -> Result<io::Result<Reaped>, Self> {
        match self.wait(libc::WEXITED) {
            Ok(None) => Err(self),
            Ok(Some(ended)) => {
                self.close_ends();
                self.birth.0 = None;
                Ok(Ok((ended, self.pidfd)))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// waitid(2) as the kernel has it, whose fifth argument libc leaves out. Never blocks.
    fn wait(&self, options: libc::c_int) -> io::Result<Option<Ended>> {
        // SAFETY: both are plain C structures, for which all zero is a value.
        let (mut info, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the two structures, which are of the size it expects.
        let result = unsafe {
            libc::syscall(
                libc::SYS_waitid,
                libc::P_PIDFD,
                self.pidfd.get_ref().as_raw_fd(),
                &raw mut info,
                options | libc::WNOHANG,
                &raw mut usage,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all zero where nobody has ended, else the SIGCHLD part of the union.
        if unsafe { info.si_pid() } == 0 {
            return Ok(None);
        }
        // SAFETY: after a wait for an exit the SIGCHLD part of the union is the one in use.
        let status = unsafe { info.si_status() };
        let exit = match info.si_code {
            libc::CLD_EXITED => Exit::Code(status),
            _ => Exit::Signal(domain::Signal(status)),
        };
        Ok(Some(Ended {
            exit,
            cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        }))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // Nobody has seen the child end: a tracer may hold it, or the daemon ends before it. It may still be using
        // this, which must stay for good.
        if let Some(birth) = self.0.take() {
            Box::leak(birth);
        }
    }
}

/// The child's life between clone3 and execve.
///
/// # Safety
/// `argument` points to a [`Birth`] that nobody changes meanwhile. Runs on the child's own stack,
/// beside the parent's threads, in their memory: raw system calls and reads only.
unsafe extern "C" fn be_born(argument: *mut libc::c_void) -> ! {
    // SAFETY: see above; shared references only, and the fields written are atomics.
    let birth: &Birth = unsafe { &*argument.cast::<Birth>() };
    // SAFETY: every pointer handed to the kernel is into `birth` or this frame.
    let (step, error) = unsafe { prepare_and_execute(birth) };
    birth.errno.store(-error as i32, Ordering::Release);
    birth.failed_step.store(step as u32, Ordering::Release);
    loop {
        // SAFETY: ends the process; the loop is for the type.
        unsafe { syscall(libc::SYS_exit_group, [CANNOT_EXECUTE, 0, 0, 0, 0]) };
    }
}

/// Returns only on failure: the step and the negated error number.
///
/// # Safety
/// As [`be_born`].
unsafe fn prepare_and_execute(birth: &Birth) -> (BirthStep, isize) {
    // SAFETY: system calls whose pointers are into `birth` or to locals that outlive the call.
    unsafe {
        // First of all: whatever is done to descriptors before is done to the parent's.
        if let Some(handover) = &birth.handover {
            let left = handover.leave(birth.stdio, birth.token());
            if left < 0 {
                return (BirthStep::Stdio, left);
            }
        }
        // A session of its own: no controlling terminal, and a process group that is the tree's.
        let result = syscall(libc::SYS_setsid, [0; 5]);
        if result < 0 {
            return (BirthStep::Session, result);
        }
        let empty_mask = 0u64;
        let mask = (&raw const empty_mask) as usize;
        syscall(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_SETMASK as usize, mask, 0, size_of::<u64>(), 0],
        );
        // The kernel's own `struct sigaction` is four words on both architectures; all zero is
        // SIG_DFL without flags.
        let default_action = [0u64; 4];
        for &signal in &birth.corrections.ignored_signals {
            let action = (&raw const default_action) as usize;
            syscall(
                libc::SYS_rt_sigaction,
                [signal as usize, action, 0, size_of::<u64>(), 0],
            );
        }
        syscall(libc::SYS_umask, [0o022, 0, 0, 0, 0]);
        correct(&birth.corrections);
        if let Some(dir) = &birth.working_dir {
            let result = syscall(libc::SYS_chdir, [dir.as_ptr() as usize, 0, 0, 0, 0]);
            if result < 0 {
                return (BirthStep::WorkingDir, result);
            }
        }
        if birth.handover.is_none() {
            let taken = handover::take(birth.stdio);
            if taken < 0 {
                return (BirthStep::Stdio, taken);
            }
        }
        // Whatever library opened a descriptor without close-on-exec, it ends with this program. Not before:
        // a lock among them says until then that the child is not marked yet (see `Handover::hold`).
        let (last, at_execve) = (u32::MAX as usize, libc::CLOSE_RANGE_CLOEXEC as usize);
        if syscall(libc::SYS_close_range, [3, last, at_execve, 0, 0]) < 0 {
            // Before Linux 5.11.
            syscall(libc::SYS_close_range, [3, last, 0, 0, 0]);
        }
        let path = birth.path.as_ptr() as usize;
        let (argv, envp) = (birth.argv.as_ptr() as usize, birth.envp.as_ptr() as usize);
        (
            BirthStep::Execute,
            syscall(libc::SYS_execve, [path, argv, envp, 0, 0]),
        )
    }
}

/// Undoes what was inherited. Best effort: an unprivileged daemon may not raise what was lowered.
///
/// # Safety
/// As [`be_born`].
unsafe fn correct(corrections: &Corrections) {
    // SAFETY: as in `prepare_and_execute`.
    unsafe {
        for (resource, limit) in &corrections.limits {
            let limit = (&raw const *limit) as usize;
            syscall(libc::SYS_prlimit64, [0, *resource as usize, limit, 0, 0]);
        }
        if corrections.scheduling {
            // `struct sched_param`, whose one member is the priority.
            let lowest = 0i32;
            let parameter = (&raw const lowest) as usize;
            let policy = libc::SCHED_OTHER as usize;
            syscall(libc::SYS_sched_setscheduler, [0, policy, parameter, 0, 0]);
        }
        if corrections.nice {
            syscall(
                libc::SYS_setpriority,
                [libc::PRIO_PROCESS as usize, 0, 0, 0, 0],
            );
        }
        if corrections.io_priority {
            syscall(
                libc::SYS_ioprio_set,
                [inherited::IOPRIO_WHO_PROCESS, 0, 0, 0, 0],
            );
        }
        if corrections.oom_score_adj {
            let path = c"/proc/self/oom_score_adj".as_ptr() as usize;
            let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
            let fd = syscall(
                libc::SYS_openat,
                [libc::AT_FDCWD as usize, path, flags, 0, 0],
            );
            if fd >= 0 {
                let zero = c"0".as_ptr() as usize;
                syscall(libc::SYS_write, [fd as usize, zero, 1, 0, 0]);
                syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0]);
            }
        }
    }
}
