use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words;

/// How an execution's leader came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It ended by itself.
    Itself(Exit),
    /// The executor ended it.
    Stopped {
        /// Why.
        reason: StopReason,
        /// What the leader made of it: a signal mostly, a code when it handled SIGTERM. `None`
        /// when it is still there: no signal ends an uninterruptible sleep.
        exit: Option<Exit>,
    },
}

impl Ending {
    /// What the kernel said of the leader, whoever ended it.
    pub fn exit(self) -> Option<Exit> {
        match self {
            Self::Itself(exit) => Some(exit),
            Self::Stopped { exit, .. } => exit,
        }
    }
}

/// The kernel's word on a process that ended (waitid(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// It called exit with this code, 0 to 255.
    Code(i32),
    /// This signal ended it.
    Signal(Signal),
}

impl Exit {
    /// The status by which a shell tells it.
    pub(crate) fn shell_status(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal.0,
        }
    }
}

/// A signal by its number on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal(pub i32);

impl Signal {
    /// `SIGKILL`, or `SIGRTMIN+3` for real-time signals, as signal(7) and bash write them.
    pub fn name(self) -> String {
        match nix::sys::signal::Signal::try_from(self.0) {
            Ok(signal) => signal.as_str().to_owned(),
            Err(_) => match self.0 - nix::libc::SIGRTMIN() {
                0 => "SIGRTMIN".to_owned(),
                n => format!("SIGRTMIN{n:+}"),
            },
        }
    }
}

/// Why the executor ended an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It ran longer than this.
    Timeout(Duration),
    /// Somebody asked for it.
    Cancelled,
    /// The waiting client went away.
    Disconnect,
    /// The daemon is stopping.
    Shutdown,
}

words! {
    /// What was used to find and kill a process tree.
    #[derive(ToSchema)]
    pub enum KillMode {
        /// The execution's own cgroup, `cgroup.kill`.
        Cgroup = "cgroup",
        /// The process group, and what the subreaper found of those that left it.
        Group = "group",
    }
}

words! {
    /// Why a signal was sent.
    #[derive(ToSchema)]
    pub enum KillReason {
        /// See [`StopReason::Timeout`].
        Timeout = "timeout",
        /// See [`StopReason::Cancelled`].
        Cancelled = "cancelled",
        /// See [`StopReason::Disconnect`].
        Disconnect = "disconnect",
        /// See [`StopReason::Shutdown`].
        Shutdown = "shutdown",
        /// The command ended and left processes behind.
        Background = "background",
    }
}

impl From<StopReason> for KillReason {
    fn from(reason: StopReason) -> Self {
        match reason {
            StopReason::Timeout(_) => Self::Timeout,
            StopReason::Cancelled => Self::Cancelled,
            StopReason::Disconnect => Self::Disconnect,
            StopReason::Shutdown => Self::Shutdown,
        }
    }
}

/// The proof of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillReport {
    /// By what the tree was found.
    pub by: KillMode,
    /// Why it was killed.
    pub reason: KillReason,
    /// How many processes were in the tree when the first signal went out: none where there may be one that nobody can find.
    pub signalled: u32,
    /// How many were still there at the end; `None` where the mode cannot prove it.
    pub survivors: Option<u32>,
}

/// A process that outlived the command that started it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftBehind {
    /// Its process id.
    pub pid: u32,
    /// Its command line, arguments joined by blanks, secrets masked.
    pub command: String,
    /// The output streams it still held open.
    pub held: Vec<StreamName>,
    /// Whether it was killed before the answer.
    pub killed: bool,
}

words! {
    /// One of the two output streams.
    #[derive(Hash, ToSchema)]
    pub enum StreamName {
        /// Standard output, descriptor 1.
        Stdout = "stdout",
        /// Standard error, descriptor 2.
        Stderr = "stderr",
    }
}

/// What an execution used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// User and system time of the tree: the cgroup's where there is one, else that of the leader
    /// and what it waited for.
    #[serde(rename = "cpu_ms", with = "super::millis")]
    pub cpu: Duration,
    /// The most memory the tree held at once, in bytes; `None` without a memory controller.
    #[serde(
        default,
        rename = "memory_peak_bytes",
        skip_serializing_if = "Option::is_none"
    )]
    pub memory_peak: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_names_people_know() {
        assert_eq!(Signal(9).name(), "SIGKILL");
        assert_eq!(Signal(11).name(), "SIGSEGV");
        assert_eq!(Signal(nix::libc::SIGRTMIN()).name(), "SIGRTMIN");
        assert_eq!(Signal(nix::libc::SIGRTMIN() + 3).name(), "SIGRTMIN+3");
    }
}
