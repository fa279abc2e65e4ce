use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use futures_util::FutureExt;
use parking_lot::{Mutex, MutexGuard, RwLock};
use serde_json::{Map, Value};
use tokio::sync::{SetOnce, watch};

use super::approvals::Asked;
use super::entry::{Approved, Entry};
use super::event::Event;
use super::family::Family;
use super::questions::Questions;
use super::{CallRecord, CannotKeep, Finished, Record};
use crate::domain::{
    Call, Caller, Correlation, ExecutionId, ExecutorError, Judgement, RiskLevel, Ruling, Scope,
    ScopedValues, Secrets, SpanContext, Stage, StageTimes, Status, StopReason, StreamName,
};
use crate::ledger::Idempotency;
use crate::metrics::Metrics;
use crate::runner::{Capture, Kept, Live};
use crate::tools::Tool;

/// One call's life under one id: what is known of it from its start until it is forgotten.
#[derive(Debug)]
pub struct Execution {
    /// Its name.
    pub id: ExecutionId,
    /// The tool that was called.
    pub tool: String,
    /// Who called it.
    pub caller: Caller,
    /// The id the model gave its call.
    pub tool_use_id: Option<String>,
    /// When the call came in.
    pub created_at: SystemTime,
    /// Whether its stages are timed for all to see.
    pub timed: bool,
    /// What it belongs to in its caller's names, secrets masked.
    pub correlation: Correlation,
    /// On what terms it was begun.
    pub(super) terms: Terms,
    /// Where it is counted, if it is.
    pub(super) metrics: Option<Arc<Metrics>>,
    /// What is masked in whatever it leads to.
    pub(super) secrets: Arc<Secrets>,
    /// Where it is kept for good, if anywhere.
    pub(super) entry: Option<Entry>,
    /// What led to it and what comes of it.
    pub(super) family: Family,
    /// What its processes show to make calls on its behalf, where its tool admits that.
    pub(super) token: Option<String>,
    /// The tool, in the version that it keeps to its end.
    tool_found: OnceLock<Arc<Tool>>,
    known: Mutex<Known>,
    /// Whether it waits for a place to run in.
    queued: AtomicBool,
    /// Whether it was taken from the rates that it concerns.
    charged: AtomicBool,
    /// Whether it waits for an approval, and what was asked about it.
    questions: Questions,
    /// Output and stop signal of the latest try.
    live: RwLock<Arc<Live>>,
    stages: Mutex<Vec<StageTimes>>,
    /// How it ended, before that is on record.
    formed: SetOnce<Arc<Finished>>,
    finished: SetOnce<Arc<Finished>>,
    /// That it never became one.
    refused: SetOnce<()>,
}

/// What a caller wants of an execution, besides what is to be done.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Nobody waits for the answer.
    pub asynchronous: bool,
    /// The caller's key for the call, under which it never runs twice.
    pub idempotency: Option<Idempotency>,
    /// The execution that this one repeats.
    pub replay_of: Option<ExecutionId>,
}

impl Terms {
    /// Whether it may begin before anything was written.
    pub(super) fn is_simple(&self) -> bool {
        !self.asynchronous && self.idempotency.is_none()
    }

    /// The same for a call that these tools led to: a key of theirs is none of anybody else's, who may be
    /// permitted other things. No key from outside has a blank in it.
    #[must_use]
    pub(super) fn of_chain(mut self, chain: &[String]) -> Self {
        if let Some(idempotency) = &mut self.idempotency {
            idempotency.key = format!("{} {}", chain.join(" "), idempotency.key);
        }
        self
    }
}

/// What becomes known of an execution on its way.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) call: Arc<CallRecord>,
    pub(super) ruling: Option<Ruling>,
    pub(super) approved: Option<Approved>,
    /// How far it is trusted, once it was judged; what comes of it is trusted no further.
    pub(super) risk: Option<RiskLevel>,
}

/// An execution being in a stage; dropping it is the stage's end.
pub(super) struct InStage<'a>(&'a Execution);

impl Drop for InStage<'_> {
    fn drop(&mut self) {
        let now = SystemTime::now();
        let times = self.0.lock_stages().last_mut().map(|times| {
            times.ended_at = Some(now);
            *times
        });
        let Some(times) = times else {
            return;
        };
        let took = now.duration_since(times.started_at).unwrap_or_default();
        if let Some(metrics) = &self.0.metrics {
            metrics.left_stage(times.stage, took);
        }
        if let Some(entry) = &self.0.entry {
            let stage = times.stage;
            entry.note_at(now, Event::StageCompleted { stage, took });
        }
    }
}

/// What an execution begins with.
pub(super) struct Birth {
    pub(super) id: ExecutionId,
    pub(super) tool: String,
    pub(super) caller: Caller,
    pub(super) live: Live,
    pub(super) secrets: Arc<Secrets>,
    pub(super) call: Arc<CallRecord>,
    pub(super) created_at: SystemTime,
    pub(super) family: Family,
}

impl Execution {
    /// One that has just come in.
    pub(super) fn new(birth: Birth) -> Self {
        let Birth {
            id,
            tool,
            caller,
            live,
            secrets,
            call,
            created_at,
            family,
        } = birth;
        Self {
            id,
            tool,
            caller,
            tool_use_id: None,
            created_at,
            timed: true,
            correlation: Correlation::default(),
            metrics: None,
            terms: Terms::default(),
            secrets,
            entry: None,
            family,
            token: None,
            tool_found: OnceLock::new(),
            known: Mutex::new(Known {
                call,
                ..Known::default()
            }),
            queued: AtomicBool::new(false),
            charged: AtomicBool::new(false),
            questions: Questions::default(),
            live: RwLock::new(Arc::new(live)),
            stages: Mutex::new(Vec::with_capacity(6)),
            formed: SetOnce::new(),
            finished: SetOnce::new(),
            refused: SetOnce::new(),
        }
    }

    /// What is known of it by now.
    pub(super) fn known(&self) -> Known {
        self.lock_known().clone()
    }

    /// Its call, as it is told.
    pub(super) fn call(&self) -> Arc<CallRecord> {
        Arc::clone(&self.lock_known().call)
    }

    /// Why it was asked to end, if it was.
    pub(super) fn stop_reason(&self) -> Option<StopReason> {
        self.live().stop_requested().now_or_never()
    }

    /// It was asked to end, and nothing of it has run.
    pub(super) fn stopped(&self, reason: StopReason) -> ExecutorError {
        ExecutorError::Cancelled {
            tool_name: self.tool.clone(),
            input_summary: self.summary(),
            reason,
            partial: None,
        }
    }

    /// What it is, in a line.
    pub(super) fn summary(&self) -> String {
        self.call().summary.clone()
    }

    /// How far it is trusted, once it was judged.
    pub(super) fn risk(&self) -> Option<RiskLevel> {
        self.lock_known().risk
    }

    /// Who has approved it, if somebody has.
    pub(super) fn approved(&self) -> Option<Approved> {
        self.lock_known().approved
    }

    /// Something became known.
    pub(super) fn learn(&self, learn: impl FnOnce(&mut Known)) {
        learn(&mut self.lock_known());
    }

    /// All there is to tell of it as it stands.
    pub fn record(&self) -> Record {
        let known = self.known();
        let finished = self.finished().cloned();
        Record {
            id: self.id,
            tool: self.tool.clone(),
            caller_uid: self.caller.uid,
            tool_use_id: self.tool_use_id.clone(),
            status: self.status(),
            created_at: self.created_at,
            // A process that could not execute its program was none.
            started_at: self.started_at().filter(|_| {
                finished
                    .as_ref()
                    .is_none_or(|finished| finished.ran.is_some())
            }),
            timed: self.timed,
            stages: self.stages(),
            call: known.call,
            ruling: known.ruling,
            approved: known.approved,
            replay_of: self.terms.replay_of,
            lineage: self.family.lineage().cloned(),
            trace_id: self.correlation.trace_id.clone(),
            finished,
        }
    }

    /// Where it stands among the traces.
    pub(super) fn span_context(&self) -> SpanContext {
        SpanContext::of(self.id, &self.correlation, self.family.caller())
    }

    /// Its input has got its defaults.
    pub(super) fn learn_call(&self, call: &Call) {
        let known = self.call();
        self.set_call(call, &known.summary, known.changed_by.clone());
    }

    /// A hook has changed its input: it goes from the first stage on as if it had come with that,
    /// and what was said of the other counts for nothing.
    pub(super) fn begin_anew(&self, call: &Call, summary: &str, hook: &str) {
        let mut changed_by = self.call().changed_by.clone();
        changed_by.push(hook.to_owned());
        self.set_call(call, summary, changed_by);
        self.learn(|known| known.ruling = None);
    }

    fn set_call(&self, call: &Call, summary: &str, changed_by: Vec<String>) {
        let call = CallRecord {
            changed_by,
            ..CallRecord::new(call, summary, &self.secrets).of(&self.caller)
        };
        let call = Arc::new(call);
        if let Some(entry) = &self.entry {
            entry.set_call(&call);
        }
        self.learn(|known| known.call = call);
    }

    /// The policy has judged it.
    pub(super) fn learn_ruling(&self, judgement: &Judgement) {
        let ruling = Ruling::from(judgement);
        if let Some(metrics) = &self.metrics {
            metrics.judged(ruling.verdict, ruling.rule.as_deref());
        }
        if let Some(entry) = &self.entry {
            entry.set_ruling(ruling.clone());
        }
        self.learn(|known| known.ruling = Some(ruling));
    }

    /// It is known how far it is trusted.
    pub(super) fn learn_risk(&self, risk: RiskLevel) {
        self.learn(|known| known.risk = Some(risk));
    }

    /// Somebody is asked whether it may run.
    pub(super) fn ask(&self, approval: Asked) {
        self.questions.set_asked(Some(approval));
    }

    /// Nobody is asked any more.
    pub(super) fn forget_question(&self) {
        self.questions.set_asked(None);
    }

    /// What was asked about it, if something was.
    pub fn asked(&self) -> Option<Asked> {
        self.questions.asked()
    }

    /// What was asked about it and nothing is run under.
    pub(super) fn unused_approval(&self) -> Option<Asked> {
        self.questions.unused()
    }

    /// From here on its tool does something, under an approval if it took one.
    pub(super) fn use_approval(&self) {
        self.questions.set_used();
    }

    /// Follows what is asked about it: another question when a hook has changed what was approved.
    pub fn questions(&self) -> watch::Receiver<Option<Asked>> {
        self.questions.follow()
    }

    /// Waits until somebody is asked about it; for good if nobody ever is.
    pub async fn asking(&self) {
        // It lives as long as this does.
        let _ = self.questions().wait_for(Option::is_some).await;
    }

    /// Says whether it waits for an approval; returns the previous value.
    pub(super) fn set_waiting(&self, waits: bool) -> bool {
        self.questions.set_waiting(waits)
    }

    /// Something happened.
    pub(super) fn note(&self, event: Event) {
        if let Some(entry) = &self.entry {
            entry.note(event);
        }
    }

    /// It is left to the next daemon.
    pub(super) fn park(&self) {
        self.questions.park();
        self.questions.set_waiting(true);
    }

    /// Whether it is left to the next daemon.
    pub(super) fn is_parked(&self) -> bool {
        self.questions.is_parked()
    }

    /// It waits for a place to run in, or does not any more.
    pub(super) fn show_queued(&self, queued: bool) {
        self.queued.store(queued, Ordering::Relaxed);
    }

    /// Whether it is yet to be taken from the rates that it concerns, which this settles.
    pub(super) fn charge_once(&self) -> bool {
        !self.charged.swap(true, Ordering::Relaxed)
    }

    /// Waits until it waits for an approval.
    pub(super) async fn waits(&self) {
        self.questions.waiting().await;
    }

    /// When its process was started, if one was.
    pub fn started_at(&self) -> Option<SystemTime> {
        self.live().started_at()
    }

    /// Waits until its process is started; for good if none ever is.
    pub async fn started(&self) {
        let mut live = self.live();
        loop {
            live = tokio::select! {
                biased;
                () = live.started() => return,
                next = live.successor() => next,
            };
        }
    }

    /// Where it stands.
    pub fn status(&self) -> Status {
        match self.finished() {
            Some(finished) => finished.status,
            None if self.questions.is_waiting() => Status::Waiting,
            None if self.queued.load(Ordering::Relaxed) => Status::Queued,
            None => Status::Running,
        }
    }

    /// How it ended, if it has.
    pub fn finished(&self) -> Option<&Arc<Finished>> {
        self.finished.get()
    }

    /// Waits until it has ended. Dropping the future changes nothing.
    pub async fn wait(&self) -> &Arc<Finished> {
        self.finished.wait().await
    }

    /// Waits until it is known how it ended, which is not to be told before it [has](Self::wait): whoever
    /// makes an answer of it can begin with that. Dropping the future changes nothing.
    pub async fn wait_formed(&self) -> &Arc<Finished> {
        self.formed.wait().await
    }

    /// Whether that is known.
    pub fn is_formed(&self) -> bool {
        self.formed.initialized()
    }

    /// Asks it to end, for the first reason that is given, and what comes of it as well.
    pub fn stop(&self, reason: StopReason) {
        // Held, so that no other try begins that has not heard of it.
        self.live.read().stop(reason);
        self.family.stop_children();
    }

    /// The values that somebody is asked about, which its tool will find, but for those that hooks and steps leave for
    /// one another; `None` for a tool that reads none.
    pub(super) fn values_asked_about(&self) -> Option<ScopedValues> {
        let tool = self.tool_found()?;
        // A skill's: other tools have no way to them.
        tool.implementation.made_of()?;
        Some(self.family.ask_about_values())
    }

    /// The values of a scope that all share which came of the same outermost call.
    pub fn values(&self, scope: Scope) -> Map<String, Value> {
        self.family.values(scope)
    }

    /// One of them.
    pub fn value(&self, scope: Scope, name: &str) -> Option<Value> {
        self.family.value(scope, name)
    }

    /// Keeps a value in the place of what had its name.
    ///
    /// # Errors
    /// See [`CannotKeep`].
    pub fn keep_value(
        &self,
        scope: Scope,
        name: &str,
        value: Value,
        max_bytes: usize,
    ) -> Result<(), CannotKeep> {
        let one = Map::from_iter([(name.to_owned(), value)]);
        self.family
            .bring(&ScopedValues::from_iter([(scope, one)]), max_bytes)
    }

    /// Forgets a value, and says whether there was one.
    pub fn forget_value(&self, scope: Scope, name: &str) -> bool {
        self.family.forget(scope, name)
    }

    /// It is not begun after all.
    pub(super) fn refuse(&self) {
        let _ = self.refused.set(());
    }

    /// Waits until it has ended, or is known never to begin.
    pub(super) async fn over(&self) {
        tokio::select! {
            _ = self.finished.wait() => {}
            _ = self.refused.wait() => {}
        }
    }

    /// The tool, once it was found.
    pub(super) fn tool_found(&self) -> Option<Arc<Tool>> {
        self.tool_found.get().cloned()
    }

    /// The tool was found. A hook that changes the call does not change it.
    pub(super) fn learn_tool(&self, tool: &Arc<Tool>) {
        let _ = self.tool_found.set(Arc::clone(tool));
    }

    /// One of its output streams, as far as it is still in memory: what an answer may hold.
    pub fn stream(&self, name: StreamName) -> Arc<Capture> {
        Arc::clone(self.live().stream(name))
    }

    /// One of its output streams as a whole.
    pub fn kept(&self, name: StreamName) -> Kept {
        match self.live().stream(name).kept() {
            // It has gone from there when the answer's text has it.
            Kept::Nowhere => self
                .finished()
                .and_then(|finished| finished.stream(name))
                .unwrap_or(Kept::Nowhere),
            kept @ (Kept::Memory(_) | Kept::File { .. }) => kept,
        }
    }

    /// The stages it has been in, in their order.
    pub fn stages(&self) -> Vec<StageTimes> {
        self.lock_stages().clone()
    }

    /// The stage that is to be named where it failed. Formatting itself never does: it words what
    /// became of the execution.
    pub fn failed_in(&self) -> Option<Stage> {
        let last = self.lock_stages().last().map(|times| times.stage);
        last.map(|stage| stage.min(Stage::Execution))
    }

    /// Begins a stage.
    pub(super) fn enter(&self, stage: Stage) -> InStage<'_> {
        let now = SystemTime::now();
        if let Some(entry) = &self.entry {
            entry.note_at(now, Event::StageStarted { stage });
        }
        self.lock_stages().push(StageTimes {
            stage,
            started_at: now,
            ended_at: None,
        });
        InStage(self)
    }

    fn lock_stages(&self) -> MutexGuard<'_, Vec<StageTimes>> {
        self.stages.lock()
    }

    fn lock_known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    pub(super) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live.read())
    }

    /// Another try is made, whose output takes the place of the last one's.
    pub(super) fn begin_again(&self, fresh: Live) -> Arc<Live> {
        let mut live = self.live.write();
        if let Some(reason) = live.stop_requested().now_or_never() {
            fresh.stop(reason);
        }
        let fresh = live.succeed(fresh);
        *live = Arc::clone(&fresh);
        fresh
    }

    /// It is known how it ended.
    pub(super) fn form(&self, finished: &Arc<Finished>) {
        // Once, by the task that opened it.
        let _ = self.formed.set(Arc::clone(finished));
    }

    /// Closes the record.
    pub(super) fn finish(&self, finished: Arc<Finished>) {
        self.form(&finished);
        // Closed once, by the task that opened it.
        let _ = self.finished.set(finished);
    }
}
