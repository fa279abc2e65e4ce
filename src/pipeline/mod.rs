//! A call's way from its name to its answer. Opens an execution, takes it through the stages,
//! closes the record: whatever happens between, the record is closed and the log line written.

mod approvals;
mod beside;
mod brief;
mod call_record;
mod calls;
mod counting;
mod degradations;
mod doubts;
mod entry;
mod event;
mod execution;
mod executor;
mod family;
mod filing;
mod finished;
mod flow;
mod history;
mod hooks;
mod hurry;
mod intent;
mod life;
mod log;
mod masking;
mod parking;
mod questions;
mod record;
mod records;
mod remembered;
mod retry;
mod running;
mod soundings;
mod spans;
mod stages;
mod start;
mod termination;
mod values;
mod watcher;

#[cfg(test)]
mod tests;

pub use approvals::{Amendment, Answer, CannotDecide};
pub use beside::beside;
pub use brief::{Brief, BriefEnding};
pub use call_record::CallRecord;
pub use counting::NoMetrics;
pub use event::Event;
pub use execution::{Execution, Terms};
pub use executor::Executor;
pub use finished::{Finished, Ran};
pub use history::{CannotReplay, Found, HistoryPage};
pub use life::Begun;
pub use record::Record;
pub use start::{StartError, Started};
pub use values::CannotKeep;
pub use watcher::{Seen, Watcher};

/// How the flow of calls stands.
pub use crate::flow::{CircuitState, FlowSnapshot, Refusals, ToolFlowSnapshot};

/// What a check of a skill finds.
pub use crate::sandbox::{SandboxState, SelfTest};
pub use crate::tools::{SkillCheck, SkillProblem};

/// What history is asked with and answers with.
pub use crate::ledger::{
    Altered, Approval, ApprovalStatus, Approvals, Chain, EventFilter, Filter, Head, Idempotency,
    LedgerError, Link, NumberedEvent, NumberedEvents, Verified,
};
