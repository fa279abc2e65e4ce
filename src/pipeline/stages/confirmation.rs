use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tokio::sync::oneshot;

use super::permission::{Judged, Subject, refused_by_tool, settle_risk};
use crate::config::ExecutorConfig;
use crate::domain::{
    ApprovalId, Call, ExecutorError, Judgement, RiskLevel, Status, StopReason, Verdict, timestamp,
};
use crate::ledger::{Approval, ApprovalStatus, Approvals, Ledger, LedgerError, Verdicted};
use crate::pipeline::Execution;
use crate::pipeline::approvals::{denied, lapsed};
use crate::pipeline::event::Event;
use crate::pipeline::executor::Inner;
use crate::pipeline::intent::{Intent, Means};
use crate::pipeline::masking;
use crate::policy::Policy;
use crate::tools::{Context, Resolved, Tool, WorkOf};

/// When a caller might find that fewer wait for an approver.
const FULL_FOR: Duration = Duration::from_secs(60);

/// A call that may run.
pub(super) struct Confirmed {
    pub(super) call: Call,
    pub(super) tool: Arc<Tool>,
    pub(super) resolved: Vec<Resolved>,
    pub(super) risk: RiskLevel,
    /// What the policy lets it write to in the sandbox.
    pub(super) workspace: Option<PathBuf>,
    /// What it runs under: the configuration that it began with, as restricted as when it was let pass.
    pub(super) config: Arc<ExecutorConfig>,
    /// The policy that let it pass.
    policy: Policy,
    /// What an approval was given for, if it took one.
    intent: Option<Intent>,
}

/// Whether there is anybody to be asked, and a ledger to remember the question.
pub(in crate::pipeline) fn can_ask(inner: &Inner, config: &ExecutorConfig) -> bool {
    config.confirmation.has_approvers && inner.ledger.is_some()
}

/// Lets through what the policy allows, and has somebody asked about what it asks about. Where
/// there is nobody to be asked it is refused (silence is
/// never consent).
pub(super) async fn confirm(
    judged: Judged,
    inner: &Inner,
    execution: &Execution,
    context: &Context<'_>,
) -> Result<Confirmed, ExecutorError> {
    let Judged {
        call,
        tool,
        resolved,
        judgement,
        risk,
        policy,
    } = judged;
    if judgement.verdict == Verdict::Allow {
        // One that was taken up again has waited until now.
        execution.set_waiting(false);
        return Ok(Confirmed {
            call,
            tool,
            resolved,
            risk,
            workspace: judgement.workspace,
            config: Arc::clone(&context.config),
            policy,
            intent: None,
        });
    }
    let can_ask = judgement.verdict == Verdict::Ask && context.config.confirmation.has_approvers;
    let Some(ledger) = inner.ledger.as_ref().filter(|_| can_ask) else {
        return Err(ExecutorError::PermissionDenied {
            tool_name: call.tool,
            input_summary: context.summary.clone(),
            judgement: Box::new(judgement),
        });
    };
    if let Some(refused) = refused(&tool, &call, &resolved, execution, context).await? {
        return Err(ExecutorError::PermissionDenied {
            tool_name: call.tool,
            input_summary: context.summary.clone(),
            judgement: Box::new(refused),
        });
    }
    let question = Question {
        inner,
        ledger,
        execution,
        context,
        resolved: &resolved,
    };
    let (call, intent) = question.intend(call).await?;
    if !intent.is_whole() {
        return Err(question.unclear(judgement));
    }
    let place = question.enter()?;
    let approval = question.ask(place.id, judgement, &intent, risk).await?;
    // Not before: what is left to the next daemon has been asked, so that the question ends with it.
    execution.set_waiting(true);
    let approval = question.wait(approval, place).await?;
    let mut confirmed = Confirmed {
        call,
        tool,
        resolved: resolved.clone(),
        risk,
        workspace: None,
        config: context.config.restricted_as(&inner.config()),
        policy: inner.policy(),
        intent: Some(intent.clone()),
    };
    confirmed.judge_again(execution, context).await?;
    confirmed.call = question.use_up(approval, confirmed.call, &intent).await?;
    Ok(confirmed)
}

impl Confirmed {
    /// Holds it against its configuration and its policy. What these deny no approval outweighs, nor does one
    /// make trusted what is not by now; what the policy asks about takes one.
    async fn judge_again(
        &mut self,
        execution: &Execution,
        context: &Context<'_>,
    ) -> Result<(), ExecutorError> {
        if !self.tool.is_enabled(&self.config) {
            return Err(ExecutorError::ToolDisabled {
                tool_name: self.call.tool.clone(),
                input_summary: context.summary.clone(),
            });
        }
        let subject = Subject {
            caller: execution.caller.clone(),
            chain: execution.family.chain(),
            default_dir: context.config.working_dir.clone(),
            shell: context.config.shell.clone(),
        };
        let mut now = subject
            .judged(&self.call, &self.resolved, &self.policy)
            .await;
        if now.verdict == Verdict::Ask && self.intent.is_none() {
            now.verdict = Verdict::Deny;
            let is_anybody = context.config.confirmation.has_approvers;
            now.suggest = is_anybody.then(|| {
                "call it again (under another `Idempotency-Key`, if it has one), and somebody is asked"
                    .to_owned()
            });
            now.reason = format!("the policy was changed meanwhile: {}", now.reason);
        }
        if now.verdict == Verdict::Deny {
            execution.learn_ruling(&now);
            return Err(ExecutorError::PermissionDenied {
                tool_name: self.call.tool.clone(),
                input_summary: context.summary.clone(),
                judgement: Box::new(now),
            });
        }
        let (call, tool) = (&self.call, &self.tool);
        self.risk = settle_risk(self.risk, call, tool, &now, execution, &self.config)?;
        self.workspace = now.workspace;
        Ok(())
    }
}

/// Whether what was let pass is still what would run, and passes by now: looked at last of all, for the ledger,
/// hooks and the queue have taken their time.
pub(super) async fn still_holds(
    mut confirmed: Confirmed,
    inner: &Inner,
    execution: &Execution,
    context: &Context<'_>,
) -> Result<Confirmed, ExecutorError> {
    let policy = inner.policy();
    let config = confirmed.config.restricted_as(&inner.config());
    if !policy.is(&confirmed.policy) || !Arc::ptr_eq(&config, &confirmed.config) {
        confirmed.policy = policy;
        confirmed.config = config;
        confirmed.judge_again(execution, context).await?;
    }
    let Some(approved) = &confirmed.intent else {
        return Ok(confirmed);
    };
    let intended = intend(confirmed.call, &confirmed.resolved, execution, context);
    let (call, now) = intended.await?;
    if now != *approved {
        return Err(ExecutorError::ApprovalStale {
            tool_name: execution.tool.clone(),
            input_summary: context.summary.clone(),
            changed: now.difference(approved),
        });
    }
    confirmed.call = call;
    Ok(confirmed)
}

/// What the tool itself says of a call that it will refuse in any case.
async fn refused(
    tool: &Arc<Tool>,
    call: &Call,
    resolved: &[Resolved],
    execution: &Execution,
    context: &Context<'_>,
) -> Result<Option<Judgement>, ExecutorError> {
    let (caller, config) = (&execution.caller, &context.config);
    match refused_by_tool(tool, call, resolved, caller, config) {
        Some(look) => context.look(WorkOf::call(call), look).await,
        None => Ok(None),
    }
}

/// What would run, and the call that says so.
async fn intend(
    call: Call,
    resolved: &[Resolved],
    execution: &Execution,
    context: &Context<'_>,
) -> Result<(Call, Intent), ExecutorError> {
    let means = Means {
        tool: execution.tool_found(),
        paths: resolved.iter().map(|path| path.real.clone()).collect(),
        values: execution.values_asked_about(),
    };
    let (caller, config) = (execution.caller.clone(), Arc::clone(&context.config));
    let of = WorkOf {
        tool: &execution.tool,
        timeout: call.options.timeout,
    };
    let look = move || {
        let intent = Intent::of(&call, &caller, &config, &means);
        (call, intent)
    };
    context.look(of, look).await
}

/// One question, and all that it takes to have it answered.
struct Question<'a> {
    inner: &'a Inner,
    ledger: &'a Ledger,
    execution: &'a Execution,
    context: &'a Context<'a>,
    /// Where the paths of the call lead.
    resolved: &'a [Resolved],
}

/// That an execution waits for an answer, for as long as this lives.
struct Place<'a> {
    inner: &'a Inner,
    execution: &'a Execution,
    id: ApprovalId,
    told: oneshot::Receiver<Approval>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.execution.set_waiting(false);
        self.inner.waiters.leave(self.id);
    }
}

impl Question<'_> {
    /// What is refused because nobody could say what they approve.
    fn unclear(&self, judgement: Judgement) -> ExecutorError {
        let judgement = Judgement {
            verdict: Verdict::Deny,
            reason: "it would have to be approved, and has too many words, or names too many directories, to tell on which files it depends".to_owned(),
            suggest: Some("make several calls of it".to_owned()),
            ..judgement
        };
        ExecutorError::PermissionDenied {
            tool_name: self.execution.tool.clone(),
            input_summary: self.context.summary.clone(),
            judgement: Box::new(judgement),
        }
    }

    /// Subscribes to the answer, before anybody can give it.
    fn enter(&self) -> Result<Place<'_>, ExecutorError> {
        let Self {
            inner, execution, ..
        } = *self;
        let confirmation = &self.context.config.confirmation;
        // One that was asked before a restart has had its place since.
        let (id, max) = execution.asked().map_or_else(
            || (ApprovalId::new(), confirmation.pending_max as usize),
            |asked| (asked.id, usize::MAX),
        );
        let Some(told) = inner.waiters.enter(id, max) else {
            return Err(ExecutorError::QueueFull {
                tool_name: execution.tool.clone(),
                input_summary: self.context.summary.clone(),
                detail: format!(
                    "it would have to be approved, and {max} calls wait for that already, which is as many as may (`pending_max` in [confirmation] of executor.toml): have them decided, or call it again later"
                ),
                // Whoever waits for an answer waits so long; how soon people decide nobody knows.
                retry_after: confirmation.timeout.min(FULL_FOR),
            });
        };
        Ok(Place {
            inner,
            execution,
            id,
            told,
        })
    }

    async fn intend(&self, call: Call) -> Result<(Call, Intent), ExecutorError> {
        intend(call, self.resolved, self.execution, self.context).await
    }

    /// Asks, unless that was done before the daemon was started anew.
    async fn ask(
        &self,
        id: ApprovalId,
        judgement: Judgement,
        intent: &Intent,
        risk: RiskLevel,
    ) -> Result<Approval, ExecutorError> {
        let execution = self.execution;
        if let Some(asked) = execution.asked() {
            return Ok(Approval::clone(&asked));
        }
        let confirmation = &self.context.config.confirmation;
        let patience = if execution.terms.asynchronous {
            confirmation.async_timeout
        } else {
            confirmation.timeout
        };
        let now = SystemTime::now();
        // As it is shown, secrets masked.
        let shown = execution.call();
        let mut judgement = judgement;
        masking::mask_judgement(&mut judgement, &shown, &execution.secrets);
        let values = execution.values_asked_about().unwrap_or_default();
        let mut values = json!(values);
        execution.secrets.mask_value(&mut values);
        let approval = Approval {
            id,
            execution_id: execution.id,
            tool: execution.tool.clone(),
            tool_version: intent.version().to_owned(),
            chain: execution.family.chain(),
            input: shown.input.clone(),
            working_dir: shown
                .working_dir
                .clone()
                .or_else(|| self.context.config.working_dir.clone()),
            env_names: shown.env.keys().cloned().collect(),
            stdin: shown.stdin.clone(),
            timeout: shown.timeout,
            keeps_background: shown.keeps_background,
            risk_level: risk,
            workspace: shown.workspace.clone(),
            context: values,
            caller_uid: execution.caller.uid,
            digest: intent.digest(),
            created_at: now,
            expires_at: now + patience,
            status: ApprovalStatus::Pending,
            decided: None,
            remember: None,
            remember_rules: judgement.remember_rules,
        };
        // The execution first: an approval is one of an execution that is on record.
        if let Some(entry) = &execution.entry {
            entry.set_status(Status::Waiting);
            drop(entry.write(execution));
        }
        let asked = self.ledger.ask_approval(approval.clone()).await;
        asked.map_err(|error| self.unrecorded(&error))?;
        // Only now: whoever hears of it asks for it at once.
        if let Some(entry) = &execution.entry {
            entry.note(Event::ConfirmationRequired {
                approval_id: approval.id,
                summary: self.context.summary.clone(),
                expires_at: timestamp(approval.expires_at),
            });
            drop(entry.write(execution));
        }
        execution.ask(Arc::new(approval.clone()));
        Ok(approval)
    }

    /// Waits for the answer, a stop, or the end of patience, whichever is first on record.
    async fn wait(
        &self,
        approval: Approval,
        mut place: Place<'_>,
    ) -> Result<Approval, ExecutorError> {
        let id = approval.id;
        // It may have been given before anybody was here to be told.
        let now = self.ledger.approvals(Approvals::One(id)).await;
        let now = now.map_err(|error| self.unrecorded(&error))?.pop();
        if let Some(decided) = now.filter(|now| now.status != ApprovalStatus::Pending) {
            drop(place);
            return self.read(decided);
        }
        let ended = tokio::select! {
            told = &mut place.told => Ended::Told(told.ok().map(Box::new)),
            () = reached(approval.expires_at) => Ended::Expired,
            reason = self.context.live.stop_requested() => Ended::Stopped(reason),
            () = self.inner.unanswered(self.execution) => Ended::Stopped(StopReason::Shutdown),
        };
        drop(place);
        let settled = match ended {
            Ended::Told(Some(approval)) => return self.read(*approval),
            Ended::Told(None) | Ended::Expired => {
                self.inner.settle(id, ApprovalStatus::Expired).await
            }
            Ended::Stopped(reason) => {
                let settled = self.inner.settle(id, ApprovalStatus::Withdrawn).await;
                // Somebody may have answered in the last moment.
                match settled.ok().flatten() {
                    Some(settled) => self.note(&settled),
                    None => self.note_decided(id, ApprovalStatus::Withdrawn, None),
                }
                return Err(self.execution.stopped(reason));
            }
        };
        // Somebody may have answered in the last moment.
        let settled = settled.map_err(|error| self.unrecorded(&error))?;
        self.read(settled.unwrap_or(approval))
    }

    /// What an answer means.
    fn read(&self, approval: Approval) -> Result<Approval, ExecutorError> {
        self.note(&approval);
        match approval.status {
            ApprovalStatus::Approved => Ok(approval),
            ApprovalStatus::Denied | ApprovalStatus::Withdrawn => {
                Err(denied(self.execution, &approval))
            }
            ApprovalStatus::Pending | ApprovalStatus::Expired | ApprovalStatus::Used => {
                Err(lapsed(self.execution, &approval))
            }
        }
    }

    /// Uses the approval up, once, if what would run now is what it was given for.
    async fn use_up(
        &self,
        approval: Approval,
        call: Call,
        asked_about: &Intent,
    ) -> Result<Call, ExecutorError> {
        let execution = self.execution;
        if let Some(entry) = &execution.entry {
            entry.set_status(Status::Running);
        }
        let (call, intent) = self.intend(call).await?;
        let used = self.ledger.use_approval(approval.id, intent.digest()).await;
        match used.map_err(|error| self.unrecorded(&error))? {
            Verdicted::Done(approval) => {
                let by = approval.decided.as_ref().and_then(|decided| decided.by);
                execution.learn(|known| known.approved = by.map(|by| (approval.id, by)));
                Ok(call)
            }
            Verdicted::TooLate(_) | Verdicted::Unknown => Err(ExecutorError::ApprovalStale {
                tool_name: execution.tool.clone(),
                input_summary: self.context.summary.clone(),
                changed: intent.difference(asked_about),
            }),
        }
    }

    /// Something became of the question.
    fn note(&self, approval: &Approval) {
        match approval.status {
            ApprovalStatus::Approved | ApprovalStatus::Denied | ApprovalStatus::Withdrawn => {
                let by = approval.decided.as_ref().and_then(|decided| decided.by);
                self.note_decided(approval.id, approval.status, by);
            }
            ApprovalStatus::Pending | ApprovalStatus::Expired | ApprovalStatus::Used => {
                self.execution.note(Event::ConfirmationExpired {
                    approval_id: approval.id,
                });
            }
        }
    }

    fn note_decided(&self, approval_id: ApprovalId, decision: ApprovalStatus, by: Option<u32>) {
        self.execution.note(Event::ConfirmationDecided {
            approval_id,
            decision: decision.as_str().to_owned(),
            by,
        });
    }

    fn unrecorded(&self, error: &LedgerError) -> ExecutorError {
        ExecutorError::AuditUnavailable {
            tool_name: self.execution.tool.clone(),
            input_summary: self.context.summary.clone(),
            detail: format!(
                "what somebody is asked about is put on record, whatever `audit` says: {error}"
            ),
        }
    }
}

/// Completes at that time, soon after at the latest where the clock is set or the machine was suspended: timers know of
/// neither.
async fn reached(time: SystemTime) {
    /// How long it is believed that the clock goes as timers do.
    const LOOK: Duration = Duration::from_secs(10);
    while let Ok(left) = time.duration_since(SystemTime::now()) {
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

/// How the wait ended.
enum Ended {
    /// Somebody answered.
    Told(Option<Box<Approval>>),
    /// Nobody did in time.
    Expired,
    /// Nobody waits for the answer any more.
    Stopped(StopReason),
}
