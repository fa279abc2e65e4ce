use std::collections::BTreeSet;
use std::ffi::{CString, NulError, c_char};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::unistd::{Uid, User};
use tokio::sync::SetOnce;

use crate::domain::{EXECUTION_VARIABLE, ExecutionId, INSTANCE_VARIABLE};

/// What every command gets besides who and where it is: programs find their helpers, speak
/// UTF-8, draw nothing, page nothing, ask nothing and leave nothing behind.
pub(crate) const FIXED: [(&str, &str); 12] = [
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // What git leaves behind to pack the repository would be killed with the rest of the tree, each time
    // (git-gc(1); git-config(1), ENVIRONMENT).
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "gc.autoDetach"),
    ("GIT_CONFIG_VALUE_0", "false"),
];

/// The part of the environment that is the same for every execution, built from nothing: none of
/// this process's own variables is passed on.
#[derive(Debug)]
pub(super) struct BaseEnvironment {
    base: Arc<SetOnce<Base>>,
    is_asked_for: AtomicBool,
    instance: Option<String>,
}

/// That part of it.
#[derive(Clone, Debug)]
pub(super) struct Base(Arc<[Variable]>);

/// `NAME=value` as execve(2) takes it.
#[derive(Debug)]
struct Variable {
    name_bytes: usize,
    assignment: CString,
}

/// The whole environment of one execution: what is the same for all, and what is its own.
#[derive(Debug)]
pub(super) struct Environment {
    base: Base,
    own: Vec<Variable>,
}

impl BaseEnvironment {
    pub(super) fn new(instance: Option<String>) -> Self {
        Self {
            base: Arc::default(),
            is_asked_for: AtomicBool::new(false),
            instance,
        }
    }

    /// What is the same for all. Found out once, beside the event loop: the user database may be one that does not
    /// answer (nsswitch.conf(5)).
    pub(super) async fn base(&self) -> Base {
        if let Some(base) = self.base.get() {
            return base.clone();
        }
        if !self.is_asked_for.swap(true, Ordering::Relaxed) {
            let base = Arc::clone(&self.base);
            let find = move || drop(base.set(Base::find()));
            let thread = thread::Builder::new().name("environment".to_owned());
            if let Err(error) = thread.spawn(find) {
                tracing::error!(%error, "there is no thread to look into the user database");
                self.is_asked_for.store(false, Ordering::Relaxed);
            }
        }
        self.base.wait().await.clone()
    }

    /// `base`, the shell, `added` over both, and last the ids, for they are how the tree is
    /// found again.
    pub(super) fn of(
        &self,
        base: Base,
        id: ExecutionId,
        shell: &Path,
        added: &[(String, String)],
    ) -> Result<Environment, NulError> {
        let (shell, id) = (shell.to_string_lossy(), id.to_string());
        let mut variables = vec![("SHELL", &*shell)];
        variables.extend(
            added
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        variables.push((EXECUTION_VARIABLE, &id));
        let instance = self.instance.as_deref();
        variables.extend(instance.map(|instance| (INSTANCE_VARIABLE, instance)));
        let own = last_of_each(variables).into_iter();
        let own = own.map(|(name, value)| Variable::new(name, value));
        let own = own.collect::<Result<Vec<Variable>, NulError>>()?;
        Ok(Environment { base, own })
    }
}

/// Of each name the last value, in the order of these.
pub(crate) fn last_of_each<'a>(variables: Vec<(&'a str, &'a str)>) -> Vec<(&'a str, &'a str)> {
    // Mostly three: no hash is computed for them.
    let mut names = BTreeSet::new();
    let from_behind = variables.into_iter().rev();
    let mut last: Vec<_> = from_behind
        .filter(|(name, _)| names.insert(*name))
        .collect();
    last.reverse();
    last
}

impl Base {
    fn find() -> Self {
        let uid = Uid::effective();
        // A user without an entry in the database (a container, mostly) still gets all four.
        let (name, home) = match User::from_uid(uid) {
            Ok(Some(user)) => (user.name, user.dir.display().to_string()),
            Ok(None) | Err(_) => (uid.to_string(), "/".to_owned()),
        };
        let who = [
            ("HOME", home.as_str()),
            ("USER", name.as_str()),
            ("LOGNAME", name.as_str()),
        ];
        // The user database cannot hold NUL, and the rest is constant.
        let variables = FIXED.into_iter().chain(who);
        let variables = variables.filter_map(|(name, value)| Variable::new(name, value).ok());
        Self(variables.collect())
    }
}

impl Environment {
    /// The assignments, each name once. Valid as long as `self` is.
    pub(super) fn pointers(&self) -> impl Iterator<Item = *const c_char> {
        // A dozen, each looked for among those of its own: mostly three.
        let is_own = |name: &[u8]| self.own.iter().any(|own| own.name() == name);
        let base = self.base.0.iter();
        let base = base.filter(move |variable| !is_own(variable.name()));
        base.chain(&self.own)
            .map(|variable| variable.assignment.as_ptr())
    }
}

impl Variable {
    fn new(name: &str, value: &str) -> Result<Self, NulError> {
        // With room for the NUL, for which it would be moved else.
        let mut assignment = Vec::with_capacity(name.len() + value.len() + 2);
        assignment.extend_from_slice(name.as_bytes());
        assignment.push(b'=');
        assignment.extend_from_slice(value.as_bytes());
        let assignment = CString::new(assignment)?;
        Ok(Self {
            name_bytes: name.len(),
            assignment,
        })
    }

    fn name(&self) -> &[u8] {
        &self.assignment.as_bytes()[..self.name_bytes]
    }
}
