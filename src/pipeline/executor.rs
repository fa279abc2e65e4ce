use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::watch;

use super::approvals::Waiters;
use super::beside::{LONG, beside};
use super::execution::{Execution, Terms};
use super::family::Capabilities;
use super::hurry::Hurry;
use super::life::Origin;
use super::parking::Phase;
use super::records::Records;
use super::running::Running;
use super::soundings::Soundings;
use super::termination::Termination;
use super::values::Sessions;
use super::{Begun, CallRecord, counting, log, masking, spans, stages};
use crate::config::{CheckedTools, ConfigError, ExecutorConfig, SandboxConfig, ToolDescriptions};
use crate::domain::{
    Call, Caller, Doorkeeper, ExecutionId, ExecutorError, Judgement, KillMode, RiskLevel, Stage,
    StopReason, ToolDefinition, ToolDetails, ToolOutput, Verdict,
};
use crate::flow::Flow;
use crate::ledger::{Ledger, Waiting};
use crate::metrics::Metrics;
use crate::otlp::Exporter;
use crate::policy::Policy;
use crate::runner::{Runner, Spool};
use crate::sandbox::{self, Sandbox, SandboxState, SelfTest};
use crate::tools::{Places, Registry, SkillCheck, SkillProblem, Tool};

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
    pub(super) tools_file: CheckedTools,
    /// What of the file system was looked at.
    pub(super) soundings: Arc<Soundings>,
    policy: RwLock<Policy>,
    pub(super) runner: Arc<Runner>,
    pub(super) sandbox: Sandbox,
    registry: RwLock<Arc<Registry>>,
    /// What is wrong with skills that are therefore not there.
    pub(super) skill_problems: Mutex<Vec<SkillProblem>>,
    /// Whether they could not be read when they were last to be.
    pub(super) lacks_skills: AtomicBool,
    pub(super) records: Records,
    pub(super) spool: Option<Arc<Spool>>,
    /// Of whom the spool had something at the start; until it is looked through.
    pub(super) left: Mutex<Vec<ExecutionId>>,
    pub(super) ledger: Option<Ledger>,
    pub(super) hurry: Hurry,
    /// How much happens at once and how often.
    pub(super) flow: Flow,
    /// How much of the daemon's own work may be done at once.
    pub(super) places: Places,
    /// What skills keep for sessions.
    pub(super) sessions: Sessions,
    /// Who may make calls on whose behalf.
    pub(super) capabilities: Capabilities,
    /// Who answers on the sockets of executions.
    pub(super) doorkeeper: OnceLock<Weak<dyn Doorkeeper>>,
    /// Those who wait for an approval.
    pub(super) waiters: Waiters,
    /// Held while the policy is changed.
    pub(super) amending: tokio::sync::Mutex<()>,
    /// How far the end has come.
    pub(super) phase: watch::Sender<Phase>,
    /// How many executions run, those included that are about to.
    pub(super) running: Arc<Running>,
    /// What is counted; `None` where nothing can be.
    pub(super) metrics: Option<Arc<Metrics>>,
    /// Where the spans of executions go.
    pub(super) spans: Exporter,
}

/// Asks an execution to stop when whoever waits for it does not any more.
struct StopOnDrop(Arc<Execution>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop(StopReason::Cancelled);
    }
}

impl Executor {
    /// All tools, in the shape of the Anthropic Messages API's `tools`. Descriptions come from the
    /// configured file, read anew; the built-in ones stand in for what it lacks.
    pub fn tool_definitions(&self) -> Vec<ToolDefinition> {
        self.tools()
            .into_iter()
            .map(|details| details.definition)
            .collect()
    }

    /// All tools with all there is to know of them, each in its default version.
    pub fn tools(&self) -> Vec<ToolDetails> {
        let described = self.descriptions().unwrap_or_default();
        let config = self.config();
        let registry = self.inner.registry();
        let enabled = registry.iter().filter(|tool| tool.is_enabled(&config));
        let is_default = |tool: &&Arc<Tool>| registry.is_default(tool);
        let tools = enabled.filter(is_default);
        tools
            .map(|tool| details(tool, &described, &config))
            .collect()
    }

    /// One tool, in one of its versions or the default one.
    ///
    /// # Errors
    /// What a call of it would be refused with.
    pub fn tool(&self, name: &str, version: Option<&str>) -> Result<ToolDetails, ExecutorError> {
        let mut call = Call::new(name, Value::Null);
        call.options.tool_version = version.map(str::to_owned);
        let config = self.config();
        let tool = stages::find(call, &self.inner.registry(), &config)?;
        let described = self.descriptions().unwrap_or_default();
        Ok(details(&tool, &described, &config))
    }

    /// The versions of a tool, the default first; none of one that is not there.
    pub fn tool_versions(&self, name: &str) -> Vec<String> {
        self.inner.registry().versions(name)
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
        let family = self.inner.found(&call, caller.uid, &config);
        let origin = Origin::now(Terms::default(), family);
        let mut execution = self.inner.conceive(&call, caller, &config, origin);
        // What is run for the program itself is its own affair.
        execution.entry = None;
        let execution = Arc::new(execution);
        let _stop = StopOnDrop(Arc::clone(&execution));
        let this = self.clone();
        let task = tokio::spawn(async move {
            let result = this.inner.perform(&execution, call, config).await;
            let ended = Termination::now(&result, execution.failed_in());
            counting::count(&execution, &ended);
            spans::tell(&this.inner.spans, &execution, &ended);
            log::ending(&execution, &ended);
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
        let inner = Arc::clone(&self.inner);
        let is_long = call.bytes() >= LONG;
        let conceive = move || {
            let config = inner.config();
            let family = inner.try_found(&call, caller.uid, &config)?;
            let origin = Origin::now(terms, family);
            let execution = Arc::new(inner.conceive(&call, caller, &config, origin));
            Ok((execution, call, config))
        };
        // All of its texts are looked through for secrets.
        let conceived = match is_long {
            true => beside(conceive).await,
            false => conceive(),
        };
        match conceived {
            Ok((execution, call, config)) => {
                Arc::clone(&self.inner).begin(execution, call, config).await
            }
            Err(too_much) => Begun::TooMuch(too_much),
        }
    }

    /// Says who answers on the sockets that executions in the sandbox have of their own; without one
    /// they make no calls. The first counts.
    pub fn set_doorkeeper(&self, keeper: Weak<dyn Doorkeeper>) {
        let _ = self.inner.doorkeeper.set(keeper);
    }

    /// How many executions run.
    pub fn running(&self) -> usize {
        self.inner.running.count()
    }

    /// Something was done that is no execution and took memory.
    pub(crate) fn stir(&self) {
        self.inner.running.stir();
    }

    /// A counter that rises with every beginning and end of an execution and every `stir`: compare two readings to see
    /// whether anything has happened.
    pub fn changes(&self) -> u64 {
        self.inner.running.changes()
    }

    /// By what process trees are held together.
    pub fn mode(&self) -> KillMode {
        self.inner.runner.mode()
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<ExecutorConfig> {
        self.inner.config()
    }

    /// Puts another configuration in force for executions that begin from now on. What concerns
    /// the process as a whole (cgroups, subreaper, the spool's place) stays as it was.
    pub fn reconfigure(&self, config: ExecutorConfig) {
        if let (Some(spool), Some(bounds)) = (&self.inner.spool, &config.spool) {
            let history = config.history.max_total_bytes;
            spool.set_bounds(bounds.max_bytes, bounds.total_bytes, history);
        }
        self.inner.flow.configure(&config.flow);
        let instance = config.instance.as_deref();
        self.inner.spans.configure(&config.tracing, instance);
        let config = Arc::new(config);
        *self.inner.config.write() = Arc::clone(&config);
        self.inner.sandbox.reconfigure(config);
    }

    /// The policy in force. Until one is set, everything is allowed.
    pub fn policy(&self) -> Policy {
        self.inner.policy()
    }

    /// Puts another policy in force for executions that begin from now on.
    pub fn set_policy(&self, policy: Policy) {
        self.inner.set_policy(policy);
    }

    /// What would become of a call to which these tools had led, the outermost first: judged as it would
    /// be, and not run.
    ///
    /// # Errors
    /// What would refuse it before the policy is asked, and in which stage.
    pub async fn explain(
        &self,
        call: Call,
        caller: Caller,
        chain: Vec<String>,
    ) -> Result<Judgement, (Stage, ExecutorError)> {
        let config = self.config();
        let subject = stages::Subject {
            caller: caller.clone(),
            chain,
            default_dir: config.working_dir.clone(),
            shell: config.shell.clone(),
        };
        let secrets = masking::secrets(&call, &config);
        let summary = self.inner.summary(&call, &secrets);
        let circumstances = stages::Circumstances {
            caller: &caller,
            config: &config,
            summary: &summary,
        };
        let prepared = stages::prepare(call, &self.inner.registry(), &circumstances).await;
        let (call, resolved) = prepared.map_err(|(stage, mut error)| {
            error.mask(|text| secrets.mask_text(text));
            (stage, error)
        })?;
        // To read a script takes memory, thousands of bytes for each of its words. Before, too: who asks may be gone.
        self.inner.running.stir();
        let mut judgement = subject.judged(&call, &resolved, &self.policy()).await;
        self.inner.running.stir();
        let version = call.options.tool_version.as_deref();
        let tool = self.inner.registry().find(&call.tool, version);
        if judgement.verdict != Verdict::Deny
            && let Some(tool) = &tool
            && let Some(look) = stages::refused_by_tool(tool, &call, &resolved, &caller, &config)
            && let Some(refused) = beside(look).await
        {
            judgement = refused;
        }
        let of_tool = tool.as_ref();
        let of_tool = of_tool.map_or_else(RiskLevel::default, |tool| tool.risk_level(&config));
        let raised = of_tool.max(call.options.risk_level);
        judgement.risk_level = judgement.risk_level.max(raised);
        if judgement.verdict != Verdict::Deny
            && let Some(tool) = &tool
            && let Some(mut error) =
                stages::cannot_be_run(&call, tool, &judgement, &config, &summary)
        {
            error.mask(|text| secrets.mask_text(text));
            return Err((Stage::Permission, error));
        }
        let shown = CallRecord::new(&call, &summary, &secrets);
        masking::mask_judgement(&mut judgement, &shown, &secrets);
        if judgement.verdict == Verdict::Ask && !stages::can_ask(&self.inner, &config) {
            judgement.reason += "; nobody can be asked, so that it would be refused ([access] in executor.toml names `approvers`)";
        }
        Ok(judgement)
    }

    /// Reads the skills anew, for executions that begin from now on: those that hold together, the
    /// others are what does not work as it should. Blocks.
    ///
    /// Returns whether it could: where descriptors are lacking they stay as they were, to be read once more.
    pub fn load_skills(&self) -> bool {
        let Some(dir) = self.config().skills.dir.clone() else {
            return true;
        };
        let found = Registry::with_skills(&dir);
        let is_read = found.is_some();
        self.inner.lacks_skills.store(!is_read, Ordering::Relaxed);
        if let Some((registry, problems)) = found {
            self.inner.set_registry(registry);
            *self.inner.skill_problems.lock() = problems;
        }
        is_read
    }

    /// The parameters of a built-in tool, whether it is enabled or not.
    pub fn built_in_parameters(name: &str) -> Option<Vec<String>> {
        Registry::built_in_parameters(name)
    }

    /// What is wrong with the skill in `dir`, if it stood among those of the directories `others`.
    /// Blocks.
    pub fn check_skill(dir: &Path, others: &[PathBuf]) -> SkillCheck {
        Registry::check_skill(dir, others)
    }

    /// Whether anything is configured to run in the sandbox.
    pub fn needs_sandbox(&self) -> bool {
        let config = self.config();
        let is_untrusted = |tool: &Arc<Tool>| tool.risk_level(&config) == RiskLevel::Untrusted;
        self.policy().has_untrusted() || self.inner.registry().iter().any(is_untrusted)
    }

    /// Whether it is worth knowing if the sandbox works: it is needed, or a call has wanted it.
    pub fn wants_sandbox(&self) -> bool {
        self.inner.sandbox.is_wanted() || self.needs_sandbox()
    }

    /// Why nothing could run in the sandbox, as far as that is known without trying, if anything is
    /// configured to or a runtime was chosen for it.
    pub fn lacks_sandbox(&self) -> Option<String> {
        let config = self.config();
        let is_chosen = config.sandbox.runtime != SandboxConfig::default().runtime;
        let is_needed = is_chosen || self.needs_sandbox();
        is_needed.then(|| sandbox::lacks(&config.sandbox)).flatten()
    }

    /// Runs something harmless in the sandbox, and remembers what came of it.
    pub async fn test_sandbox(&self) -> SelfTest {
        let (config, inner) = (self.config(), &self.inner);
        inner.sandbox.test(&config, &inner.runner).await
    }

    /// How the sandbox is.
    pub fn sandbox(&self) -> SandboxState {
        self.inner.sandbox.state(&self.config().sandbox)
    }

    /// Cleans up after commands that hid from their executions, and lets go of what has ended. Call it
    /// every few seconds.
    pub fn tidy(&self) {
        self.inner.runner.tidy();
        self.inner.records.tidy();
    }

    /// Lets go of memory that only work needs. For a while in which nothing happens.
    pub async fn rest(&self) {
        if let Some(ledger) = &self.inner.ledger {
            // Where that fails, it is kept.
            let _ = ledger.shrink().await;
        }
    }

    /// Waits for `grace` that everything ends by itself, then ends it, kept background processes
    /// last. No call should be begun meanwhile, or afterwards: it would be stopped before it runs.
    pub async fn shut_down(&self, grace: Duration) {
        self.shut_down_after(tokio::time::sleep(grace)).await;
        self.settle_cancelled().await;
    }

    /// As [`Self::shut_down`]; the grace ends when `grace` completes.
    pub(crate) async fn shut_down_after(&self, grace: impl Future<Output = ()>) {
        self.inner.phase.send_replace(Phase::Draining);
        let running = &self.inner.running;
        tokio::select! {
            biased;
            () = running.none() => {}
            () = grace => {
                self.inner.phase.send_replace(Phase::Stopping);
                let all = self.inner.records.running();
                // What is left to the next daemon may still be cancelled.
                for execution in all.iter().filter(|execution| !execution.is_parked()) {
                    execution.stop(StopReason::Shutdown);
                }
                // Each ends within its own kill_grace and kill_wait.
                running.none().await;
            }
        }
        // Whatever begins from here on, or since the grace was over, finds that out itself.
        self.inner.phase.send_replace(Phase::Stopping);
        self.inner.runner.end_kept().await;
        self.inner.sandbox.end().await;
        self.tidy();
    }

    /// Waits for the end of executions that were left to the next daemon and then cancelled. Call it once no more
    /// cancels can arrive.
    pub(crate) async fn settle_cancelled(&self) {
        let all = self.inner.records.running();
        let cancelled = |execution: &&Arc<Execution>| {
            execution.is_parked() && execution.stop_reason() == Some(StopReason::Cancelled)
        };
        join_all(
            all.iter()
                .filter(cancelled)
                .map(|execution| execution.over()),
        )
        .await;
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

/// A tool in the words of the operator, where there are some, and as far as the operator trusts it.
fn details(tool: &Tool, described: &ToolDescriptions, config: &Arc<ExecutorConfig>) -> ToolDetails {
    let mut details = tool.implementation.details(config);
    details.risk_level = tool.risk_level(config);
    if let Some(text) = described.of(&details.definition.name) {
        details.definition.description = text.to_owned();
    }
    details
}

impl Inner {
    /// With the built-in tools and the policy that allows everything.
    pub(super) fn new(
        config: ExecutorConfig,
        runner: Runner,
        spool: Option<Arc<Spool>>,
        ledger: Option<Ledger>,
    ) -> Self {
        let metrics = counting::begin();
        if let (Some(ledger), Some(metrics)) = (&ledger, &metrics) {
            ledger.measure(Arc::clone(metrics));
        }
        Self {
            records: Records::new(config.history.max_count),
            left: Mutex::new(spool.as_ref().map(|spool| spool.ids()).unwrap_or_default()),
            flow: super::flow::begin(&config.flow),
            spans: Exporter::new(&config.tracing, config.instance.as_deref()),
            config: RwLock::new(Arc::new(config)),
            tools_file: CheckedTools::default(),
            soundings: Arc::default(),
            policy: RwLock::new(Policy::default()),
            runner: Arc::new(runner),
            sandbox: Sandbox::default(),
            registry: RwLock::new(Arc::new(Registry::built_in())),
            skill_problems: Mutex::default(),
            lacks_skills: AtomicBool::default(),
            spool,
            ledger,
            hurry: Hurry::default(),
            places: Places::default(),
            sessions: Sessions::default(),
            capabilities: Capabilities::default(),
            doorkeeper: OnceLock::new(),
            waiters: Waiters::default(),
            amending: tokio::sync::Mutex::default(),
            phase: watch::Sender::default(),
            running: Arc::default(),
            metrics,
        }
    }

    pub(super) fn config(&self) -> Arc<ExecutorConfig> {
        Arc::clone(&self.config.read())
    }

    /// The tools there are now.
    pub(super) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.read())
    }

    /// Puts other tools in their place, for executions that begin from now on.
    pub(super) fn set_registry(&self, registry: Registry) {
        *self.registry.write() = Arc::new(registry);
    }

    pub(super) fn policy(&self) -> Policy {
        self.policy.read().clone()
    }

    pub(super) fn set_policy(&self, policy: Policy) {
        *self.policy.write() = policy;
    }
}
