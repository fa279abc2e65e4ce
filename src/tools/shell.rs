//! Scripts handed to the configured shell, for the tools that take them.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Context;
use crate::domain::{Call, Correlation, ExecutorError, RiskLevel, Violation};
use crate::runner::{Outcome, Plan, RunError, Script};
use crate::sandbox::{Grants, SandboxError};

/// In which a process finds the trace that its own work belongs to, and its parent there (W3C Trace
/// Context, as OpenTelemetry has it for environment variables).
const TRACEPARENT: &str = "TRACEPARENT";

/// The largest number below which a float stands for one integer only: 2 to the 53rd.
const MAX_EXACT: f64 = (1_u64 << 53) as f64;

/// What is wrong with the parameter `command` that no schema says.
pub(super) fn check_command(input: &Value) -> Vec<Violation> {
    let has_nul = matches!(input.get("command"), Some(Value::String(text)) if text.contains('\0'));
    let nul = || Violation {
        pointer: "/command".to_owned(),
        detail: "holds a NUL character, which no command can".to_owned(),
    };
    has_nul.then(nul).into_iter().collect()
}

/// What a shell tool is about: its command.
pub(super) fn command(input: &Value) -> String {
    match input.get("command") {
        Some(Value::String(command)) => command.clone(),
        _ => input.to_string(),
    }
}

/// The input as the type that its schema is made from.
///
/// # Errors
/// A number that fits the schema and no integer of this machine's.
pub(super) fn input<T: DeserializeOwned>(
    call: &Call,
    context: &Context<'_>,
) -> Result<T, ExecutorError> {
    T::deserialize(&call.input)
        .or_else(|_| T::deserialize(with_integers(&call.input)))
        .map_err(|error| ExecutorError::InvalidInput {
            tool_name: call.tool.clone(),
            input_summary: context.summary.clone(),
            violations: vec![Violation::of_all(error.to_string())],
        })
}

/// The same with integers for numbers such as `1.0`, which JSON Schema takes for integers as well.
fn with_integers(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| {
                number.is_f64() && float.fract() == 0.0 && float.abs() <= MAX_EXACT
            });
            whole.map_or_else(|| value.clone(), |float| (float as i64).into())
        }
        Value::Array(items) => items.iter().map(with_integers).collect(),
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, value)| (name.clone(), with_integers(value)));
            Value::Object(members.collect())
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Runs `script`.
pub(super) async fn run(
    script: String,
    call: &Call,
    context: Context<'_>,
) -> Result<Outcome, ExecutorError> {
    let config = &context.config;
    let plan = Plan {
        program: config.shell.clone(),
        script: Some(Script {
            option: "-c".to_owned(),
            text: script,
        }),
        ..context.plan(call)
    };
    context.run(plan, call, Grants::default()).await
}

impl Context<'_> {
    /// A plan with all that a call and the configuration say, of no program yet.
    pub(super) fn plan(&self, call: &Call) -> Plan {
        let (config, options) = (&self.config, &call.options);
        let variables = config.env.iter().chain(&options.env);
        Plan {
            id: self.id,
            program: Default::default(),
            args: Vec::new(),
            script: None,
            working_dir: options
                .working_dir
                .clone()
                .or_else(|| config.working_dir.clone()),
            env: variables
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            stdin: options.stdin.clone(),
            limit: options.timeout.unwrap_or(config.default_timeout),
            kill_grace: config.kill_grace,
            kill_wait: config.kill_wait,
            drain: config.drain,
            background: options.background,
            parent: self.parent,
            is_recognisable: false,
            limits: config.limits,
            stop_by: None,
        }
    }

    /// Runs a plan where the call belongs: outside, or in the sandbox with what it is granted there.
    pub(super) async fn run(
        &self,
        mut plan: Plan,
        call: &Call,
        mut grants: Grants,
    ) -> Result<Outcome, ExecutorError> {
        match self.risk {
            RiskLevel::Trusted => {
                self.tell_correlation(&mut plan, call);
                let outcome = self.runner.run(plan, &self.live).await;
                outcome.map_err(|error| self.not_started(call, error))
            }
            RiskLevel::Untrusted => {
                let given = &call.options;
                // The configured directory is for what may go anywhere.
                let is_seen = |dir: &PathBuf| grants.visible.contains(dir);
                if given.working_dir.is_none() && !plan.working_dir.as_ref().is_some_and(is_seen) {
                    plan.working_dir = None;
                }
                grants.workspace = given.workspace.clone().or(self.granted.clone());
                grants.by_policy = self.granted.clone();
                let destinations = self.config.sandbox.egress.get(&call.tool);
                grants.destinations = destinations.cloned().unwrap_or_default();
                // What the configuration sets may be secret.
                let is_ours = |name: &String| self.config.env.contains_key(name);
                plan.env
                    .retain(|(name, _)| !is_ours(name) || given.env.contains_key(name));
                self.tell_correlation(&mut plan, call);
                let run = self
                    .sandbox
                    .run(plan, &grants, &self.config, self.runner, &self.live);
                run.await.map_err(|error| match error {
                    SandboxError::Run(error) => self.not_started(call, error),
                    SandboxError::Unavailable(detail) => ExecutorError::SandboxUnavailable {
                        tool_name: call.tool.clone(),
                        input_summary: self.summary.clone(),
                        detail,
                    },
                    SandboxError::Refused(detail) => ExecutorError::InvalidInput {
                        tool_name: call.tool.clone(),
                        input_summary: self.summary.clone(),
                        violations: vec![Violation::of_all(detail)],
                    },
                })
            }
        }
    }

    /// Tells the process what its call belongs to. Neither the call's own variables nor the
    /// configuration's say otherwise, but for the parent that a caller names itself.
    fn tell_correlation(&self, plan: &mut Plan, call: &Call) {
        let correlation = call.options.correlation();
        plan.env
            .retain(|(name, _)| !Correlation::VARIABLES.contains(&name.as_str()));
        for (name, value) in correlation.variables() {
            plan.env.push((name.to_owned(), value.to_owned()));
        }
        let has_parent = call.options.env.contains_key(TRACEPARENT);
        let of_trace = correlation.traceparent(self.id);
        let traceparent = of_trace.or_else(|| self.span.map(|span| span.traceparent()));
        if let Some(traceparent) = traceparent.filter(|_| !has_parent) {
            plan.env.push((TRACEPARENT.to_owned(), traceparent));
        }
    }

    /// What a process that could not be started comes to.
    pub(super) fn not_started(&self, call: &Call, error: RunError) -> ExecutorError {
        let RunError { step, source } = error;
        ExecutorError::SpawnFailed {
            tool_name: call.tool.clone(),
            input_summary: self.summary.clone(),
            step,
            source,
        }
    }
}
