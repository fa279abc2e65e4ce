//! What a sandbox is made of before it knows what it is to run.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Grants, SandboxError, is_directory};
use crate::config::{ExecutorConfig, SandboxConfig};
use crate::domain::Digest;

/// The configuration, and the directories that are found inside.
#[derive(Clone, Debug)]
pub(super) struct Basis {
    pub(super) config: Arc<ExecutorConfig>,
    rootfs: Directory,
    workspace: Option<Directory>,
    visible: Vec<Directory>,
    /// Which of those that are hidden are there, for there is nothing to be hidden of others.
    hidden: Vec<bool>,
    /// What is mounted, as the daemon sees it (proc_pid_mountinfo(5)).
    mounted: Digest,
    /// It has sockets, which are those of one execution.
    is_single: bool,
}

/// A directory, not only its name: another may have been put in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Directory {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Directory {
    fn at(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

impl Basis {
    /// That of who is granted this.
    ///
    /// # Errors
    /// When a directory is not there, or may not be had: refused where it is the call that names it.
    pub(super) fn of(grants: &Grants, config: &Arc<ExecutorConfig>) -> Result<Self, SandboxError> {
        let sandbox = &config.sandbox;
        let broken = |error: io::Error| SandboxError::broken("make its bundle", &error);
        let workspace = grants.workspace.as_deref().map(|path| {
            let real = writable(path, grants, sandbox).and_then(|real| Directory::at(&real));
            real.map_err(|error| {
                let said = format!("`workspace` {}: {error}", path.display());
                match &grants.by_policy {
                    Some(granted) if granted == path => broken(io::Error::other(said)),
                    Some(_) | None => SandboxError::Refused(said),
                }
            })
        });
        let rootfs = Directory::at(&sandbox.rootfs).map_err(|error| {
            let rootfs = sandbox.rootfs.display();
            broken(io::Error::other(format!("`rootfs` {rootfs}: {error}")))
        });
        if let Some(file) = sandbox.shown_files().next() {
            let file = file.display();
            let text =
                format!("`hidden` names {file}, which is no directory: expected one that it is in");
            return Err(broken(io::Error::other(text)));
        }
        let mounted = fs::read("/proc/self/mountinfo").map_err(broken)?;
        let visible = grants.visible.iter().filter(|dir| is_directory(dir));
        let visible = visible.map(|dir| Directory::at(dir));
        Ok(Self {
            config: Arc::clone(config),
            rootfs: rootfs?,
            workspace: workspace.transpose()?,
            visible: visible.collect::<io::Result<_>>().map_err(broken)?,
            hidden: sandbox.hidden.iter().map(|dir| dir.is_dir()).collect(),
            mounted: Digest::of(&mounted),
            is_single: grants.has_socket(),
        })
    }

    /// The directory that may be written to, its links followed.
    pub(super) fn workspace(&self) -> Option<&Path> {
        self.workspace.as_ref().map(|dir| dir.path.as_path())
    }

    /// Whether a sandbox can be there before its call.
    pub(super) fn may_be_foreseen(&self) -> bool {
        !self.is_single
    }

    /// Whether a sandbox that stands on this will do for who wants one that stands on `other`.
    pub(super) fn serves(&self, other: &Self) -> bool {
        // Each reading of the configuration is one of its own.
        Arc::ptr_eq(&self.config, &other.config)
            && (self.may_be_foreseen() && other.may_be_foreseen())
            && self.rootfs == other.rootfs
            && self.workspace == other.workspace
            && self.visible == other.visible
            && self.hidden == other.hidden
            && self.mounted == other.mounted
    }

    /// The directories that are seen although they are hidden otherwise.
    pub(super) fn visible(&self) -> impl Iterator<Item = &Path> {
        self.visible.iter().map(|dir| dir.path.as_path())
    }
}

/// The directory that may be written to, its links followed. Who is inside of another sandbox cannot
/// put a link in its place meanwhile, for no directory above it is theirs.
///
/// # Errors
/// When there is none, or none that a call may have.
fn writable(path: &Path, grants: &Grants, sandbox: &SandboxConfig) -> io::Result<PathBuf> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let real = fs::canonicalize(path)?;
    let mut allowed = sandbox.workspaces.iter().chain(&grants.by_policy);
    let is_below = |allowed: &PathBuf| {
        fs::canonicalize(allowed).is_ok_and(|allowed| real.starts_with(allowed))
    };
    if !real.is_dir() || !allowed.any(is_below) {
        return Err(refused(
            "it is no directory at or below one of `workspaces` in [sandbox] or one that the policy grants",
        ));
    }
    for above in real.ancestors().skip(1) {
        let found = fs::metadata(above)?;
        let user = &sandbox.user;
        let is_of_group = found.gid() == user.gid && found.mode() & 0o020 != 0;
        // What is in a sticky directory is replaced by its owner only (inode(7)).
        let is_open = (found.mode() & 0o002 != 0 || is_of_group) && found.mode() & 0o1000 == 0;
        if found.uid() == user.uid || is_open {
            let (above, user) = (above.display(), &user.name);
            return Err(refused(&format!(
                "{above} above it can be written to by {user}, who could replace it"
            )));
        }
    }
    Ok(real)
}
