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
    pub(super) done: oneshot::Sender<Done>,
}

/// What became of a job; what was to be done, where nobody was told to do it.
pub(super) type Done = Result<Result<Ended, SandboxError>, Box<Plan>>;

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
                        give_back(given);
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
        Some(Job { plan, done, .. }) if started.is_gone() => {
            let _ = done.send(Err(plan));
            started.end().await;
        }
        Some(Job { plan, live, done }) => {
            // Who waited for it is gone only if the whole executor is.
            let _ = done.send(Ok(started.carry_out(*plan, &live).await));
        }
        None => started.end().await,
    }
}

/// Tells whoever has counted on a sandbox that there is none.
fn give_back(mut given: oneshot::Receiver<Job>) {
    given.close();
    if let Ok(job) = given.try_recv() {
        let _ = job.done.send(Err(job.plan));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use super::super::{Sandbox, helper, quiet};
    use super::*;
    use crate::config::SandboxConfig;

    /// A runtime that puts what it is told to run into a file instead, or is told nothing.
    fn runtime(name: &str, commands: &str) -> (PathBuf, Arc<ExecutorConfig>) {
        let dir = std::env::temp_dir().join(format!("ready-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("made");
        let program = dir.join("runtime");
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo some version 1.0; exit; }}\n{commands}\n"
        );
        // By another process: whatever is started here meanwhile would hold it open, and it could not be executed.
        let mut writer = Command::new("/bin/sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(&program)
            .stdin(Stdio::piped())
            .spawn()
            .expect("started");
        let mut pipe = writer.stdin.take().expect("piped");
        pipe.write_all(text.as_bytes()).expect("written");
        drop(pipe);
        assert!(writer.wait().expect("ended").success());
        let mut sandbox = SandboxConfig {
            runtime: program,
            dir: Some(dir.join("run")),
            ..SandboxConfig::default()
        };
        sandbox.user.uid = nix::unistd::getuid().as_raw();
        sandbox.user.gid = nix::unistd::getgid().as_raw();
        let config = ExecutorConfig {
            sandbox,
            ..ExecutorConfig::default()
        };
        (dir, Arc::new(config))
    }

    fn plan(config: &ExecutorConfig) -> Plan {
        let args = vec!["meant".to_owned()];
        helper(ExecutionId::new(), Path::new("/bin/echo"), args, config)
    }

    #[tokio::test]
    async fn one_that_has_ended_before_it_was_told_gives_the_job_back() {
        let (dir, config) = runtime("ended", "exit 0");
        let runner = Arc::new(Runner::new(&config));
        let basis = Basis::of(&Grants::default(), &config).expect("a basis");
        let of = Runtime::of(&config.sandbox).expect("a runtime");
        let (id, grants) = (ExecutionId::new(), Grants::default());
        let started = Started::new(id, basis, grants, of, runner).await;
        let started = started.expect("started");
        started.ended().await;
        let (job, given) = oneshot::channel();
        let (done, said) = oneshot::channel();
        let plan = Box::new(plan(&config));
        let (id, live) = (plan.id, quiet(plan.id));
        assert!(job.send(Job { plan, live, done }).is_ok());
        wait(started, given).await;
        let plan = said.await.expect("said").err().expect("it comes back");
        assert_eq!(plan.id, id);
        fs::remove_dir_all(dir).expect("ours");
    }

    #[tokio::test]
    async fn what_comes_back_is_told_to_another() {
        let (dir, config) = runtime("another", "cat >>\"$(dirname \"$0\")/told\"");
        let runner = Arc::new(Runner::new(&config));
        let basis = Basis::of(&Grants::default(), &config).expect("a basis");
        let sandbox = Sandbox::default();
        let (job, given) = oneshot::channel::<Job>();
        sandbox.ready.lock().waiting.push(Waiting { basis, job });
        let dead = tokio::spawn(async {
            let job = given.await.expect("a job");
            drop(job.done.send(Err(job.plan)));
        });
        let plan = plan(&config);
        let live = quiet(plan.id);
        let ran = sandbox
            .run(plan, &Grants::default(), &config, &runner, &live)
            .await;
        // This runtime does not do it either, which is not tried again.
        assert!(matches!(ran, Err(SandboxError::Unavailable(_))));
        dead.await.expect("it was asked first");
        sandbox.end().await;
        let told = fs::read_to_string(dir.join("told")).expect("somebody was told");
        assert_eq!(told.matches("meant").count(), 1, "{told}");
        fs::remove_dir_all(dir).expect("ours");
    }
}
