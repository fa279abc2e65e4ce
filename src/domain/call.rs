use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How deeply an input may nest before it is refused; deeper is an attack, not a tool call.
/// `serde_json` itself stops at 128 levels, which bounds every reader behind it.
pub const DEPTH_LIMIT: usize = 128;

/// One tool call, as it came in.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name of the tool.
    pub tool: String,
    /// The tool's input, not yet read.
    pub input: Value,
    /// The id the model gave its `tool_use` block, handed back with the result.
    pub tool_use_id: Option<String>,
    /// What the caller wants besides.
    pub options: CallOptions,
}

impl Call {
    /// A call of `tool` with `input` and nothing else asked for.
    pub fn new(tool: impl Into<String>, input: Value) -> Self {
        Self {
            tool: tool.into(),
            input,
            tool_use_id: None,
            options: CallOptions::default(),
        }
    }
}

/// What a single call may ask for besides its input. Everything is optional.
#[derive(Clone, Default)]
pub struct CallOptions {
    /// The time limit from process start; the configured default when absent.
    pub timeout: Option<Duration>,
    /// The absolute directory to run in; the configured default when absent.
    pub working_dir: Option<PathBuf>,
    /// Variables added to (or replacing those of) the built environment.
    pub env: BTreeMap<String, String>,
    /// Text for standard input; `/dev/null` when absent.
    pub stdin: Option<String>,
    /// What becomes of processes that outlive the command.
    pub background: Background,
    /// The trace the call belongs to.
    pub trace_id: Option<TraceId>,
}

impl fmt::Debug for CallOptions {
    // Values of variables and standard input are where callers put secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions")
            .field("timeout", &self.timeout)
            .field("working_dir", &self.working_dir)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("stdin_bytes", &self.stdin.as_ref().map(String::len))
            .field("background", &self.background)
            .field("trace_id", &self.trace_id)
            .finish()
    }
}

impl CallOptions {
    /// Adds a variable to the command's environment.
    ///
    /// # Errors
    /// A name that is empty or holds `=`, and a NUL anywhere, cannot be put into an environment
    /// (environ(7)).
    pub fn add_env(&mut self, name: String, value: String) -> Result<(), InvalidCall> {
        if name.is_empty() {
            return Err(InvalidCall::new("env", "a variable needs a name"));
        }
        if name.contains(['=', '\0']) {
            let detail = format!("{name:?} is no variable name: it may not hold `=` or NUL");
            return Err(InvalidCall::new("env", detail));
        }
        if value.contains('\0') {
            let detail = format!("the value of `{name}` may not hold NUL");
            return Err(InvalidCall::new("env", detail));
        }
        self.env.insert(name, value);
        Ok(())
    }

    /// Sets the time limit to `secs` seconds, fractions allowed.
    ///
    /// # Errors
    /// Refuses what is not a number above 0 and at most `max`.
    pub fn set_timeout_secs(&mut self, secs: f64, max: Duration) -> Result<(), InvalidCall> {
        let max_secs = max.as_secs_f64();
        if !(secs > 0.0 && secs <= max_secs) {
            let detail = format!(
                "{secs} is out of range: expected seconds above 0 and at most {max_secs} (max_timeout_secs)"
            );
            return Err(InvalidCall::new("timeout_secs", detail));
        }
        // Rounded up: a positive limit never becomes zero.
        let limit = Duration::from_secs_f64(secs).max(Duration::from_nanos(1));
        self.timeout = Some(limit);
        Ok(())
    }

    /// Sets the directory to run in.
    ///
    /// # Errors
    /// Refuses a relative path: there is nothing it could be relative to that a caller can see.
    pub fn set_working_dir(&mut self, dir: PathBuf) -> Result<(), InvalidCall> {
        if !dir.is_absolute() || dir.as_os_str().as_encoded_bytes().contains(&0) {
            let detail = format!("{dir:?} is no absolute path: expected one such as `/srv/app`");
            return Err(InvalidCall::new("working_dir", detail));
        }
        self.working_dir = Some(dir);
        Ok(())
    }
}

/// A member of a call that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{member}`: {detail}")]
pub struct InvalidCall {
    /// The member's name.
    pub member: &'static str,
    /// What is wrong with it and what was expected.
    pub detail: String,
}

impl InvalidCall {
    fn new(member: &'static str, detail: impl Into<String>) -> Self {
        Self {
            member,
            detail: detail.into(),
        }
    }
}

/// What becomes of processes that a command leaves behind when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// They are killed before the answer is given.
    #[default]
    Kill,
    /// They live on, at the longest as long as the daemon.
    Keep,
}

/// A W3C trace id: 32 lowercase hexadecimal digits, not all zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct TraceId(String);

impl TraceId {
    /// Takes the trace id out of a `traceparent` header (W3C Trace Context, section 3.2).
    ///
    /// Unknown versions are read by the version-00 prefix, as the standard asks; `None` when the
    /// header is not well-formed, in which case the standard says to ignore it.
    pub fn from_traceparent(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, parent, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let sized = version.len() == 2 && parent.len() == 16 && flags.len() == 2;
        let usable = is_lower_hex(version)
            && version != "ff"
            && (version != "00" || parts.next().is_none())
            && is_lower_hex(parent)
            && parent.bytes().any(|b| b != b'0')
            && is_lower_hex(flags);
        if sized && usable {
            trace.parse().ok()
        } else {
            None
        }
    }

    /// The 32 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TraceId {
    type Error = InvalidCall;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl FromStr for TraceId {
    type Err = InvalidCall;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() == 32 && is_lower_hex(text) && text.bytes().any(|b| b != b'0') {
            Ok(Self(text.to_owned()))
        } else {
            let detail = format!("{text:?} is no trace id: expected 32 lowercase hex digits");
            Err(InvalidCall::new("trace_id", detail))
        }
    }
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_gives_its_trace_id() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (header, expected) in [
            (format!("00-{id}-00f067aa0ba902b7-01"), Some(id)),
            (format!("cc-{id}-00f067aa0ba902b7-01-later"), Some(id)),
            (format!("00-{id}-00f067aa0ba902b7-01-later"), None),
            (format!("ff-{id}-00f067aa0ba902b7-01"), None),
            (format!("00-{id}-0000000000000000-01"), None),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None),
            (
                format!("00-{}-00f067aa0ba902b7-01", id.to_uppercase()),
                None,
            ),
            ("rubbish".to_owned(), None),
        ] {
            let found = TraceId::from_traceparent(&header);
            assert_eq!(found.as_ref().map(TraceId::as_str), expected, "{header}");
        }
    }

    #[test]
    fn a_time_limit_is_refused_rather_than_clamped() {
        let max = Duration::from_secs(3600);
        for secs in [0.0, -1.0, 3600.1, f64::NAN, f64::INFINITY] {
            let mut options = CallOptions::default();
            assert!(options.set_timeout_secs(secs, max).is_err(), "{secs}");
        }
        let mut options = CallOptions::default();
        options.set_timeout_secs(0.25, max).expect("a fraction");
        assert_eq!(options.timeout, Some(Duration::from_millis(250)));
    }

    #[test]
    fn debug_shows_no_values() {
        let mut options = CallOptions::default();
        options
            .add_env("TOKEN".into(), "hunter2".into())
            .expect("valid");
        options.stdin = Some("hunter2".into());
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
