//! What is masked of one call besides its output, which is masked where it is read.

use std::sync::Arc;

use super::CallRecord;
use crate::config::ExecutorConfig;
use crate::domain::{Call, Correlation, ExecutorError, Judgement, Secrets, ToolOutput};
use crate::tools::Produced;

/// What is to be masked of a call by itself: what the configuration says, and the values
/// that the variables have which it marks as secret.
pub(super) fn secrets(call: &Call, config: &ExecutorConfig) -> Secrets {
    let mut secrets = Secrets::new(config.secrets.tokens, Arc::clone(&config.secrets.patterns));
    marked(call, config).for_each(|value| secrets.add(value));
    secrets
}

/// The values of these variables.
pub(super) fn marked<'a>(
    call: &'a Call,
    config: &'a ExecutorConfig,
) -> impl Iterator<Item = &'a str> {
    let names = config.secrets.variables.iter();
    let values = names.flat_map(|name| [call.options.env.get(name), config.env.get(name)]);
    values.flatten().map(String::as_str)
}

/// What a call belongs to, as it may be told.
pub(super) fn correlation(call: &Call, secrets: &Secrets) -> Correlation {
    let Correlation {
        trace_id,
        tenant_id,
        session_id,
        parent,
    } = call.options.correlation();
    let masked = |text: String| secrets.mask_text(&text);
    Correlation {
        trace_id: trace_id.and_then(|trace| masked(trace.as_str().to_owned()).parse().ok()),
        tenant_id: tenant_id.map(masked),
        session_id: session_id.map(masked),
        parent,
    }
}

/// Masks what a tool answers in its own words, and what was made of what a process wrote: that itself is masked
/// where it is read, but may have said it in another way (JSON has `\u0041` for `A`).
pub(super) fn mask_produced(produced: &mut Produced, secrets: &Secrets) {
    match produced {
        Produced::Answered(answer) | Produced::Spoke(_, answer) => {
            let content = secrets.mask_text(&answer.content);
            if content != answer.content {
                answer.read_on = answer.read_on.of_masked();
            }
            answer.content = content;
            answer.note = secrets.mask_text(&answer.note);
            if let Some(output) = &mut answer.output {
                secrets.mask_value(output);
            }
        }
        Produced::Told(_, output) => {
            secrets.mask_value(output);
        }
        Produced::Garbled(_, why) => *why = secrets.mask_text(why),
        Produced::Ran(_) => {}
    }
}

/// Masks what the policy said of a call. Rules that would let it pass repeat it with escapes of their own, so
/// that there are none where it holds a secret.
pub(super) fn mask_judgement(judgement: &mut Judgement, call: &CallRecord, secrets: &Secrets) {
    judgement.mask(|text| secrets.mask_text(text));
    if call.is_input_masked {
        judgement.remember_rules.clear();
    }
}

/// Masks what a result repeats of the call and of its processes.
pub(super) fn mask(result: &mut Result<ToolOutput, ExecutorError>, secrets: &Secrets) {
    if let Err(error) = result {
        error.mask(|text| secrets.mask_text(text));
    }
    let output = match result {
        Ok(output) => Some(output),
        Err(error) => error.partial_mut(),
    };
    let run = output.map(|output| &mut output.run);
    for left in run.into_iter().flat_map(|run| &mut run.background) {
        left.command = secrets.mask_text(&left.command);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::tools::Answer;

    #[test]
    fn all_that_a_tool_says_is_masked() {
        let pattern = regex::bytes::Regex::new("hunter2").expect("a pattern");
        let secrets = Secrets::new(false, Arc::new([pattern]));
        let text = || "it is hunter2".to_owned();
        let mut produced = Produced::Answered(Answer {
            content: text(),
            note: text(),
            output: Some(json!({"hunter2": text()})),
            ..Answer::default()
        });
        mask_produced(&mut produced, &secrets);
        let shown = format!("{produced:?}");
        assert!(
            !shown.contains("hunter2") && shown.contains("it is ***"),
            "{shown}"
        );
    }
}
