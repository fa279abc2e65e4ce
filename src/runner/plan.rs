use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use nix::unistd::Pid;
use parking_lot::Mutex;
use tokio::sync::SetOnce;

use super::capture::{Capture, Captured, Follower, Release};
use super::spool::Spool;
use super::tree::Membership;
use crate::config::{Limits, Truncate};
use crate::domain::{
    Background, Ending, ExecutionId, KillReport, LeftBehind, Sandboxed, Secrets, StopReason,
    StreamName, Usage, Verbatim,
};

/// Exactly what will be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The execution it is for.
    pub id: ExecutionId,
    /// The program, by absolute path.
    pub program: PathBuf,
    /// Its arguments, without the program's own name.
    pub args: Vec<String>,
    /// A script that is handed over as the last argument, or in a private file when it is longer
    /// than one argument may be.
    pub script: Option<Script>,
    /// Where it runs; `None` inherits.
    pub working_dir: Option<PathBuf>,
    /// Variables on top of the built environment.
    pub env: Vec<(String, String)>,
    /// Text for standard input; `/dev/null` when absent.
    pub stdin: Option<String>,
    /// The time limit, from process start.
    pub limit: Duration,
    /// From SIGTERM to SIGKILL.
    pub kill_grace: Duration,
    /// How long SIGKILL is given to take effect.
    pub kill_wait: Duration,
    /// How long the output may be held open after the leader ended.
    pub drain: Duration,
    /// What becomes of processes that outlive the leader.
    pub background: Background,
    /// The execution that called for this one, which nothing of it outlives.
    pub parent: Option<ExecutionId>,
    /// Whether every process of it keeps its session and environment, by which it is recognised. False for
    /// ordinary commands; true for the runtime of a sandbox, whose commands are no processes of this system's.
    pub is_recognisable: bool,
    /// Limits of the execution's cgroup.
    pub limits: Limits,
    /// What is run to ask for the end, where SIGTERM to the group would not be understood.
    pub stop_by: Option<Box<Plan>>,
}

/// A script and the option that has a shell read it from an argument.
#[derive(Clone, Debug)]
pub struct Script {
    /// `-c`.
    pub option: String,
    /// The text.
    pub text: String,
}

impl Script {
    /// The arguments that hand it over.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        // Such a command would be read as more options.
        let no_more_options = self.text.starts_with(['-', '+']).then_some("--");
        let args = [
            Some(self.option.as_str()),
            no_more_options,
            Some(&self.text),
        ];
        args.into_iter().flatten()
    }
}

/// The hold that others have on a run while it lasts: its output streams as they grow, its start,
/// and the means to stop it.
#[derive(Debug)]
pub struct Live {
    /// Standard output.
    pub stdout: Arc<Capture>,
    /// Standard error.
    pub stderr: Arc<Capture>,
    started: SetOnce<SystemTime>,
    membership: SetOnce<Membership>,
    stop: SetOnce<StopReason>,
    predecessor: Weak<Live>,
    successor: SetOnce<Successor>,
}

/// The run that takes another's place. What it writes stays in memory for as long as there is the other, whose
/// watchers come to it once they have been told of that; and until it has a successor itself, or a watcher that
/// stands still would keep what all of them write.
#[derive(Debug)]
struct Successor {
    live: Arc<Live>,
    watched: Mutex<Option<[Follower; 2]>>,
}

/// How long the end of a run waits for its output to be on disk.
const KEEPING: Duration = Duration::from_secs(10);

impl Live {
    /// Streams that hold at most `cap` bytes each (of both ends each, with
    /// [`Truncate::Middle`]) in memory, and the whole of it in `spool`, `secrets` masked.
    pub fn new(
        id: ExecutionId,
        cap: usize,
        truncate: Truncate,
        spool: Option<&Arc<Spool>>,
        secrets: &Arc<Secrets>,
    ) -> Self {
        let capture = |name| {
            let secrets = Arc::clone(secrets);
            Arc::new(Capture::new(
                id,
                name,
                cap,
                truncate,
                spool.cloned(),
                secrets,
            ))
        };
        Self {
            stdout: capture(StreamName::Stdout),
            stderr: capture(StreamName::Stderr),
            started: SetOnce::new(),
            membership: SetOnce::new(),
            stop: SetOnce::new(),
            predecessor: Weak::new(),
            successor: SetOnce::new(),
        }
    }

    /// When the process was started, if it was.
    pub fn started_at(&self) -> Option<SystemTime> {
        self.started.get().copied()
    }

    /// Waits until the process is started; for good if it never is.
    pub async fn started(&self) {
        self.started.wait().await;
    }

    /// Asks the run to end. The first reason counts.
    pub fn stop(&self, reason: StopReason) {
        // An error says that there is a reason already.
        let _ = self.stop.set(reason);
    }

    /// Waits until somebody wants it to end.
    pub async fn stop_requested(&self) -> StopReason {
        *self.stop.wait().await
    }

    /// Another run takes its place, whose output is what counts.
    pub fn succeed(self: &Arc<Self>, successor: Self) -> Arc<Self> {
        let live = Arc::new(Self {
            predecessor: Arc::downgrade(self),
            ..successor
        });
        let streams = [&live.stdout, &live.stderr];
        let successor = Successor {
            // They read nothing.
            watched: Mutex::new(Some(streams.map(|stream| stream.follow(0)))),
            live: Arc::clone(&live),
        };
        // Once, by who tries again.
        let _ = self.successor.set(successor);
        let predecessor = self.predecessor.upgrade();
        if let Some(here) = predecessor.as_deref().and_then(|live| live.successor.get()) {
            here.watched.lock().take();
        }
        live
    }

    /// Waits until another run takes its place; for good if none ever does.
    pub async fn successor(&self) -> Arc<Self> {
        Arc::clone(&self.successor.wait().await.live)
    }

    /// Puts what a record cannot hold to disk, off the event loop, unless it stands in the
    /// answer's text. For when the run is over.
    pub async fn keep(&self, verbatim: Verbatim) {
        for capture in [&self.stdout, &self.stderr] {
            if verbatim.of(capture.name()).is_none() && capture.wants_file() {
                let capture = Arc::clone(capture);
                // Where there is a panic, or the disk does not answer, the spool lacks what the answer had.
                let written = tokio::task::spawn_blocking(move || capture.write_whole());
                let _ = tokio::time::timeout(KEEPING, written).await;
            }
        }
    }

    /// Lets go of what is kept elsewhere by now, or stands in the answer's text.
    pub fn release(&self, verbatim: Verbatim) {
        for capture in [&self.stdout, &self.stderr] {
            let what = match verbatim.of(capture.name()) {
                Some(_) => Release::Everything,
                None => Release::WhatIsLong,
            };
            capture.release(what);
        }
    }

    pub(super) fn set_membership(&self, membership: Membership) {
        let _ = self.membership.set(membership);
    }

    /// Whether a process is one of the run's. Without cgroups one that hides cannot be told, and
    /// is none.
    pub fn has_process(&self, pid: i32) -> bool {
        let membership = self.membership.get();
        membership.is_some_and(|membership| membership.has(Pid::from_raw(pid)))
    }

    /// Nothing more will be written: whoever follows the streams comes to their end.
    pub fn end_streams(&self) {
        for capture in [&self.stdout, &self.stderr] {
            drop(capture.seal());
        }
    }

    /// What was to be done has begun.
    pub fn mark_started(&self) {
        let _ = self.started.set(SystemTime::now());
    }

    /// What is masked in what the run is told to have said and done.
    pub fn secrets(&self) -> &Arc<Secrets> {
        self.stdout.secrets()
    }

    /// The stream of that name.
    pub fn stream(&self, name: StreamName) -> &Arc<Capture> {
        match name {
            StreamName::Stdout => &self.stdout,
            StreamName::Stderr => &self.stderr,
        }
    }
}

/// An ending with its output.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// From process start to here.
    pub duration: Duration,
    /// What the tree used up.
    pub usage: Usage,
    /// Whether the kernel killed something in the tree for want of memory.
    pub oom_killed: bool,
    /// Processes that outlived the leader.
    pub background: Vec<LeftBehind>,
    /// The proof of the kill, when a signal was sent.
    pub kill: Option<KillReport>,
    /// What kept the output from being read in full.
    pub capture_error: Option<io::Error>,
    /// The sandbox it ran in, which others than the runner know of.
    pub sandbox: Option<Sandboxed>,
}

/// Why nothing was run, or not to an end that is known.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
pub struct RunError {
    /// What was being done, with its operand.
    pub step: String,
    /// The kernel's reason.
    #[source]
    pub source: io::Error,
}

impl RunError {
    pub(super) fn new(step: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self {
            step: step.into(),
            source: source.into(),
        }
    }
}
