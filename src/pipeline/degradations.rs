//! What does not work as it should, for `/health`, the log and whoever looks.

use std::path::Path;
use std::sync::atomic::Ordering;

use toml::Value;

use super::executor::Executor;
use super::hooks::template;
use super::{CircuitState, ToolFlowSnapshot};
use crate::config::{Asked, Hook};
use crate::domain::Degradation;
use crate::ledger::Ledger;
use crate::sandbox::SelfTest;
use crate::tools::SkillProblem;

impl Executor {
    /// What does not work as it should. Of what is in the file system, as it was a moment ago where that does not
    /// answer at once.
    pub async fn degradations(&self) -> Vec<Degradation> {
        let executor = self.clone();
        let look = move |asks: &dyn Fn(&Path)| executor.missing(asks);
        let mut all = self.inner.soundings.take(look).await;
        all.extend(self.known_degradations());
        all
    }

    /// What is known without a look at the file system.
    fn known_degradations(&self) -> impl Iterator<Item = Degradation> {
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
        let cgroup = self.inner.runner.fell_back().map(|why| Degradation {
            code: "cgroup_unavailable",
            detail: format!(
                "commands are held together by process groups, for the delegated cgroup cannot be used: {why}; mend that and restart, or set `mode = \"group\"`"
            ),
            source: "[cgroup]".to_owned(),
        });
        let ledger = self.inner.ledger.as_ref().and_then(Ledger::problem);
        let all = spool.into_iter().chain(limits).chain(cgroup).chain(ledger);
        all.chain(self.skill_problems())
            .chain(self.sandbox_problem())
            .chain(self.circuit_problems())
            .chain(self.flow_problem())
    }

    /// What is not in the file system, or not as it should be. Says of each path that it is about to ask for it.
    fn missing(&self, asks: &dyn Fn(&Path)) -> Vec<Degradation> {
        let config = self.config();
        if let (Some(ledger), Some(at)) = (&self.inner.ledger, &config.ledger) {
            asks(&at.file);
            ledger.look();
        }
        let tools = config.tools_file.iter().filter_map(|path| {
            asks(path);
            let error = self.inner.tools_file.check(path).err()?;
            Some(Degradation {
                code: "tools_file_invalid",
                detail: format!("{}; the built-in descriptions are used", error.chain()),
                source: error.path().display().to_string(),
            })
        });
        let hooks = self.amiss(&config.hooks, asks).into_iter();
        let hooks = hooks.map(|detail| Degradation {
            code: "hook_invalid",
            detail,
            source: "[[hooks]]".to_owned(),
        });
        let needs = config.needs().filter_map(|need| {
            asks(need.path);
            Some(Degradation {
                code: "commands_fail",
                detail: format!("commands cannot be started as configured: {}", need.lack()?),
                source: need.key.to_owned(),
            })
        });
        tools.chain(hooks).chain(needs).collect()
    }

    /// What is wrong with skills that are not there for it.
    fn skill_problems(&self) -> Vec<Degradation> {
        let problems = self.inner.skill_problems.lock();
        let degradation = |problem: &SkillProblem| Degradation {
            code: "skill_invalid",
            detail: format!("{problem}; the skill is not there"),
            source: problem.path.display().to_string(),
        };
        let found = problems.iter().map(degradation);
        let dir = self.config().skills.dir.clone();
        let dir = dir.filter(|_| self.inner.lacks_skills.load(Ordering::Relaxed));
        let unread = dir.map(|dir| Degradation {
            code: "skill_invalid",
            detail: format!("{}: cannot be read for want of descriptors: the skills stay as they were until it can", dir.display()),
            source: dir.display().to_string(),
        });
        unread.into_iter().chain(found).collect()
    }

    /// The same in a sentence each, for who checks a configuration.
    pub fn broken_skills(&self) -> Vec<String> {
        let problems = self.skill_problems().into_iter();
        problems.map(|problem| problem.detail).collect()
    }

    /// Hooks whose program cannot be executed, that ask a skill which is not there, or that cannot give it their
    /// input.
    pub fn wrong_hooks(&self) -> Vec<String> {
        self.amiss(&self.config().hooks, &|_| ())
    }

    fn amiss(&self, hooks: &[Hook], asks: &dyn Fn(&Path)) -> Vec<String> {
        let registry = self.inner.registry();
        let skill = |name: &str, input: &Value| match template(input) {
            Err(why) => Some(why),
            Ok(_) if registry.find(name, None).is_none() => {
                Some(format!("there is no skill `{name}`"))
            }
            Ok(_) => None,
        };
        let wrong = |hook: &Hook| {
            let why = match &hook.asked {
                Asked::Skill { name, input } => skill(name, input)?,
                Asked::Program { .. } => {
                    let program = hook.need()?;
                    asks(program.path);
                    program.lack()?
                }
            };
            let name = &hook.name;
            Some(format!("the hook `{name}` fails for every call: {why}"))
        };
        hooks.iter().filter_map(wrong).collect()
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

    /// Whether the sandbox has failed its test, and not passed one since.
    pub fn sandbox_fails(&self) -> bool {
        matches!(self.sandbox().self_test, SelfTest::Failed(_))
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
