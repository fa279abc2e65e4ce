use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::{Background, Call, CallOptions, Caller, Secrets, TraceId, mask_secrets};

/// A call as it is shown and kept: secrets masked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Its input in a line.
    pub summary: String,
    /// Its input.
    pub input: Value,
    /// The time limit it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The directory it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<PathBuf>,
    /// The variables it sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Its standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Whether what it leaves behind is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_background: bool,
    /// The supplementary groups of who called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caller_groups: Vec<u32>,
    /// The hooks that changed its input, in the order in which they did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_by: Vec<String>,
    /// Whether secrets were masked in it, so that it is not the call any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_masked: bool,
}

impl CallRecord {
    pub(super) fn new(call: &Call, summary: &str, secrets: &Secrets) -> Self {
        let options = &call.options;
        let mut masking = Masking {
            secrets,
            is_masked: false,
        };
        let mut input = call.input.clone();
        masking.value(&mut input);
        let mut env = options.env.clone();
        env.iter_mut()
            .for_each(|(name, value)| masking.variable(name, value));
        let env = env
            .into_iter()
            .map(|(mut name, value)| {
                masking.text(&mut name);
                (name, value)
            })
            .collect();
        let working_dir = options.working_dir.as_ref().map(|dir| {
            let mut text = dir.to_string_lossy().into_owned();
            masking.text(&mut text);
            PathBuf::from(text)
        });
        let mut stdin = options.stdin.clone();
        stdin.iter_mut().for_each(|text| masking.text(text));
        Self {
            summary: summary.to_owned(),
            input,
            timeout: options.timeout,
            working_dir,
            env,
            stdin,
            keeps_background: options.background == Background::Keep,
            caller_groups: Vec::new(),
            changed_by: Vec::new(),
            is_masked: masking.is_masked,
        }
    }

    /// The same, with who called.
    pub(super) fn of(self, caller: &Caller) -> Self {
        Self {
            caller_groups: caller.groups.clone(),
            ..self
        }
    }

    /// The call that this is the record of; `None` when it is not all there.
    pub(super) fn call(&self, tool: &str, tool_use_id: Option<&str>) -> Option<Call> {
        (!self.is_masked).then(|| Call {
            tool: tool.to_owned(),
            input: self.input.clone(),
            tool_use_id: tool_use_id.map(str::to_owned),
            options: CallOptions {
                timeout: self.timeout,
                working_dir: self.working_dir.clone(),
                env: self.env.clone(),
                stdin: self.stdin.clone(),
                background: if self.keeps_background {
                    Background::Keep
                } else {
                    Background::Kill
                },
                trace_id: None::<TraceId>,
            },
        })
    }
}

/// Masks texts, and remembers whether there was anything to mask.
struct Masking<'a> {
    secrets: &'a Secrets,
    is_masked: bool,
}

impl Masking<'_> {
    fn text(&mut self, text: &mut String) {
        let masked = self.secrets.mask_text(text);
        if masked != *text {
            self.is_masked = true;
            *text = masked;
        }
    }

    /// A variable whose name tells that it is a secret is one, whoever has marked it or not.
    fn variable(&mut self, name: &str, value: &mut String) {
        let assignment = format!("{name}={value}");
        if mask_secrets(&assignment) != assignment {
            self.is_masked = true;
            "***".clone_into(value);
        }
        self.text(value);
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => members.values_mut().for_each(|member| self.value(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
