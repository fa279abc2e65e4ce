//! What waits for an approval that may come after the daemon: left to the next one, taken up by that, or ended
//! in between.

use std::sync::Arc;

use super::CallRecord;
use super::approvals::{denied, lapsed};
use super::event::Event;
use super::execution::{Execution, Terms};
use super::executor::Inner;
use super::life::Origin;
use crate::config::ExecutorConfig;
use crate::domain::{Call, Caller, ExecutorError, Stage, StopReason};
use crate::ledger::{Approval, ApprovalStatus, OpenRecord, Waiting};

/// How far the end of the daemon has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It has not begun.
    #[default]
    Serving,
    /// What runs may come to its end by itself; what waits for an approval is left to the next daemon.
    Draining,
    /// What runs is stopped.
    Stopping,
}

impl Inner {
    /// Completes when the daemon ends while an execution waits for an approval and nobody waits
    /// for the execution.
    pub(super) async fn parked(&self, execution: &Execution) {
        if !can_outlast(execution) {
            return std::future::pending().await;
        }
        self.reached(Phase::Draining).await;
        execution.waits().await;
    }

    /// Completes when the daemon ends, for an execution that ends with it. One that waits for an approval does so at
    /// once: nothing of it runs yet that could come to its end meanwhile.
    pub(super) async fn unanswered(&self, execution: &Execution) {
        if can_outlast(execution) {
            return std::future::pending().await;
        }
        self.reached(Phase::Draining).await;
    }

    /// Completes when the end of the daemon has come so far.
    pub(super) async fn reached(&self, phase: Phase) {
        // Both last as long as this does.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Ends what is left to the next daemon, if somebody cancels it before that one comes.
    pub(super) async fn end_if_cancelled(self: Arc<Self>, execution: Arc<Execution>) {
        let reason = execution.live().stop_requested().await;
        if reason == StopReason::Cancelled {
            self.withdraw(&execution).await;
            execution.set_waiting(false);
            self.close(&execution, Err(execution.stopped(reason))).await;
        }
    }

    /// An approval that was asked for and that nothing will be run under any more, though it may have been given.
    pub(super) async fn withdraw(&self, execution: &Execution) {
        let (Some(asked), Some(entry)) = (execution.unused_approval(), &execution.entry) else {
            return;
        };
        let status = match asked.has_lapsed() {
            true => ApprovalStatus::Expired,
            false => ApprovalStatus::Withdrawn,
        };
        let settled = self.settle(asked.id, status).await;
        // Where it was refused, or has expired, it stays so.
        if let Ok(Some(approval)) = settled
            && matches!(
                approval.status,
                ApprovalStatus::Approved | ApprovalStatus::Used
            )
            && entry
                .revoke(approval)
                .await
                .is_ok_and(|was_given| was_given)
        {
            execution.learn(|known| known.approved = None);
            entry.note(Event::ConfirmationDecided {
                approval_id: asked.id,
                decision: ApprovalStatus::Withdrawn.as_str().to_owned(),
                by: None,
            });
        }
    }

    /// Takes up an execution again that waited for its approval when the last daemon ended.
    pub(super) fn resume(self: &Arc<Self>, waiting: Waiting, config: Arc<ExecutorConfig>) {
        let Waiting { record, approval } = waiting;
        let Kept {
            record: kept,
            call,
            caller,
            is_whole,
        } = Kept::of(&record.open);
        let OpenRecord {
            id,
            created_at,
            replay_of,
            lineage,
            ..
        } = record.open;
        let origin = Origin {
            id,
            created_at,
            terms: Terms {
                asynchronous: true,
                idempotency: None,
                replay_of,
            },
            // Whatever called it did not outlast the last daemon, and nor did what it called.
            family: self.found(&call, caller.uid, &config),
        };
        let execution = Arc::new(self.conceive(&call, caller, &config, origin));
        if let Some(entry) = &execution.entry {
            entry.adopt();
        }
        let refused = refused(&execution, &approval);
        execution.ask(Arc::new(approval));
        execution.set_waiting(refused.is_none());
        // By the daemon that asked.
        execution.charge_once();
        execution.learn(|known| {
            known.call = Arc::new(CallRecord {
                changed_by: kept.changed_by,
                ..CallRecord::clone(&known.call)
            });
        });
        self.records.open(Arc::clone(&execution));
        let one = self.running.enter();
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let stale = |changed: &str| stale(&execution, changed);
            let ended = match (refused, is_whole, lineage) {
                (Some(refused), ..) => refused,
                (None, true, None) => return inner.go_on(&execution, call, config, one).await,
                (None, _, Some(_)) => stale("what called it did not outlast the daemon"),
                (None, false, None) => {
                    stale("the daemon was started anew, and secrets of a call are not kept")
                }
            };
            // It is there that it waited.
            drop(execution.enter(Stage::Confirmation));
            inner.withdraw(&execution).await;
            inner.close(&execution, Err(ended)).await;
            drop(one);
        });
    }
}

/// Tells of what was denied, or lapsed, when nobody was there to be told: why the call is not run.
fn refused(execution: &Execution, approval: &Approval) -> Option<ExecutorError> {
    let note = |event| execution.note(event);
    let approval_id = approval.id;
    if approval.status == ApprovalStatus::Denied {
        note(Event::ConfirmationDecided {
            approval_id,
            decision: approval.status.as_str().to_owned(),
            by: approval.decided.as_ref().and_then(|decided| decided.by),
        });
        return Some(denied(execution, approval));
    }
    if !approval.has_lapsed() {
        return None;
    }
    if approval.status == ApprovalStatus::Approved {
        let changed = "it was given, and its time was over before the daemon was started anew";
        return Some(stale(execution, changed));
    }
    note(Event::ConfirmationExpired { approval_id });
    Some(lapsed(execution, approval))
}

fn stale(execution: &Execution, changed: &str) -> ExecutorError {
    ExecutorError::ApprovalStale {
        tool_name: execution.tool.clone(),
        input_summary: execution.summary(),
        changed: changed.to_owned(),
    }
}

/// What is on record of a call that waited.
struct Kept {
    record: CallRecord,
    call: Call,
    caller: Caller,
    /// Whether the call is all that it was: secrets are not kept.
    is_whole: bool,
}

impl Kept {
    fn of(open: &OpenRecord) -> Self {
        let record: CallRecord = open.call.read().unwrap_or_default();
        let call = record.call(&open.tool, open.tool_use_id.as_deref());
        let is_whole = call.is_some();
        let mut call = call.unwrap_or_else(|| Call::new(open.tool.clone(), record.input.clone()));
        call.options.trace_id.clone_from(&open.trace_id);
        call.options.parent.clone_from(&record.parent);
        let caller = Caller {
            uid: open.caller_uid,
            gid: open.caller_gid,
            groups: record.caller_groups.clone(),
        };
        Self {
            record,
            call,
            caller,
            is_whole,
        }
    }
}

/// Whether an execution can be left to the next daemon: somebody who waits for one would have to wait for that, too,
/// and what a tool has called ends with the tool.
fn can_outlast(execution: &Execution) -> bool {
    execution.terms.asynchronous && execution.family.lineage().is_none()
}
