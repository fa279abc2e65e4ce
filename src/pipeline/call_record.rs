use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::{
    Background, Call, CallOptions, Caller, MASK, ParentSpan, RiskLevel, ScopedValues, Secrets,
    TraceId, json_bytes, looks_secret,
};

/// A call as it is shown and kept: secrets masked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Its input in a line.
    pub summary: String,
    /// Its input.
    pub input: Value,
    /// The version of the tool that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_version: Option<String>,
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
    /// The span it is made in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentSpan>,
    /// The session it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// On whose behalf the caller calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// The values it brings along.
    #[serde(default, skip_serializing_if = "ScopedValues::is_empty")]
    pub values: ScopedValues,
    /// Whether what it leaves behind is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_background: bool,
    /// How far it is to be trusted at the most.
    #[serde(default)]
    pub risk_level: RiskLevel,
    /// The directory that it may write to in a sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// The supplementary groups of who called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caller_groups: Vec<u32>,
    /// The hooks that changed its input, in the order in which they did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_by: Vec<String>,
    /// Whether secrets were masked in it, so that it is not the call any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_masked: bool,
    /// Whether some of those were in its input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_input_masked: bool,
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
        let is_input_masked = masking.is_masked;
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
        let working_dir = options.working_dir.as_deref();
        let working_dir = working_dir.map(|dir| masking.path(dir));
        let workspace = options.workspace.as_deref();
        let workspace = workspace.map(|dir| masking.path(dir));
        let mut stdin = options.stdin.clone();
        stdin.iter_mut().for_each(|text| masking.text(text));
        let mut session_id = options.session_id.clone();
        session_id.iter_mut().for_each(|text| masking.text(text));
        let mut tenant_id = options.tenant_id.clone();
        tenant_id.iter_mut().for_each(|text| masking.text(text));
        // What names no version may be anything.
        let mut tool_version = options.tool_version.clone();
        tool_version.iter_mut().for_each(|text| masking.text(text));
        let mut values = options.values.clone();
        for of_scope in values.values_mut() {
            masking.members(of_scope);
        }
        Self {
            summary: summary.to_owned(),
            input,
            tool_version,
            timeout: options.timeout,
            working_dir,
            env,
            stdin,
            parent: options.parent,
            session_id,
            tenant_id,
            values,
            keeps_background: options.background == Background::Keep,
            risk_level: options.risk_level,
            workspace,
            caller_groups: Vec::new(),
            changed_by: Vec::new(),
            is_masked: masking.is_masked,
            is_input_masked,
        }
    }

    /// About how many bytes it has of what it was to work on.
    pub(super) fn bytes(&self) -> usize {
        json_bytes(&self.input) + self.stdin.as_ref().map_or(0, String::len)
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
                tool_version: self.tool_version.clone(),
                timeout: self.timeout,
                working_dir: self.working_dir.clone(),
                env: self.env.clone(),
                stdin: self.stdin.clone(),
                background: if self.keeps_background {
                    Background::Keep
                } else {
                    Background::Kill
                },
                risk_level: self.risk_level,
                workspace: self.workspace.clone(),
                trace_id: None::<TraceId>,
                parent: None,
                session_id: self.session_id.clone(),
                tenant_id: self.tenant_id.clone(),
                values: self.values.clone(),
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

    fn path(&mut self, path: &Path) -> PathBuf {
        let mut text = path.to_string_lossy().into_owned();
        self.text(&mut text);
        PathBuf::from(text)
    }

    /// A variable whose name tells that it is a secret is one, whoever has marked it or not.
    fn variable(&mut self, name: &str, value: &mut String) {
        if value != MASK && looks_secret(&format!("{name}={value}")) {
            self.is_masked = true;
            MASK.clone_into(value);
        }
        self.text(value);
    }

    fn value(&mut self, value: &mut Value) {
        self.is_masked |= self.secrets.mask_said(value);
    }

    fn members(&mut self, members: &mut Map<String, Value>) {
        self.is_masked |= self.secrets.mask_members(members);
    }
}
