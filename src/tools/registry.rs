use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::bash::Bash;
use super::check_condition::CheckCondition;
use super::execute_command::ExecuteCommand;
use super::files::{EDIT_FILE, LIST_DIR, READ_FILE, SEARCH_FILES, WRITE_FILE};
use super::skills::{self, Found, Known, Loaded, Skill, SkillCheck, SkillProblem, SkillTool};
use super::{InputSchema, ToolImpl};
use crate::config::ExecutorConfig;
use crate::domain::{RiskLevel, Violation, does_as, meant};

/// The built-in tools. All registries share them, so that what has been made ready of them stays so.
static BUILT_IN: LazyLock<Vec<Arc<Tool>>> = LazyLock::new(|| {
    let tools = vec![
        Tool::new(Bash),
        Tool::new(ExecuteCommand),
        Tool::new(READ_FILE),
        Tool::new(WRITE_FILE),
        Tool::new(EDIT_FILE),
        Tool::new(LIST_DIR),
        Tool::new(SEARCH_FILES),
        Tool::new(CheckCondition),
    ];
    tools.into_iter().map(Arc::new).collect()
});

/// The tools there are, in the order in which they are listed. It does not change: who begins with
/// one keeps it to its end.
#[derive(Debug)]
pub(crate) struct Registry {
    tools: Vec<Arc<Tool>>,
}

/// A tool and what was made ready of it.
pub(crate) struct Tool {
    pub(crate) implementation: Box<dyn ToolImpl>,
    pub(crate) schema: InputSchema,
    /// What its structured output fits, if it has one.
    pub(crate) output_schema: Option<InputSchema>,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), self.implementation.version())
    }
}

impl Tool {
    fn new(implementation: impl ToolImpl + 'static) -> Self {
        // The schemas depend on no configuration.
        let details = implementation.details(&ExecutorConfig::default());
        Self {
            schema: InputSchema::new(details.definition.input_schema),
            output_schema: details.output_schema.map(InputSchema::new),
            implementation: Box::new(implementation),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.implementation.name()
    }

    /// Whether it can be called under `config`. Whoever disables `bash` means commands by whatever name.
    pub(crate) fn is_enabled(&self, config: &ExecutorConfig) -> bool {
        let is_disabled = |name: &str| config.disabled_tools.contains(name);
        !is_disabled(self.name())
            && !does_as(self.name()).is_some_and(is_disabled)
            && self.implementation.is_enabled(config)
    }
}

impl Tool {
    /// How far it is trusted, by itself and by the operator.
    pub(crate) fn risk_level(&self, config: &ExecutorConfig) -> RiskLevel {
        let is_named = |name: &str| config.untrusted_tools.contains(name);
        // Whoever does not trust `bash` means commands by whatever name.
        if is_named(self.name()) || does_as(self.name()).is_some_and(is_named) {
            RiskLevel::Untrusted
        } else {
            self.implementation.risk_level()
        }
    }
}

impl Registry {
    /// All built-in tools.
    pub(crate) fn built_in() -> Self {
        Self {
            tools: BUILT_IN.clone(),
        }
    }

    /// All built-in tools, and the skills of a directory; and what is wrong with other skills there.
    /// `None` when descriptors were lacking, so that nobody knows what is there. Reads files.
    pub(crate) fn with_skills(dir: &Path) -> Option<(Self, Vec<SkillProblem>)> {
        let mut registry = Self::built_in();
        let Loaded {
            mut skills,
            problems,
            is_lacking,
        } = skills::load(dir, &registry);
        if is_lacking {
            return None;
        }
        // Of several versions the newest is the default; one that is not released never is before
        // others.
        skills.sort_by(|a, b| {
            let is_pre = |skill: &Skill| !skill.version.pre.is_empty();
            (&a.name, is_pre(a), &b.version).cmp(&(&b.name, is_pre(b), &a.version))
        });
        let tools = skills.into_iter().map(SkillTool::new).map(Tool::new);
        registry.tools.extend(tools.map(Arc::new));
        Some((registry, problems))
    }

    /// What is wrong with the skill in `dir`, if it stood among those of the directories `others`.
    /// Reads files.
    pub(crate) fn check_skill(dir: &Path, others: &[PathBuf]) -> SkillCheck {
        skills::check(dir, others, &Self::built_in())
    }

    /// One tool only.
    #[cfg(test)]
    pub(crate) fn of(tool: impl ToolImpl + 'static) -> Self {
        Self {
            tools: vec![Arc::new(Tool::new(tool))],
        }
    }

    /// Does what would otherwise be done at the first call of a built-in tool.
    pub(crate) fn prepare() {
        for tool in BUILT_IN.iter() {
            // One that does not compile says so to whoever calls it.
            let _ = tool.schema.compiled();
        }
    }

    /// The parameters of a built-in tool, whether it is enabled or not.
    pub(crate) fn built_in_parameters(name: &str) -> Option<Vec<String>> {
        let tool = BUILT_IN.iter().find(|tool| tool.name() == name)?;
        Some(tool.schema.parameters())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.iter()
    }

    /// The tool of that name: in that version, or in its default one, which is the first.
    pub(crate) fn find(&self, name: &str, version: Option<&str>) -> Option<Arc<Tool>> {
        let is_wanted = |tool: &&Arc<Tool>| {
            let is_version = version.is_none_or(|version| tool.implementation.version() == version);
            tool.name() == name && is_version
        };
        self.iter().find(is_wanted).cloned()
    }

    /// Whether it is what a call gets that names no version.
    pub(crate) fn is_default(&self, tool: &Arc<Tool>) -> bool {
        let default = self.find(tool.name(), None);
        default.is_some_and(|default| Arc::ptr_eq(&default, tool))
    }

    /// The versions of a tool, its default first; none of one that is not there.
    pub(crate) fn versions(&self, name: &str) -> Vec<String> {
        let named = self.iter().filter(|tool| tool.name() == name);
        named
            .map(|tool| tool.implementation.version().to_owned())
            .collect()
    }

    /// The name a caller may have meant, of those that can be called.
    pub(crate) fn nearest_enabled(&self, name: &str, config: &ExecutorConfig) -> Option<&str> {
        let enabled = self.iter().filter(|tool| tool.is_enabled(config));
        meant(name, enabled.map(|tool| tool.name()))
    }

    /// The name an operator may have meant, of all.
    pub(crate) fn nearest(&self, name: &str) -> Option<&str> {
        meant(name, self.iter().map(|tool| tool.name()))
    }
}

impl Known for Registry {
    fn find(&self, tool: &str) -> Found<'_> {
        let found = self.iter().find(|candidate| candidate.name() == tool);
        found.map_or(Found::Nothing, |tool| Found::Takes(&tool.schema))
    }

    fn wrong_with(&self, tool: &str, input: &Value) -> Vec<Violation> {
        let found = self.iter().find(|candidate| candidate.name() == tool);
        found.map_or_else(Vec::new, |tool| tool.implementation.check(input))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_are_taken_are_those_of_the_tools_there_are() {
        let registry = Registry::built_in();
        let names: Vec<&str> = registry.iter().map(|tool| tool.name()).collect();
        assert_eq!(names, crate::domain::BUILT_IN_TOOLS);
    }

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let config = |disabled: &[&str]| ExecutorConfig {
            disabled_tools: disabled.iter().map(|name| (*name).to_owned()).collect(),
            ..ExecutorConfig::default()
        };
        let (registry, config, without) = (Registry::built_in(), config(&[]), config(&["bash"]));
        assert_eq!(registry.nearest_enabled("bsh", &config), Some("bash"));
        assert_eq!(registry.nearest_enabled("Bash", &config), Some("bash"));
        assert_eq!(registry.nearest_enabled("no_such_thing", &config), None);
        assert_eq!(registry.nearest_enabled("", &config), None);
        assert_eq!(registry.nearest_enabled("bsh", &without), None);
        assert_eq!(registry.nearest("bsh"), Some("bash"));
    }
}
