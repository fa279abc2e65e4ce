//! Calls that come of calls: who made whom, how many more may come of the outermost one, and who may
//! make them.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::values::SharedValues;
use super::{CannotKeep, Execution};
use crate::config::SkillsConfig;
use crate::domain::{
    Digest, ExecutorError, Lineage, RiskLevel, Scope, ScopedValues, SpanContext, StopReason,
};
use crate::tools::{Registry, Tool};

/// What an execution is among those that led to it and those that come of it.
#[derive(Debug)]
pub(super) struct Family {
    lineage: Option<Lineage>,
    /// The span of the execution that made the call.
    caller: Option<SpanContext>,
    /// The tools that led to it, the outermost first.
    chain: Vec<Arc<Tool>>,
    by_hook: ByHook,
    /// How far what led to it is trusted.
    risk: RiskLevel,
    /// Whether it is among the calls that have come of the outermost one.
    is_counted: AtomicBool,
    shared: Arc<Shared>,
    /// The values as they were when somebody was asked about it, or about what led to it, but for those of `scratch`: it
    /// finds these, whatever becomes of the others.
    asked: OnceLock<Arc<Mutex<ScopedValues>>>,
    children: Mutex<Children>,
}

/// Whether a hook is among what led to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByHook {
    No,
    /// It made the call itself.
    Directly,
    Indirectly,
}

/// What all that come of one outermost call have in common.
#[derive(Debug)]
struct Shared {
    /// The tools as they were when it began, whatever becomes of them meanwhile.
    registry: Arc<Registry>,
    /// How many calls have come of it.
    calls: AtomicU32,
    /// What those of its members may show that run; masked in whatever begins meanwhile.
    tokens: Mutex<Vec<String>>,
    /// What variables that are marked as secret have for values, of any of its members; masked likewise.
    secret_values: Mutex<BTreeSet<String>>,
    values: SharedValues,
}

/// The executions that come of one.
#[derive(Debug, Default)]
struct Children {
    /// Whether it is too late for more.
    is_over: bool,
    all: Vec<Weak<Execution>>,
}

impl Family {
    /// That of a call from outside, which brings these values along.
    pub(super) fn founded(values: SharedValues, registry: Arc<Registry>) -> Self {
        Self {
            lineage: None,
            caller: None,
            chain: Vec::new(),
            by_hook: ByHook::No,
            risk: RiskLevel::Trusted,
            is_counted: AtomicBool::new(false),
            shared: Arc::new(Shared {
                registry,
                calls: AtomicU32::new(0),
                tokens: Mutex::default(),
                secret_values: Mutex::default(),
                values,
            }),
            asked: OnceLock::new(),
            children: Mutex::default(),
        }
    }

    /// The tools that all of it know.
    pub(super) fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// The values of a scope that it finds: those that all of it share, or that somebody was asked about.
    pub(super) fn values(&self, scope: Scope) -> Map<String, Value> {
        match self.asked_about(scope) {
            Some(asked) => asked.lock().get(&scope).cloned().unwrap_or_default(),
            None => self.shared.values.all(scope),
        }
    }

    /// One of them.
    pub(super) fn value(&self, scope: Scope, name: &str) -> Option<Value> {
        match self.asked_about(scope) {
            Some(asked) => asked.lock().get(&scope)?.get(name).cloned(),
            None => self.shared.values.get(scope, name),
        }
    }

    /// Keeps values for all of it, in the place of what had their names, or none.
    pub(super) fn bring(&self, brought: &ScopedValues, max_bytes: usize) -> Result<(), CannotKeep> {
        self.shared.values.bring(brought, max_bytes)?;
        for (scope, values) in brought {
            if let Some(asked) = self.asked_about(*scope) {
                let mut asked = asked.lock();
                asked.entry(*scope).or_default().extend(values.clone());
            }
        }
        Ok(())
    }

    /// Forgets a value for all of it, and says whether there was one.
    pub(super) fn forget(&self, scope: Scope, name: &str) -> bool {
        let was_there = self.shared.values.remove(scope, name);
        self.asked_about(scope).map_or(was_there, |asked| {
            let mut asked = asked.lock();
            asked
                .get_mut(&scope)
                .and_then(|values| values.remove(name))
                .is_some()
        })
    }

    /// The values that somebody is asked about: those that it finds, from now on.
    pub(super) fn ask_about_values(&self) -> ScopedValues {
        let now = || {
            let scopes = [Scope::Config, Scope::Memory, Scope::Session];
            let values = scopes.map(|scope| (scope, self.shared.values.all(scope)));
            let values = values.into_iter().filter(|(_, values)| !values.is_empty());
            Arc::new(Mutex::new(values.collect()))
        };
        self.asked.get_or_init(now).lock().clone()
    }

    fn asked_about(&self, scope: Scope) -> Option<&Mutex<ScopedValues>> {
        let asked = self.asked.get().map(Arc::as_ref);
        asked.filter(|_| scope != Scope::Scratch)
    }

    /// That of a call which a tool makes.
    pub(super) fn within(parent: &Execution, tool: Arc<Tool>) -> Self {
        let family = &parent.family;
        let mut chain = family.chain.clone();
        chain.push(tool);
        Self {
            lineage: Some(Lineage {
                parent: parent.id,
                depth: u32::try_from(chain.len()).unwrap_or(u32::MAX),
            }),
            caller: Some(parent.span_context()),
            chain,
            by_hook: match family.by_hook {
                ByHook::No => ByHook::No,
                ByHook::Directly | ByHook::Indirectly => ByHook::Indirectly,
            },
            risk: parent.risk().unwrap_or_default(),
            is_counted: AtomicBool::new(false),
            shared: Arc::clone(&family.shared),
            asked: family.asked.clone(),
            children: Mutex::default(),
        }
    }

    /// That of a call which a hook makes on an execution's behalf, whatever its tool may call.
    pub(super) fn of_hook(parent: &Execution, tool: Arc<Tool>) -> Self {
        Self {
            by_hook: ByHook::Directly,
            // The operator asks, whatever the call is.
            risk: RiskLevel::Trusted,
            // Nobody was asked about what it finds, nor is what it keeps what somebody was asked about.
            asked: OnceLock::new(),
            ..Self::within(parent, tool)
        }
    }

    /// Whether a hook is among what led to it.
    pub(super) fn is_of_a_hook(&self) -> bool {
        self.by_hook != ByHook::No
    }

    /// How far whatever led to it is trusted. The call itself is trusted no further.
    pub(super) fn risk(&self) -> RiskLevel {
        self.risk
    }

    /// Whose call it is, when a tool made it.
    pub(super) fn lineage(&self) -> Option<&Lineage> {
        self.lineage.as_ref()
    }

    /// The span of the execution whose call it is.
    pub(super) fn caller(&self) -> Option<&SpanContext> {
        self.caller.as_ref()
    }

    /// The tools that led to it, the outermost first.
    pub(super) fn chain(&self) -> Vec<String> {
        let names = self.chain.iter().map(|ancestor| ancestor.name());
        names.map(str::to_owned).collect()
    }

    /// Whether a call of `tool` may come of what led to it.
    pub(super) fn admits(
        &self,
        tool: &Tool,
        bounds: &SkillsConfig,
        summary: &str,
    ) -> Result<(), ExecutorError> {
        let Some((lineage, parent)) = self.lineage.as_ref().zip(self.chain.last()) else {
            return Ok(());
        };
        let (tool_name, input_summary) = (tool.name().to_owned(), summary.to_owned());
        let may_call = parent.implementation.may_call(tool.name());
        if self.by_hook != ByHook::Directly && !may_call {
            return Err(ExecutorError::CallNotDeclared {
                tool_name,
                input_summary,
                caller: parent.name().to_owned(),
            });
        }
        let is_own = |ancestor: &Arc<Tool>| ancestor.name() == tool.name();
        if self.chain.iter().any(is_own) {
            return Err(ExecutorError::CallCycle {
                tool_name,
                input_summary,
                chain: self.chain(),
            });
        }
        if lineage.depth > bounds.max_depth {
            return Err(ExecutorError::DepthExceeded {
                tool_name,
                input_summary,
                depth: lineage.depth,
                max_depth: bounds.max_depth,
                chain: self.chain(),
            });
        }
        // One that a hook changes comes here again, and is still one.
        let is_counted = self.is_counted.swap(true, Ordering::Relaxed);
        if !is_counted && self.shared.calls.fetch_add(1, Ordering::Relaxed) >= bounds.max_calls {
            return Err(ExecutorError::CallsUsedUp {
                tool_name,
                input_summary,
                max_calls: bounds.max_calls,
            });
        }
        Ok(())
    }

    /// Takes in one that comes of it, unless it is too late.
    pub(super) fn adopt(&self, child: &Arc<Execution>) -> bool {
        let mut children = self.children.lock();
        if !children.is_over {
            children.all.retain(|child| child.strong_count() > 0);
            children.all.push(Arc::downgrade(child));
        }
        !children.is_over
    }

    /// Asks all that come of it to end.
    pub(super) fn stop_children(&self) {
        for child in self.children() {
            child.stop(StopReason::Cancelled);
        }
    }

    /// Ends all that come of it, after which nothing more does.
    pub(super) async fn end_children(&self) {
        self.children.lock().is_over = true;
        self.stop_children();
        for child in self.children() {
            child.over().await;
        }
    }

    fn children(&self) -> Vec<Arc<Execution>> {
        let children = self.children.lock();
        children.all.iter().filter_map(Weak::upgrade).collect()
    }

    /// What is to be masked, for it would let others make calls.
    pub(super) fn tokens(&self) -> Vec<String> {
        self.shared.tokens.lock().clone()
    }

    /// Adds what one of its members must not show, and answers what else it must not: what is secret in a call is so in
    /// those that come of it.
    pub(super) fn share_secrets<'v>(&self, own: impl Iterator<Item = &'v str>) -> Vec<String> {
        let own: Vec<&str> = own.collect();
        let mut shared = self.shared.secret_values.lock();
        let others = shared.iter().filter(|value| !own.contains(&value.as_str()));
        let others = others.cloned().collect();
        shared.extend(own.into_iter().map(str::to_owned));
        others
    }

    pub(super) fn add_token(&self, token: &str) {
        self.shared.tokens.lock().push(token.to_owned());
    }

    /// Lets go of one that opens nothing any more.
    pub(super) fn forget_token(&self, token: &str) {
        self.shared.tokens.lock().retain(|one| one != token);
    }
}

/// Who may make calls on whose behalf.
#[derive(Debug, Default)]
pub(super) struct Capabilities {
    /// By the digest of the token, so that how long a look takes tells nothing of it.
    by_token: Mutex<HashMap<Digest, Weak<Execution>>>,
}

impl Capabilities {
    pub(super) fn grant(&self, token: &str, execution: &Arc<Execution>) {
        let digest = Digest::of(token.as_bytes());
        self.by_token
            .lock()
            .insert(digest, Arc::downgrade(execution));
    }

    pub(super) fn revoke(&self, token: &str) {
        self.by_token.lock().remove(&Digest::of(token.as_bytes()));
    }

    /// The execution that a token belongs to.
    pub(super) fn find(&self, token: &str) -> Option<Arc<Execution>> {
        let digest = Digest::of(token.as_bytes());
        self.by_token.lock().get(&digest).and_then(Weak::upgrade)
    }
}
