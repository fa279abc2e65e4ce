//! The operator's own programs on a call's way (`[[hooks]]`): asked before it is run, told after.
//! What they say is recorded whatever it is; what is to become of the call is left to `stages`.

mod answer;
mod given;
mod skill;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

pub(super) use given::ResultSeen;
pub(super) use skill::template;

use super::Execution;
use super::event::{Event, fractional_millis};
use super::executor::Inner;
use super::parking::Phase;
use crate::config::{self, Audit, ExecutorConfig, Hook, OnFailure, Truncate};
use crate::domain::{
    Background, Call, Digest, ExecutionId, ExecutorError, Point, Secrets, Stage, StopReason,
    summarize,
};
use crate::ledger::AuditEntry;
use crate::runner::{Live, Plan};
use answer::{ANSWER_BYTES, Answer, Came};

/// How long a call waits for what a hook said to be on file where it may run without: a commit takes a millisecond,
/// and who holds the file for longer does not hold up calls.
const RECORDING: Duration = Duration::from_millis(100);

/// Why a call does not go on as it is.
pub(super) enum Detour {
    /// It does not go on.
    Refused(ExecutorError),
    /// It begins anew, with another input.
    Changed(Box<Call>),
}

impl From<ExecutorError> for Detour {
    fn from(error: ExecutorError) -> Self {
        Self::Refused(error)
    }
}

/// The hooks of one execution.
pub(super) struct Hooks<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) execution: &'a Arc<Execution>,
    pub(super) config: &'a ExecutorConfig,
}

/// A program that is asked.
#[derive(Clone, Copy)]
struct Program<'a> {
    path: &'a Path,
    args: &'a [String],
    limit: Duration,
}

/// What is to be recorded of one that was asked.
struct Asked<'a> {
    hook: &'a Hook,
    came: Came,
    took: Duration,
}

impl Hooks<'_> {
    /// Asks those that stand before a stage.
    pub(super) async fn before(&self, stage: Stage, call: &Call) -> Result<(), Detour> {
        self.ask(Point::before(stage), call).await
    }

    /// Asks those that stand after a stage.
    pub(super) async fn after(&self, stage: Stage, call: &Call) -> Result<(), Detour> {
        self.ask(Point::after(stage), call).await
    }

    /// Tells those that stand at a point after the run what came of it. They change nothing.
    pub(super) async fn tell(
        &self,
        point: Point,
        call: &Call,
        result: impl FnOnce() -> Option<ResultSeen>,
    ) {
        let mut told = self.at(point, call).peekable();
        if told.peek().is_none() {
            return;
        }
        let result = result();
        for hook in told {
            let mut asked = self.run(hook, call, result.as_ref()).await;
            if let Came::Answer(Answer::Change { .. }) = asked.came {
                let late = "it changed the input, of which nothing can come any more";
                asked.came = Came::Failure(late.to_owned());
            }
            // The call was run: it is no reason to withhold what came of it.
            let _ = self.record(&asked).await;
        }
    }

    async fn ask(&self, point: Point, call: &Call) -> Result<(), Detour> {
        for hook in self.at(point, call) {
            let asked = self.run(hook, call, None).await;
            self.record(&asked).await?;
            match (asked.came, hook.on_failure) {
                (Came::Answer(Answer::Allow {}), _) | (Came::Failure(_), OnFailure::Allow) => {}
                (Came::Answer(Answer::Deny { reason }), _) => {
                    return Err(self.denied(hook, reason).into());
                }
                (Came::Failure(why), OnFailure::Deny) => {
                    let reason = format!("the hook failed: {why}");
                    return Err(self.denied(hook, Some(reason)).into());
                }
                (Came::Answer(Answer::Change { input }), _) => {
                    return Err(Detour::Changed(Box::new(
                        self.changed(hook, call, input).await,
                    )));
                }
                (Came::Stopped(reason), _) => return Err(self.execution.stopped(reason).into()),
            }
        }
        Ok(())
    }

    /// Those that are to be asked at a point about a call. One that has changed the input is not
    /// asked again, so that there is an end to it.
    fn at(&self, point: Point, call: &Call) -> impl Iterator<Item = &Hook> {
        let hooks = self.config.hooks.iter();
        // What a hook has called is no call of anybody's for others to be asked about.
        let is_a_hooks = self.execution.family.is_of_a_hook();
        hooks.filter(move |hook| {
            !is_a_hooks
                && hook.point == point
                && hook.concerns(&call.tool)
                && !self.execution.call().changed_by.contains(&hook.name)
        })
    }

    /// Runs one as any command is run: a tree of its own, ended as a whole at the time limit or
    /// with the execution.
    async fn run<'h>(&self, hook: &'h Hook, call: &Call, result: Option<&ResultSeen>) -> Asked<'h> {
        let begun = Instant::now();
        let stopped = self.execution.stop_reason();
        if let Some(reason) = stopped.filter(|reason| !is_told(hook, *reason)) {
            return Asked {
                hook,
                came: Came::Stopped(reason),
                took: begun.elapsed(),
            };
        }
        let given = given::given(hook, call, self.execution, self.config, result);
        // One that waits for its approval is left to the next daemon by dropping it, which would
        // leave the hook's process behind.
        let waited = self.execution.set_waiting(false);
        let came = match &hook.asked {
            config::Asked::Program { program, args } => {
                let program = Program {
                    path: program,
                    args,
                    limit: hook.timeout,
                };
                self.run_with(program, given, stopped).await
            }
            config::Asked::Skill { name, input } => {
                let asking = skill::Asking {
                    hook,
                    skill: name,
                    input,
                    result,
                };
                asking
                    .ask(self.inner, self.execution, &given, stopped)
                    .await
            }
        };
        self.execution.set_waiting(waited);
        Asked {
            hook,
            came,
            took: begun.elapsed(),
        }
    }

    /// Runs a program; `told_of` is the stop that it is told of.
    async fn run_with(
        &self,
        program: Program<'_>,
        given: String,
        told_of: Option<StopReason>,
    ) -> Came {
        let stop = self.execution.live();
        let stopped = async {
            match told_of {
                None => stop.stop_requested().await,
                // Only the end of the daemon can still be in its way.
                Some(_) => {
                    self.inner.reached(Phase::Stopping).await;
                    StopReason::Shutdown
                }
            }
        };
        // An id of its own, for its processes are told from the execution's by it. What it writes
        // is read by nobody else, and an input that was masked would be another.
        let id = ExecutionId::new();
        let secrets = Arc::new(Secrets::default());
        let live = Arc::new(Live::new(id, ANSWER_BYTES, Truncate::Tail, None, &secrets));
        let run = self.inner.runner.run(self.plan(id, program, given), &live);
        let mut run = std::pin::pin!(run);
        let outcome = tokio::select! {
            biased;
            outcome = &mut run => outcome,
            reason = stopped => {
                live.stop(reason);
                run.await
            }
        };
        match outcome {
            Ok(outcome) => Came::of(&outcome, &self.execution.secrets),
            Err(error) => Came::Failure(format!("{error}: {}", error.source)),
        }
    }

    /// Nothing of the call goes into it but what it reads.
    fn plan(&self, id: ExecutionId, program: Program<'_>, given: String) -> Plan {
        let config = self.config;
        Plan {
            id,
            program: program.path.to_owned(),
            args: program.args.to_vec(),
            script: None,
            working_dir: None,
            env: vec![("SHELL".to_owned(), config.shell.display().to_string())],
            stdin: Some(given),
            limit: program.limit,
            kill_grace: config.kill_grace,
            kill_wait: config.kill_wait,
            drain: config.drain,
            background: Background::Kill,
            parent: None,
            is_recognisable: false,
            limits: config.limits,
            stop_by: None,
        }
    }

    /// The same call with the input that a hook made of it.
    async fn changed(&self, hook: &Hook, call: &Call, input: Value) -> Call {
        // What was given for the other one; where the answer is still to come, it is found to be stale.
        if self.execution.approved().is_some() {
            self.inner.withdraw(self.execution).await;
            self.execution.forget_question();
        }
        let call = Call {
            input,
            ..call.clone()
        };
        let summary = self.inner.summary(&call, &self.execution.secrets);
        self.execution.begin_anew(&call, &summary, &hook.name);
        call
    }

    /// Records what a hook said: as an event, in the audit trail, and in the log when it failed.
    async fn record(&self, asked: &Asked<'_>) -> Result<(), ExecutorError> {
        let Asked { hook, came, took } = asked;
        let (decision, detail) = self.said(came);
        if let Came::Failure(_) = came {
            tracing::warn!(
                EXECUTION_ID = %self.execution.id,
                HOOK = hook.name,
                ON_FAILURE = hook.on_failure.as_str(),
                "the hook {} failed: {}", hook.name, summarize(&detail),
            );
        }
        let Some(entry) = &self.execution.entry else {
            return Ok(());
        };
        let duration_ms = fractional_millis(*took);
        entry.note(Event::HookCompleted {
            hook: hook.name.clone(),
            stage: hook.point.stage,
            when: hook.point.when,
            decision,
            duration_ms,
            detail: detail.clone(),
        });
        let receipt = entry.audit(AuditEntry {
            kind: "hook".to_owned(),
            execution_id: Some(self.execution.id),
            time: SystemTime::now(),
            body: json!({
                "hook": hook.name,
                "stage": hook.point.stage,
                "when": hook.point.when,
                "decision": decision,
                "reason": Some(detail).filter(|detail| !detail.is_empty()),
                "on_failure": matches!(came, Came::Failure(_)).then(|| hook.on_failure.as_str()),
                "input_digest": changed_input(came).map(|digest| digest.to_string()),
                "duration_ms": duration_ms,
            }),
        });
        // What comes of it is not told before: where the ledger has to have it, and elsewhere where it soon does.
        match self.config.audit {
            Audit::Required => receipt
                .await
                .map_err(|error| ExecutorError::AuditUnavailable {
                    tool_name: self.execution.tool.clone(),
                    input_summary: self.summary(),
                    detail: error.to_string(),
                }),
            Audit::BestEffort => {
                let _ = tokio::time::timeout(RECORDING, receipt).await;
                Ok(())
            }
        }
    }

    /// What came of asking in a word, and what more there is to it, secrets masked.
    fn said(&self, came: &Came) -> (&'static str, String) {
        let (decision, detail) = match came {
            Came::Answer(Answer::Allow {}) => ("allow", ""),
            Came::Answer(Answer::Deny { reason }) => ("deny", reason.as_deref().unwrap_or("")),
            Came::Answer(Answer::Change { .. }) => ("change", ""),
            Came::Failure(why) => ("failed", why.as_str()),
            Came::Stopped(_) => ("stopped", "nobody waits for the execution any more"),
        };
        (decision, self.execution.secrets.mask_text(detail))
    }

    fn denied(&self, hook: &Hook, reason: Option<String>) -> ExecutorError {
        ExecutorError::HookDenied {
            tool_name: self.execution.tool.clone(),
            input_summary: self.summary(),
            hook: hook.name.clone(),
            reason,
        }
    }

    fn summary(&self) -> String {
        self.execution.summary()
    }
}

/// Whether a hook is run in spite of a stop: of a call that was cancelled there is as much to tell after the run as of
/// any other.
fn is_told(hook: &Hook, reason: StopReason) -> bool {
    let is_cancelled = matches!(reason, StopReason::Cancelled | StopReason::Disconnect);
    is_cancelled && !hook.point.precedes_the_run()
}

/// Of the input that it was changed to.
fn changed_input(came: &Came) -> Option<Digest> {
    match came {
        Came::Answer(Answer::Change { input }) => Some(Digest::of(input.to_string().as_bytes())),
        Came::Answer(Answer::Allow {} | Answer::Deny { .. })
        | Came::Failure(_)
        | Came::Stopped(_) => None,
    }
}
