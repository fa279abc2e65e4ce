//! Where systemd has delegated a part of the cgroup hierarchy to this process.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;

/// The directory above the daemon's own leaf that carries systemd's mark of delegation
/// (systemd.resource-control(5)).
pub(super) fn delegated_dir() -> Option<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = membership
        .lines()
        .find_map(|line| line.strip_prefix("0::"))?;
    let own = v2_mount()?.join(path.trim_start_matches('/'));
    // With DelegateSubgroup= the daemon is one below the unit's cgroup.
    [own.parent()?, own.as_path()]
        .into_iter()
        .find(|dir| is_delegated(dir))
        .map(Path::to_owned)
}

/// Where cgroup v2 is mounted: `/sys/fs/cgroup`, or below it on a hybrid host.
fn v2_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, path, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path))
    })
}

fn is_delegated(dir: &Path) -> bool {
    // systemd sets the trusted one always, the user one (readable without privileges) besides.
    ["trusted.delegate", "user.delegate"]
        .iter()
        .any(|name| xattr_is_one(dir, name))
}

fn xattr_is_one(path: &Path, name: &str) -> bool {
    let mut value = [0; 8];
    getxattr(path, name, &mut value) == Ok(1) && value[0] == b'1'
}
