//! Runs commands and tools for AI agents on a Linux machine: the library behind
//! `shelly-executord`. Its face is [`Executor`]; the daemon is a skin over it.

pub mod api;
pub mod client;
pub mod config;
pub mod daemon;
pub mod domain;
pub mod ledger;
pub mod pipeline;
pub mod policy;
pub mod runner;
pub mod tools;

pub use config::ExecutorConfig;
pub use domain::{ExecutorError, ToolDefinition, ToolOutput};
pub use pipeline::Executor;
