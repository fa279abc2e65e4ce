use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::skill::{Mode, Skill};
use super::{program, steps};
use crate::config::ExecutorConfig;
use crate::domain::{Call, ExecutorError, RiskLevel, ToolDefinition, ToolDetails};
use crate::tools::{Confinement, Context, Produced, ToolImpl};

/// A skill as a tool.
pub(crate) struct SkillTool {
    skill: Arc<Skill>,
    version: String,
}

impl SkillTool {
    pub(crate) fn new(skill: Skill) -> Self {
        Self {
            version: skill.version.to_string(),
            skill: Arc::new(skill),
        }
    }
}

impl ToolImpl for SkillTool {
    fn name(&self) -> &str {
        &self.skill.name
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn details(&self, config: &ExecutorConfig) -> ToolDetails {
        let skill = &self.skill;
        ToolDetails {
            definition: ToolDefinition {
                name: skill.name.clone(),
                description: skill.description.clone(),
                input_schema: skill.input.document().clone(),
            },
            version: self.version.clone(),
            risk_level: skill.risk_level,
            category: skill.category.clone(),
            timeout: skill.timeout.unwrap_or(config.default_timeout),
            output_schema: skill
                .output
                .as_ref()
                .map(|schema| schema.document().clone()),
            source: skill.dir.join(super::FILE).display().to_string(),
        }
    }

    fn made_of(&self) -> Option<&Path> {
        Some(&self.skill.dir)
    }

    fn admits_calls(&self) -> bool {
        matches!(self.skill.mode, Mode::Code(_))
    }

    fn risk_level(&self) -> RiskLevel {
        self.skill.risk_level
    }

    fn confinement(&self) -> Confinement {
        match self.skill.mode {
            Mode::Code(_) => Confinement::Process,
            Mode::Composite { .. } | Mode::Llm { .. } => Confinement::Needless,
        }
    }

    fn may_call(&self, tool: &str) -> bool {
        self.skill.calls.contains(tool)
    }

    fn run<'a>(
        &'a self,
        call: &'a Call,
        context: Context<'a>,
    ) -> BoxFuture<'a, Result<Produced, ExecutorError>> {
        async move {
            let skill = &self.skill;
            match &skill.mode {
                Mode::Code(command) => program::run(skill, command, call, context).await,
                Mode::Composite { items, result } => {
                    steps::run(skill, items, result.as_ref(), call, context).await
                }
                Mode::Llm { .. } => Err(ExecutorError::ProviderMissing {
                    tool_name: skill.name.clone(),
                    input_summary: context.summary.clone(),
                }),
            }
        }
        .boxed()
    }
}

/// The text for the model of what a skill answers: text as it is, all else as JSON.
pub(super) fn text_of(value: &Value) -> String {
    let text = value.as_str().map(str::to_owned);
    text.unwrap_or_else(|| value.to_string())
}
