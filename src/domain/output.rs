use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    Digest, Exit, FailureKind, KillReport, LeftBehind, PendingDigest, RiskLevel, Signal,
    StreamName, Unhashed, Usage, words,
};

/// What stands where something of a text was cut away.
pub(crate) const CUT_MARK: &str = "\n...(truncated)";

/// What a tool answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolOutput {
    /// The text for the model.
    pub content: String,
    /// Whether the command failed; goes into the `tool_result` block as it is.
    pub is_error: bool,
    /// What a program reads, of a tool that has an output schema.
    pub output: Option<Value>,
    /// What a person is shown.
    pub display: Display,
    /// What there is to know of the process that ran; where none did, of the time it took.
    pub run: RunReport,
    /// Which streams `content` holds as they were written.
    pub(crate) verbatim: Verbatim,
    /// Of the streams as a whole.
    pub(crate) digests: Digests,
}

/// The digests of the two streams, secrets masked; `None` of one that nobody has seen whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digests {
    /// Of standard output.
    pub(crate) stdout: Option<PendingDigest>,
    /// Of standard error.
    pub(crate) stderr: Option<PendingDigest>,
}

impl Digests {
    /// Whether both are there in less time than it takes to wake a thread.
    pub(crate) fn are_at_hand(&self) -> bool {
        let both = [&self.stdout, &self.stderr];
        both.into_iter().flatten().all(PendingDigest::is_at_hand)
    }

    /// Leaves what is left of both to whoever lets go of the second value.
    pub(crate) fn hand_over(self) -> (Self, [Option<Unhashed>; 2]) {
        let [stdout, stderr] = [self.stdout, self.stderr].map(|pending| {
            let handed_over = pending.map(PendingDigest::hand_over);
            handed_over.map_or((None, None), |(pending, rest)| (Some(pending), Some(rest)))
        });
        let pending = Self {
            stdout: stdout.0,
            stderr: stderr.0,
        };
        (pending, [stdout.1, stderr.1])
    }

    /// Those of standard output and of standard error.
    pub(crate) fn compute(self) -> [Option<Digest>; 2] {
        [self.stdout, self.stderr].map(|pending| pending.map(PendingDigest::digest))
    }
}

/// Where in an answer's text a stream stands whole and byte for byte as it was written: at which
/// byte it begins. Such a stream need not be kept twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verbatim {
    /// Standard output.
    pub stdout: Option<usize>,
    /// Standard error.
    pub stderr: Option<usize>,
}

impl Verbatim {
    /// Where that stream begins.
    pub fn of(&self, stream: StreamName) -> Option<usize> {
        match stream {
            StreamName::Stdout => self.stdout,
            StreamName::Stderr => self.stderr,
        }
    }
}

impl ToolOutput {
    /// Joins the text for the model with the report of the run.
    pub fn new(content: String, is_error: bool, run: RunReport) -> Self {
        Self {
            content,
            is_error,
            output: None,
            display: Display::default(),
            run,
            verbatim: Verbatim::default(),
            digests: Digests::default(),
        }
    }
}

/// What a person is shown of an execution, in a line or two: for approvals, histories and live
/// views. Secrets are masked in all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Display {
    /// The tool and what it was about.
    pub title: String,
    /// The line of the output that tells most: the last of standard error for what failed, else
    /// the first of standard output; empty where there is none.
    pub summary: String,
    /// From the start of the process to its end, in milliseconds.
    pub duration_ms: u64,
    /// How it ended: an exit code, a signal's name, `timeout` or `cancelled`; `done` or `failed`
    /// where no process ran.
    pub exit: String,
}

/// The facts of one run, without its output. As JSON it is for the ledger, which keeps one for each: what there
/// is not is left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunReport {
    /// How the leader ended, in the kernel's words; `None` when not even SIGKILL has ended it yet,
    /// and where there was none.
    pub exit: Option<Exit>,
    /// Whether the kernel killed something of it for want of memory.
    pub oom_killed: bool,
    /// From the start of the process to its end, drain and kill included.
    #[serde(rename = "duration_ms", with = "super::millis")]
    pub duration: Duration,
    /// Whether `content` lacks a part of the output.
    pub truncated: bool,
    /// What the command wrote to standard output, in bytes, kept or not.
    pub stdout_bytes: u64,
    /// What the command wrote to standard error, in bytes, kept or not.
    pub stderr_bytes: u64,
    /// Processes that outlived the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<LeftBehind>,
    /// What it used up.
    pub usage: Usage,
    /// The proof of the kill, when a signal was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<KillReport>,
    /// How far it was trusted.
    #[serde(default)]
    pub risk_level: RiskLevel,
    /// The sandbox it ran in, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandboxed>,
}

/// The sandbox in which something ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sandboxed {
    /// The OCI runtime, such as `runsc`.
    pub runtime: String,
    /// Its version, as it says itself.
    pub version: String,
    /// The connections to the outside that were asked for.
    #[serde(default)]
    pub connections: Vec<Connection>,
}

/// Connections out of a sandbox, of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Connection {
    /// Where to, as `host:port`; `others` of what goes beyond 50 of them.
    pub to: String,
    /// What became of them.
    pub result: ConnectionResult,
    /// How many there were.
    pub count: u64,
}

words! {
    /// What became of a connection out of a sandbox.
    #[derive(ToSchema)]
    pub enum ConnectionResult {
        /// It was made.
        Connected = "connected",
        /// It is not allowed.
        Refused = "refused",
        /// It is allowed, and there was none to be had.
        Failed = "failed",
    }
}

impl RunReport {
    /// What there is to tell where the daemon did the work itself.
    pub fn of_no_process(took: Duration) -> Self {
        Self {
            exit: None,
            oom_killed: false,
            duration: took,
            truncated: false,
            stdout_bytes: 0,
            stderr_bytes: 0,
            background: Vec::new(),
            usage: Usage::default(),
            kill: None,
            risk_level: RiskLevel::Trusted,
            sandbox: None,
        }
    }

    /// How many bytes were written to a stream, what was cut from the answer included.
    pub fn bytes_of(&self, stream: StreamName) -> u64 {
        match stream {
            StreamName::Stdout => self.stdout_bytes,
            StreamName::Stderr => self.stderr_bytes,
        }
    }

    /// The exit code, and the signal that ended the process: the former only where it ended by itself, as `failure` says
    /// if there is one.
    pub fn exit_told(&self, failure: Option<FailureKind>) -> (Option<i32>, Option<Signal>) {
        let is_own = failure.is_none_or(FailureKind::ended_by_itself);
        match self.exit {
            Some(Exit::Code(code)) => (is_own.then_some(code), None),
            Some(Exit::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        }
    }
}

words! {
    /// Where an execution stands or how it ended.
    #[derive(Hash, ToSchema)]
    pub enum Status {
        /// Waits for its turn.
        Queued = "queued",
        /// Waits for somebody's approval.
        Waiting = "waiting",
        /// Runs.
        Running = "running",
        /// Ended by itself with code 0.
        Success = "success",
        /// Ended by itself otherwise.
        Error = "error",
        /// Was killed at its time limit.
        Timeout = "timeout",
        /// Was stopped on request, by a hang-up or by the daemon's stop.
        Cancelled = "cancelled",
        /// Was not permitted.
        Denied = "denied",
        /// The executor could not do it.
        Failed = "failed",
        /// The daemon died while it was under way: what became of it is not known.
        Lost = "lost",
    }
}

impl Status {
    /// Whether this is how it ended, so that it never changes again.
    pub fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::Waiting | Self::Running => false,
            Self::Success
            | Self::Error
            | Self::Timeout
            | Self::Cancelled
            | Self::Denied
            | Self::Failed
            | Self::Lost => true,
        }
    }
}

/// Something that does not work as it should while the daemon goes on, for `/health`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Degradation {
    /// A stable word for it.
    pub code: &'static str,
    /// What is wrong and what to do.
    pub detail: String,
    /// The file or part it comes from.
    pub source: String,
}
