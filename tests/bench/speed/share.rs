//! The same share of the processors for the floor and the daemon.
//!
//! Where `sched_autogroup_enabled` is on, every session is given a share of its
//! own. The daemon's commands are sessions, the floor's are not: on a machine
//! where others are at work the daemon would get more of it than the floor (1.26
//! times at 8 clients was seen). Inside a cpu cgroup there are no autogroups, so
//! the bench enters one where it can, and says so where it cannot.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Fallible;

/// Eight times the usual 1024: others go on working, but do not make the numbers.
const SHARES: &str = "8192";

/// Membership of a cgroup with the cpu controller; dropping it leaves and removes it.
pub struct Share {
    root: PathBuf,
    own: PathBuf,
}

impl Share {
    /// What this process and all it starts from now on share; `None` where nothing needs to be done.
    pub fn enter() -> Fallible<Option<Self>> {
        let autogroup = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
        if autogroup.is_ok_and(|enabled| enabled.trim() == "0") {
            return Ok(None);
        }
        let root = controller()?;
        let own = root.join(format!("shelly-bench-{}", std::process::id()));
        let share = Self { root, own };
        fs::create_dir(&share.own)?;
        fs::write(share.own.join("cpu.shares"), SHARES)?;
        share.join(&share.own)?;
        Ok(Some(share))
    }

    fn join(&self, group: &Path) -> Fallible<()> {
        Ok(fs::write(
            group.join("cgroup.procs"),
            std::process::id().to_string(),
        )?)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let left = self
            .join(&self.root)
            .and_then(|()| Ok(fs::remove_dir(&self.own)?));
        if let Err(error) = left {
            eprintln!("cannot remove {}: {error}", self.own.display());
        }
    }
}

/// Where cgroup v1's cpu controller is mounted, in whose root this process is. (In cgroup v2 the daemon's own
/// cgroups would be somewhere else in the same tree.)
fn controller() -> Fallible<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mount = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|fields| {
            fields.get(2) == Some(&"cgroup")
                && fields
                    .get(3)
                    .is_some_and(|options| options.split(',').any(|option| option == "cpu"))
        });
    Ok(mount
        .and_then(|fields| fields.get(1).copied())
        .ok_or("no cpu controller of cgroup v1")?
        .into())
}
