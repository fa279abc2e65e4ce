//! What lasts: executions, events, approvals and the audit trail, in one SQLite file.
//!
//! One thread writes, everything queued in one transaction; reads have connections of their own.
//! What is acknowledged survives the death of the daemon: it is in the file, or in the log before it. What the values mean is the pipeline's
//! affair, where long outputs lie is the runner's.

mod approvals;
mod chain;
mod columns;
mod convert;
mod enter;
mod error;
mod event;
mod executions;
mod file;
mod handle;
mod json;
mod log;
mod part;
mod proof;
mod queue;
mod read;
mod readers;
mod record;
mod recover;
mod reserve;
mod retention;
mod search;
mod store;
mod time;
mod words;
mod work;
mod writer;

#[cfg(test)]
mod tests;

pub use crate::config::Durability;
pub use crate::domain::{Digest, Ruling, Verdict};
pub use chain::{Chain, Link, Verifier};
pub use enter::Ended;
pub use error::LedgerError;
pub use event::{EventFilter, EventPage, Events, Happened, NumberedEvent, NumberedEvents};
pub use handle::{Ledger, Opened};
pub use json::Json;
pub use proof::{Altered, Verified};
pub use read::Approvals;
pub use record::{
    Approval, ApprovalStatus, AuditEntry, Change, Claim, CloseRecord, Cursor, Decided, Decision,
    ExecutionRecord, Filter, HashKept, Head, Idempotency, InvalidCursor, LateDigests, Limits,
    Listed, OpenRecord, Output, Page, Place, StreamDigests, Verdicted,
};
pub use recover::{Recovered, Waiting};
pub use work::Receipt;
