//! Who may do what. So far: patterns, and the strict reader of shell text that may allow.

mod error;
mod glob;
mod paths;
mod question;
pub mod shell;

pub use error::PolicyError;
pub use question::{Judgement, Question, RuleSource, Verdict};
