//! What is masked of one call besides its output, which is masked where it is read.

use std::sync::Arc;

use crate::config::ExecutorConfig;
use crate::domain::{Call, ExecutorError, Secrets, ToolOutput, summarize};

/// How much of a text is looked at for its summary, in bytes: more than goes into one.
const LOOKED_AT_BYTES: usize = 8 * 1024;

/// What is to be masked in whatever a call leads to: what the configuration says, and the values
/// that the variables have which it marks as secret.
pub(super) fn secrets(call: &Call, config: &ExecutorConfig) -> Secrets {
    let mut secrets = Secrets::new(config.secrets.tokens, Arc::clone(&config.secrets.patterns));
    for name in &config.secrets.variables {
        let values = [call.options.env.get(name), config.env.get(name)];
        for value in values.into_iter().flatten() {
            secrets.add(value);
        }
    }
    secrets
}

/// A text in a line, for logs and errors.
pub(super) fn summary(text: &str, secrets: &Secrets) -> String {
    let beginning = &text[..text.floor_char_boundary(LOOKED_AT_BYTES)];
    summarize(&secrets.mask_text(beginning))
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
