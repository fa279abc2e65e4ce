//! What can be called: the trait every tool implements, the built-in ones one per file, and the
//! registry that finds them by name.

mod answer;
mod bash;
mod check_condition;
mod execute_command;
pub mod expression;
mod files;
mod place;
mod produced;
mod registry;
mod schema;
mod sections;
mod shell;
pub(crate) mod skills;
mod work;

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

pub(crate) use answer::{Answer, ReadOn, Width};
pub(crate) use expression::Template;
pub(crate) use place::{Place, Resolved, UseOfIt};
pub(crate) use produced::Produced;
pub(crate) use registry::{Registry, Tool};
pub(crate) use schema::{InputSchema, schema_of};
pub(crate) use sections::cut_end;
pub use sections::{Closing, Content, Streams, content};
pub use skills::{SkillCheck, SkillProblem};
pub(crate) use work::{Places, Stopped, WorkOf};

use crate::config::ExecutorConfig;
use crate::domain::{
    Call, Caller, Calls, ExecutionId, ExecutorError, Judgement, RiskLevel, SpanContext,
    ToolDetails, Violation,
};
use crate::runner::{Live, Runner};
use crate::sandbox::Sandbox;

/// One tool. New ones implement this and are added to the registry's list.
pub(crate) trait ToolImpl: Send + Sync {
    /// The name that calls use.
    fn name(&self) -> &str;

    /// Its own version, as Semantic Versioning has it.
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// All there is to know of it under `config`, with its built-in description.
    fn details(&self, config: &ExecutorConfig) -> ToolDetails;

    /// Whether it is there at all under `config`.
    fn is_enabled(&self, _config: &ExecutorConfig) -> bool {
        true
    }

    /// What an input is about, for logs and errors: unmasked and uncut.
    fn subject(&self, input: &Value) -> String {
        input.to_string()
    }

    /// What is wrong with an input that fits the schema.
    fn check(&self, _input: &Value) -> Vec<Violation> {
        Vec::new()
    }

    /// Whether an input names paths, which are then resolved.
    fn names_paths(&self, _input: &Value) -> bool {
        false
    }

    /// Where the paths of a call lead, for whoever judges it. May wait for the disk.
    ///
    /// # Errors
    /// Paths that lead nowhere whatever the disk has.
    fn resolve(&self, _call: &mut Call, _place: &Place) -> Result<Vec<Resolved>, Vec<Violation>> {
        Ok(Vec::new())
    }

    /// What it says itself of a call that it will refuse whatever the policy says, as far as that is known beforehand.
    /// May wait for the disk.
    fn refuses(
        &self,
        _call: &Call,
        _resolved: &[Resolved],
        _caller: &Caller,
        _config: &ExecutorConfig,
    ) -> Option<Judgement> {
        None
    }

    /// How far it is trusted by itself.
    fn risk_level(&self) -> RiskLevel {
        RiskLevel::Trusted
    }

    /// What becomes of it where a call is not trusted.
    fn confinement(&self) -> Confinement {
        Confinement::Process
    }

    /// Whether its processes may make calls of their own.
    fn admits_calls(&self) -> bool {
        false
    }

    /// Whether it may call a tool of that name.
    fn may_call(&self, _tool: &str) -> bool {
        false
    }

    /// Whether its input may be a script, or name one: then who approves a call approves what the
    /// files are that it names.
    fn may_run_its_input(&self) -> bool {
        true
    }

    /// The directory whose files it is made of, if it is no part of the program.
    fn made_of(&self) -> Option<&Path> {
        None
    }

    /// Does it. The input fits the schema and has passed `check`.
    fn run<'a>(
        &'a self,
        call: &'a Call,
        context: Context<'a>,
    ) -> BoxFuture<'a, Result<Produced, ExecutorError>>;
}

/// What becomes of a tool where a call of it is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// It is a process, which runs in the sandbox.
    Process,
    /// It touches nothing but what it is given, and calls others that are not trusted either.
    Needless,
    /// The daemon does it itself, with its own privileges: it is refused.
    Impossible,
}

/// What a tool has to work with.
#[derive(Clone)]
pub(crate) struct Context<'a> {
    /// The execution this is.
    pub id: ExecutionId,
    /// The execution that called for it.
    pub parent: Option<ExecutionId>,
    /// The configuration as it was when the execution began, and from the run on as restricted as it is by then.
    pub config: Arc<ExecutorConfig>,
    /// How far the call is trusted.
    pub risk: RiskLevel,
    /// The directory that the policy lets it write to in the sandbox.
    pub granted: Option<PathBuf>,
    /// Runs processes.
    pub runner: &'a Arc<Runner>,
    /// Runs those that are not trusted.
    pub sandbox: &'a Sandbox,
    /// Who called.
    pub caller: Caller,
    /// Where their output goes, and who says when to stop.
    pub live: Arc<Live>,
    /// Its span, where spans are told of.
    pub span: Option<SpanContext>,
    /// The masked summary of the input, for errors.
    pub summary: String,
    /// Where the paths of the call led when it was judged.
    pub resolved: Vec<Resolved>,
    /// How much may be worked on at once.
    pub places: Places,
    /// Makes calls on the execution's behalf.
    pub calls: Arc<dyn Calls>,
}
