//! A plan in, a plan that runs it inside an OCI runtime out, and what became of it translated back:
//! inside of the sandbox a run is what it is outside.

mod basis;
mod bundle;
mod init;
mod kata;
mod order;
mod ready;
mod relay;
mod report;
mod runtime;
mod started;
mod sweep;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use nix::unistd::Uid;
use parking_lot::Mutex;
use tokio::sync::{SetOnce, oneshot};

pub use init::sandbox_init;
pub(crate) use sweep::sweep;

use crate::config::{Destination, ExecutorConfig, Limits, SandboxConfig, Truncate};
use crate::domain::{
    Background, Calls, Ending, ExecutionId, Exit, KillReason, KillReport, Sandboxed, Secrets,
    Signal, StopReason,
};
use crate::runner::{Live, Outcome, Plan, RunError, Runner};
use basis::Basis;
use ready::{Job, Ready};
use runtime::Runtime;
use started::{Ended, Started};

/// How long a question to the runtime may take: it is a program that starts and ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long it may take to say its version, which a call waits for.
const PROMPTLY: Duration = Duration::from_secs(5);

/// How many processes and how much memory a runtime takes for itself, in cgroups: gVisor has a
/// kernel of its own there, and a process for each address space (measured: 40 and 30 MiB).
const RUNTIME_PIDS: u64 = 256;
const RUNTIME_BYTES: u64 = 128 << 20;

/// What a run may have inside, besides what the configuration gives everybody.
#[derive(Clone, Default)]
pub(crate) struct Grants {
    /// A directory that it may write to, if that is at or below one that the configuration names.
    pub(crate) workspace: Option<PathBuf>,
    /// Or at or below this.
    pub(crate) by_policy: Option<PathBuf>,
    /// Directories that it sees although they are hidden otherwise.
    pub(crate) visible: Vec<PathBuf>,
    /// The calls that it may make, by a socket of its own.
    pub(crate) calls: Option<Arc<dyn Calls>>,
    /// What it may connect to.
    pub(crate) destinations: Vec<Destination>,
}

impl Grants {
    /// Whether a socket belongs to them, which is that of one execution.
    fn has_socket(&self) -> bool {
        self.calls.is_some() || !self.destinations.is_empty()
    }
}

/// Runs plans inside.
#[derive(Default)]
pub(crate) struct Sandbox {
    /// What the runtime at a path has said of its version.
    known: Mutex<Option<(PathBuf, Sandboxed)>>,
    /// The last try, and of what.
    tested: Mutex<Option<(SandboxConfig, SelfTest)>>,
    /// Held by whoever tries it.
    testing: tokio::sync::Mutex<()>,
    /// That nobody is to try it any more.
    ending: SetOnce<()>,
    /// Whether a call has wanted it.
    is_wanted: AtomicBool,
    ready: Ready,
}

/// What came of the last try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// There was none: so far nothing needs it.
    Untested,
    /// It works; how long it took.
    Passed(Duration),
    /// It does not; why, and what to do.
    Failed(String),
}

/// How the sandbox is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxState {
    /// The runtime that is configured.
    pub runtime: String,
    /// What it says of its version, once it was asked.
    pub version: Option<String>,
    /// What came of the last try.
    pub self_test: SelfTest,
    /// How many sandboxes wait for a call, or are being started for one that may come.
    pub ready: usize,
}

/// Why nothing was run, or not to an end that is known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    /// The sandbox cannot be had; what is wrong and what to do.
    #[error("{0}")]
    Unavailable(String),
    /// It cannot be had as the call wants it; what is wrong and what was expected.
    #[error("{0}")]
    Refused(String),
    /// As outside.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl SandboxError {
    fn from_runtime(error: RunError) -> Self {
        let RunError { step, source } = error;
        Self::Unavailable(format!("{step}: {source}"))
    }

    fn broken(step: &str, error: &io::Error) -> Self {
        Self::Unavailable(format!("cannot {step}: {error}"))
    }
}

impl Sandbox {
    /// Runs `plan` inside, until it is over or `live` says to stop.
    ///
    /// # Errors
    /// When there is no sandbox to run it in, or no process ran.
    pub(crate) async fn run(
        &self,
        plan: Plan,
        grants: &Grants,
        config: &Arc<ExecutorConfig>,
        runner: &Arc<Runner>,
        live: &Arc<Live>,
    ) -> Result<Outcome, SandboxError> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let runtime = Runtime::of(&config.sandbox)?;
        let sandboxed = self.known(&runtime, config, runner).await?;
        let (given, with) = (grants.clone(), Arc::clone(config));
        let basis = beside(move || Ok(Basis::of(&given, &with))).await;
        let basis = basis.map_err(|error| SandboxError::broken("make its bundle", &error))??;
        if grants.has_socket() && !runtime.lets_sockets_in() {
            return Err(SandboxError::Unavailable(format!(
                "`{}` lets no socket into its virtual machine, as `egress` and skills that declare `calls` need one: name another `runtime` in [sandbox], such as \"runsc\"",
                runtime.name
            )));
        }
        let running = self.ready.enter();
        let (done, ended) = oneshot::channel();
        let job = Job {
            plan: Box::new(plan),
            live: Arc::clone(live),
            done,
        };
        let prepare = || self.ready.prepare(&basis, grants, &runtime, runner);
        let done = match self.ready.give(&basis, job) {
            Ok(()) => {
                prepare();
                ended.await.unwrap_or_else(|_| {
                    let text = "whoever looked after it is gone";
                    Ok(Err(SandboxError::Unavailable(text.to_owned())))
                })
            }
            Err(Job { plan, .. }) => Err(plan),
        };
        let ended = match done {
            Ok(ended) => ended?,
            // There is none that waits, or it was told nothing before it ended.
            Err(plan) => {
                let (basis, grants) = (basis.clone(), grants.clone());
                let (id, runner) = (plan.id, Arc::clone(runner));
                let new = Started::new(id, basis, grants, runtime.clone(), runner);
                new.await?.carry_out(*plan, live).await?
            }
        };
        drop(running);
        let outcome = translate(ended, runner, sandboxed)?;
        prepare();
        Ok(outcome)
    }

    /// Ends the sandboxes that wait for a call, for from now on another configuration is in force.
    pub(crate) fn reconfigure(&self, config: Arc<ExecutorConfig>) {
        self.ready.reconfigure(config);
    }

    /// Ends what is not an execution's, the sandboxes that wait for a call and one that is being tried, and
    /// waits for their end.
    pub(crate) async fn end(&self) {
        // An error says that it is set already.
        let _ = self.ending.set(());
        // At its end others may be started that wait.
        drop(self.testing.lock().await);
        self.ready.end().await;
    }

    /// What the runtime is, by its own account.
    async fn known(
        &self,
        runtime: &Runtime,
        config: &ExecutorConfig,
        runner: &Runner,
    ) -> Result<Sandboxed, SandboxError> {
        let known = self.known.lock().clone();
        if let Some((program, sandboxed)) = known
            && program == runtime.program
        {
            return Ok(sandboxed);
        }
        let live = quiet(ExecutionId::new());
        let args = vec!["--version".to_owned()];
        let plan = Plan {
            limit: PROMPTLY,
            ..helper(ExecutionId::new(), &runtime.program, args, config)
        };
        let outcome = runner.run(plan, &live).await;
        let outcome = outcome.map_err(SandboxError::from_runtime)?;
        let text = String::from_utf8_lossy(&outcome.stdout.head).into_owned();
        let Some(version) = runtime::version(&text) else {
            return Err(SandboxError::Unavailable(format!(
                "`{} --version` does not say its version: is it an OCI runtime?",
                runtime.program.display()
            )));
        };
        let sandboxed = Sandboxed {
            runtime: runtime.name.clone(),
            version,
            connections: Vec::new(),
        };
        *self.known.lock() = Some((runtime.program.clone(), sandboxed.clone()));
        Ok(sandboxed)
    }

    /// Runs the shell on nothing inside, and remembers what came of it, unless it was ended before.
    pub(crate) async fn test(
        &self,
        config: &Arc<ExecutorConfig>,
        runner: &Arc<Runner>,
    ) -> SelfTest {
        let id = ExecutionId::new();
        let args = vec!["-c".to_owned(), "exit 42".to_owned()];
        let plan = helper(id, &config.shell, args, config);
        let _alone = self.testing.lock().await;
        if self.ending.initialized() {
            return SelfTest::Untested;
        }
        let began = Instant::now();
        let (live, grants) = (quiet(id), Grants::default());
        let ran = {
            let stopped = pin!(async {
                self.ending.wait().await;
                live.stop(StopReason::Shutdown);
            });
            let ran = pin!(self.run(plan, &grants, config, runner, &live));
            match select(ran, stopped).await {
                Either::Left((ran, _)) => ran,
                Either::Right(((), ran)) => {
                    // What was cut short says nothing of the runtime.
                    let _ = ran.await;
                    return SelfTest::Untested;
                }
            }
        };
        let tested = match ran {
            Ok(outcome) if outcome.ending == Ending::Itself(Exit::Code(42)) => {
                SelfTest::Passed(began.elapsed())
            }
            Ok(outcome) => {
                let end = match outcome.ending {
                    Ending::Itself(Exit::Code(code)) => format!("exit code {code}"),
                    Ending::Itself(Exit::Signal(signal)) => signal.name(),
                    Ending::Stopped { .. } => "it was stopped".to_owned(),
                };
                SelfTest::Failed(format!(
                    "a command that exits with 42 inside came to another end: {end}"
                ))
            }
            Err(error) => SelfTest::Failed(error.to_string()),
        };
        *self.tested.lock() = Some((config.sandbox.clone(), tested.clone()));
        tested
    }

    /// Whether a call has wanted it so far.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// What is known of it.
    pub(crate) fn state(&self, config: &SandboxConfig) -> SandboxState {
        let (known, tested) = (self.known.lock().clone(), self.tested.lock().clone());
        // What was found out of another one is nothing to be told of this.
        let program = Runtime::of(config).ok().map(|runtime| runtime.program);
        let known = known.filter(|(path, _)| Some(path) == program.as_ref());
        let tested = tested.filter(|(of, _)| of == config);
        SandboxState {
            runtime: config.runtime.display().to_string(),
            version: known.map(|(_, sandboxed)| sandboxed.version),
            self_test: tested.map_or(SelfTest::Untested, |(_, tested)| tested),
            ready: self.ready.count(),
        }
    }
}

/// Why nothing could run in the sandbox, as far as that is known without trying.
pub(crate) fn lacks(config: &SandboxConfig) -> Option<String> {
    Runtime::of(config).err().map(|error| error.to_string())
}

/// A plan of a program of ours, which starts and ends by itself. Under an execution's id it ends with
/// that at the latest.
fn helper(id: ExecutionId, program: &Path, args: Vec<String>, config: &ExecutorConfig) -> Plan {
    Plan {
        id,
        program: program.to_owned(),
        args,
        script: None,
        working_dir: Some(PathBuf::from("/")),
        env: Vec::new(),
        stdin: None,
        limit: PATIENCE,
        kill_grace: Duration::ZERO,
        kill_wait: config.kill_wait,
        drain: config.drain,
        background: Background::Kill,
        parent: None,
        is_recognisable: true,
        limits: Limits::default(),
        stop_by: None,
    }
}

/// Streams of which only the beginning is wanted.
fn quiet(id: ExecutionId) -> Arc<Live> {
    let secrets = Arc::new(Secrets::default());
    Arc::new(Live::new(id, 4096, Truncate::Tail, None, &secrets))
}

/// That a runtime mostly takes root, where the daemon has another `uid`.
fn lack_of_root(uid: Uid) -> String {
    match uid.is_root() {
        true => String::new(),
        false => format!(" (a runtime mostly takes root, and the daemon has uid {uid})"),
    }
}

/// What became of the plan, from what became of the runtime and what the first process inside says.
fn translate(ended: Ended, runner: &Runner, sandboxed: Sandboxed) -> Result<Outcome, SandboxError> {
    let Ended {
        outcome,
        report,
        connections,
    } = ended;
    let sandboxed = Sandboxed {
        connections,
        ..sandboxed
    };
    let stopped = matches!(outcome.ending, Ending::Stopped { .. });
    // The report alone proves nothing: a program that ran can write into it that it could not be started. Output
    // and connections are seen from outside, and show that it ran.
    let is_seen = outcome.stdout.total > 0 || !sandboxed.connections.is_empty();
    let has_begun = report.started || report.touched;
    let code = match outcome.ending {
        Ending::Itself(Exit::Code(code)) => Some(code),
        Ending::Itself(Exit::Signal(_)) | Ending::Stopped { .. } => None,
    };
    let could_not_start = code == Some(init::FAILED.into()) && report.exit.is_none() && !is_seen;
    if let Some(failed) = report.failed.filter(|_| could_not_start) {
        return Err(failed.into_error().into());
    }
    // In gVisor the program can kill the first process before that has reported anything. The runtime then exits
    // with 128 + SIGKILL, which is an end of the program and no failure to start it.
    let killed = Exit::Signal(Signal(nix::libc::SIGKILL));
    let is_killed = code == Some(killed.shell_status());
    if !has_begun && !stopped && !is_seen && !is_killed {
        let said = String::from_utf8_lossy(&outcome.stderr.head);
        let said = said.lines().rev().find(|line| !line.trim().is_empty());
        return Err(SandboxError::Unavailable(format!(
            "the runtime could not start it: {}{}",
            said.unwrap_or("it does not say why"),
            lack_of_root(Uid::effective())
        )));
    }
    let ending = match (outcome.ending, report.exit) {
        (Ending::Itself(_), Some(exit)) => Ending::Itself(exit),
        // The first process exits as the program did, which nobody inside can change: 128 and a signal's number where
        // that was one, which is then told as a shell tells it.
        (Ending::Itself(exit @ Exit::Code(_)), None) if report.spoiled && !is_killed => {
            Ending::Itself(exit)
        }
        // Something ended the first process: what runs inside, the runtime, or its memory.
        (Ending::Itself(_), None) => Ending::Itself(killed),
        (Ending::Stopped { reason, exit }, said) => Ending::Stopped {
            reason,
            exit: said.or(exit),
        },
    };
    let left = report.left;
    let kill = match outcome.kill {
        Some(kill) if stopped => Some(KillReport {
            signalled: report.signalled.unwrap_or(kill.signalled),
            ..kill
        }),
        // They die with the first process of their namespace (pid_namespaces(7)).
        _ => (!left.is_empty()).then(|| KillReport {
            by: runner.mode(),
            reason: KillReason::Background,
            signalled: u32::try_from(left.len()).unwrap_or(u32::MAX),
            survivors: Some(0),
        }),
    };
    Ok(Outcome {
        ending,
        background: left,
        kill,
        sandbox: Some(sandboxed),
        ..outcome
    })
}

/// Does what waits for the disk beside the event loop.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

/// Whether a directory is there, not by a link.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lacks_root_is_told_so() {
        assert_eq!(lack_of_root(Uid::from_raw(0)), "");
        let told = lack_of_root(Uid::from_raw(1234));
        assert!(
            told.contains("takes root") && told.contains("1234"),
            "{told}"
        );
    }
}
