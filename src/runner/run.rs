//! The life of one process once it was started: waited for in one loop, asked to end where it must.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::Runner;
use super::plan::{Live, Outcome, Plan, RunError};
use super::reader::Reader;
use super::spawn::{BirthStep, Leader};
use super::start::{Born, ScriptFile};
use super::tree::{self, Tree};
use crate::config::Truncate;
use crate::domain::{ExecutionId, Secrets, StopReason};

/// A process that is attended and not over.
pub(super) struct Run {
    pub plan: Plan,
    pub tree: Tree,
    pub leader: Leader,
    pub started: Instant,
    pub stdout: Reader,
    pub stderr: Reader,
    _script: Option<ScriptFile>,
}

/// That a run is being stopped: why, how much there was to stop, and when patience ends.
#[derive(Clone, Copy)]
pub(super) struct Stopping {
    pub reason: StopReason,
    pub signalled: u32,
    until: Instant,
}

/// How the wait came to its end.
pub(super) struct Waited {
    pub leader_ended: bool,
    pub stopping: Option<Stopping>,
    /// That the leader had ended by itself when a stop was asked for, and what it had left behind had not.
    pub cut_short: Option<StopReason>,
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
pub(super) type Asking<'a> = Option<(Arc<Live>, BoxFuture<'a, ()>)>;

impl Runner {
    /// Runs `plan`, its output going into `live`, until it is over or `live` says to stop.
    ///
    /// Must be driven to its end: dropping the future leaves the process alone. Give it a task of
    /// its own and use [`Live::stop`].
    ///
    /// # Errors
    /// When no process ran: it could not be started, or could not execute its program.
    pub async fn run(&self, mut plan: Plan, live: &Arc<Live>) -> Result<Outcome, RunError> {
        let born = self.start_script(&mut plan, live).await?;
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
}

impl Run {
    /// The one wait loop. Being stopped is a state of it, not another loop.
    async fn wait<'a>(&mut self, runner: &'a Runner, live: &Live) -> (Waited, Asking<'a>) {
        let limit = self.started + self.plan.limit;
        let mut start = Beginning::new(self.started);
        let mut ended_at: Option<Instant> = None;
        let mut stopping: Option<Stopping> = None;
        let mut cut_short = None;
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
                reason = live.stop_requested(), if stopping.is_none() => Some(reason),
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
                Some(reason) if ended_at.is_some() => {
                    cut_short = Some(reason);
                    break;
                }
                // It was faster, and the event loop has not heard of it yet.
                Some(_) if !self.leader.is_alive() => ended_at = Some(self.note_end()),
                Some(reason) => {
                    stopping = Some(self.begin_stop(reason, runner, &mut asking).await);
                }
                None => {}
            }
        }
        let waited = Waited {
            leader_ended: ended_at.is_some(),
            stopping,
            cut_short,
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
    async fn begin_stop<'a>(
        &mut self,
        reason: StopReason,
        runner: &'a Runner,
        asking: &mut Asking<'a>,
    ) -> Stopping {
        let signalled = count(self.tree.members().await.pids.len());
        if let Some(plan) = self.plan.stop_by.take() {
            *asking = Some(runner.ask(*plan));
        } else if let Err(error) = tree::ask_group(&self.leader) {
            tracing::error!(%error, pid = %self.leader.pid, "cannot send SIGTERM to a process group");
        }
        Stopping {
            reason,
            signalled,
            until: Instant::now() + self.plan.kill_grace,
        }
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

/// Waits for what was run to ask for the end.
async fn asked(asking: &mut Asking<'_>) {
    if let Some((_, asking)) = asking {
        asking.await;
    }
}

/// Ends what was run to ask for the end: there is nobody left to be asked.
pub(super) async fn end(asking: Asking<'_>) {
    if let Some((helper, asking)) = asking {
        helper.stop(StopReason::Cancelled);
        asking.await;
    }
}

pub(super) fn count(processes: usize) -> u32 {
    u32::try_from(processes).unwrap_or(u32::MAX)
}

pub(super) fn cannot_wait(error: io::Error) -> RunError {
    RunError::new("cannot wait for the process (waitid)", error)
}
