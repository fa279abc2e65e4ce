use super::confirmation::Confirmed;
use crate::domain::{Call, ExecutorError};
use crate::runner::Outcome;
use crate::tools::Context;

/// What came of it, whole.
pub(super) struct Ran {
    pub(super) call: Call,
    pub(super) outcome: Outcome,
}

/// Has the tool do it.
pub(super) async fn run(
    confirmed: Confirmed<'_>,
    context: Context<'_>,
) -> Result<Ran, ExecutorError> {
    let Confirmed { call, tool, .. } = confirmed;
    let outcome = tool.implementation.run(&call, context).await?;
    Ok(Ran { call, outcome })
}
