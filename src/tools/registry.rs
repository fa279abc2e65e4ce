use std::collections::BTreeSet;

use super::bash::Bash;
use super::{InputSchema, ToolImpl};
use crate::config::ExecutorConfig;

/// How alike (Jaro-Winkler, 0 to 1) two names must be for one to be suggested for the other.
/// `bsh` and `bash` are at 0.92, `read` and `bash` at 0.5.
const NEAR: f64 = 0.75;

/// The tools there are, in the order in which they are listed.
pub(crate) struct Registry {
    tools: Vec<Tool>,
}

/// A tool and what was made ready of it.
pub(crate) struct Tool {
    pub(crate) implementation: Box<dyn ToolImpl>,
    pub(crate) schema: InputSchema,
}

impl Tool {
    fn new(implementation: impl ToolImpl + 'static) -> Self {
        // The schema depends on no configuration.
        let details = implementation.details(&ExecutorConfig::default());
        Self {
            schema: InputSchema::new(details.definition.input_schema),
            implementation: Box::new(implementation),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.implementation.name()
    }
}

impl Registry {
    /// All built-in tools.
    pub(crate) fn built_in() -> Self {
        Self {
            tools: vec![Tool::new(Bash)],
        }
    }

    /// One tool only.
    #[cfg(test)]
    pub(crate) fn of(tool: impl ToolImpl + 'static) -> Self {
        Self {
            tools: vec![Tool::new(tool)],
        }
    }

    /// Does what would otherwise be done at the first call.
    pub(crate) fn prepare(&self) {
        for tool in self.iter() {
            // One that does not compile says so to whoever calls it.
            let _ = tool.schema.compiled();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tool> {
        self.iter().find(|tool| tool.name() == name)
    }

    /// The name a caller may have meant, of those that are not disabled.
    pub(crate) fn nearest(&self, name: &str, disabled: &BTreeSet<String>) -> Option<&'static str> {
        let name = name.to_lowercase();
        self.iter()
            .map(Tool::name)
            .filter(|candidate| !disabled.contains(*candidate))
            .map(|candidate| (strsim::jaro_winkler(&name, candidate), candidate))
            .filter(|(likeness, _)| *likeness >= NEAR)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, candidate)| candidate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let (registry, none) = (Registry::built_in(), BTreeSet::new());
        assert_eq!(registry.nearest("bsh", &none), Some("bash"));
        assert_eq!(registry.nearest("Bash", &none), Some("bash"));
        assert_eq!(registry.nearest("read_file", &none), None);
        assert_eq!(registry.nearest("", &none), None);
        let disabled = BTreeSet::from(["bash".to_owned()]);
        assert_eq!(registry.nearest("bsh", &disabled), None);
    }
}
