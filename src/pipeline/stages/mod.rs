//! The stages of a call, one file each, in their order. Each takes what only the one
//! before it can make, so that none is skipped or taken twice. A call that a hook changes is another
//! call: it begins with the first.

mod confirmation;
mod discovery;
mod execution;
mod formatting;
mod permission;
mod validation;

use std::sync::Arc;

pub(super) use confirmation::can_ask;
pub(super) use permission::{Subject, cannot_be_run, refused_by_tool};
pub(super) use validation::Circumstances;

use crate::config::{Audit, ExecutorConfig};
use crate::domain::{Call, ExecutorError, Point, Stage, ToolOutput, Verdict};
use crate::pipeline::Execution;
use crate::pipeline::beside::{LONG, beside};
use crate::pipeline::executor::Inner;
use crate::pipeline::hooks::{Detour, Hooks, ResultSeen};
use crate::pipeline::masking;
use crate::pipeline::retry::Again;
use crate::tools::{Context, Produced, Registry, Resolved, Tool, WorkOf};
use confirmation::Confirmed;
use execution::Ran;
use validation::Checked;

/// Takes a call through all stages, from the first on again when a hook changes it.
///
/// # Errors
/// What the first stage that could not go on says; `execution` knows which it was.
pub(super) async fn walk(
    mut call: Call,
    inner: &Arc<Inner>,
    config: &Arc<ExecutorConfig>,
    execution: &Arc<Execution>,
) -> Result<ToolOutput, ExecutorError> {
    let hooks = Hooks {
        inner,
        execution,
        config,
    };
    loop {
        // Made anew with the call, which it has the summary of.
        let context = inner.context(execution, config);
        call = match pass(call, &hooks, context).await {
            Ok(output) => return Ok(output),
            Err(Detour::Refused(error)) => return Err(error),
            // Each hook changes a call once at the most, so that there is an end to it.
            Err(Detour::Changed(changed)) => *changed,
        };
    }
}

/// Takes a call through all stages, or as far as something keeps it from going on as it is. The
/// hooks before and after a stage belong to it.
async fn pass(call: Call, hooks: &Hooks<'_>, context: Context<'_>) -> Result<ToolOutput, Detour> {
    let (inner, execution, config) = (hooks.inner, hooks.execution, hooks.config);
    let found = {
        let _in = execution.enter(Stage::Discovery);
        hooks.before(Stage::Discovery, &call).await?;
        let registry = execution.family.registry();
        let found = discovery::find(call, registry, config, &context.summary)?;
        let bounds = &config.skills;
        execution
            .family
            .admits(&found.tool, bounds, &context.summary)?;
        execution.learn_tool(&found.tool);
        hooks.after(Stage::Discovery, &found.call).await?;
        found
    };
    let valid = {
        let _in = execution.enter(Stage::Validation);
        hooks.before(Stage::Validation, &found.call).await?;
        let circumstances = Circumstances {
            caller: &execution.caller,
            config: &context.config,
            summary: &context.summary,
        };
        let valid = match validation::check(found, &circumstances)? {
            Checked::Valid(valid) => valid,
            Checked::Pending(pending) => {
                let of = WorkOf {
                    tool: &execution.tool,
                    timeout: pending.timeout(),
                };
                context.look(of, move || pending.finish()).await??
            }
        };
        if valid.is_changed {
            execution.learn_call(&valid.call);
        }
        hooks.after(Stage::Validation, &valid.call).await?;
        valid
    };
    let judged = {
        let _in = execution.enter(Stage::Permission);
        hooks.before(Stage::Permission, &valid.call).await?;
        let subject = Subject {
            caller: execution.caller.clone(),
            chain: execution.family.chain(),
            default_dir: config.working_dir.clone(),
            shell: config.shell.clone(),
        };
        let judged = permission::judge(valid, subject, inner.policy(), execution, config).await?;
        hooks.after(Stage::Permission, &judged.call).await?;
        // What would be asked about and nobody can be asked about is refused next: it costs nothing.
        if judged.judgement.verdict == Verdict::Allow || confirmation::can_ask(inner, config) {
            inner.charge(execution, &judged.call).await?;
        }
        judged
    };
    let confirmed = {
        let _in = execution.enter(Stage::Confirmation);
        hooks.before(Stage::Confirmation, &judged.call).await?;
        let confirmed = confirmation::confirm(judged, inner, execution, &context).await?;
        hooks.after(Stage::Confirmation, &confirmed.call).await?;
        confirmed
    };
    carry_out(confirmed, hooks, context).await
}

/// The stages from the run on, behind which nothing is refused by anybody.
async fn carry_out(
    confirmed: Confirmed,
    hooks: &Hooks<'_>,
    context: Context<'_>,
) -> Result<ToolOutput, Detour> {
    let (execution, audit) = (hooks.execution, hooks.config.audit);
    let (watch, format);
    let Ran {
        call,
        produced,
        took,
    } = {
        let _in = execution.enter(Stage::Execution);
        hooks.before(Stage::Execution, &confirmed.call).await?;
        on_record(execution, audit, &context.summary).await?;
        if !execution.terms.asynchronous {
            hooks.inner.hurry(execution);
        }
        let held = hooks.inner.take_place(execution, &confirmed.call).await?;
        let confirmed =
            confirmation::still_holds(confirmed, hooks.inner, execution, &context).await?;
        // What it says of the risk is what the call is run with.
        format = formatting::Format::new(&confirmed.tool, confirmed.risk, &context);
        let context = Context {
            config: Arc::clone(&confirmed.config),
            risk: confirmed.risk,
            granted: confirmed.workspace.clone(),
            ..context
        };
        watch = held.watch;
        let again = Again {
            inner: hooks.inner,
            execution,
            config: hooks.config,
            retries: held.retries,
        };
        // From here on the run itself hears of it.
        if let Some(reason) = execution.stop_reason() {
            return Err(execution.stopped(reason).into());
        }
        execution.use_approval();
        let ran = execution::run(confirmed, context, &again).await;
        drop(held.place);
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) => {
                watch.settle(execution, Err(&error));
                return Err(error.into());
            }
        };
        let seen = || Some(formatting::seen(&ran.produced, ran.took));
        hooks
            .tell(Point::after(Stage::Execution), &ran.call, seen)
            .await;
        ran
    };
    let _in = execution.enter(Stage::Formatting);
    let produced = masked(produced, execution).await;
    let seen = || Some(formatting::seen(&produced, took));
    hooks
        .tell(Point::before(Stage::Formatting), &call, seen)
        .await;
    let result = match produced.bytes() {
        ..LONG => format.apply(produced, took),
        LONG.. => beside(move || format.apply(produced, took)).await,
    };
    watch.settle(execution, result.as_ref());
    let seen = || ResultSeen::of(&result);
    hooks
        .tell(Point::after(Stage::Formatting), &call, seen)
        .await;
    Ok(result?)
}

/// The same with secrets masked.
async fn masked(mut produced: Produced, execution: &Execution) -> Produced {
    let secrets = Arc::clone(&execution.secrets);
    // What processes have said is masked as it is read.
    let is_long = !matches!(produced, Produced::Ran(_)) && produced.bytes() >= LONG;
    let mask = move || {
        masking::mask_produced(&mut produced, &secrets);
        produced
    };
    match is_long {
        false => mask(),
        true => beside(mask).await,
    }
}

/// Has the execution entered in the ledger, which is waited for only where nothing may run that is
/// not on record. Else it happens behind the start of the process.
async fn on_record(
    execution: &Execution,
    audit: Audit,
    summary: &str,
) -> Result<(), ExecutorError> {
    let written = execution.entry.as_ref().map(|entry| entry.write(execution));
    let Some(receipt) = written.flatten().filter(|_| audit == Audit::Required) else {
        return Ok(());
    };
    receipt
        .await
        .map_err(|error| ExecutorError::AuditUnavailable {
            tool_name: execution.tool.clone(),
            input_summary: summary.to_owned(),
            detail: error.to_string(),
        })
}

/// The tool that a call would be one of.
///
/// # Errors
/// What the call would be refused with.
pub(super) fn find(
    call: Call,
    registry: &Registry,
    config: &ExecutorConfig,
) -> Result<Arc<Tool>, ExecutorError> {
    discovery::find(call, registry, config, "").map(|found| found.tool)
}

/// Takes a call as far as the policy, without an execution.
///
/// # Errors
/// What the stages before say.
pub(super) async fn prepare(
    call: Call,
    registry: &Registry,
    circumstances: &Circumstances<'_>,
) -> Result<(Call, Vec<Resolved>), (Stage, ExecutorError)> {
    let Circumstances {
        config, summary, ..
    } = circumstances;
    let found = discovery::find(call, registry, config, summary)
        .map_err(|error| (Stage::Discovery, error))?;
    let valid = match validation::check(found, circumstances) {
        Ok(Checked::Pending(pending)) => beside(move || pending.finish()).await,
        Ok(Checked::Valid(valid)) => Ok(valid),
        Err(error) => Err(error),
    };
    let valid = valid.map_err(|error| (Stage::Validation, error))?;
    Ok((valid.call, valid.resolved))
}
