//! An execution's life: begun, recorded, taken through the stages, closed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::calls::{CallsOf, token_for};
use super::entry::Entry;
use super::event::Event;
use super::execution::{Birth, Execution, Terms};
use super::executor::Inner;
use super::family::Family;
use super::parking::Phase;
use super::running::One;
use super::values::SharedValues;
use super::{CallRecord, CannotKeep, Record, masking, stages};
use crate::config::{Audit, ExecutorConfig};
use crate::domain::{
    Call, Caller, Degradation, ExecutionId, ExecutorError, RiskLevel, Secrets, StopReason,
    ToolOutput,
};
use crate::ledger::{Claim, Idempotency, Ledger};
use crate::runner::Live;
use crate::tools::Context;

/// Where an execution comes from.
pub(super) struct Origin {
    pub(super) id: ExecutionId,
    pub(super) created_at: SystemTime,
    pub(super) terms: Terms,
    pub(super) family: Family,
}

impl Origin {
    /// A call that has just come in.
    pub(super) fn now(terms: Terms, family: Family) -> Self {
        Self {
            id: ExecutionId::new(),
            created_at: SystemTime::now(),
            terms,
            family,
        }
    }
}

/// What came of the wish to begin an execution.
#[derive(Debug)]
pub enum Begun {
    /// It is under way.
    New(Arc<Execution>),
    /// Its key is that of the same call, which has ended so.
    Repeated(Box<Record>),
    /// Its key is that of the same call, which is under way.
    InProgress(ExecutionId),
    /// Its key is that of another call.
    OtherCall(ExecutionId),
    /// It cannot be recorded, and may not run without.
    Unrecorded(Degradation),
    /// It may have run under its key, or has: what became of it cannot be looked up.
    Unknown(Degradation),
    /// What it would have been a part of is over.
    TooLate,
    /// It brings more values along than are kept.
    TooMuch(CannotKeep),
}

impl Inner {
    /// An execution of `call`, not yet known to anybody.
    pub(super) fn conceive(
        &self,
        call: &Call,
        caller: Caller,
        config: &ExecutorConfig,
        origin: Origin,
    ) -> Execution {
        let Origin {
            id,
            created_at,
            terms,
            family,
        } = origin;
        let token = token_for(call, family.registry());
        let mut secrets = masking::secrets(call, config);
        let tokens = family.tokens();
        let inherited = family.share_secrets(masking::marked(call, config));
        let all = token.iter().chain(&tokens).chain(&inherited);
        all.for_each(|secret| secrets.add(secret));
        let secrets = Arc::new(secrets);
        let live = self.live_for(id, config, &secrets);
        let summary = self.summary(call, &secrets);
        let mut execution = Execution::new(Birth {
            id,
            tool: secrets.mask_text(&call.tool),
            live,
            call: Arc::new(CallRecord::new(call, &summary, &secrets).of(&caller)),
            caller,
            secrets,
            created_at,
            family,
        });
        execution.token = token;
        execution.tool_use_id = call.tool_use_id.clone();
        execution.correlation = masking::correlation(call, &execution.secrets);
        execution.timed = config.metrics;
        execution.metrics = self.metrics.clone().filter(|_| config.metrics);
        let correlation = &execution.correlation;
        let entry = |ledger| Entry::new(ledger, correlation.clone());
        execution.entry = self.ledger.clone().map(entry);
        execution.terms = terms;
        execution
    }

    /// Begins an execution in a task of its own, and returns what came of the wish.
    pub(super) async fn begin(
        self: Arc<Self>,
        execution: Arc<Execution>,
        call: Call,
        config: Arc<ExecutorConfig>,
    ) -> Begun {
        // The end of the daemon waits for it from here on.
        let one = self.running.enter();
        // Where nothing has to be waited for, whoever asks may as well do it: a future that never rests is
        // never dropped half-way.
        if execution.terms.is_simple() {
            if let Err(refused) = self.open(&execution, &config).await {
                return refused;
            }
            let begun = Begun::New(Arc::clone(&execution));
            tokio::spawn(async move { self.go_on(&execution, call, config, one).await });
            return begun;
        }
        let (tell, begun) = oneshot::channel();
        tokio::spawn(self.live(execution, call, config, one, tell));
        begun.await.unwrap_or_else(|_| {
            Begun::Unrecorded(Degradation {
                code: "internal",
                detail: "the execution's task was lost; the log says where".to_owned(),
                source: String::new(),
            })
        })
    }

    /// Lives an execution through, and tells `begun` as soon as it is known what comes of it.
    async fn live(
        self: Arc<Self>,
        execution: Arc<Execution>,
        call: Call,
        config: Arc<ExecutorConfig>,
        one: One,
        begun: oneshot::Sender<Begun>,
    ) {
        // Whoever asked may have gone.
        match self.open(&execution, &config).await {
            Ok(()) => {
                let _ = begun.send(Begun::New(Arc::clone(&execution)));
                self.go_on(&execution, call, config, one).await;
            }
            Err(refused) => drop(begun.send(refused)),
        }
    }

    /// Puts it among those that run, if it may begin.
    async fn open(
        self: &Arc<Self>,
        execution: &Arc<Execution>,
        config: &ExecutorConfig,
    ) -> Result<(), Begun> {
        if let Err(refused) = self.admit(execution, config).await {
            execution.refuse();
            self.take_back(execution, &refused).await;
            return Err(refused);
        }
        self.records.open(Arc::clone(execution));
        if *self.phase.borrow() == Phase::Stopping {
            execution.stop(StopReason::Shutdown);
        }
        Ok(())
    }

    /// Ends what is begun in the ledger, or will be as soon as that can be written, and may not run.
    async fn take_back(self: &Arc<Self>, execution: &Arc<Execution>, refused: &Begun) {
        let entered = execution.entry.as_ref().filter(|entry| entry.is_open());
        if let (Some(_), Begun::Unrecorded(problem)) = (entered, refused) {
            let refused = ExecutorError::AuditUnavailable {
                tool_name: execution.tool.clone(),
                input_summary: execution.summary(),
                detail: problem.detail.clone(),
            };
            self.close(execution, Err(refused)).await;
        }
    }

    /// Takes an execution that is on record from its first stage to its end.
    pub(super) async fn go_on(
        self: &Arc<Self>,
        execution: &Arc<Execution>,
        call: Call,
        config: Arc<ExecutorConfig>,
        _one: One,
    ) {
        tokio::select! {
            biased;
            result = self.perform(execution, call, config) => {
                let asked = execution.unused_approval();
                self.withdraw(execution).await;
                if let (Err(ExecutorError::ApprovalStale { .. }), Some(asked)) = (&result, asked) {
                    self.forget_remembered(asked.id).await;
                }
                self.close(execution, result).await;
            }
            // It stays on record as waiting, for the next daemon, though nobody is asked here any more.
            () = self.parked(execution) => {
                execution.park();
                tokio::spawn(Arc::clone(self).end_if_cancelled(Arc::clone(execution)));
            }
        }
    }

    /// Whether it may begin, and under a key whether it is the first.
    async fn admit(&self, execution: &Execution, config: &ExecutorConfig) -> Result<(), Begun> {
        let Some(entry) = &execution.entry else {
            return Ok(());
        };
        let idempotency = execution.terms.idempotency.as_ref();
        // A key in a file that is gone is forgotten when the daemon ends.
        let refuses = |ledger: &&Ledger| {
            config.audit == Audit::Required || idempotency.is_some() && ledger.is_gone()
        };
        let ledger = self.ledger.as_ref().filter(refuses);
        if let Some(problem) = ledger.and_then(Ledger::problem) {
            return Err(match idempotency {
                Some(idempotency) => self.unclaimed(execution, idempotency, problem).await,
                None => Begun::Unrecorded(problem),
            });
        }
        let summary = execution.summary();
        if let Some(lineage) = execution.family.lineage() {
            entry.note(Event::skill_call(execution, lineage));
        }
        entry.note(Event::ExecutionStarted { summary });
        let is_asynchronous = execution.terms.asynchronous;
        if let Some(idempotency) = execution.terms.idempotency.clone() {
            self.claim(entry, execution, idempotency).await?;
            // It is on record. What has happened by now comes behind that, soon where others follow it.
            if is_asynchronous {
                drop(entry.write(execution));
            }
        } else if is_asynchronous && let Some(receipt) = entry.write(execution) {
            // Its id is the answer: it must not be forgotten by a crash.
            let entered = receipt.await;
            if let (Err(error), Audit::Required) = (entered, config.audit) {
                return Err(Begun::Unrecorded(unrecorded(&error)));
            }
        }
        Ok(())
    }

    /// Enters it under its key, if it is the first to run under that.
    async fn claim(
        &self,
        entry: &Entry,
        execution: &Execution,
        idempotency: Idempotency,
    ) -> Result<(), Begun> {
        loop {
            let claim = match entry.claim(execution, idempotency.clone()).await {
                Ok(claim) => claim,
                Err(error) => {
                    let problem = unrecorded(&error);
                    return Err(self.unclaimed(execution, &idempotency, problem).await);
                }
            };
            let id = match claim {
                Claim::New => {
                    entry.adopt();
                    return Ok(());
                }
                Claim::InProgress(id) => return Err(Begun::InProgress(id)),
                Claim::Conflict(id) => return Err(Begun::OtherCall(id)),
                Claim::Finished(id) => id,
            };
            let record = match self.recall(id).await {
                Ok(Some(record)) => record,
                // Forgotten in between, and its key with it.
                Ok(None) => continue,
                Err(error) => return Err(Begun::Unknown(unrecorded(&error))),
            };
            if !record.is_good_for_another_try() {
                return Err(Begun::Repeated(Box::new(record)));
            }
            // Nothing ran, and it was told to come again.
            let released = entry.release_key(id).await;
            released.map_err(|error| Begun::Unrecorded(unrecorded(&error)))?;
        }
    }

    /// What is told where a key cannot be claimed for that `problem`: what it is the key of can be read all the same,
    /// mostly, and without that nobody can say that nothing has run under it.
    async fn unclaimed(
        &self,
        execution: &Execution,
        idempotency: &Idempotency,
        problem: Degradation,
    ) -> Begun {
        let Some(ledger) = &self.ledger else {
            return Begun::Unrecorded(problem);
        };
        let holder = ledger.holder(execution.caller.uid, idempotency.clone());
        let id = match holder.await {
            Ok(None | Some(Claim::New)) => return Begun::Unrecorded(problem),
            Ok(Some(Claim::InProgress(id))) => {
                // Its end may be known here, and on its way into the file.
                let known = self.records.find(id).map(|execution| execution.record());
                let ended = known.filter(|record| record.finished.is_some());
                return match ended {
                    Some(record) if record.is_good_for_another_try() => Begun::Unrecorded(problem),
                    Some(record) => Begun::Repeated(Box::new(record)),
                    None => Begun::InProgress(id),
                };
            }
            Ok(Some(Claim::Conflict(id))) => return Begun::OtherCall(id),
            Ok(Some(Claim::Finished(id))) => id,
            Err(error) => return Begun::Unknown(unrecorded(&error)),
        };
        match self.recall(id).await {
            Ok(Some(record)) if !record.is_good_for_another_try() => {
                Begun::Repeated(Box::new(record))
            }
            Ok(_) => Begun::Unrecorded(problem),
            Err(error) => Begun::Unknown(unrecorded(&error)),
        }
    }

    /// Takes it through the stages. A panic in one costs its own execution, not the record of it.
    pub(super) async fn perform(
        self: &Arc<Self>,
        execution: &Arc<Execution>,
        call: Call,
        config: Arc<ExecutorConfig>,
    ) -> Result<ToolOutput, ExecutorError> {
        let secrets = &execution.secrets;
        // Its beginning is in the log already.
        if execution.terms.asynchronous {
            self.hurry(execution);
        }
        let walk = stages::walk(call, self, &config, execution);
        let result = AssertUnwindSafe(walk).catch_unwind().await;
        execution.family.end_children().await;
        self.runner.end_kept_for(execution.id).await;
        execution.live().end_streams();
        let mut result = result.unwrap_or_else(|_| {
            Err(ExecutorError::Internal {
                tool_name: execution.tool.clone(),
                input_summary: execution.summary(),
                detail: "it panicked; the log says where".to_owned(),
                source: None,
            })
        });
        masking::mask(&mut result, secrets);
        result
    }

    /// Has an execution that has begun in the ledger's log entered soon, if it does not end before.
    pub(super) fn hurry(&self, execution: &Execution) {
        if let (Some(_), Some(ledger)) = (&execution.entry, &self.ledger) {
            self.hurry.expect(ledger, execution.id);
        }
    }

    /// Where the output of an execution goes.
    pub(super) fn live_for(
        &self,
        id: ExecutionId,
        config: &ExecutorConfig,
        secrets: &Arc<Secrets>,
    ) -> Live {
        let (cap, truncate) = (config.max_output_bytes, config.truncate);
        Live::new(id, cap, truncate, self.spool.as_ref(), secrets)
    }

    /// What a tool has to work with.
    pub(super) fn context<'a>(
        self: &'a Arc<Self>,
        execution: &Arc<Execution>,
        config: &Arc<ExecutorConfig>,
    ) -> Context<'a> {
        Context {
            id: execution.id,
            parent: execution.family.lineage().map(|lineage| lineage.parent),
            config: Arc::clone(config),
            risk: RiskLevel::Trusted,
            granted: None,
            runner: &self.runner,
            sandbox: &self.sandbox,
            caller: execution.caller.clone(),
            live: execution.live(),
            span: self.spans.is_on().then(|| execution.span_context()),
            summary: execution.summary(),
            resolved: Vec::new(),
            places: self.places.clone(),
            calls: Arc::new(CallsOf {
                inner: Arc::clone(self),
                execution: Arc::clone(execution),
            }),
        }
    }

    /// The family that a call from outside founds. Values of which there are too many were refused
    /// before it was one; those of an old record are left out then.
    pub(super) fn found(&self, call: &Call, uid: u32, config: &ExecutorConfig) -> Family {
        self.try_found(call, uid, config)
            .unwrap_or_else(|_| Family::founded(SharedValues::default(), self.registry()))
    }

    /// As [`Self::found`], but refuses a call that brings too many values.
    ///
    /// # Errors
    /// When the call brings too much along.
    pub(super) fn try_found(
        &self,
        call: &Call,
        uid: u32,
        config: &ExecutorConfig,
    ) -> Result<Family, CannotKeep> {
        let options = &call.options;
        if options.session_id.is_none() && options.values.is_empty() {
            return Ok(Family::founded(SharedValues::default(), self.registry()));
        }
        let session = options.session_id.as_ref();
        let session = session.map(|id| self.sessions.of(uid, id));
        let max_bytes = config.skills.max_context_bytes;
        let values = SharedValues::new(&options.values, session.unwrap_or_default(), max_bytes)?;
        Ok(Family::founded(values, self.registry()))
    }

    /// A call's input in a line, without secrets.
    pub(super) fn summary(&self, call: &Call, secrets: &Secrets) -> String {
        let subject = self.registry().find(&call.tool, None).map_or_else(
            || call.input.to_string(),
            |tool| tool.implementation.subject(&call.input),
        );
        secrets.summarize(&subject)
    }
}

fn unrecorded(error: &crate::ledger::LedgerError) -> Degradation {
    Degradation {
        code: "ledger_failed",
        detail: error.to_string(),
        source: String::new(),
    }
}
