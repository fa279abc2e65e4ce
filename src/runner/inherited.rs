//! What a child would inherit from this process and must not: resource limits, niceness, scheduling
//! policy, priority of input and output, `oom_score_adj` and ignored signals that an operator gave the
//! daemon, not its commands.

use std::fs;

use nix::libc;
use rustix::process::getpriority_process;

/// The limits a process gets when nobody configured any: the kernel's own (`INIT_RLIMITS` in
/// `include/asm-generic/resource.h`) with systemd's `DefaultLimitNOFILE=1024:524288`
/// (systemd-system.conf(5)), which is what services and logins on Ubuntu have. Two more the kernel computes from the
/// memory of the machine, see [`computed_limits`].
const DEFAULT_LIMITS: [(Resource, u64, u64); 14] = [
    (libc::RLIMIT_CPU, INFINITY, INFINITY),
    (libc::RLIMIT_FSIZE, INFINITY, INFINITY),
    (libc::RLIMIT_DATA, INFINITY, INFINITY),
    (libc::RLIMIT_STACK, 8 << 20, INFINITY),
    (libc::RLIMIT_CORE, 0, INFINITY),
    (libc::RLIMIT_RSS, INFINITY, INFINITY),
    (libc::RLIMIT_NOFILE, 1024, 524_288),
    (libc::RLIMIT_MEMLOCK, 8 << 20, 8 << 20),
    (libc::RLIMIT_AS, INFINITY, INFINITY),
    (libc::RLIMIT_LOCKS, INFINITY, INFINITY),
    (libc::RLIMIT_MSGQUEUE, 819_200, 819_200),
    (libc::RLIMIT_NICE, 0, 0),
    (libc::RLIMIT_RTPRIO, 0, 0),
    (libc::RLIMIT_RTTIME, INFINITY, INFINITY),
];

const INFINITY: u64 = libc::RLIM_INFINITY;

type Resource = libc::__rlimit_resource_t;

/// The corrections a child makes before it executes its program. Looked up once: none of them is
/// something this process changes while it runs, and most are empty on most machines.
#[derive(Clone, Debug, Default)]
pub(super) struct Corrections {
    /// Limits that differ from the default.
    pub limits: Vec<(Resource, libc::rlimit64)>,
    /// Whether the scheduling policy (sched(7)) is not `SCHED_OTHER`.
    pub scheduling: bool,
    /// Whether the nice value is not 0.
    pub nice: bool,
    /// Whether input and output have a priority of their own (ioprio_set(2)).
    pub io_priority: bool,
    /// Whether `oom_score_adj` is not 0.
    pub oom_score_adj: bool,
    /// Signals that this process ignores; a handler is reset by the kernel, ignoring is not.
    pub ignored_signals: Vec<i32>,
}

impl Corrections {
    pub(super) fn of_this_process() -> Self {
        Self {
            limits: limits_to_restore(),
            scheduling: current_scheduling() != libc::SCHED_OTHER,
            nice: getpriority_process(None) != Ok(0),
            io_priority: has_io_priority(),
            oom_score_adj: fs::read_to_string("/proc/self/oom_score_adj")
                .is_ok_and(|text| text.trim() != "0"),
            ignored_signals: ignored_signals(),
        }
    }
}

fn limits_to_restore() -> Vec<(Resource, libc::rlimit64)> {
    let may_raise = has_capability(CAP_SYS_RESOURCE);
    let mut restore = Vec::new();
    for (resource, soft, hard) in DEFAULT_LIMITS.into_iter().chain(computed_limits()) {
        let mut now = libc::rlimit64 {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `now` is a valid place for one `rlimit64`.
        if unsafe { libc::getrlimit64(resource, &raw mut now) } != 0 {
            continue;
        }
        // Raising a hard limit takes a privilege (getrlimit(2)), which root in a container may
        // lack; without it a child gets as near as it may.
        let hard = if may_raise {
            hard
        } else {
            hard.min(now.rlim_max)
        };
        let soft = soft.min(hard);
        if (now.rlim_cur, now.rlim_max) != (soft, hard) {
            restore.push((
                resource,
                libc::rlimit64 {
                    rlim_cur: soft,
                    rlim_max: hard,
                },
            ));
        }
    }
    restore
}

/// The limits that the kernel computes, as the first process has them. None where it does not show them.
fn computed_limits() -> Vec<(Resource, u64, u64)> {
    let limits = fs::read_to_string("/proc/1/limits").unwrap_or_default();
    let of = |resource, name| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let mut values = line.split_ascii_whitespace().map(|value| match value {
            "unlimited" => Some(INFINITY),
            number => number.parse().ok(),
        });
        Some((resource, values.next()??, values.next()??))
    };
    let computed = [
        of(libc::RLIMIT_NPROC, "Max processes"),
        of(libc::RLIMIT_SIGPENDING, "Max pending signals"),
    ];
    computed.into_iter().flatten().collect()
}

/// -1, which is no policy, asks for a correction as well.
fn current_scheduling() -> i32 {
    // SAFETY: takes no pointers.
    unsafe { libc::sched_getscheduler(0) }
}

/// `IOPRIO_WHO_PROCESS`, which no crate has: `include/uapi/linux/ioprio.h`.
pub(super) const IOPRIO_WHO_PROCESS: usize = 1;

/// Of two that a process may show without having been given any: no class, and what older kernels say
/// that a nice value of 0 amounts to, `IOPRIO_CLASS_BE` and the middle of its eight levels.
fn has_io_priority() -> bool {
    // SAFETY: takes no pointers.
    let priority = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) };
    let (class, level) = (priority >> 13, priority & 7);
    class != 0 && (class, level) != (2, 4)
}

/// Its bit in the masks of capabilities(7).
const CAP_SYS_RESOURCE: u32 = 24;

fn has_capability(bit: u32) -> bool {
    status_mask("CapEff:").is_some_and(|mask| mask & (1 << bit) != 0)
}

/// A hexadecimal mask of proc_pid_status(5).
fn status_mask(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let hex = status.lines().find_map(|line| line.strip_prefix(field))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

/// Bit 0 of `SigIgn` is signal 1.
fn ignored_signals() -> Vec<i32> {
    match status_mask("SigIgn:") {
        Some(mask) => (1..=64)
            .filter(|signal| mask & (1 << (signal - 1)) != 0)
            .collect(),
        // Without /proc: the one that Rust's runtime ignores in every program.
        None => vec![libc::SIGPIPE],
    }
}
