//! Skills that are lists of calls. Each is made through the pipeline, and judged there, as if it
//! came from outside.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};

use super::rehearsal;
use super::skill::{Item, OnError, Skill, Step};
use super::tool::text_of;
use crate::domain::{Call, Called, ExecutorError, StopReason};
use crate::tools::expression::{ExpressionError, Saved, Template, Values};
use crate::tools::{Answer, Context, Produced, WorkOf};

/// The name that templates have the skill's input by.
pub(super) const INPUT: &str = "input";

/// How much an expression may see on the event loop, in bytes. What is larger is looked through on another
/// thread: to do so may take some tenths of a second for each expression.
const LARGE: usize = 64 << 10;

/// One walk through the steps.
struct Walk<'a> {
    context: &'a Context<'a>,
    call: &'a Call,
    /// What later steps see.
    values: Arc<Values>,
    /// What the last step came to.
    last: Value,
}

/// What came of one step.
enum Taken {
    /// Its condition did not hold.
    LeftOut,
    /// It was done, or it failed and that does not matter.
    Done(Saved),
}

/// Why a step ended the skill.
pub(super) struct Broken(pub(super) String);

/// Takes the steps in their order, within the time limit of the skill.
pub(super) async fn run(
    skill: &Arc<Skill>,
    items: &[Item],
    result: Option<&Template>,
    call: &Call,
    context: Context<'_>,
) -> Result<Produced, ExecutorError> {
    let mut input = call.input.clone();
    if rehearsal::is_wanted(&mut input) {
        context.live.mark_started();
        let skill = Arc::clone(skill);
        let rehearsed = context.work(WorkOf::call(call), move |_| {
            Ok(rehearsal::rehearse(&skill, input))
        });
        return Ok(Produced::Answered(rehearsed.await?));
    }
    let limit = call.options.timeout.or(skill.timeout);
    let limit = limit.unwrap_or(context.config.default_timeout);
    let mut values = Values::default();
    values.insert(INPUT, input);
    let mut walk = Walk {
        context: &context,
        call,
        values: Arc::new(values),
        last: Value::Null,
    };
    let done = within(&context, call, limit, async {
        for item in items {
            walk.take(item).await?;
        }
        match result {
            None => Ok(walk.last),
            Some(template) => {
                let template = template.clone();
                let rendered = walk.work_out(move |values| template.render(values)).await?;
                rendered.map_err(|error| Broken(format!("`result`: {error}")))
            }
        }
    });
    let answer = match done.await? {
        Ok(output) => Answer {
            content: text_of(&output),
            output: Some(output),
            ..Answer::default()
        },
        Err(Broken(why)) => Answer::failed(why),
    };
    Ok(Produced::Answered(answer))
}

/// Does what may take until the limit or until it is stopped. What it has called ends with it.
async fn within<T>(
    context: &Context<'_>,
    call: &Call,
    limit: Duration,
    walk: impl Future<Output = T>,
) -> Result<T, ExecutorError> {
    let begun = Instant::now();
    context.live.mark_started();
    tokio::select! {
        biased;
        done = walk => Ok(done),
        reason = context.live.stop_requested() => Err(context.stopped(&call.tool, reason, begun.elapsed())),
        () = tokio::time::sleep(limit) => {
            let reason = StopReason::Timeout(limit);
            Err(context.stopped(&call.tool, reason, begun.elapsed()))
        }
    }
}

impl Walk<'_> {
    async fn take(&mut self, item: &Item) -> Result<(), Broken> {
        let steps = item.steps();
        // What one of several saves, the others do not see. The first that ends the skill ends them, too: the
        // calls of a skill end with it.
        let taken = try_join_all(steps.iter().map(|step| self.step(step))).await?;
        for (step, taken) in steps.iter().zip(taken) {
            let saved = match taken {
                Taken::Done(saved) => saved,
                Taken::LeftOut => Saved::default(),
            };
            self.last = saved.value.clone();
            if let Some(name) = &step.save_output_as {
                Arc::make_mut(&mut self.values).insert(name, saved);
            }
        }
        Ok(())
    }

    /// Has an expression worked out where it holds nobody up.
    async fn work_out<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Values) -> T + Send + 'static,
    ) -> Result<T, Broken> {
        if self.values.bytes() <= LARGE {
            return Ok(work(&self.values));
        }
        let values = Arc::clone(&self.values);
        let done = tokio::task::spawn_blocking(move || work(&values)).await;
        done.map_err(|error| Broken(format!("an expression could not be worked out: {error}")))
    }

    async fn step(&self, step: &Step) -> Result<Taken, Broken> {
        if let Some(condition) = &step.condition {
            let condition = condition.clone();
            let holds = self.work_out(move |values| condition.truth(values)).await?;
            if !holds.map_err(|error| at_step(step, "`condition`", &error))? {
                return Ok(Taken::LeftOut);
            }
        }
        let parameters = step.parameters.clone();
        let input = self
            .work_out(move |values| parameters.render(values))
            .await?;
        let input = input.map_err(|error| at_step(step, "`parameters`", &error))?;
        let mut call = Call::new(&step.tool, input);
        call.options.tool_version = step.version.as_ref().map(ToString::to_string);
        call.options.timeout = step.timeout;
        call.options.working_dir = self.call.options.working_dir.clone();
        call.options.env = self.call.options.env.clone();
        let called = self.context.calls.call(call).await;
        if called.is_shut_down {
            // That is the end of the skill as well, whatever its other steps are for.
            self.context.live.stop(StopReason::Shutdown);
            return std::future::pending().await;
        }
        if called.is_error && step.on_error == OnError::Stop {
            let meant = step.description.as_deref();
            let meant = meant.map_or_else(String::new, |meant| format!(", {meant}"));
            return Err(Broken(format!(
                "step {} (`{}`{meant}) failed: {}",
                step.pointer, step.tool, called.content
            )));
        }
        Ok(Taken::Done(saved(&step.tool, &called)))
    }
}

/// What is wrong with an expression of a step.
pub(super) fn at_step(step: &Step, what: &str, error: &ExpressionError) -> Broken {
    Broken(format!(
        "step {} (`{}`), {what}: {error}",
        step.pointer, step.tool
    ))
}

/// What later steps see of a call: of a shell its standard output, of a condition whether it holds, of
/// another tool its output, or its text if it has none; and as members how it went.
fn saved(tool: &str, called: &Called) -> Saved {
    let mut members = Map::new();
    let id = called.id.map(|id| id.to_string());
    members.insert("execution_id".to_owned(), json!(id));
    members.insert("is_error".to_owned(), called.is_error.into());
    members.insert("status".to_owned(), called.status.as_str().into());
    members.insert("content".to_owned(), called.content.as_str().into());
    if let Some(process) = &called.process {
        members.insert("return_code".to_owned(), json!(process.return_code));
        members.insert("stdout".to_owned(), json!(process.stdout));
        members.insert("stderr".to_owned(), json!(process.stderr));
    }
    if let Some(Value::Object(output)) = &called.output {
        members.extend(output.clone());
    }
    let value = match (tool, &called.process, &called.output) {
        ("bash" | "execute_command", Some(process), _) => json!(process.stdout),
        ("check_condition", _, Some(output)) => output["result"].clone(),
        (_, _, Some(output)) => output.clone(),
        (_, _, None) => called.content.as_str().into(),
    };
    Saved { value, members }
}
