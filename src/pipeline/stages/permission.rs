use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::validation::Valid;
use crate::config::ExecutorConfig;
use crate::domain::{
    Background, Call, Caller, ExecutorError, Judgement, RiskLevel, Verdict, Violation,
};
use crate::pipeline::Execution;
use crate::policy::{NamedPath, Policy, Question};
use crate::tools::{Confinement, Resolved, Tool, UseOfIt};

/// What is judged at once, in bytes: a hundred rules take less than a millisecond for it.
const LONG_BYTES: usize = 4096;

/// A call that the policy does not refuse.
pub(super) struct Judged {
    pub(super) call: Call,
    pub(super) tool: Arc<Tool>,
    pub(super) resolved: Vec<Resolved>,
    pub(super) judgement: Judgement,
    /// How far it is trusted, by all who have a say in it.
    pub(super) risk: RiskLevel,
    /// By what it was judged.
    pub(super) policy: Policy,
}

/// Asks the policy.
pub(super) async fn judge(
    valid: Valid,
    subject: Subject,
    policy: Policy,
    execution: &Execution,
    config: &ExecutorConfig,
) -> Result<Judged, ExecutorError> {
    let Valid {
        call,
        tool,
        resolved,
        ..
    } = valid;
    let judgement = subject.judged(&call, &resolved, &policy).await;
    execution.learn_ruling(&judgement);
    let least = execution.family.risk();
    let risk = settle_risk(least, &call, &tool, &judgement, execution, config);
    if judgement.verdict == Verdict::Deny {
        return Err(ExecutorError::PermissionDenied {
            tool_name: call.tool,
            input_summary: execution.summary(),
            judgement: Box::new(judgement),
        });
    }
    let risk = risk?;
    Ok(Judged {
        call,
        tool,
        resolved,
        judgement,
        risk,
        policy,
    })
}

/// How far a call is trusted, which its execution learns: no less than what `least` says, and what
/// anybody else has raised.
///
/// # Errors
/// When it has to be confined and cannot be.
pub(super) fn settle_risk(
    least: RiskLevel,
    call: &Call,
    tool: &Tool,
    judgement: &Judgement,
    execution: &Execution,
    config: &ExecutorConfig,
) -> Result<RiskLevel, ExecutorError> {
    let risk = least
        .max(tool.risk_level(config))
        .max(call.options.risk_level)
        .max(judgement.risk_level);
    execution.learn_risk(risk);
    match cannot_be_confined(call, tool, risk, judgement, config) {
        None => Ok(risk),
        // Asked again it would be no other, so that it is nothing to wait for.
        Some(detail) => Err(unconfined(call, execution.summary(), detail)),
    }
}

fn unconfined(call: &Call, summary: String, detail: String) -> ExecutorError {
    ExecutorError::InvalidInput {
        tool_name: call.tool.clone(),
        input_summary: summary,
        violations: vec![Violation::of_all(detail)],
    }
}

/// What a call is refused with that was judged, by all who have a say in it, and yet cannot be run.
pub(in crate::pipeline) fn cannot_be_run(
    call: &Call,
    tool: &Tool,
    judgement: &Judgement,
    config: &ExecutorConfig,
    summary: &str,
) -> Option<ExecutorError> {
    let detail = cannot_be_confined(call, tool, judgement.risk_level, judgement, config)?;
    Some(unconfined(call, summary.to_owned(), detail))
}

/// Why a call that is not trusted cannot be run, if there is a reason that is known beforehand.
fn cannot_be_confined(
    call: &Call,
    tool: &Tool,
    risk: RiskLevel,
    judgement: &Judgement,
    config: &ExecutorConfig,
) -> Option<String> {
    if risk == RiskLevel::Trusted {
        return None;
    }
    let workspace = call.options.workspace.as_deref();
    match tool.implementation.confinement() {
        Confinement::Needless => None,
        Confinement::Impossible => Some(format!(
            "`{}` is done by the daemon itself and cannot be confined in a sandbox: use a command, or do without `untrusted` for it in [tools] of executor.toml, in the policy and in the call",
            tool.name()
        )),
        Confinement::Process if call.options.background == Background::Keep => {
            Some("nothing outlives a sandbox, and the call asks for `background` \"keep\"".to_owned())
        }
        Confinement::Process => workspace
            .filter(|dir| !config.sandbox.may_write_to(dir, judgement.workspace.as_deref()))
            .map(|dir| {
                format!(
                    "the `workspace` {} is not at or below one of `workspaces` in [sandbox], nor below one that the policy grants the call",
                    dir.display()
                )
            }),
    }
}

/// Finds out what the tool itself says of a call that it will refuse in any case, so that nobody is told otherwise, or
/// asked. `None` where it says nothing; what is to be called looks at the disk: on a thread that may.
pub(in crate::pipeline) fn refused_by_tool(
    tool: &Arc<Tool>,
    call: &Call,
    resolved: &[Resolved],
    caller: &Caller,
    config: &Arc<ExecutorConfig>,
) -> Option<impl FnOnce() -> Option<Judgement> + Send + use<>> {
    if resolved.is_empty() {
        return None;
    }
    let (tool, call, resolved) = (Arc::clone(tool), call.clone(), resolved.to_vec());
    let (caller, config) = (caller.clone(), Arc::clone(config));
    Some(move || {
        let tool = &tool.implementation;
        tool.refuses(&call, &resolved, &caller, &config)
    })
}

/// What a judgement depends on besides the call and the policy.
pub(in crate::pipeline) struct Subject {
    pub(in crate::pipeline) caller: Caller,
    /// The tools that led to it, the outermost first.
    pub(in crate::pipeline) chain: Vec<String>,
    /// Where a call runs that does not say.
    pub(in crate::pipeline) default_dir: Option<PathBuf>,
    /// Who reads a script.
    pub(in crate::pipeline) shell: PathBuf,
}

impl Subject {
    /// What the policy says of a call. Where it reads a file by another name than `read_file`, a rule about
    /// that counts if it is stricter.
    pub(in crate::pipeline) async fn judged(
        self,
        call: &Call,
        resolved: &[Resolved],
        policy: &Policy,
    ) -> Judgement {
        let reads = resolved
            .iter()
            .find(|path| path.use_of_it == UseOfIt::ReadsFile);
        let reading = reads.map(|file| self.judged_as_reading(file, call, policy));
        let own = self.judged_by_name(call, resolved, policy).await;
        match reading {
            Some(reading) if reading.rule.is_some() && reading.verdict > own.verdict => Judgement {
                risk_level: own.risk_level,
                risk_rule: own.risk_rule,
                workspace: own.workspace,
                ..reading
            },
            Some(_) | None => own,
        }
    }

    /// What the policy says of reading `file`.
    fn judged_as_reading(&self, file: &Resolved, call: &Call, policy: &Policy) -> Judgement {
        let parameter = "file_path";
        let path = |path: &PathBuf| NamedPath {
            parameter: parameter.to_owned(),
            path: path.clone(),
        };
        let input = json!({ parameter: file.absolute.to_string_lossy() });
        let paths = [&file.absolute, &file.real].map(path);
        let reading = Question {
            tool: "read_file",
            input: &input,
            paths: &paths,
            ..self.question(call, &[])
        };
        policy.judge_for(&call.tool, &reading)
    }

    /// Reading a script may take a while (see [`Policy::judge`]), and so may holding a long one
    /// against many patterns: not on the event loop.
    async fn judged_by_name(
        self,
        call: &Call,
        resolved: &[Resolved],
        policy: &Policy,
    ) -> Judgement {
        let is_long = |value: &Value| value.as_str().is_some_and(|text| text.len() > LONG_BYTES);
        let members = call.input.as_object().into_iter().flatten();
        let long = policy.rule_count() > 0 && members.map(|(_, value)| value).any(is_long);
        let paths = paths(resolved);
        if !long && !policy.reads_scripts(&self.question(call, &paths)) {
            return policy.judge(&self.question(call, &paths));
        }
        let (policy, call) = (policy.clone(), call.clone());
        let judging =
            tokio::task::spawn_blocking(move || policy.judge(&self.question(&call, &paths)));
        judging.await.unwrap_or_else(|error| Judgement {
            verdict: Verdict::Deny,
            rule: None,
            source: None,
            segment: None,
            reason: format!("the policy could not judge it: {error}"),
            suggest: None,
            would_change: "this is a defect of the daemon: report it".to_owned(),
            risk_level: RiskLevel::Trusted,
            risk_rule: None,
            workspace: None,
            remember_rules: Vec::new(),
        })
    }

    fn question<'a>(&'a self, call: &'a Call, paths: &'a [NamedPath]) -> Question<'a> {
        Question {
            tool: &call.tool,
            input: &call.input,
            paths,
            caller: &self.caller,
            chain: &self.chain,
            working_dir: call
                .options
                .working_dir
                .as_deref()
                .or(self.default_dir.as_deref()),
            env: &call.options.env,
            stdin: call.options.stdin.as_deref(),
            shell: &self.shell,
        }
    }
}

/// Where the parameters of a call lead, in the words of the policy.
fn paths(resolved: &[Resolved]) -> Vec<NamedPath> {
    let both = resolved.iter().flat_map(|resolved| {
        [&resolved.absolute, &resolved.real].map(|path| NamedPath {
            parameter: resolved.parameter.clone(),
            path: path.clone(),
        })
    });
    both.collect()
}
