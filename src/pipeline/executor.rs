use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::approvals::Waiters;
use super::execution::Terms;
use super::life::Origin;
use super::records::Records;
use super::{Begun, log, masking, stages};
use crate::config::{ConfigError, ExecutorConfig, ToolDescriptions};
use crate::domain::{
    Call, Caller, Degradation, ExecutorError, Judgement, KillMode, Stage, StopReason,
    ToolDefinition, ToolDetails, ToolOutput, prepare_masking,
};
use crate::ledger::{Ledger, LedgerError, Opened, Recovered, Waiting};
use crate::policy::Policy;
use crate::runner::{Live, Runner, Spool};
use crate::tools::{Registry, Tool};

/// Runs tool calls. Cheap to clone; all clones are one executor.
///
/// ```
/// use serde_json::json;
/// use shelly_executor::{Executor, ExecutorConfig};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), shelly_executor::ExecutorError> {
/// let executor = Executor::new(ExecutorConfig::default());
/// let tools = executor.tool_definitions(); // for the `tools` of a Messages request
/// assert_eq!(tools[0].name, "bash");
///
/// let output = executor.execute("bash", json!({"command": "echo hello"})).await?;
/// assert_eq!(output.content, "[stdout]\nhello\n\n[exit_code]\n0");
/// assert!(!output.is_error);
/// # Ok(())
/// # }
/// ```
///
/// A command that fails is an output too; an error is what the executor itself could not do:
///
/// ```
/// # use serde_json::json;
/// # use shelly_executor::{Executor, ExecutorConfig, ExecutorError};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let executor = Executor::new(ExecutorConfig::default());
/// let output = executor.execute("bash", json!({"command": "exit 3"})).await.unwrap();
/// assert!(output.is_error && output.content == "[exit_code]\n3");
///
/// let error = executor.execute("bsh", json!({"command": "true"})).await.unwrap_err();
/// assert_eq!(error.to_string(), "there is no tool `bsh`; did you mean `bash`?");
/// # }
/// ```
#[derive(Clone)]
pub struct Executor {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    config: RwLock<Arc<ExecutorConfig>>,
    policy: RwLock<Policy>,
    pub(super) runner: Runner,
    pub(super) registry: Registry,
    pub(super) records: Records,
    pub(super) spool: Option<Arc<Spool>>,
    pub(super) ledger: Option<Ledger>,
    /// Those who wait for an approval.
    pub(super) waiters: Waiters,
    /// Held while the policy is changed.
    pub(super) amending: Mutex<()>,
    /// Whether what waits for an approval is left to the next daemon.
    pub(super) parking: watch::Sender<bool>,
    /// How many executions run.
    pub(super) running: watch::Sender<usize>,
}

/// An executor made ready for a process of its own, and what it found to clean up.
pub struct Started {
    /// Ready.
    pub executor: Executor,
    /// Processes that an earlier one had left running, killed now.
    pub killed: usize,
    /// Executions whose end nobody saw.
    pub lost: usize,
    /// Executions that wait for an approval, to be taken up by [`Executor::resume`] once the
    /// policy is in force.
    pub waiting: Vec<Waiting>,
}

/// Why an executor cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The spool's directory cannot be used, or cgroups are demanded and cannot be had.
    #[error("cannot set up the running of commands")]
    Runner(#[from] io::Error),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Asks an execution to stop when whoever waits for it does not any more.
struct StopOnDrop(Arc<Live>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop(StopReason::Cancelled);
    }
}

impl Executor {
    /// An executor with the built-in tools. Never fails, never touches the disk.
    ///
    /// It ignores what of `config` concerns the process as a whole: cgroups, subreaper, spool.
    pub fn new(config: ExecutorConfig) -> Self {
        let config = ExecutorConfig {
            subreaper: false,
            ..config
        };
        let runner = Runner::new(&config);
        Self::assemble(config, runner, None, None)
    }

    /// An executor for a process that exists for it, such as the daemon: opens spool and ledger,
    /// takes up cgroups or becomes a subreaper, and kills what a crash of the last one left running.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: ExecutorConfig) -> Result<Started, StartError> {
        prepare_masking();
        let mut runner = Runner::new(&config);
        let leftovers = runner.prepare(&config)?;
        let spool = config
            .spool
            .as_ref()
            .map(Spool::open)
            .transpose()?
            .map(Arc::new);
        // When nothing of it runs any more, for what was open is lost now.
        let opened = config.ledger.as_ref();
        let opened = opened.map(|ledger| Ledger::open(&ledger.file, ledger.durability));
        let (ledger, recovered) = match opened.transpose()? {
            Some(Opened { ledger, recovered }) => (Some(ledger), recovered),
            None => (None, Recovered::default()),
        };
        let executor = Self::assemble(config, runner, spool, ledger);
        executor.inner.registry.prepare();
        Ok(Started {
            executor,
            killed: leftovers.processes + leftovers.cgroups,
            lost: recovered.lost.len(),
            waiting: recovered.waiting,
        })
    }

    fn assemble(
        config: ExecutorConfig,
        runner: Runner,
        spool: Option<Arc<Spool>>,
        ledger: Option<Ledger>,
    ) -> Self {
        let inner = Inner {
            records: Records::new(config.history.max_count),
            config: RwLock::new(Arc::new(config)),
            policy: RwLock::new(Policy::default()),
            runner,
            registry: Registry::built_in(),
            spool,
            ledger,
            waiters: Waiters::default(),
            amending: Mutex::new(()),
            parking: watch::Sender::new(false),
            running: watch::Sender::new(0),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// All tools, in the shape of the Anthropic Messages API's `tools`. Descriptions come from the
    /// configured file, read anew; the built-in ones stand in for what it lacks.
    pub fn tool_definitions(&self) -> Vec<ToolDefinition> {
        self.tools()
            .into_iter()
            .map(|details| details.definition)
            .collect()
    }

    /// All tools with all there is to know of them.
    pub fn tools(&self) -> Vec<ToolDetails> {
        let described = self.descriptions().unwrap_or_default();
        let config = self.config();
        let describe = |tool: &Tool| {
            let mut details = tool.implementation.details(&config);
            if let Some(text) = described.of(&details.definition.name) {
                details.definition.description = text.to_owned();
            }
            details
        };
        let enabled = |tool: &&Tool| !config.disabled_tools.contains(tool.name());
        let tools = self.inner.registry.iter();
        tools.filter(enabled).map(describe).collect()
    }

    /// The name of the tool that `name` may have been meant for.
    pub fn nearest_tool(&self, name: &str) -> Option<&'static str> {
        let config = self.config();
        self.inner.registry.nearest(name, &config.disabled_tools)
    }

    /// Runs one call to its end. Dropping the future stops the execution, tree and all.
    ///
    /// # Errors
    /// See [`ExecutorError`]; a command's own failure is none.
    pub async fn execute(
        &self,
        tool_name: &str,
        input: Value,
    ) -> Result<ToolOutput, ExecutorError> {
        let call = Call::new(tool_name, input);
        let config = self.config();
        let caller = Caller::this_process();
        let mut execution =
            self.inner
                .conceive(&call, caller, &config, Origin::now(Terms::default()));
        // What is run for the program itself is its own affair.
        execution.entry = None;
        let _stop = StopOnDrop(Arc::clone(execution.live()));
        let this = self.clone();
        let task = tokio::spawn(async move {
            let result = this.inner.perform(&execution, call, config).await;
            log::result(&execution, &result);
            result
        });
        let result = task.await;
        result.unwrap_or_else(|error| {
            Err(ExecutorError::Internal {
                tool_name: tool_name.to_owned(),
                input_summary: String::new(),
                detail: "the execution's task was lost".to_owned(),
                source: Some(Box::new(error)),
            })
        })
    }

    /// Takes up what waited for an approval when the last daemon ended. Must be called inside a
    /// tokio runtime.
    pub fn resume(&self, waiting: Vec<Waiting>) {
        for waiting in waiting {
            self.inner.resume(waiting, self.config());
        }
    }

    /// Begins a call and returns as soon as that is on record where it has to be. The execution
    /// goes on whatever becomes of the caller, until it ends or is stopped.
    pub async fn begin(&self, call: Call, caller: Caller, terms: Terms) -> Begun {
        let config = self.config();
        let execution = self
            .inner
            .conceive(&call, caller, &config, Origin::now(terms));
        let execution = Arc::new(execution);
        let (tell, begun) = oneshot::channel();
        let life = Arc::clone(&self.inner).live(execution, call, config, tell);
        tokio::spawn(life);
        begun.await.unwrap_or_else(|_| {
            Begun::Unrecorded(Degradation {
                code: "internal",
                detail: "the execution's task was lost; the log says where".to_owned(),
                source: String::new(),
            })
        })
    }

    /// How many executions run.
    pub fn running(&self) -> usize {
        *self.inner.running.borrow()
    }

    /// Follows how many executions run.
    pub fn watch_running(&self) -> watch::Receiver<usize> {
        self.inner.running.subscribe()
    }

    /// By what process trees are held together.
    pub fn mode(&self) -> KillMode {
        self.inner.runner.mode()
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<ExecutorConfig> {
        Arc::clone(
            &self
                .inner
                .config
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Puts another configuration in force for executions that begin from now on. What concerns
    /// the process as a whole (cgroups, subreaper, the spool's place) stays as it was.
    pub fn reconfigure(&self, config: ExecutorConfig) {
        if let (Some(spool), Some(bounds)) = (&self.inner.spool, &config.spool) {
            spool.set_bounds(bounds.max_bytes, bounds.total_bytes);
        }
        *self
            .inner
            .config
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// The policy in force. Until one is set, everything is allowed (seed 000).
    pub fn policy(&self) -> Policy {
        self.inner.policy()
    }

    /// Puts another policy in force for executions that begin from now on.
    pub fn set_policy(&self, policy: Policy) {
        *self
            .inner
            .policy
            .write()
            .unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// What would become of a call: judged as it would be, and not run.
    ///
    /// # Errors
    /// What would refuse it before the policy is asked, and in which stage.
    pub async fn explain(
        &self,
        call: Call,
        caller: Caller,
    ) -> Result<Judgement, (Stage, ExecutorError)> {
        let config = self.config();
        let subject = stages::Subject {
            caller,
            default_dir: config.working_dir.clone(),
        };
        let secrets = masking::secrets(&call, &config);
        let summary = self.inner.summary(&call, &secrets);
        let call = stages::prepare(call, &self.inner.registry, &config, &summary).map_err(
            |(stage, mut error)| {
                error.mask(|text| secrets.mask_text(text));
                (stage, error)
            },
        )?;
        let mut judgement = subject.judged(&call, &self.policy()).await;
        judgement.mask(|text| secrets.mask_text(text));
        Ok(judgement)
    }

    /// What does not work as it should.
    pub fn degradations(&self) -> Vec<Degradation> {
        let tools = self.descriptions().err().map(|error| Degradation {
            code: "tools_file_invalid",
            detail: format!("{}; the built-in descriptions are used", error.chain()),
            source: error.path().display().to_string(),
        });
        let spool = self.inner.spool.as_ref().and_then(|spool| spool.problem());
        let lacking = self.inner.runner.lacks(self.config().limits);
        let limits = (!lacking.is_empty()).then(|| Degradation {
            code: "limits_unsupported",
            detail: format!(
                "no call is run, for its limits could not be set: there is no cgroup controller {} here; have it delegated or unset the limits",
                lacking.join(", ")
            ),
            source: "[limits]".to_owned(),
        });
        let ledger = self.inner.ledger.as_ref().and_then(Ledger::problem);
        let all = tools.into_iter().chain(spool).chain(limits).chain(ledger);
        all.collect()
    }

    /// Cleans up after commands that hid from their executions. Call it every few seconds.
    pub fn tidy(&self) {
        self.inner.runner.tidy();
    }

    /// Waits for `grace` that everything ends by itself, then ends it, kept background processes
    /// last. No call should be begun meanwhile.
    pub async fn shut_down(&self, grace: Duration) {
        self.inner.parking.send_replace(true);
        let mut running = self.watch_running();
        if tokio::time::timeout(grace, running.wait_for(|running| *running == 0))
            .await
            .is_err()
        {
            for execution in self.inner.records.running() {
                execution.stop(StopReason::Shutdown);
            }
            // Each ends within its own kill_grace and kill_wait.
            let _ = running.wait_for(|running| *running == 0).await;
        }
        self.inner.runner.end_kept().await;
        self.tidy();
    }

    /// Writes what is still to be written and closes the ledger. For the very end.
    pub fn close(&self) {
        if let Some(ledger) = &self.inner.ledger {
            ledger.close_file();
        }
    }

    fn descriptions(&self) -> Result<ToolDescriptions, ConfigError> {
        match &self.config().tools_file {
            Some(path) => ToolDescriptions::read(path),
            None => Ok(ToolDescriptions::default()),
        }
    }
}

impl Inner {
    pub(super) fn policy(&self) -> Policy {
        self.policy
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
