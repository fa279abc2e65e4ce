//! What can be called: the trait every tool implements, the built-in ones one per file, and the
//! registry that finds them by name.

mod bash;
mod registry;
mod schema;
mod sections;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

pub(crate) use registry::{Registry, Tool};
pub(crate) use schema::{InputSchema, schema_of};
pub use sections::{Closing, Content, Streams, content};

use crate::config::ExecutorConfig;
use crate::domain::{Call, ExecutionId, ExecutorError, ToolDetails, Violation};
use crate::runner::{Live, Outcome, Runner};

/// One tool. New ones implement this and are added to the registry's list.
pub(crate) trait ToolImpl: Send + Sync {
    /// The name that calls use.
    fn name(&self) -> &'static str;

    /// All there is to know of it under `config`, with its built-in description.
    fn details(&self, config: &ExecutorConfig) -> ToolDetails;

    /// What an input is about, for logs and errors: unmasked and uncut.
    fn subject(&self, input: &Value) -> String {
        input.to_string()
    }

    /// What is wrong with an input that fits the schema.
    fn check(&self, _input: &Value) -> Vec<Violation> {
        Vec::new()
    }

    /// Does it. The input fits the schema and has passed `check`.
    fn run<'a>(
        &'a self,
        call: &'a Call,
        context: Context<'a>,
    ) -> BoxFuture<'a, Result<Outcome, ExecutorError>>;
}

/// What a tool has to work with.
pub(crate) struct Context<'a> {
    /// The execution this is.
    pub id: ExecutionId,
    /// The configuration as it was when the execution began.
    pub config: Arc<ExecutorConfig>,
    /// Runs processes.
    pub runner: &'a Runner,
    /// Where their output goes, and who says when to stop.
    pub live: Arc<Live>,
    /// The masked summary of the input, for errors.
    pub summary: String,
}
