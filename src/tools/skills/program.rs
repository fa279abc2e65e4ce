//! Skills that are programs: JSON on standard input, JSON on standard output.

use std::sync::Arc;

use serde_json::Value;

use super::skill::{Command, Skill};
use super::tool::text_of;
use crate::domain::{
    Background, Call, Ending, ExecutorError, Exit, RiskLevel, SOCKET_VARIABLE, TOO_HEAVY,
    is_too_heavy,
};
use crate::runner::{Captured, Plan};
use crate::sandbox::Grants;
use crate::tools::{Answer, Context, Produced};

/// Where a program finds the files that came with it.
const DIRECTORY_VARIABLE: &str = "SHELLY_SKILL_DIR";
/// What it shows to make calls of its own.
const CAPABILITY_VARIABLE: &str = "SHELLY_CAPABILITY";

/// Runs it. What it is given on standard input is the call's input; a program that fails is an answer
/// like a command that does.
pub(super) async fn run(
    skill: &Skill,
    command: &Command,
    call: &Call,
    context: Context<'_>,
) -> Result<Produced, ExecutorError> {
    let config = &context.config;
    // From inside of the sandbox the daemon is reached for declared calls, by a socket of their own.
    let is_trusted = context.risk == RiskLevel::Trusted;
    let may_call = is_trusted || !skill.calls.is_empty();
    let admission = may_call.then(|| context.calls.admit());
    let mut env = vec![
        // What runs the commands of others, not the program itself.
        ("SHELL", config.shell.display().to_string()),
        (DIRECTORY_VARIABLE, skill.dir.display().to_string()),
    ];
    if let Some(admission) = &admission {
        env.push((CAPABILITY_VARIABLE, admission.token.clone()));
    }
    let socket = config.socket.as_deref().filter(|_| is_trusted);
    env.extend(socket.map(|socket| (SOCKET_VARIABLE, socket.display().to_string())));
    let mut plan = context.plan(call);
    // Last, so that neither the call nor the configuration says otherwise.
    let env = env
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    plan.env.extend(env);
    let limit = call.options.timeout.or(skill.timeout);
    let plan = Plan {
        program: command.program.clone(),
        args: command.args.clone(),
        working_dir: plan.working_dir.or_else(|| Some(skill.dir.clone())),
        stdin: Some(call.input.to_string()),
        limit: limit.unwrap_or(config.default_timeout),
        background: Background::Kill,
        ..plan
    };
    let grants = Grants {
        visible: vec![skill.dir.clone()],
        calls: may_call.then(|| Arc::clone(&context.calls)),
        ..Grants::default()
    };
    let outcome = context.run(plan, call, grants).await;
    drop(admission);
    let outcome = outcome.map_err(|error| match skill.is_removed() {
        // It is not the skill that fails: the list of tools has not been read anew yet.
        true => ExecutorError::UnknownTool {
            nearest: None,
            tool_name: call.tool.clone(),
            input_summary: context.summary.clone(),
        },
        false => error,
    })?;
    if outcome.ending != Ending::Itself(Exit::Code(0)) || outcome.capture_error.is_some() {
        return Ok(Produced::Ran(outcome));
    }
    Ok(match spoken(&outcome.stdout) {
        Ok(output) => Produced::Spoke(
            outcome,
            Answer {
                content: text_of(&output),
                output: Some(output),
                ..Answer::default()
            },
        ),
        Err(why) => Produced::Garbled(outcome, why),
    })
}

/// The JSON that a program has written.
fn spoken(stdout: &Captured) -> Result<Value, String> {
    let held = (stdout.head.len() + stdout.tail.len()) as u64;
    if stdout.total > held || !stdout.tail.is_empty() {
        return Err(format!(
            "its standard output has {} bytes, which is more than an answer holds (max_output_bytes)",
            stdout.total
        ));
    }
    if stdout.head.trim_ascii().is_empty() {
        return Err("it wrote nothing to standard output: expected JSON".to_owned());
    }
    if is_too_heavy(&stdout.head) {
        return Err(format!("its standard output holds {TOO_HEAVY}"));
    }
    serde_json::from_slice(&stdout.head)
        .map_err(|error| format!("its standard output is no JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(head: &str, total: u64) -> Captured {
        Captured {
            head: head.to_owned().into(),
            total,
            ..Captured::default()
        }
    }

    #[test]
    fn only_whole_json_is_an_answer() {
        let whole = |text: &str| spoken(&captured(text, text.len() as u64));
        assert_eq!(whole(" {\"a\": 1}\n"), Ok(serde_json::json!({"a": 1})));
        assert_eq!(whole("null"), Ok(Value::Null));
        for (text, part) in [
            ("", "wrote nothing"),
            ("\n", "wrote nothing"),
            ("{\"a\": ", "no JSON: EOF"),
            ("{} {}", "no JSON: trailing"),
            ("hello", "no JSON"),
            (&"[".repeat(100_000), "no JSON"),
        ] {
            let why = whole(text).expect_err("no answer");
            assert!(why.contains(part), "{why}");
        }
        let cut = spoken(&captured("{}", 1 << 30)).expect_err("cut");
        assert!(cut.contains("1073741824 bytes"), "{cut}");
    }
}
