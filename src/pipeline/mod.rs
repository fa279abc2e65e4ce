//! A call's way from its name to its answer. Opens an execution, takes it through the stages,
//! closes the record: whatever happens between, the record is closed and the log line written.

mod execution;
mod executor;
mod log;
mod masking;
mod records;
mod stages;

pub use execution::{Execution, Finished};
pub use executor::{Executor, Started};
