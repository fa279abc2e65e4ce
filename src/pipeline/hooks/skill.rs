use std::sync::Arc;

use serde_json::{Map, Value};

use super::ResultSeen;
use super::answer::{Answer, Came};
use super::given::NAMES;
use crate::config::Hook;
use crate::domain::{Call, Scope, StopReason};
use crate::pipeline::Execution;
use crate::pipeline::executor::Inner;
use crate::tools::Template;

/// A hook that is a skill, at one point of a call's way.
pub(super) struct Asking<'a> {
    pub(super) hook: &'a Hook,
    pub(super) skill: &'a str,
    /// Its input, with templates over what a program would be given.
    pub(super) input: &'a toml::Value,
    pub(super) result: Option<&'a ResultSeen>,
}

impl Asking<'_> {
    /// Calls it on the execution's behalf, and keeps what it answers for the skills that the call leads
    /// to: in `scratch`, under the hook's name. It decides nothing.
    pub(super) async fn ask(
        &self,
        inner: &Arc<Inner>,
        execution: &Arc<Execution>,
        given: &str,
        told_of: Option<StopReason>,
    ) -> Came {
        let input = match self.input(given) {
            Ok(input) => input,
            Err(why) => return Came::Failure(why),
        };
        let mut call = Call::new(self.skill, input);
        call.options.timeout = Some(self.hook.timeout);
        let called = inner.call_for_hook(execution, call).await;
        let stopped = match called.is_shut_down {
            true => Some(StopReason::Shutdown),
            // What it was told of, to begin with, is not in its way.
            false => execution.stop_reason().filter(|_| told_of.is_none()),
        };
        if let Some(reason) = stopped {
            return Came::Stopped(reason);
        }
        if called.is_error {
            return Came::Failure(called.content.as_str().to_owned());
        }
        let output = called.output.unwrap_or(Value::Null);
        let max_bytes = inner.config().skills.max_context_bytes;
        match execution.keep_value(Scope::Scratch, &self.hook.name, output, max_bytes) {
            Ok(()) => Came::Answer(Answer::Allow {}),
            Err(error) => Came::Failure(error.to_string()),
        }
    }

    fn input(&self, given: &str) -> Result<Value, String> {
        let mut given: Map<String, Value> = serde_json::from_str(given)
            .map_err(|error| format!("what it is given cannot be read: {error}"))?;
        if let (Some(Value::Object(told)), Some(result)) = (given.get_mut("result"), self.result) {
            told.insert("content".to_owned(), result.content.clone().into());
        }
        let template = template(self.input)?;
        let rendered = template.render(&given);
        rendered.map_err(|error| format!("`input`: {error}"))
    }
}

/// The input that a hook is configured with, read as a template.
///
/// # Errors
/// What in it is none.
pub(in crate::pipeline) fn template(input: &toml::Value) -> Result<Template, String> {
    let input =
        serde_json::to_value(input).map_err(|error| format!("`input` is no JSON: {error}"))?;
    let template = Template::parse(&input).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!("`input`: {}", errors.join("; "))
    })?;
    let names = template.names();
    match names.iter().find(|name| !NAMES.contains(name)) {
        None => Ok(template),
        Some(name) => Err(format!(
            "`input`: `{name}` is a missing value: there is `{}`",
            NAMES.join("`, `")
        )),
    }
}
