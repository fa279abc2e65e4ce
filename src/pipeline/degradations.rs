//! What does not work as it should, for `/health`, the log and whoever looks.

use super::executor::Executor;
use super::{CircuitState, ToolFlowSnapshot, hooks};
use crate::config::{Asked, Hook};
use crate::domain::Degradation;
use crate::ledger::Ledger;
use crate::sandbox::SelfTest;
use crate::tools::SkillProblem;

impl Executor {
    /// What does not work as it should.
    pub fn degradations(&self) -> Vec<Degradation> {
        let path = self.config().tools_file.clone();
        let checked = path.map_or(Ok(()), |path| self.inner.tools_file.check(&path));
        let tools = checked.err().map(|error| Degradation {
            code: "tools_file_invalid",
            detail: format!("{}; the built-in descriptions are used", error.chain()),
            source: error.path().display().to_string(),
        });
        let spool = self.inner.spool.as_ref().and_then(|spool| spool.problem());
        let lacking = self.inner.runner.lacks(self.config().limits);
        let limits = (!lacking.is_empty()).then(|| Degradation {
            code: "limits_unsupported",
            detail: format!(
                "no call is run, for its limits could not be set: there is no cgroup controller {} here; have it delegated or unset the limits",
                lacking.join(", ")
            ),
            source: "[limits]".to_owned(),
        });
        let ledger = self.inner.ledger.as_ref();
        let ledger = ledger
            .inspect(|ledger| ledger.look())
            .and_then(Ledger::problem);
        let all = tools.into_iter().chain(spool).chain(limits).chain(ledger);
        all.chain(self.skill_problems())
            .chain(self.hook_problems())
            .chain(self.sandbox_problem())
            .chain(self.circuit_problems())
            .chain(self.flow_problem())
            .chain(self.unusable())
            .collect()
    }

    /// What is wrong with skills that are not there for it.
    fn skill_problems(&self) -> Vec<Degradation> {
        let problems = self.inner.skill_problems.lock();
        let degradation = |problem: &SkillProblem| Degradation {
            code: "skill_invalid",
            detail: format!("{problem}; the skill is not there"),
            source: problem.path.display().to_string(),
        };
        problems.iter().map(degradation).collect()
    }

    /// Hooks that ask a skill which is not there, or cannot be given their input.
    fn hook_problems(&self) -> Vec<Degradation> {
        let (config, registry) = (self.config(), self.inner.registry());
        let problem = |hook: &Hook| {
            let Asked::Skill { name, input } = &hook.asked else {
                return None;
            };
            let wrong = match (registry.find(name, None), hooks::template(input)) {
                (None, _) => format!("there is no skill `{name}`"),
                (Some(_), Err(why)) => why,
                (Some(_), Ok(_)) => return None,
            };
            Some(Degradation {
                code: "hook_invalid",
                detail: format!("the hook `{}` fails for every call: {wrong}", hook.name),
                source: "[[hooks]]".to_owned(),
            })
        };
        config.hooks.iter().filter_map(problem).collect()
    }

    /// Hooks that cannot give a skill their input, whichever skills there are.
    pub fn wrong_hooks(&self) -> Vec<String> {
        let config = self.config();
        let wrong = |hook: &Hook| match &hook.asked {
            Asked::Skill { input, .. } => {
                let why = hooks::template(input).err()?;
                Some(format!(
                    "the hook `{}` fails for every call: {why}",
                    hook.name
                ))
            }
            Asked::Program { .. } => None,
        };
        config.hooks.iter().filter_map(wrong).collect()
    }

    /// What is wrong with the sandbox, if anything is configured to run in it. That a call has wanted it
    /// is no reason: any caller could have the daemon degraded for good.
    fn sandbox_problem(&self) -> Option<Degradation> {
        match self.sandbox().self_test {
            SelfTest::Failed(detail) if self.needs_sandbox() => Some(Degradation {
                code: "sandbox_unavailable",
                detail: format!("untrusted calls are refused: {detail}"),
                source: "[sandbox]".to_owned(),
            }),
            SelfTest::Failed(_) | SelfTest::Untested | SelfTest::Passed(_) => None,
        }
    }

    /// What every command needs and is not there.
    fn unusable(&self) -> Option<Degradation> {
        let config = self.config();
        config.unusable().next().map(|(key, why)| Degradation {
            code: "commands_fail",
            detail: format!("commands cannot be started as configured: {why}"),
            source: key.to_owned(),
        })
    }

    /// What is wrong with the server that several daemons share.
    fn flow_problem(&self) -> Option<Degradation> {
        self.inner.flow.problem().map(|problem| Degradation {
            code: "flow_backend_unavailable",
            detail: format!(
                "rates and places are not shared, each daemon keeps to them by itself: {problem}"
            ),
            source: "[flow]".to_owned(),
        })
    }

    /// Tools that are left alone, for calls of them have failed.
    fn circuit_problems(&self) -> Vec<Degradation> {
        let tools = self.flow().tools.into_iter();
        let problem = |(name, tool): (String, ToolFlowSnapshot)| {
            match tool.circuit? {
                CircuitState::Open => {}
                // Calls come again: who waits for this to be well before the next one waits for nothing.
                CircuitState::HalfOpen | CircuitState::Closed => return None,
            }
            Some(Degradation {
                code: "circuit_open",
                detail: format!(
                    "`{name}` has failed {} times in a row, and calls of it are refused for a while; its executions say why it fails",
                    tool.failures
                ),
                source: format!("[flow.tools.{name}]"),
            })
        };
        tools.filter_map(problem).collect()
    }
}
