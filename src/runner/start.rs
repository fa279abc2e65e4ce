//! Makes everything ready that a plan's process needs, and starts it.

use std::ffi::CString;
use std::fs::File;
use std::future::pending;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{SysconfVar, sysconf};
use tokio::runtime::Handle;

use super::Runner;
use super::environment::Base;
use super::handover::Handover;
use super::inherited::Corrections;
use super::pipes::Pipes;
use super::plan::{Live, Plan, RunError};
use super::reader::Watched;
use super::spawn::{self, Leader, Program};
use super::spool::{self, SCRIPT};
use super::tree::Tree;
use crate::domain::{ExecutionId, StopReason};

/// Where a private script lies while its execution lasts.
#[derive(Debug)]
pub(super) struct ScriptFile(PathBuf);

/// A process that was started, for a run that may be yet to come. It is for [`Runner::attend`], which
/// also ends it.
#[derive(Debug)]
pub(crate) struct Born {
    pub(super) id: ExecutionId,
    pub(super) tree: Tree,
    pub(super) leader: Leader,
    pub(super) stdout: Watched,
    pub(super) stderr: Watched,
    pub(super) script: Option<ScriptFile>,
}

impl Born {
    /// Waits until it has ended.
    pub(crate) async fn ended(&self) {
        // Who cannot be watched is found out when it is attended.
        let _ = self.leader.pidfd.readable().await;
    }
}

impl Runner {
    /// Starts the process of `plan`, whose script is short or none, and which reads `stdin` if that is given, and nothing
    /// more: it is for [`Runner::attend`].
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) async fn start(
        &self,
        plan: &Plan,
        stdin: Option<OwnedFd>,
    ) -> Result<Born, RunError> {
        let base = in_time(plan.limit, pending(), async {
            Ok(self.environment.base().await)
        });
        self.bear(plan, stdin, None, base.await?)
    }

    /// The same with a script that is as long as it may be, unless `live` says to stop before.
    pub(super) async fn start_script(
        &self,
        plan: &mut Plan,
        live: &Live,
    ) -> Result<Born, RunError> {
        let (limit, stopped) = (plan.limit, live.stop_requested());
        let (base, script) = in_time(limit, stopped, async {
            let base = self.environment.base().await;
            Ok((base, self.script_file(plan).await?))
        })
        .await?;
        self.bear(plan, None, script, base)
    }

    fn bear(
        &self,
        plan: &Plan,
        stdin: Option<OwnedFd>,
        script: Option<ScriptFile>,
        base: Base,
    ) -> Result<Born, RunError> {
        let program = CString::new(plan.program.as_os_str().as_bytes());
        let program =
            program.map_err(|error| RunError::new("the program's path holds NUL", error))?;
        let args = arguments(plan, script.as_ref())?;
        let env = self
            .environment
            .of(base, plan.id, &plan.program, &plan.env)
            .map_err(|error| RunError::new("a variable holds NUL", error))?;
        let working_dir = plan
            .working_dir
            .as_ref()
            .map(|dir| CString::new(dir.as_os_str().as_bytes()));
        let working_dir = working_dir
            .transpose()
            .map_err(|error| RunError::new("the working directory holds NUL", error))?;
        let text = plan.stdin.as_deref().map(file_in_memory).transpose();
        let text = text.map_err(|error| RunError::new("cannot prepare standard input", error))?;
        let stdin = stdin.or(text).map_or_else(null, Ok)?;
        let pipes = Pipes::make(stdin);
        let Pipes {
            stdout,
            stderr,
            ends,
        } = pipes.map_err(|error| RunError::new("cannot make a pipe", error))?;

        let mut tree = self
            .tree(plan.id, plan)
            .map_err(|error| RunError::new("cannot make a cgroup for the execution", error))?;
        let corrections = self
            .corrections
            .get_or_init(|| Arc::new(Corrections::of_this_process()));
        let leader = tree
            .bear(|cgroup| {
                let program = Program {
                    path: program,
                    args,
                    env,
                    working_dir,
                    ends,
                    cgroup,
                };
                spawn::start(program, corrections, Handover::of_this_process())
            })
            .map_err(|failure| RunError::new("cannot start a process (clone3)", failure.error))?;
        // Everything else happens while it comes to life.
        let watched = Watched::new(stdout).and_then(|stdout| Ok((stdout, Watched::new(stderr)?)));
        let (stdout, stderr) = match watched {
            Ok(watched) => watched,
            Err(error) => {
                leader.abandon();
                return Err(RunError::new("cannot read from a pipe", error));
            }
        };
        if let Some(cgroups) = &self.cgroups {
            cgroups.prepare_next(plan.limits);
        }
        Ok(Born {
            id: plan.id,
            tree,
            leader,
            stdout,
            stderr,
            script,
        })
    }

    /// A private file for a script that does not fit into one argument, whose text it takes. Written beside the event
    /// loop: it may have megabytes, and the disk may take its time.
    async fn script_file(&self, plan: &mut Plan) -> Result<Option<ScriptFile>, RunError> {
        let long = plan.script.as_mut();
        let Some(script) = long.filter(|script| script.text.len() >= longest_argument()) else {
            return Ok(None);
        };
        let text = std::mem::take(&mut script.text);
        let path = self.scripts.join(format!("{}.{SCRIPT}", plan.id));
        let shown = path.display().to_string();
        let writing = tokio::task::spawn_blocking(move || {
            let mut file = spool::create(&path)?;
            let guard = ScriptFile(path);
            file.write_all(text.as_bytes())?;
            Ok(guard)
        });
        let written = writing
            .await
            .unwrap_or_else(|lost| Err(io::Error::other(lost)));
        written
            .map(Some)
            .map_err(|error| RunError::new(format!("cannot write the script to `{shown}`"), error))
    }
}

/// Waits for what a process needs for as long as for the process at the most: the user database and the disk may not
/// answer.
async fn in_time<T>(
    limit: Duration,
    stopped: impl Future<Output = StopReason>,
    ready: impl Future<Output = Result<T, RunError>>,
) -> Result<T, RunError> {
    let (step, kind) = tokio::select! {
        biased;
        ready = ready => return ready,
        _ = stopped => ("cannot start a process that was stopped before", io::ErrorKind::Interrupted),
        () = tokio::time::sleep(limit) => (
            "cannot get ready within the time limit: the user database (getpwuid_r) or the disk for long scripts does not answer",
            io::ErrorKind::TimedOut,
        ),
    };
    Err(RunError::new(step, io::Error::from(kind)))
}

/// `/dev/null` for one execution alone: what is open once has one lock (flock(2)), one offset and one owner for its signals
/// (`F_SETOWN`), whoever has it.
fn null() -> Result<OwnedFd, RunError> {
    let null = File::open("/dev/null");
    let null = null.map_err(|error| RunError::new("cannot open `/dev/null`", error))?;
    Ok(null.into())
}

/// A file in memory that holds `text` as a whole, so that nobody has to feed it and nobody can
/// hang on it.
fn file_in_memory(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"stdin", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// The program's own name and its arguments; a script is the last of them, or its file.
fn arguments(plan: &Plan, file: Option<&ScriptFile>) -> Result<Vec<CString>, RunError> {
    let mut args = vec![plan.program.as_os_str().as_bytes()];
    args.extend(plan.args.iter().map(String::as_bytes));
    match (&plan.script, file) {
        (Some(_), Some(ScriptFile(path))) => args.push(path.as_os_str().as_bytes()),
        (Some(script), None) => args.extend(script.arguments().map(str::as_bytes)),
        (None, _) => {}
    }
    args.into_iter()
        .map(|arg| CString::new(arg).map_err(|error| RunError::new("an argument holds NUL", error)))
        .collect()
}

/// What the kernel takes as one argument of execve(2), its final NUL included: 32 pages.
fn longest_argument() -> usize {
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    32 * page
        .and_then(|page| usize::try_from(page).ok())
        .unwrap_or(4096)
}

impl Drop for ScriptFile {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        let remove = move || {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(%error, path = %path.display(), "cannot remove a script");
            }
        };
        // Not on the event loop: the disk may not answer.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}
