//! The life of one process once it was started: waited for in one loop, ended with all that descends
//! from it, reaped last.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::time::Instant;

use super::Runner;
use super::husks::Husk;
use super::plan::{Live, Outcome, Plan, RunError};
use super::reader::Reader;
use super::spawn::{BirthStep, Leader, Reaped};
use super::start::{Born, ScriptFile};
use super::tree::{self, Tree};
use crate::config::Truncate;
use crate::domain::{
    Background, Ending, ExecutionId, Exit, KillReason, KillReport, LeftBehind, Secrets, StopReason,
    StreamName, summarize,
};

/// How long a process that has closed its standard output is given to end: programs do that last,
/// as `tee` does in `> >(tee file)`, and are not left behind. A busy machine may take this long to
/// let one run.
const PARTING: Duration = Duration::from_millis(50);

/// A process that is attended and not over.
struct Run {
    plan: Plan,
    tree: Tree,
    leader: Leader,
    started: Instant,
    stdout: Reader,
    stderr: Reader,
    _script: Option<ScriptFile>,
}

/// That a run is being stopped: why, how much there was to stop, and when patience ends.
#[derive(Clone, Copy)]
struct Stopping {
    reason: StopReason,
    signalled: u32,
    until: Instant,
}

/// How the wait came to its end.
struct Waited {
    leader_ended: bool,
    stopping: Option<Stopping>,
}

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

/// The beginning of a process that may be refused the directory it is to run in: it has not started before it
/// executes its program.
struct Beginning {
    look_at: Instant,
    pause: Duration,
    /// When it counts as started, though it may still be on its way into a slow directory.
    over_at: Instant,
}

impl Beginning {
    fn new(born: Instant) -> Self {
        /// Far more than it takes, and a moment for whoever waits to hear of it.
        const PATIENCE: Duration = Duration::from_secs(1);
        let pause = Duration::from_millis(1);
        Self {
            look_at: born + pause,
            pause,
            over_at: born + PATIENCE,
        }
    }

    /// Looks, and says when to look again if it is not over.
    fn is_over(&mut self, leader: &Leader) -> bool {
        let now = Instant::now();
        self.pause *= 2;
        self.look_at = now + self.pause;
        now >= self.over_at || tree::has_executed(leader.pid)
    }
}

/// What is run to ask for the end, until it has ended itself.
type Asking<'a> = Option<(Arc<Live>, BoxFuture<'a, ()>)>;

impl Runner {
    /// Runs `plan`, its output going into `live`, until it is over or `live` says to stop.
    ///
    /// Must be driven to its end: dropping the future leaves the process alone. Give it a task of
    /// its own and use [`Live::stop`].
    ///
    /// # Errors
    /// When no process ran: it could not be started, or could not execute its program.
    pub async fn run(&self, plan: Plan, live: &Arc<Live>) -> Result<Outcome, RunError> {
        let born = self.start(&plan, None)?;
        self.attend(born, plan, live).await
    }

    /// Runs what was started to its end, as [`Runner::run`] does: from now on by what `plan` says of
    /// limits and endings.
    ///
    /// # Errors
    /// When it could not execute its program.
    pub(crate) async fn attend(
        &self,
        born: Born,
        plan: Plan,
        live: &Arc<Live>,
    ) -> Result<Outcome, RunError> {
        live.set_membership(born.tree.membership(&born.leader, born.id));
        if plan.working_dir.is_none() {
            live.mark_started();
        }
        let mut run = Run {
            plan,
            tree: born.tree,
            leader: born.leader,
            started: Instant::now(),
            stdout: Reader::new(born.stdout, Arc::clone(&live.stdout)),
            stderr: Reader::new(born.stderr, Arc::clone(&live.stderr)),
            _script: born.script,
        };
        let (waited, asking) = run.wait(self, live).await;
        if let Some(failure) = run.leader.birth_failure().filter(|_| waited.leader_ended) {
            let step = run.describe(failure.step);
            let _ = run.leader.reap();
            end(asking).await;
            return Err(RunError::new(step, failure.error));
        }
        live.mark_started();
        self.conclude(run, waited, asking, live).await
    }

    /// Runs what asks another run to end, under an id of its own: of one id it would take that run's
    /// orphans for what it has left behind itself, and kill them.
    fn ask(&self, plan: Plan) -> (Arc<Live>, BoxFuture<'_, ()>) {
        let plan = Plan {
            id: ExecutionId::new(),
            ..plan
        };
        let secrets = Arc::new(Secrets::default());
        let helper = Arc::new(Live::new(plan.id, 0, Truncate::Tail, None, &secrets));
        let live = Arc::clone(&helper);
        let asking = async move {
            if let Err(error) = self.run(plan, &live).await {
                // The grace passes, and then it is killed.
                tracing::warn!(%error, source = %error.source, "cannot ask a run to end");
            }
        };
        (helper, asking.boxed())
    }

    /// Ends what is left of the tree, in this order: kill while the leader is not reaped, read
    /// what is still in the pipes, reap.
    async fn conclude(
        &self,
        run: Run,
        waited: Waited,
        asking: Asking<'_>,
        live: &Arc<Live>,
    ) -> Result<Outcome, RunError> {
        let left = run.left_behind(&waited).await;
        let keep = run.plan.background == Background::Keep && waited.stopping.is_none();
        let kill = if keep {
            None
        } else {
            run.kill(&waited, &left).await
        };
        end(asking).await;
        let leader_ended = waited.leader_ended || run.leader_ended_within(run.plan.kill_wait).await;

        let Run {
            plan,
            tree,
            leader,
            started,
            mut stdout,
            mut stderr,
            ..
        } = run;
        let keep = keep && !left.listed.is_empty();
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

        // Reaping comes last of all: until then pid and group are the leader's own.
        let (ended, pidfd, unreaped) = match (leader_ended, keep) {
            (true, false) => match reap(leader, plan.kill_wait).await? {
                Ok((ended, pidfd)) => (Some(ended), Some(pidfd), None),
                Err(held) => (held.observe_held(), None, Some(held)),
            },
            (true, true) => {
                let ended = leader.observe().map_err(cannot_wait)?;
                let ended = ended.or_else(|| leader.observe_held());
                (ended, None, Some(leader))
            }
            (false, _) => (None, None, Some(leader)),
        };
        self.husks.put(Husk {
            _pipes: pipes,
            _pidfd: pidfd,
        });
        let usage = tree.usage(ended.map(|ended| ended.cpu).unwrap_or_default());
        let oom_killed = tree.oom_killed();
        if let Some(leader) = unreaped {
            self.keepers.keep(tree, leader, plan.kill_wait, plan.parent);
        }
        if leader_ended && ended.is_none() && waited.stopping.is_none() {
            let held = "a tracer holds it";
            return Err(cannot_wait(io::Error::new(
                io::ErrorKind::ResourceBusy,
                held,
            )));
        }
        Ok(Outcome {
            ending: ending(&waited, ended.map(|ended| ended.exit)),
            stdout,
            stderr,
            duration: started.elapsed(),
            usage,
            oom_killed,
            background: left.listed,
            kill,
            capture_error: stdout_error.or(stderr_error),
            sandbox: None,
        })
    }
}

impl Run {
    /// The one wait loop. Being stopped is a state of it, not another loop.
    async fn wait<'a>(&mut self, runner: &'a Runner, live: &Live) -> (Waited, Asking<'a>) {
        let limit = self.started + self.plan.limit;
        let mut start = Beginning::new(self.started);
        let mut ended_at: Option<Instant> = None;
        let mut stopping: Option<Stopping> = None;
        let mut asking: Asking<'a> = None;
        loop {
            let drained = !self.stdout.is_open() && !self.stderr.is_open();
            if ended_at.is_some() && drained && stopping.is_none() {
                break;
            }
            let deadline = match (stopping, ended_at) {
                (Some(stopping), _) => stopping.until,
                // It ended by itself: the time limit has no more to say, the drain has.
                (None, Some(at)) => at + self.plan.drain,
                (None, None) => limit,
            };
            let stop = tokio::select! {
                () = self.stdout.step(), if self.stdout.is_open() => None,
                () = self.stderr.step(), if self.stderr.is_open() => None,
                _ = self.leader.pidfd.readable(), if ended_at.is_none() => {
                    ended_at = Some(self.note_end());
                    None
                }
                () = self.tree.emptied(), if ended_at.is_some() && drained => break,
                () = asked(&mut asking), if asking.is_some() => {
                    asking = None;
                    None
                }
                reason = live.stop_requested(), if ended_at.is_none() && stopping.is_none() => Some(reason),
                () = tokio::time::sleep_until(start.look_at), if live.started_at().is_none() && ended_at.is_none() => {
                    if start.is_over(&self.leader) {
                        live.mark_started();
                    }
                    None
                }
                () = tokio::time::sleep_until(deadline) => {
                    if ended_at.is_some() || stopping.is_some() {
                        break;
                    }
                    Some(StopReason::Timeout(self.plan.limit))
                }
            };
            match stop {
                // It was faster, and the event loop has not heard of it yet.
                Some(_) if !self.leader.is_alive() => ended_at = Some(self.note_end()),
                Some(reason) => stopping = Some(self.begin_stop(reason, runner, &mut asking)),
                None => {}
            }
        }
        let waited = Waited {
            leader_ended: ended_at.is_some(),
            stopping,
        };
        (waited, asking)
    }

    /// The leader has ended, now as far as anybody knows: nobody but what it has left behind can write any more.
    fn note_end(&mut self) -> Instant {
        self.leader.close_ends();
        self.stdout.look();
        self.stderr.look();
        Instant::now()
    }

    /// Asks the group to end, or has it asked, and notes what there was to end.
    fn begin_stop<'a>(
        &mut self,
        reason: StopReason,
        runner: &'a Runner,
        asking: &mut Asking<'a>,
    ) -> Stopping {
        let signalled = count(self.tree.members().pids.len());
        if let Some(plan) = self.plan.stop_by.take() {
            *asking = Some(runner.ask(*plan));
        } else if let Err(error) = tree::signal_group(&self.leader, Signal::SIGTERM) {
            tracing::error!(%error, pid = %self.leader.pid, "cannot send SIGTERM to a process group");
        }
        Stopping {
            reason,
            signalled,
            until: Instant::now() + self.plan.kill_grace,
        }
    }

    /// Sends SIGKILL to what must not live on, and says what came of it.
    async fn kill(&self, waited: &Waited, left: &Left) -> Option<KillReport> {
        let (reason, signalled) = match waited.stopping {
            Some(stopping) => (KillReason::from(stopping.reason), stopping.signalled),
            None if left.listed.is_empty() && left.is_all => return None,
            None => (KillReason::Background, count(left.listed.len())),
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
    async fn left_behind(&self, waited: &Waited) -> Left {
        if waited.stopping.is_some() || !self.tree.may_have_left_others().await {
            return Left::default();
        }
        let killed = self.plan.background == Background::Kill;
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
        let listing = tokio::task::spawn_blocking(move || describe_all(&others, &pipes, killed));
        // Only a panic makes this fail.
        let listed = listing.await.unwrap_or_default();
        Left { listed, is_all }
    }

    /// Whether the leader ends within `wait`, which after SIGKILL it does unless it is in an
    /// uninterruptible sleep.
    async fn leader_ended_within(&self, wait: Duration) -> bool {
        tokio::time::timeout(wait, self.leader.pidfd.readable())
            .await
            .is_ok()
    }

    fn describe(&self, step: BirthStep) -> String {
        match step {
            BirthStep::WorkingDir => {
                let dir = self.plan.working_dir.as_deref().unwrap_or(Path::new("/"));
                format!("cannot change to the working directory `{}`", dir.display())
            }
            BirthStep::Execute => format!("cannot execute `{}`", self.plan.program.display()),
            BirthStep::Clone => "cannot start a process (clone3)".to_owned(),
            BirthStep::Session => "cannot make a session (setsid)".to_owned(),
            BirthStep::Stdio => "cannot set up descriptors 0 to 2 (dup3)".to_owned(),
        }
    }
}

/// What is told of processes that were left behind.
fn describe_all(pids: &[Pid], pipes: &[(StreamName, u64)], killed: bool) -> Vec<LeftBehind> {
    /// How many descriptors are looked at in all: the answer waits for it, and each takes some 6 µs.
    const DESCRIPTORS: usize = 8192;
    let mut budget = DESCRIPTORS;
    let describe = |pid: &Pid| LeftBehind {
        pid: pid.as_raw().unsigned_abs(),
        command: summarize(&tree::command_line(*pid)),
        held: tree::held_streams(*pid, pipes, &mut budget),
        killed,
    };
    pids.iter().map(describe).collect()
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

/// Waits for what was run to ask for the end.
async fn asked(asking: &mut Asking<'_>) {
    if let Some((_, asking)) = asking {
        asking.await;
    }
}

/// Ends what was run to ask for the end: there is nobody left to be asked.
async fn end(asking: Asking<'_>) {
    if let Some((helper, asking)) = asking {
        helper.stop(StopReason::Cancelled);
        asking.await;
    }
}

fn count(processes: usize) -> u32 {
    u32::try_from(processes).unwrap_or(u32::MAX)
}

fn cannot_wait(error: io::Error) -> RunError {
    RunError::new("cannot wait for the process (waitid)", error)
}
