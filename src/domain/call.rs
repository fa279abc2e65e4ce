use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::correlation::{LONGEST_NAME, short};
use super::{Correlation, ParentSpan, RiskLevel, ScopedValues, TraceId, json_bytes};

/// What serde_json itself refuses to read beyond. Inputs are refused earlier, at `NESTS_AT_MOST`.
/// `serde_json` itself stops at 128 levels, which bounds every reader behind it.
pub const DEPTH_LIMIT: usize = 128;

/// The tool that `tool` is by another name: what refuses or confines that one concerns it as well.
pub(crate) fn does_as(tool: &str) -> Option<&'static str> {
    (tool == "execute_command").then_some("bash")
}

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

    /// About how many bytes it has of what is worked on and with.
    pub(crate) fn bytes(&self) -> usize {
        let values = self.options.values.values().flat_map(Map::values);
        let stdin = self.options.stdin.as_ref().map_or(0, String::len);
        stdin
            + std::iter::once(&self.input)
                .chain(values)
                .map(json_bytes)
                .sum::<usize>()
    }

    /// Checks what stands in every record and log line of the call: its tool, that tool's version, and its id.
    ///
    /// # Errors
    /// Refuses names of more than 256 bytes.
    pub fn check_names(&self) -> Result<(), InvalidCall> {
        let names = [
            ("name", Some(&self.tool)),
            ("tool_version", self.options.tool_version.as_ref()),
            ("id", self.tool_use_id.as_ref()),
        ];
        let too_long = |name: &&String| name.len() > LONGEST_NAME;
        for (member, name) in names {
            if let Some(name) = name.filter(too_long) {
                let detail = format!("has {} bytes: expected at most {LONGEST_NAME}", name.len());
                return Err(InvalidCall::new(member, detail));
            }
        }
        Ok(())
    }
}

/// What a single call may ask for besides its input. Everything is optional.
#[derive(Clone, Default)]
pub struct CallOptions {
    /// The version of the tool; its default one when absent.
    pub tool_version: Option<String>,
    /// The time limit from process start; the tool's default when absent.
    pub timeout: Option<Duration>,
    /// The absolute directory to run in; the configured default when absent.
    pub working_dir: Option<PathBuf>,
    /// Variables added to (or replacing those of) the built environment.
    pub env: BTreeMap<String, String>,
    /// Text for standard input; `/dev/null` when absent.
    pub stdin: Option<String>,
    /// What becomes of processes that outlive the command.
    pub background: Background,
    /// How far the call is to be trusted at the most; it never lowers what the tool or the policy
    /// says.
    pub risk_level: RiskLevel,
    /// A directory that it may write to when it runs in a sandbox.
    pub workspace: Option<PathBuf>,
    /// The trace the call belongs to.
    pub trace_id: Option<TraceId>,
    /// The span of that trace that the call is made in.
    pub parent: Option<ParentSpan>,
    /// The session the call belongs to, a name of the caller's.
    pub session_id: Option<String>,
    /// On whose behalf the caller calls, a name of the caller's.
    pub tenant_id: Option<String>,
    /// The values it brings along for skills.
    pub values: ScopedValues,
}

impl fmt::Debug for CallOptions {
    // Values of variables and standard input are where callers put secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions")
            .field("tool_version", &self.tool_version)
            .field("timeout", &self.timeout)
            .field("working_dir", &self.working_dir)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("stdin_bytes", &self.stdin.as_ref().map(String::len))
            .field("background", &self.background)
            .field("risk_level", &self.risk_level)
            .field("workspace", &self.workspace)
            .field("trace_id", &self.trace_id)
            .field("parent", &self.parent)
            .field("session_id", &self.session_id)
            .field("tenant_id", &self.tenant_id)
            .field("values", &self.values.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// How long a string of the environment may be, in bytes: 32 pages (execve(2)).
const MAX_VARIABLE: usize = 32 * 4096;

/// How many variables a call may add: far more than any has, and few enough that nobody waits while they are copied.
const MAX_VARIABLES: usize = 4096;

impl CallOptions {
    /// Adds a variable to the command's environment.
    ///
    /// # Errors
    /// A name that is empty or holds `=`, and a NUL anywhere, cannot be put into an environment
    /// (environ(7)), nor can more than 128 KiB (execve(2)). More than 4096 of them are refused.
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
        if name.len() + value.len() + "=\0".len() > MAX_VARIABLE {
            let detail = format!(
                "`{name}` and its value have {} bytes, and no program can be given a variable of more than {MAX_VARIABLE}, `=` and NUL included: use `stdin` or a file",
                name.len() + value.len()
            );
            return Err(InvalidCall::new("env", detail));
        }
        if self.env.len() >= MAX_VARIABLES && !self.env.contains_key(&name) {
            let detail = format!(
                "expected at most {MAX_VARIABLES} variables: use `stdin` or a file for more"
            );
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

    /// Sets the session the call belongs to.
    ///
    /// # Errors
    /// Refuses an empty name, one of more than 256 bytes, and control characters.
    pub fn set_session_id(&mut self, id: String) -> Result<(), InvalidCall> {
        self.session_id = Some(short("session_id", id)?);
        Ok(())
    }

    /// Sets on whose behalf the caller calls.
    ///
    /// # Errors
    /// As [`CallOptions::set_session_id`].
    pub fn set_tenant_id(&mut self, id: String) -> Result<(), InvalidCall> {
        self.tenant_id = Some(short("tenant_id", id)?);
        Ok(())
    }

    /// Sets the trace the call belongs to.
    ///
    /// # Errors
    /// As [`CallOptions::set_session_id`].
    pub fn set_trace_id(&mut self, id: &str) -> Result<(), InvalidCall> {
        self.trace_id = Some(id.parse()?);
        Ok(())
    }

    /// What the call belongs to.
    pub fn correlation(&self) -> Correlation {
        Correlation {
            trace_id: self.trace_id.clone(),
            tenant_id: self.tenant_id.clone(),
            session_id: self.session_id.clone(),
            parent: self.parent,
        }
    }

    /// Sets the directory to run in.
    ///
    /// # Errors
    /// Refuses a relative path: there is nothing it could be relative to that a caller can see.
    pub fn set_working_dir(&mut self, dir: PathBuf) -> Result<(), InvalidCall> {
        self.working_dir = Some(absolute("working_dir", dir)?);
        Ok(())
    }

    /// Sets the directory that the call may write to in a sandbox.
    ///
    /// # Errors
    /// As [`CallOptions::set_working_dir`]. Whether it may have that one is for the configuration
    /// to say.
    pub fn set_workspace(&mut self, dir: PathBuf) -> Result<(), InvalidCall> {
        self.workspace = Some(absolute("workspace", dir)?);
        Ok(())
    }
}

fn absolute(member: &'static str, dir: PathBuf) -> Result<PathBuf, InvalidCall> {
    /// As long as a path can be, without its final NUL (`PATH_MAX`, limits.h(0p)).
    const LONGEST_PATH: usize = 4095;
    let length = dir.as_os_str().len();
    if length > LONGEST_PATH {
        let detail = format!("has {length} bytes: expected a path of at most {LONGEST_PATH}");
        return Err(InvalidCall::new(member, detail));
    }
    if dir.as_os_str().as_encoded_bytes().contains(&0) {
        let detail = format!("{dir:?} holds a NUL character, which no path does");
        return Err(InvalidCall::new(member, detail));
    }
    if !dir.is_absolute() {
        let detail = format!("{dir:?} is no absolute path: expected one such as `/srv/app`");
        return Err(InvalidCall::new(member, detail));
    }
    Ok(dir)
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
    pub(super) fn new(member: &'static str, detail: impl Into<String>) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn there_is_an_end_to_the_environment() {
        let mut options = CallOptions::default();
        let mut add = |n: usize| options.add_env(format!("X{n}"), String::new());
        for n in 0..MAX_VARIABLES {
            add(n).expect("valid");
        }
        let error = add(MAX_VARIABLES).expect_err("one too many");
        assert!(error.to_string().contains("at most 4096"), "{error}");
        add(0).expect("it is there already");
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
