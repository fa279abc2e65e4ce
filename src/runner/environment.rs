use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;
use std::sync::OnceLock;

use nix::unistd::{Uid, User};

use super::tree::EXECUTION_VARIABLE;
use crate::domain::ExecutionId;

/// The variable that says which daemon (or rather: which state directory) runs a process.
pub const INSTANCE_VARIABLE: &str = "SHELLY_INSTANCE_ID";

/// What every command gets besides who and where it is: programs find their helpers, speak
/// UTF-8, draw nothing, page nothing and ask nothing.
const FIXED: [(&str, &str); 9] = [
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
];

/// The part of the environment that is the same for every execution, built from nothing: none of
/// this process's own variables is passed on.
#[derive(Debug)]
pub(super) struct BaseEnvironment {
    variables: OnceLock<BTreeMap<String, String>>,
    instance: Option<String>,
}

impl BaseEnvironment {
    pub(super) fn new(instance: Option<String>) -> Self {
        Self {
            variables: OnceLock::new(),
            instance,
        }
    }

    /// The whole environment of one execution: the base, its id, then `added` over both.
    pub(super) fn of(
        &self,
        id: ExecutionId,
        shell: &Path,
        added: &[(String, String)],
    ) -> Result<Vec<CString>, std::ffi::NulError> {
        let mut variables = self.variables.get_or_init(base).clone();
        variables.insert("SHELL".to_owned(), shell.display().to_string());
        for (name, value) in added {
            variables.insert(name.clone(), value.clone());
        }
        // Last, for they are how the tree is found again.
        variables.insert(EXECUTION_VARIABLE.to_owned(), id.to_string());
        if let Some(instance) = &self.instance {
            variables.insert(INSTANCE_VARIABLE.to_owned(), instance.clone());
        }
        variables
            .into_iter()
            .map(|(name, value)| CString::new(format!("{name}={value}")))
            .collect()
    }
}

fn base() -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = FIXED
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let uid = Uid::effective();
    // A user without an entry in the database (a container, mostly) still gets all four.
    let (name, home) = match User::from_uid(uid) {
        Ok(Some(user)) => (user.name, user.dir.display().to_string()),
        Ok(None) | Err(_) => (uid.to_string(), "/".to_owned()),
    };
    variables.insert("HOME".to_owned(), home);
    variables.insert("USER".to_owned(), name.clone());
    variables.insert("LOGNAME".to_owned(), name);
    variables
}
