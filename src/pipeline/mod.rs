//! A call's way from its name to its answer. Opens an execution, finds the tool, runs it, closes
//! the record: whatever happens between, the record is closed and the log line written.

mod execution;
mod executor;
mod log;
mod records;

pub use execution::{Execution, Finished};
pub use executor::{Executor, Started};
