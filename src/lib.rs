//! Runs commands and tools for AI agents on a Linux machine.

pub mod config;
pub mod domain;
pub mod runner;
