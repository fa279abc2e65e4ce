//! The stages of a call, one file each, in the order of seed 004. Each takes what only the one
//! before it can make, so that none is skipped or taken twice.

mod discovery;
mod execution;
mod formatting;
mod validation;

use crate::domain::{Call, ExecutorError, Stage, ToolOutput};
use crate::pipeline::Execution;
use crate::tools::{Context, Registry};

/// Takes a call through all stages.
///
/// # Errors
/// What the first stage that could not go on says; `execution` knows which it was.
pub(super) async fn walk(
    call: Call,
    registry: &Registry,
    context: Context<'_>,
    execution: &Execution,
) -> Result<ToolOutput, ExecutorError> {
    let config = &context.config;
    let found = {
        let _in = execution.enter(Stage::Discovery);
        discovery::find(call, registry, &config.disabled_tools, &context.summary)?
    };
    let valid = {
        let _in = execution.enter(Stage::Validation);
        validation::validate(found, &context.summary)?
    };
    let format = formatting::Format::new(valid.tool.name(), &context);
    let ran = {
        let _in = execution.enter(Stage::Execution);
        execution::run(valid, context).await?
    };
    let _in = execution.enter(Stage::Formatting);
    format.apply(ran)
}
