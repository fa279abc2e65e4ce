//! What waits for somebody's word: asked, decided, remembered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::execution::Execution;
use super::executor::{Executor, Inner};
use super::masking;
use crate::config::{remove_remembered, write_remembered};
use crate::domain::{ApprovalId, Call, Caller, ExecutorError, Remember, mask_secrets};
use crate::ledger::{Approval, ApprovalStatus, Approvals, Decision, LedgerError, Verdicted};
use crate::policy::{Policy, PolicyError, Remembered, Source};
use crate::runner::beside;

/// Those who wait, each for the decision on one approval.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<HashMap<ApprovalId, oneshot::Sender<Approval>>>);

impl Waiters {
    /// Waits for what is decided on `id`, unless `max` wait already.
    pub(super) fn enter(&self, id: ApprovalId, max: usize) -> Option<oneshot::Receiver<Approval>> {
        let mut waiters = self.lock();
        if waiters.len() >= max {
            return None;
        }
        let (tell, told) = oneshot::channel();
        waiters.insert(id, tell);
        Some(told)
    }

    pub(super) fn leave(&self, id: ApprovalId) {
        self.lock().remove(&id);
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    fn tell(&self, approval: &Approval) {
        let waiter = self.lock().remove(&approval.id);
        if let Some(waiter) = waiter {
            // It may have given up meanwhile.
            let _ = waiter.send(approval.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ApprovalId, oneshot::Sender<Approval>>> {
        self.0.lock()
    }
}

/// An answer to the question whether something may run.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether it may.
    pub approves: bool,
    /// Why.
    pub reason: Option<String>,
    /// How long the answer is to be remembered.
    pub remember: Remember,
}

/// Why an answer does not count.
#[derive(Debug, thiserror::Error)]
pub enum CannotDecide {
    /// Nobody asks that.
    #[error("there is no approval `{0}`")]
    Unknown(ApprovalId),
    /// It has been answered, or nobody waits for it any more.
    #[error("approval `{}` is {} already", .0.id, .0.status.as_str())]
    Decided(Box<Approval>),
    /// Nobody approves their own calls.
    #[error(
        "uid {uid} asked for this itself: another approver has to decide, or an operator sets `self_approval` in [confirmation] of executor.toml"
    )]
    Own {
        /// Who asked.
        uid: u32,
    },
    /// There is nothing that could be remembered.
    #[error(
        "`remember`: there are no rules that would let exactly this pass again, or too many, so that it can only be approved once"
    )]
    NotRememberable,
    /// A refusal is not remembered.
    #[error(
        "`remember`: a refusal is for this call: write a `deny` rule into policy.toml for more"
    )]
    RefusalRemembered,
    /// It is decided and yet not remembered.
    #[error("it is approved, but cannot be remembered: {0}")]
    NotRemembered(String),
    /// The ledger cannot be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Inner {
    /// Closes an approval as expired or withdrawn on the execution's behalf, and returns it as it then stands.
    pub(super) async fn settle(
        &self,
        id: ApprovalId,
        status: ApprovalStatus,
    ) -> Result<Option<Approval>, LedgerError> {
        let Some(ledger) = &self.ledger else {
            return Ok(None);
        };
        let decision = Decision {
            id,
            status,
            by: None,
            reason: None,
            remember: None,
            at: SystemTime::now(),
        };
        Ok(match ledger.decide(decision).await? {
            Verdicted::Done(approval) | Verdicted::TooLate(approval) => Some(*approval),
            Verdicted::Unknown => None,
        })
    }
}

impl Inner {
    /// Takes back what an approval has left behind that was given for something else than would have run.
    pub(super) async fn forget_remembered(&self, id: ApprovalId) {
        let _alone = self.amending.lock().await;
        let policy = self.policy();
        if policy.remembered().all(|one| one.approval != id) {
            return;
        }
        self.set_policy(policy.without_remembered(id));
        tracing::info!(approval = %id, "what was approved has changed before it ran: it is not remembered");
        let dir = self.config().remembered_dir.clone();
        let removed = beside(move || dir.map_or(Ok(()), |dir| remove_remembered(&dir, id)));
        if let Err(error) = removed.await {
            tracing::error!(%error, approval = %id, "cannot remove what an approval has left behind: it counts again from the next reload on");
        }
    }
}

impl Executor {
    /// Approvals, oldest first, each as what `of` makes of it beside the event loop: what they ask about may be long.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn approvals<T: Send + 'static>(
        &self,
        which: Approvals,
        of: impl Fn(Approval) -> T + Send + 'static,
    ) -> Result<Vec<T>, LedgerError> {
        match &self.inner.ledger {
            Some(ledger) => ledger.approvals_as(which, of).await,
            None => Ok(Vec::new()),
        }
    }

    /// What an approval is about, in a line.
    pub fn summary_of(&self, approval: &Approval) -> String {
        let call = Call::new(approval.tool.clone(), approval.input.clone());
        let secrets = masking::secrets(&call, &self.config());
        self.inner.summary(&call, &secrets)
    }

    /// Answers the question whether something may run. Whether `by` may answer at all is for who
    /// calls this to know. To be polled to its end: of an answer that is on file already, whoever waits would not be told.
    ///
    /// # Errors
    /// See [`CannotDecide`].
    pub async fn decide(
        &self,
        id: ApprovalId,
        by: &Caller,
        answer: Answer,
    ) -> Result<Approval, CannotDecide> {
        let Some(ledger) = &self.inner.ledger else {
            return Err(CannotDecide::Unknown(id));
        };
        let mut found = ledger.approvals(Approvals::One(id)).await?;
        let asked = found.pop().ok_or(CannotDecide::Unknown(id))?;
        if asked.status != ApprovalStatus::Pending {
            return Err(CannotDecide::Decided(Box::new(asked)));
        }
        let is_own = asked.caller_uid == by.uid;
        if is_own && answer.approves && !self.config().confirmation.self_approval {
            return Err(CannotDecide::Own { uid: by.uid });
        }
        match (answer.approves, answer.remember) {
            (_, Remember::Once) => {}
            (false, Remember::Session | Remember::Always) => {
                return Err(CannotDecide::RefusalRemembered);
            }
            (true, Remember::Session | Remember::Always) if asked.remember_rules.is_empty() => {
                return Err(CannotDecide::NotRememberable);
            }
            (true, Remember::Session | Remember::Always) => {}
        }
        let call = Call::new(asked.tool.clone(), asked.input.clone());
        let secrets = masking::secrets(&call, &self.config());
        let decision = Decision {
            id,
            status: if answer.approves {
                ApprovalStatus::Approved
            } else {
                ApprovalStatus::Denied
            },
            by: Some(by.uid),
            // It is kept for good, in the audit trail.
            reason: answer
                .reason
                .map(|reason| secrets.mask_text(&mask_secrets(&reason))),
            remember: Some(answer.remember.as_str().to_owned()),
            at: SystemTime::now(),
        };
        let approval = match ledger.decide(decision).await? {
            Verdicted::Done(approval) => *approval,
            Verdicted::TooLate(approval) => {
                return Err(CannotDecide::Decided(
                    self.expire_if_pending(approval).await?,
                ));
            }
            Verdicted::Unknown => return Err(CannotDecide::Unknown(id)),
        };
        // First of all: to remember it waits for the disk, and for whoever changes the policy.
        self.inner.waiters.tell(&approval);
        let remembered = self.remember(&approval, by, answer.remember).await;
        remembered.map(|()| approval)
    }

    /// An approval that a decision came too late for. If it is only past its time it is marked expired now: who waits
    /// for it has not noticed yet.
    async fn expire_if_pending(
        &self,
        approval: Box<Approval>,
    ) -> Result<Box<Approval>, LedgerError> {
        if approval.status != ApprovalStatus::Pending {
            return Ok(approval);
        }
        let settled = self
            .inner
            .settle(approval.id, ApprovalStatus::Expired)
            .await?;
        let settled = settled.map_or(approval, Box::new);
        self.inner.waiters.tell(&settled);
        Ok(settled)
    }

    /// Lets calls like this pass from now on. The decision stands whatever becomes of that.
    async fn remember(
        &self,
        approval: &Approval,
        by: &Caller,
        remember: Remember,
    ) -> Result<(), CannotDecide> {
        if remember == Remember::Once {
            return Ok(());
        }
        let rules: Vec<Remembered> = approval
            .remember_rules
            .iter()
            .map(|rule| Remembered {
                rule: rule.clone(),
                uid: approval.caller_uid,
                called_by: approval.chain.last().cloned(),
                approval: approval.id,
                approved_by: by.uid,
                at: SystemTime::now(),
                source: None,
            })
            .collect();
        let amendment = self.amend_policy().await;
        let remembered = async {
            self.require_given(approval.id).await?;
            match remember {
                Remember::Session | Remember::Once => amendment.remember_for_session(&rules),
                Remember::Always => amendment.remember_for_good(approval.id, &rules).await,
            }
        };
        remembered.await.map_err(CannotDecide::NotRemembered)
    }

    /// Whether an approval is given still: who waits may have found meanwhile that something else would run.
    async fn require_given(&self, id: ApprovalId) -> Result<(), String> {
        let ledger = self.inner.ledger.as_ref().ok_or("there is no ledger")?;
        let found = ledger.approvals(Approvals::One(id)).await;
        let found = found.map_err(|error| error.to_string())?;
        let is_given =
            |one: &Approval| matches!(one.status, ApprovalStatus::Approved | ApprovalStatus::Used);
        match found.iter().any(is_given) {
            true => Ok(()),
            false => Err("it was withdrawn meanwhile".to_owned()),
        }
    }

    /// The right to change the policy, once nobody else has it.
    pub async fn amend_policy(&self) -> Amendment<'_> {
        Amendment {
            executor: self,
            _alone: self.inner.amending.lock().await,
        }
    }
}

/// The right to change the policy: what is made of it is made of what it is by then. Until this goes nobody else has it.
pub struct Amendment<'a> {
    executor: &'a Executor,
    _alone: tokio::sync::MutexGuard<'a, ()>,
}

impl Amendment<'_> {
    /// The policy in force.
    pub fn policy(&self) -> Policy {
        self.executor.policy()
    }

    /// Puts another one in force for executions that begin from now on.
    pub fn put_in_force(self, policy: Policy) {
        self.executor.set_policy(policy);
    }

    fn remember_for_session(self, rules: &[Remembered]) -> Result<(), String> {
        let policy = self.policy().with_remembered(rules);
        self.put_in_force(policy.map_err(|error| error.to_string())?);
        Ok(())
    }

    async fn remember_for_good(self, id: ApprovalId, rules: &[Remembered]) -> Result<(), String> {
        let invalid = |error: PolicyError| error.to_string();
        let dir = self.executor.config().remembered_dir.clone();
        let dir = dir.ok_or("there is no state directory")?;
        // First, so that no rule gets on disk that could not be read again.
        self.policy().with_remembered(rules).map_err(invalid)?;
        let text = Remembered::write(rules);
        // It waits for the disk.
        let write = move || {
            write_remembered(&dir, id, &text)
                .map(|path| (path, text))
                .map_err(|error| format!("cannot write to `{}`: {error}", dir.display()))
        };
        let written = tokio::task::spawn_blocking(write).await;
        let (path, text) = written.map_err(|error| error.to_string()).flatten()?;
        let source = Source {
            path: &path,
            text: &text,
        };
        let written = Remembered::read(source).map_err(invalid)?;
        let policy = self.policy().with_remembered(&written);
        self.put_in_force(policy.map_err(invalid)?);
        Ok(())
    }
}

/// Why a call is not run that somebody has denied.
pub(super) fn denied(execution: &Execution, approval: &Approval) -> ExecutorError {
    let decided = approval.decided.as_ref();
    ExecutorError::UserRejected {
        tool_name: execution.tool.clone(),
        input_summary: execution.summary(),
        by: decided.and_then(|decided| decided.by),
        reason: decided.and_then(|decided| decided.reason.clone()),
    }
}

/// Why a call is not run that nobody has approved in time.
pub(super) fn lapsed(execution: &Execution, approval: &Approval) -> ExecutorError {
    let waited = approval.expires_at.duration_since(approval.created_at);
    ExecutorError::ApprovalExpired {
        tool_name: execution.tool.clone(),
        input_summary: execution.summary(),
        waited: waited.unwrap_or_default(),
    }
}

/// Who is asked, as seen by those who wait for it.
pub(super) type Asked = Arc<Approval>;
