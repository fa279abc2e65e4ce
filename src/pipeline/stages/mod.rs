//! The stages of a call, one file each, in the order of seed 004. Each takes what only the one
//! before it can make, so that none is skipped or taken twice.

mod confirmation;
mod discovery;
mod execution;
mod formatting;
mod permission;
mod validation;

pub(super) use permission::Subject;

use crate::config::{Audit, ExecutorConfig};
use crate::domain::{Call, ExecutorError, Stage, ToolOutput};
use crate::pipeline::Execution;
use crate::pipeline::executor::Inner;
use crate::tools::{Context, Registry};

/// Takes a call through all stages.
///
/// # Errors
/// What the first stage that could not go on says; `execution` knows which it was.
pub(super) async fn walk(
    call: Call,
    inner: &Inner,
    context: Context<'_>,
    execution: &Execution,
) -> Result<ToolOutput, ExecutorError> {
    let config = &context.config;
    let found = {
        let _in = execution.enter(Stage::Discovery);
        discovery::find(
            call,
            &inner.registry,
            &config.disabled_tools,
            &context.summary,
        )?
    };
    let valid = {
        let _in = execution.enter(Stage::Validation);
        validation::validate(found, &context.summary)?
    };
    if valid.is_filled {
        execution.learn_call(&valid.call);
    }
    let judged = {
        let _in = execution.enter(Stage::Permission);
        let subject = Subject {
            caller: execution.caller.clone(),
            default_dir: config.working_dir.clone(),
        };
        permission::judge(valid, subject, &inner.policy(), execution).await?
    };
    let confirmed = {
        let _in = execution.enter(Stage::Confirmation);
        confirmation::confirm(judged, inner, execution, &context).await?
    };
    let format = formatting::Format::new(confirmed.tool.name(), &context);
    let ran = {
        let _in = execution.enter(Stage::Execution);
        on_record(execution, context.config.audit, &context.summary).await?;
        execution::run(confirmed, context).await?
    };
    let _in = execution.enter(Stage::Formatting);
    format.apply(ran)
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

/// Takes a call as far as the policy, without an execution.
///
/// # Errors
/// What the stages before say.
pub(super) fn prepare(
    call: Call,
    registry: &Registry,
    config: &ExecutorConfig,
    summary: &str,
) -> Result<Call, (Stage, ExecutorError)> {
    let found = discovery::find(call, registry, &config.disabled_tools, summary)
        .map_err(|error| (Stage::Discovery, error))?;
    let valid = validation::validate(found, summary).map_err(|error| (Stage::Validation, error))?;
    Ok(valid.call)
}
