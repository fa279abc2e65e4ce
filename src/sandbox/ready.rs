//! Sandboxes that are there before their call: the runtime's start is most of what an untrusted call
//! takes, and needs to know nothing of it.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::basis::Basis;
use super::runtime::Runtime;
use super::started::{Ended, Started};
use super::{Grants, SandboxError};
use crate::config::ExecutorConfig;
use crate::domain::ExecutionId;
use crate::runner::{Live, Plan, Runner};

/// How long one waits for a call: it takes some 40 MiB meanwhile, and does not see what is mounted.
const PATIENCE: Duration = Duration::from_secs(300);

/// How many processors this process may use at once.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));

/// Those that wait, and those who look after them.
#[derive(Default)]
pub(super) struct Ready {
    slots: Mutex<Slots>,
    /// How many executions are in sandboxes.
    running: AtomicUsize,
}

#[derive(Default)]
struct Slots {
    /// The configuration in force, once it was changed.
    config: Option<Arc<ExecutorConfig>>,
    /// The oldest first.
    waiting: Vec<Waiting>,
    tasks: Vec<JoinHandle<()>>,
}

/// One that waits, or is just being started. Dropping it ends it.
struct Waiting {
    basis: Basis,
    job: oneshot::Sender<Job>,
}

/// What one is to do after all, and who is told what became of it.
pub(super) struct Job {
    pub(super) plan: Box<Plan>,
    pub(super) live: Arc<Live>,
    pub(super) done: oneshot::Sender<Result<Ended, SandboxError>>,
}

/// An execution in a sandbox, for as long as it is there.
pub(super) struct Running<'a>(&'a Ready);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Ready {
    pub(super) fn count(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Counts an execution, whose processors are not to be taken from it.
    pub(super) fn enter(&self) -> Running<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running(self)
    }

    /// Has one that stands on `basis` do the job; gives it back if there is none.
    pub(super) fn give(&self, basis: &Basis, mut job: Job) -> Result<(), Job> {
        loop {
            let taken = {
                let mut slots = self.lock();
                let found = slots.waiting.iter().position(|one| one.basis.serves(basis));
                found.map(|at| slots.waiting.remove(at))
            };
            let Some(waiting) = taken else {
                return Err(job);
            };
            match waiting.job.send(job) {
                Ok(()) => return Ok(()),
                // It has ended meanwhile.
                Err(back) => job = back,
            }
        }
    }

    /// Starts what is missing for the next that are granted the same: all of it when nobody else is in a
    /// sandbox, else one, where those that are leave half of the processors.
    pub(super) fn prepare(
        &self,
        basis: &Basis,
        grants: &Grants,
        runtime: &Runtime,
        runner: &Arc<Runner>,
    ) {
        let most = basis.config.sandbox.ready as usize;
        let mut slots = self.lock();
        slots.tasks.retain(|task| !task.is_finished());
        slots.waiting.retain(|one| !one.job.is_closed());
        let current = slots.config.as_ref();
        let is_current = current.is_none_or(|config| Arc::ptr_eq(config, &basis.config));
        let running = self.running.load(Ordering::Relaxed);
        if !is_current || !basis.may_be_foreseen() || running * 2 > *PROCESSORS {
            return;
        }
        let alike = slots.waiting.iter().filter(|one| one.basis.serves(basis));
        let missing = most.saturating_sub(alike.count());
        let at_once = if running == 0 {
            missing
        } else {
            missing.min(1)
        };
        for _ in 0..at_once {
            // What was asked for the longest time ago goes.
            while slots.waiting.len() >= most {
                slots.waiting.remove(0);
            }
            let (job, given) = oneshot::channel();
            slots.waiting.push(Waiting {
                basis: basis.clone(),
                job,
            });
            let (basis, grants) = (basis.clone(), grants.clone());
            let (runtime, runner) = (runtime.clone(), Arc::clone(runner));
            let starting = Started::new(ExecutionId::new(), basis, grants, runtime, runner);
            slots.tasks.push(tokio::spawn(async move {
                match starting.await {
                    Ok(started) => wait(started, given).await,
                    Err(error) => {
                        tracing::warn!(%error, "cannot start a sandbox beforehand");
                        refuse(given, error);
                    }
                }
            }));
        }
    }

    /// Ends all that wait, for from now on another configuration is in force.
    pub(super) fn reconfigure(&self, config: Arc<ExecutorConfig>) {
        let mut slots = self.lock();
        slots.waiting.clear();
        slots.config = Some(config);
    }

    /// Ends all that wait, and waits for their end.
    pub(super) async fn end(&self) {
        let tasks = {
            let mut slots = self.lock();
            slots.waiting.clear();
            std::mem::take(&mut slots.tasks)
        };
        for task in tasks {
            let _ = task.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock()
    }
}

/// Does the job that is given to a sandbox; ends it if none is.
async fn wait(started: Started, mut given: oneshot::Receiver<Job>) {
    let job = tokio::select! {
        job = &mut given => job.ok(),
        () = started.ended() => None,
        () = tokio::time::sleep(PATIENCE) => None,
    };
    // From here on there is none to be given, but one may have come in this moment.
    given.close();
    match job.or_else(|| given.try_recv().ok()) {
        Some(Job { plan, live, done }) => {
            // Who waited for it is gone only if the whole executor is.
            let _ = done.send(started.carry_out(*plan, &live).await);
        }
        None => started.end().await,
    }
}

/// Tells whoever has counted on a sandbox that there is none.
fn refuse(mut given: oneshot::Receiver<Job>, error: SandboxError) {
    given.close();
    if let Ok(job) = given.try_recv() {
        let _ = job.done.send(Err(error));
    }
}
