use std::path::PathBuf;

use serde_json::Value;

use super::validation::Valid;
use crate::domain::{Call, Caller, ExecutorError, Judgement, Verdict};
use crate::pipeline::Execution;
use crate::policy::{Policy, Question};
use crate::tools::Tool;

/// What is judged at once, in bytes: a hundred rules take less than a millisecond for it.
const LONG_BYTES: usize = 4096;

/// A call that the policy does not refuse.
pub(super) struct Judged<'a> {
    pub(super) call: Call,
    pub(super) tool: &'a Tool,
    pub(super) judgement: Judgement,
}

/// Asks the policy.
pub(super) async fn judge<'a>(
    valid: Valid<'a>,
    subject: Subject,
    policy: &Policy,
    execution: &Execution,
) -> Result<Judged<'a>, ExecutorError> {
    let Valid { call, tool, .. } = valid;
    let judgement = subject.judged(&call, policy).await;
    execution.learn_ruling(&judgement);
    if judgement.verdict == Verdict::Deny {
        return Err(ExecutorError::PermissionDenied {
            tool_name: call.tool,
            input_summary: execution.known().call.summary.clone(),
            judgement: Box::new(judgement),
        });
    }
    Ok(Judged {
        call,
        tool,
        judgement,
    })
}

/// What a judgement depends on besides the call and the policy.
pub(in crate::pipeline) struct Subject {
    pub(in crate::pipeline) caller: Caller,
    /// Where a call runs that does not say.
    pub(in crate::pipeline) default_dir: Option<PathBuf>,
}

impl Subject {
    /// Reading a script may take a while (see [`Policy::judge`]), and so may holding a long one
    /// against many patterns: not on the event loop.
    pub(in crate::pipeline) async fn judged(self, call: &Call, policy: &Policy) -> Judgement {
        let is_long = |value: &Value| value.as_str().is_some_and(|text| text.len() > LONG_BYTES);
        let members = call.input.as_object().into_iter().flatten();
        let long = policy.rule_count() > 0 && members.map(|(_, value)| value).any(is_long);
        if !long && !policy.reads_scripts(&self.question(call)) {
            return policy.judge(&self.question(call));
        }
        let (policy, call) = (policy.clone(), call.clone());
        let judging = tokio::task::spawn_blocking(move || policy.judge(&self.question(&call)));
        judging.await.unwrap_or_else(|error| Judgement {
            verdict: Verdict::Deny,
            rule: None,
            source: None,
            segment: None,
            reason: format!("the policy could not judge it: {error}"),
            suggest: None,
            would_change: "this is a defect of the daemon: report it".to_owned(),
            remember_rules: Vec::new(),
        })
    }

    fn question<'a>(&'a self, call: &'a Call) -> Question<'a> {
        Question {
            tool: &call.tool,
            input: &call.input,
            caller: &self.caller,
            working_dir: call
                .options
                .working_dir
                .as_deref()
                .or(self.default_dir.as_deref()),
            env: &call.options.env,
            stdin: call.options.stdin.as_deref(),
        }
    }
}
