//! Runs commands and tools for AI agents on a Linux machine: the library behind
//! `shelly-executord`. Its face is [`Executor`]; the daemon is a skin over it.

pub mod api;
pub mod client;
pub mod config;
pub mod daemon;
pub mod domain;
mod egress;
mod flow;
pub mod grpc;
pub mod ledger;
pub mod metrics;
mod otlp;
pub mod pipeline;
pub mod policy;
pub mod runner;
mod sandbox;
pub mod tools;

pub use config::ExecutorConfig;
pub use domain::{ExecutorError, ToolDefinition, ToolOutput};
pub use pipeline::Executor;
pub use sandbox::sandbox_init;
