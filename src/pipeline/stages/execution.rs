use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::confirmation::Confirmed;
use crate::domain::{Call, ExecutorError};
use crate::runner::Outcome;
use crate::tools::Context;

/// What came of it, whole.
pub(super) struct Ran {
    pub(super) call: Call,
    pub(super) outcome: Outcome,
}

/// Has the tool do it. A panic in a tool costs its own execution, not the record of it.
pub(super) async fn run(
    confirmed: Confirmed<'_>,
    context: Context<'_>,
) -> Result<Ran, ExecutorError> {
    let Confirmed { call, tool, .. } = confirmed;
    let summary = context.summary.clone();
    let run = tool.implementation.run(&call, context);
    let outcome = AssertUnwindSafe(run).catch_unwind().await;
    let outcome = outcome.unwrap_or_else(|_| {
        Err(ExecutorError::Internal {
            tool_name: call.tool.clone(),
            input_summary: summary,
            detail: "it panicked; the log says where".to_owned(),
            source: None,
        })
    })?;
    Ok(Ran { call, outcome })
}
