//! What the first process inside is to start: JSON on its standard input, which it waits for. So a
//! sandbox can be there before its call.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::bundle::Bundle;
use super::relay;
use crate::config::SandboxUser;
use crate::domain::{EXECUTION_VARIABLE, SOCKET_VARIABLE, whole_millis};
use crate::runner::{FIXED, Plan, last_of_each};

/// How long the text of one argument may be: as outside, where the kernel allows 128 KiB.
const LONGEST_ARGUMENT: usize = 100 * 1024;

/// What is started, and how.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<String>,
    pub(super) working_dir: PathBuf,
    /// The file that is its standard input.
    pub(super) stdin: PathBuf,
    /// How long its output may be held open after it has ended.
    pub(super) drain_ms: u64,
}

impl Order {
    /// The program of `plan`, with what it reads put into `bundle`.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(super) fn of(plan: &Plan, bundle: &Bundle, user: &SandboxUser) -> io::Result<Self> {
        let mut args = plan.args.clone();
        match &plan.script {
            Some(script) if script.text.len() >= LONGEST_ARGUMENT => {
                let path = share(bundle, "script", &script.text)?;
                args.push(path.display().to_string());
            }
            Some(script) => args.extend(script.arguments().map(str::to_owned)),
            None => {}
        }
        let stdin = match &plan.stdin {
            Some(text) => share(bundle, "stdin", text)?,
            None => PathBuf::from("/dev/null"),
        };
        let dirs = [plan.working_dir.as_deref(), bundle.workspace()];
        let dir = dirs.into_iter().flatten().next();
        Ok(Self {
            program: plan.program.clone(),
            args,
            env: environment(plan, bundle, user),
            working_dir: dir.unwrap_or(Path::new("/tmp")).to_owned(),
            stdin,
            drain_ms: whole_millis(plan.drain),
        })
    }
}

/// Puts a text where it can be read inside, and says where that is.
fn share(bundle: &Bundle, name: &str, text: &str) -> io::Result<PathBuf> {
    let path = bundle.shared().join(name);
    let mut file = File::create_new(&path)?;
    file.write_all(text.as_bytes())?;
    fs::set_permissions(&path, Permissions::from_mode(0o444))?;
    Ok(bundle.inside().join(name))
}

/// As outside, but for who one is: nothing of the daemon's, nor of its configuration, which may
/// hold secrets.
fn environment(plan: &Plan, bundle: &Bundle, user: &SandboxUser) -> Vec<String> {
    let shell = plan.program.display().to_string();
    let (id, calls) = (plan.id.to_string(), bundle.calls().display().to_string());
    let own = [
        ("HOME", "/tmp"),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
        ("SHELL", &shell),
    ];
    let proxy = bundle.has_egress().then(relay::variables);
    let proxy = proxy.unwrap_or_default();
    let calls = bundle.has_calls().then_some((SOCKET_VARIABLE, &*calls));
    let before = FIXED.into_iter().chain(own).chain(pairs(&plan.env));
    let after = pairs(&proxy)
        .chain(calls)
        .chain([(EXECUTION_VARIABLE, &*id)]);
    let last = last_of_each(before.chain(after).collect()).into_iter();
    last.map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn pairs(variables: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
}
