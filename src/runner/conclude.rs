//! The end of a run, in this order: kill what is left of the tree while the leader is not reaped, read what is
//! still in the pipes, reap.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Pid;
use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::Runner;
use super::capture::Captured;
use super::husks::Husk;
use super::plan::{Live, Outcome, RunError};
use super::reader::Reader;
use super::run::{Asking, Run, Waited, cannot_wait, count, end};
use super::spawn::{Ended, Leader, Reaped};
use super::tree;
use crate::domain::{
    Background, Ending, Exit, KillReason, KillReport, LeftBehind, Secrets, StopReason, StreamName,
};

/// How long a process that has closed its standard output is given to end: programs do that last,
/// as `tee` does in `> >(tee file)`, and are not left behind. A busy machine may take this long to
/// let one run.
const PARTING: Duration = Duration::from_millis(50);

/// How long the list of those that were left behind may take: thousands of them take some milliseconds.
const LISTING: Duration = Duration::from_secs(2);

/// What outlived a leader.
struct Left {
    listed: Vec<LeftBehind>,
    /// Whether that is all, as far as anybody can know.
    is_all: bool,
}

impl Default for Left {
    /// Nothing.
    fn default() -> Self {
        Self {
            listed: Vec::new(),
            is_all: true,
        }
    }
}

/// What came of both streams.
struct Streams {
    stdout: Captured,
    stderr: Captured,
    /// What went wrong with one of them.
    error: Option<io::Error>,
    /// Their pipes, unless they are read on.
    pipes: [Option<AsyncFd<File>>; 2],
}

impl Streams {
    /// What the answer has of them. What is written from then on reaches the spool if `keep`.
    async fn seal([mut stdout, mut stderr]: [Reader; 2], live: &Live, keep: bool) -> Self {
        let (pipes, kept) = if keep {
            stdout.begun().await;
            stderr.begun().await;
            ([None, None], Some([stdout, stderr]))
        } else {
            ([stdout.finish().await, stderr.finish().await], None)
        };
        let (stdout, stdout_error) = live.stdout.seal();
        let (stderr, stderr_error) = live.stderr.seal();
        for reader in kept.into_iter().flatten() {
            reader.keep_reading().await;
        }
        let stdout_error = stdout_error.or_else(|| live.stdout.take_error());
        let stderr_error = stderr_error.or_else(|| live.stderr.take_error());
        Self {
            stdout,
            stderr,
            error: stdout_error.or(stderr_error),
            pipes,
        }
    }
}

/// What came of a leader.
struct Last {
    /// How it ended, as far as that can be known.
    ended: Option<Ended>,
    /// Of a leader that was reaped.
    pidfd: Option<AsyncFd<OwnedFd>>,
    /// Of one that was not: somebody is kept, or it has not ended, or a tracer holds it.
    unreaped: Option<Leader>,
}

impl Last {
    /// Of a leader that has ended. One whose group lives on is not reaped, for its pid is the group's.
    async fn of(leader: Leader, keep: bool, wait: Duration) -> Result<Self, RunError> {
        if keep {
            let ended = leader.observe().map_err(cannot_wait)?;
            return Ok(Self {
                ended: ended.or_else(|| leader.observe_held()),
                pidfd: None,
                unreaped: Some(leader),
            });
        }
        Ok(match reap(leader, wait).await? {
            Ok((ended, pidfd)) => Self {
                ended: Some(ended),
                pidfd: Some(pidfd),
                unreaped: None,
            },
            Err(held) => Self {
                ended: held.observe_held(),
                pidfd: None,
                unreaped: Some(held),
            },
        })
    }

    /// Of one that not even SIGKILL has ended.
    fn alive(leader: Leader) -> Self {
        Self {
            ended: None,
            pidfd: None,
            unreaped: Some(leader),
        }
    }
}

impl Runner {
    pub(super) async fn conclude(
        &self,
        run: Run,
        waited: Waited,
        asking: Asking<'_>,
        live: &Arc<Live>,
    ) -> Result<Outcome, RunError> {
        let is_stopped = waited.stopping.is_some() || waited.cut_short.is_some();
        let keep = run.plan.background == Background::Keep && !is_stopped;
        let left = run.left_behind(&waited, keep, live.secrets()).await;
        let killed = match keep {
            true => None,
            false => run.kill(&waited, &left).await,
        };
        end(asking).await;
        let leader_ended = waited.leader_ended || run.leader_ended_within(run.plan.kill_wait).await;

        let Run {
            plan,
            tree,
            leader,
            started,
            stdout,
            stderr,
            ..
        } = run;
        let keep = keep && !left.listed.is_empty();
        let streams = Streams::seal([stdout, stderr], live, keep).await;
        // Reaping comes last of all: until then pid and group are the leader's own.
        let last = match leader_ended {
            true => Last::of(leader, keep, plan.kill_wait).await?,
            false => Last::alive(leader),
        };
        self.husks.put(Husk {
            _pipes: streams.pipes,
            _pidfd: last.pidfd,
        });
        let ended = last.ended;
        let by_leader = ended.map(|ended| ended.cpu).unwrap_or_default();
        let usage = tree.usage(by_leader);
        let oom_killed = tree.oom_killed();
        if let Some(leader) = last.unreaped {
            self.keepers.keep(tree, leader, plan.kill_wait, plan.parent);
        }
        if leader_ended && ended.is_none() && waited.stopping.is_none() {
            let held = io::Error::new(io::ErrorKind::ResourceBusy, "a tracer holds it");
            return Err(cannot_wait(held));
        }
        Ok(Outcome {
            ending: ending(&waited, ended.map(|ended| ended.exit)),
            stdout: streams.stdout,
            stderr: streams.stderr,
            duration: started.elapsed(),
            usage,
            oom_killed,
            background: left.listed,
            kill: killed,
            capture_error: streams.error,
            sandbox: None,
        })
    }
}

impl Run {
    /// Sends SIGKILL to what must not live on, and says what came of it.
    async fn kill(&self, waited: &Waited, left: &Left) -> Option<KillReport> {
        let (reason, signalled) = match waited.stopping {
            Some(stopping) => (KillReason::from(stopping.reason), stopping.signalled),
            None if left.listed.is_empty() && left.is_all => return None,
            None => {
                let reason = waited.cut_short.map(KillReason::from);
                let reason = reason.unwrap_or(KillReason::Background);
                (reason, count(left.listed.len()))
            }
        };
        let remains = self.tree.kill(&self.leader, self.plan.kill_wait).await;
        Some(KillReport {
            by: self.tree.mode(),
            reason,
            signalled,
            survivors: (remains.proven || remains.known > 0).then_some(remains.known),
        })
    }

    /// What outlived a leader that ended by itself.
    async fn left_behind(&self, waited: &Waited, keep: bool, secrets: &Arc<Secrets>) -> Left {
        if waited.stopping.is_some() || !self.tree.may_have_left_others().await {
            return Left::default();
        }
        let killed = !keep;
        let readers = [
            (StreamName::Stdout, &self.stdout),
            (StreamName::Stderr, &self.stderr),
        ];
        let pipes: Vec<(StreamName, u64)> = readers
            .into_iter()
            .filter_map(|(name, reader)| Some((name, reader.inode()?)))
            .collect();
        let members = self
            .tree
            .settled_members(self.plan.kill_wait, PARTING)
            .await;
        let is_all = members.is_settled && members.is_all;
        let others = members.pids.into_iter();
        let others: Vec<Pid> = others.filter(|pid| *pid != self.leader.pid).collect();
        if others.is_empty() {
            let listed = Vec::new();
            return Left { listed, is_all };
        }
        // There may be thousands of them, with thousands of descriptors each.
        let (listed, pids) = (Arc::new(Mutex::new(Vec::new())), others.clone());
        let (list, secrets) = (Arc::clone(&listed), Arc::clone(secrets));
        let listing = tokio::task::spawn_blocking(move || {
            let tell = |mut described: LeftBehind| {
                described.command = secrets.summarize(&described.command);
                list.lock().push(described);
            };
            describe_all(&others, &pipes, killed, tell);
        });
        // Bounded: reading proc_pid_cmdline(5) takes the lock of the process's memory, which may be held for good.
        let _ = tokio::time::timeout(LISTING, listing).await;
        let mut listed = std::mem::take(&mut *listed.lock());
        let unlisted = pids.iter().skip(listed.len());
        listed.extend(unlisted.map(|pid| unnamed(*pid, killed)));
        Left { listed, is_all }
    }

    /// Whether the leader ends within `wait`, which after SIGKILL it does unless it is in an
    /// uninterruptible sleep.
    async fn leader_ended_within(&self, wait: Duration) -> bool {
        tokio::time::timeout(wait, self.leader.pidfd.readable())
            .await
            .is_ok()
    }
}

/// Tells of processes that were left behind, one after another, and of their commands all there is.
fn describe_all(
    pids: &[Pid],
    pipes: &[(StreamName, u64)],
    killed: bool,
    mut tell: impl FnMut(LeftBehind),
) {
    /// How many descriptors are looked at in all: the answer waits for it, and each takes some 6 µs.
    const DESCRIPTORS: usize = 8192;
    let mut budget = DESCRIPTORS;
    for pid in pids {
        tell(LeftBehind {
            command: tree::command_line(*pid),
            held: tree::held_streams(*pid, pipes, &mut budget),
            ..unnamed(*pid, killed)
        });
    }
}

/// One that nothing is known of but that it is there.
fn unnamed(pid: Pid, killed: bool) -> LeftBehind {
    LeftBehind {
        pid: pid.as_raw().unsigned_abs(),
        command: "[unknown]".to_owned(),
        held: Vec::new(),
        killed,
    }
}

fn ending(waited: &Waited, exit: Option<Exit>) -> Ending {
    match (waited.stopping, exit) {
        (None, Some(exit)) => Ending::Itself(exit),
        (Some(stopping), exit) => Ending::Stopped {
            reason: stopping.reason,
            exit,
        },
        // The loop ends without a stop only when the leader has.
        (None, None) => Ending::Stopped {
            reason: StopReason::Cancelled,
            exit: None,
        },
    }
}

/// Reaps an ended leader, for which a tracer may have to let go of it first; gives it back if that
/// takes longer than `wait`.
async fn reap(mut leader: Leader, wait: Duration) -> Result<Result<Reaped, Leader>, RunError> {
    /// How often a tracer is given a chance.
    const PAUSE: Duration = Duration::from_millis(5);
    let deadline = Instant::now() + wait;
    loop {
        match leader.reap() {
            Ok(reaped) => return reaped.map(Ok).map_err(cannot_wait),
            Err(held) if Instant::now() >= deadline => return Ok(Err(held)),
            Err(held) => leader = held,
        }
        tokio::time::sleep(PAUSE).await;
    }
}
