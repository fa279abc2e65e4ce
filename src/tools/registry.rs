use super::ToolImpl;
use super::bash::Bash;

/// How alike (Jaro-Winkler, 0 to 1) two names must be for one to be suggested for the other.
/// `bsh` and `bash` are at 0.92, `read` and `bash` at 0.5.
const NEAR: f64 = 0.75;

/// The tools there are, in the order in which they are listed.
pub(crate) struct Registry {
    tools: Vec<Box<dyn ToolImpl>>,
}

impl Registry {
    /// All built-in tools.
    pub(crate) fn built_in() -> Self {
        Self {
            tools: vec![Box::new(Bash)],
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn ToolImpl> {
        self.tools.iter().map(AsRef::as_ref)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&dyn ToolImpl> {
        self.iter().find(|tool| tool.name() == name)
    }

    /// The name a caller may have meant.
    pub(crate) fn nearest(&self, name: &str) -> Option<&'static str> {
        let name = name.to_lowercase();
        self.iter()
            .map(ToolImpl::name)
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
        let registry = Registry::built_in();
        assert_eq!(registry.nearest("bsh"), Some("bash"));
        assert_eq!(registry.nearest("Bash"), Some("bash"));
        assert_eq!(registry.nearest("read_file"), None);
        assert_eq!(registry.nearest(""), None);
    }
}
