//! Runs commands and tools for AI agents on a Linux machine.
pub mod client;
