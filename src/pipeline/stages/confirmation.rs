use super::permission::Judged;
use crate::domain::{Call, ExecutorError, Verdict};
use crate::tools::Tool;

/// A call that may run.
pub(super) struct Confirmed<'a> {
    pub(super) call: Call,
    pub(super) tool: &'a Tool,
}

/// Lets through what the policy allows. What it asks about is refused: there is nobody to be asked
/// (seed 004 goes on with a warning; here no answer is never a yes).
pub(super) fn confirm<'a>(
    judged: Judged<'a>,
    summary: &str,
) -> Result<Confirmed<'a>, ExecutorError> {
    let Judged {
        call,
        tool,
        judgement,
    } = judged;
    match judgement.verdict {
        Verdict::Allow => Ok(Confirmed { call, tool }),
        Verdict::Ask | Verdict::Deny => Err(ExecutorError::PermissionDenied {
            tool_name: call.tool,
            input_summary: summary.to_owned(),
            judgement: Box::new(judgement),
        }),
    }
}
