//! What configuration and policy say of tools that there are none of, for the log and whoever checks.

use super::executor::Executor;
use crate::domain::suggested;
use crate::policy::UnknownTool;
use crate::tools::Registry;

impl Executor {
    /// Where configuration or policy name a tool that there is none of, and which may be meant. It is no
    /// error, for skills come and go; but what was to be guarded is not.
    pub fn unknown_tools(&self) -> Vec<String> {
        let (config, registry) = (self.config(), self.inner.registry());
        let known: Vec<&str> = registry.iter().map(|tool| tool.name()).collect();
        let configured = config.tools_named();
        let configured = configured.filter(|(_, name)| !known.contains(name));
        let configured = configured.map(|(place, name)| unknown(&registry, &place, name));
        let ruled = self.policy().unknown_tools(&known);
        let ruled = ruled.iter().map(|found| ruled_about(&registry, found));
        configured.chain(ruled).collect()
    }

    /// The same of names that are used at `place`.
    pub fn unknown_among<'n>(
        &self,
        place: &str,
        names: impl Iterator<Item = &'n str>,
    ) -> Vec<String> {
        let registry = self.inner.registry();
        let names = names.filter(|name| registry.find(name, None).is_none());
        names.map(|name| unknown(&registry, place, name)).collect()
    }
}

fn unknown(registry: &Registry, place: &str, name: &str) -> String {
    let nearest = suggested(registry.nearest(name)).unwrap_or_default();
    format!("{place}: there is no tool `{name}`{nearest}")
}

fn ruled_about(registry: &Registry, found: &UnknownTool) -> String {
    let UnknownTool {
        name,
        is_literal,
        rule,
        is_caller,
        source,
    } = found;
    let what = if *is_caller { "`called_by` of " } else { "" };
    let place = format!(
        "{}:{}: {what}the rule `{rule}` concerns no call",
        source.file.display(),
        source.line
    );
    match is_literal {
        true => unknown(registry, &place, name),
        false => format!("{place}: no tool is called like `{name}`"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::ExecutorConfig;
    use crate::policy::{
        GUARDED_POLICY, OBSERVE_POLICY, OPEN_POLICY, Policy, SHIPPED_POLICY, Source,
    };

    #[test]
    fn every_tool_that_a_shipped_policy_names_is_there() {
        let executor = Executor::new(ExecutorConfig::default());
        for text in [SHIPPED_POLICY, OPEN_POLICY, OBSERVE_POLICY, GUARDED_POLICY] {
            let path = Path::new("shipped.toml");
            let policy = Policy::parse(&[Source { path, text }]);
            executor.set_policy(policy.expect("valid"));
            assert_eq!(executor.unknown_tools(), [""; 0]);
        }
    }
}
