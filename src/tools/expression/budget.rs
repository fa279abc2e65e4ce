//! What an evaluation may make and look at.

use serde_json::Value;

use super::measure::{TEXT_BYTES, cost};

/// How many bytes of values an evaluation makes at most, all together: what a request may carry
/// (`max_request_bytes`), so that whatever was sent can also be copied once.
pub(super) const MADE_LIMIT: usize = 16 << 20;

/// How many bytes an evaluation looks at, at most, a step counted as [`STEP_BYTES`]. Some tenths
/// of a second, and a search through the largest value that can be given still fits many times.
pub(super) const WORK_LIMIT: usize = 128 << 20;

/// What a step costs beside what it looks at: about the time in which so many bytes are searched.
const STEP_BYTES: usize = 64;

/// What is left of both. Everything that is made is paid for before it is made.
#[derive(Debug)]
pub(super) struct Budget {
    made: usize,
    work: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            made: MADE_LIMIT,
            work: WORK_LIMIT,
        }
    }
}

impl Budget {
    /// Pays for `bytes` that will be made.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), String> {
        let left = self.made.checked_sub(bytes);
        self.made =
            left.ok_or_else(|| format!("it makes more than {} MiB of values", MADE_LIMIT >> 20))?;
        self.work(bytes)
    }

    /// Pays for a step that looks at `bytes`.
    pub(super) fn work(&mut self, bytes: usize) -> Result<(), String> {
        self.look(bytes.saturating_add(STEP_BYTES))
    }

    /// Pays for looking at `bytes` in the course of a step.
    pub(super) fn look(&mut self, bytes: usize) -> Result<(), String> {
        let left = self.work.checked_sub(bytes);
        self.work = left.ok_or("it takes too many steps")?;
        Ok(())
    }

    /// A text of its own.
    pub(super) fn text(&mut self, text: &str) -> Result<Value, String> {
        self.make(TEXT_BYTES + text.len())?;
        Ok(Value::String(text.to_owned()))
    }

    /// A copy.
    pub(super) fn copy(&mut self, value: &Value) -> Result<Value, String> {
        self.make(cost(value)?)?;
        Ok(value.clone())
    }
}
