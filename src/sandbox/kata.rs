//! What Kata Containers leaves on the host when it is killed while it starts a virtual machine.
//!
//! It writes down what there is of a container at the end of starting it, so until then its own
//! `delete --force` says that there is no such container, and succeeds.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

/// Where `kata-runtime` 1.x makes a directory of the container's name: for its state, the sockets of the
/// virtual machine, and what that sees of the host (`virtcontainers/persist/fs` and `kata_agent.go`).
const PLACES: [&str; 3] = [
    "/run/vc/sbs",
    "/run/vc/vm",
    "/run/kata-containers/shared/sandboxes",
];

/// Removes what is left of the container `id`, whose processes are dead.
///
/// # Errors
/// When something of it is still mounted, which is then not gone into, or cannot be removed.
pub(super) fn clear(id: &str) -> io::Result<()> {
    PLACES.iter().try_for_each(|place| {
        let dir = Path::new(place).join(id);
        match fs::symlink_metadata(&dir) {
            Ok(_) => remove(&dir),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    })
}

fn remove(dir: &Path) -> io::Result<()> {
    // Last come those on top. One may have gone with another that it was a copy of.
    for mounted in mounted_in(dir)?.iter().rev() {
        match umount2(mounted, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // What is mounted is the operator's: the root file system, workspaces.
    if let Some(mounted) = mounted_in(dir)?.first() {
        let text = format!("{} is still mounted", mounted.display());
        return Err(io::Error::other(text));
    }
    fs::remove_dir_all(dir)
}

/// Where something is mounted in `dir`, in the order of mounting.
fn mounted_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let points = mounts.split(|&byte| byte == b'\n').filter_map(mount_point);
    Ok(points.filter(|point| point.starts_with(dir)).collect())
}

/// The fifth field of a line, in which blanks and backslashes are written in octal
/// (proc_pid_mountinfo(5)).
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let field = line.split(|&byte| byte == b' ').nth(4)?;
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\').then(|| after.get(..3)).flatten();
        let byte = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    Some(OsString::from_vec(path).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_as_they_are_written() {
        for (line, expected) in [
            (
                "36 35 98:0 /mnt1 /mnt2 rw - ext3 /dev/root rw",
                Some("/mnt2"),
            ),
            (r"36 35 98:0 / /a\040b\134c rw - ext3 x rw", Some(r"/a b\c")),
            (r"36 35 98:0 / /a\9 rw", Some(r"/a\9")),
            (r"36 35 98:0 / \777", Some(r"\777")),
            ("", None),
        ] {
            let found = mount_point(line.as_bytes());
            assert_eq!(found.as_deref(), expected.map(Path::new), "{line}");
        }
    }
}
