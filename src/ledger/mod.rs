//! What lasts: executions, events, approvals and the audit trail, in one SQLite file.
//!
//! One thread writes, everything queued in one transaction; reads have connections of their own.
//! What is acknowledged survives the death of the daemon. What the values mean is the pipeline's
//! affair, where long outputs lie is the runner's.

mod approvals;
mod chain;
mod convert;
mod digest;
mod error;
mod executions;
mod file;
mod handle;
mod read;
mod readers;
mod record;
mod recover;
mod retention;
mod search;
mod store;
mod time;
mod writer;

#[cfg(test)]
mod tests;

pub use chain::{Chain, Link, Verifier};
pub use digest::Digest;
pub use error::LedgerError;
pub use handle::{Durability, Ledger, Opened};
pub use read::Approvals;
pub use record::{
    Approval, ApprovalStatus, AuditEntry, Change, Claim, CloseRecord, Cursor, Decided, Decision,
    EventFilter, EventRecord, ExecutionRecord, Filter, Head, Idempotency, InvalidCursor, Judgement,
    Limits, NumberedEvent, OpenRecord, Output, Page, Place, Verdict, Verdicted,
};
pub use recover::{Recovered, Waiting};
pub use writer::Receipt;
