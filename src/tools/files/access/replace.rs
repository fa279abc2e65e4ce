//! Putting bytes in the place of a file's, whole or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;

use rustix::fs::{
    AtFlags, CWD, Gid, IFlags, Mode, OFlags, RenameFlags, Uid, XattrFlags, fchmod, fchown,
    fremovexattr, fsetxattr, fstat, fsync, getxattr, ioctl_getflags, ioctl_setflags, linkat,
    listxattr, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::append::lock;
use super::open::by_descriptor;
use super::{Found, Target};
use crate::tools::files::{FileError, ShouldStop};

/// What is written between two looks at whether to stop.
const CHUNK: usize = 256 * 1024;

/// The most that Linux lets one attribute, and the list of their names, be.
const XATTR_MAX: usize = 64 * 1024;

const ACL: &str = "system.posix_acl_access";

/// What is said of what a file holds, which is about to change: signatures over it, and the capabilities that whoever
/// runs it gets, which the kernel takes from a file that is written to as well.
const OF_CONTENT: [&str; 3] = ["security.capability", "security.evm", "security.ima"];

/// Whoever runs a file with these does so as its owner or group. They are for what it held.
const SET_ID: u32 = 0o6000;

/// The flags of chattr(1) that a file may be given and be written to. With the others, `i` and `a`, it is
/// not replaced.
const FLAGS: IFlags = IFlags::COMPRESSED
    .union(IFlags::JOURNALING)
    .union(IFlags::NOATIME)
    .union(IFlags::NOCOW)
    .union(IFlags::NODUMP)
    .union(IFlags::NOTAIL)
    .union(IFlags::SECURE_REMOVAL)
    .union(IFlags::SYNC)
    .union(IFlags::UNRM)
    // `FS_DAX_FL` of linux/fs.h.
    .union(IFlags::from_bits_retain(0x0200_0000));

/// The permissions of a new file for which none are asked.
const NEW_FILE: u32 = 0o644;

/// What is put in the place of a file.
pub(crate) struct New<'a> {
    pub(crate) bytes: &'a [u8],
    /// Else those of the file, or the usual ones.
    pub(crate) permissions: Option<u32>,
    /// What the file held when it was read, if it was. Times alone do not tell of a change: two
    /// within one tick of the kernel's clock have the same.
    pub(crate) old: Option<&'a [u8]>,
}

impl Target {
    /// Puts what is new where the file is, or where there is none. The file keeps its owner,
    /// permissions, ACL and attributes; what of the latter could not be kept is returned.
    pub(crate) fn replace(
        &self,
        new: &New<'_>,
        stop: ShouldStop<'_>,
    ) -> Result<Vec<String>, FileError> {
        let temporary = Temporary::new(self)?;
        self.fill_and_commit(temporary, new, stop)
    }

    fn fill_and_commit(
        &self,
        mut temporary: Temporary<'_>,
        new: &New<'_>,
        stop: ShouldStop<'_>,
    ) -> Result<Vec<String>, FileError> {
        let asked = &self.asked;
        let mut not_kept = Vec::new();
        if let Some(existing) = &self.existing {
            // First: some can only be had by a file that is empty.
            not_kept.extend(keep_flags(&existing.found, &temporary.file)?);
        }
        for chunk in new.bytes.chunks(CHUNK) {
            if stop() {
                return Err(FileError::Stopped);
            }
            let written = temporary.file.write_all(chunk);
            written.map_err(FileError::io("write", asked))?;
        }
        let file = &temporary.file;
        let mut mode = new.permissions.unwrap_or(NEW_FILE);
        if let Some(existing) = &self.existing {
            let found = &existing.found;
            keep_owner(found, file)?;
            not_kept.extend(keep_attributes(found, file)?);
            let old = found.stat.st_mode & 0o7777;
            let is_lost = new.permissions.is_none() && old & SET_ID != 0;
            not_kept.extend(is_lost.then(|| "set-user-ID, set-group-ID".to_owned()));
            mode = new.permissions.unwrap_or(old & !SET_ID);
        }
        // Last: changing the owner takes away bits of it.
        fchmod(file, Mode::from_raw_mode(mode))
            .map_err(FileError::io("set the permissions of", asked))?;
        fsync(file).map_err(FileError::io("write to the disk", asked))?;
        if stop() {
            return Err(FileError::Stopped);
        }
        temporary.commit(new.old, stop)?;
        self.dir.sync()?;
        Ok(not_kept)
    }
}

/// A file beside the one that is to be replaced; gone when dropped, unless committed.
struct Temporary<'a> {
    target: &'a Target,
    file: File,
    /// `None` where the file system lets it have none, so that not even a crash leaves it behind.
    name: Option<OsString>,
}

impl<'a> Temporary<'a> {
    fn new(target: &'a Target) -> Result<Self, FileError> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        match openat(&target.dir.fd, ".", flags, Mode::from_raw_mode(0o600)) {
            Ok(fd) => Ok(Self {
                target,
                file: fd.into(),
                name: None,
            }),
            // ext4 says EPERM of a directory that has been removed, where all else says ENOENT.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT | Errno::PERM) => {
                Self::named(target)
            }
            Err(error) => Err(uncreated(target)(error)),
        }
    }

    /// For file systems without `O_TMPFILE`.
    fn named(target: &'a Target) -> Result<Self, FileError> {
        let name = unused_name();
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&target.dir.fd, &name, flags, Mode::from_raw_mode(0o600))
            .map_err(uncreated(target))?;
        Ok(Self {
            target,
            file: fd.into(),
            name: Some(name),
        })
    }

    /// Gives it the target's name, unless somebody has changed what that stands for.
    fn commit(mut self, old: Option<&[u8]>, stop: ShouldStop<'_>) -> Result<(), FileError> {
        let target = self.target;
        let dir = &target.dir.fd;
        let failed = FileError::io("replace", &target.asked);
        let Some(existing) = &target.existing else {
            return match self.link(&target.name) {
                Ok(()) => Ok(()),
                Err(Errno::EXIST) => Err(target.changed()),
                Err(error) => Err(FileError::io("create", &target.asked)(error)),
            };
        };
        if target.dir.is_append_only() {
            // What is there could neither be replaced nor removed.
            let why = "is in a directory to which files can only be added (chattr +a)";
            return Err(FileError::refused(&target.asked, why));
        }
        // Until it has another file's place: who else changes it by way of us waits, and finds that.
        let held = existing.found.open(OFlags::RDONLY)?;
        lock(&held, &target.asked, stop)?;
        target.check_content(old)?;
        // Not before, for a name is left behind by a crash, and the lock may be somebody else's for long.
        if self.name.is_none() {
            let name = unused_name();
            match self.link(&name) {
                Ok(()) => self.name = Some(name),
                Err(error) => return Err(failed(error)),
            }
        }
        let name = self.name.clone().unwrap_or_default();
        target.check_unchanged()?;
        renameat(dir, &name, dir, &target.name).map_err(failed)?;
        self.name = None;
        Ok(())
    }

    /// Gives it a name that nothing has.
    fn link(&mut self, name: &OsStr) -> Result<(), Errno> {
        let dir = &self.target.dir.fd;
        match &self.name {
            None => {
                let unnamed = by_descriptor(&self.file);
                linkat(CWD, unnamed, dir, name, AtFlags::SYMLINK_FOLLOW)
            }
            Some(old) => match renameat_with(dir, old, dir, name, RenameFlags::NOREPLACE) {
                // Not every file system knows how.
                Err(Errno::INVAL) => linkat(dir, old, dir, name, AtFlags::empty()),
                Err(error) => Err(error),
                Ok(()) => {
                    self.name = None;
                    Ok(())
                }
            },
        }
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(&self.target.dir.fd, name, AtFlags::empty());
        }
    }
}

fn unused_name() -> OsString {
    format!(".shelly-{}.tmp", uuid::Uuid::now_v7()).into()
}

fn uncreated(target: &Target) -> impl FnOnce(Errno) -> FileError {
    FileError::io("create a temporary file beside", &target.asked)
}

/// Only root may give files away; who cannot must not replace other people's.
fn keep_owner(old: &Found, new: &File) -> Result<(), FileError> {
    let failed = FileError::io("keep the owner of", &old.asked);
    let stat = match fstat(new) {
        Ok(stat) => stat,
        Err(error) => return Err(failed(error)),
    };
    let (uid, gid) = (old.stat.st_uid, old.stat.st_gid);
    if (stat.st_uid, stat.st_gid) == (uid, gid) {
        return Ok(());
    }
    fchown(new, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).map_err(failed)
}

impl Found {
    /// Whether nothing that is in a directory can be renamed or removed.
    fn is_append_only(&self) -> bool {
        let opened = self.open(OFlags::RDONLY | OFlags::DIRECTORY);
        let flags = opened.ok().and_then(|opened| ioctl_getflags(opened).ok());
        flags.is_some_and(|flags| flags.contains(IFlags::APPEND))
    }
}

/// Gives it the flags that chattr(1) has given the old one, or says that it does not have them.
fn keep_flags(old: &Found, new: &File) -> Result<Option<String>, FileError> {
    let held = old.open(OFlags::RDONLY)?;
    // Not every file system knows of flags.
    let (Ok(wanted), Ok(now)) = (ioctl_getflags(held), ioctl_getflags(new)) else {
        return Ok(None);
    };
    let with = now.difference(FLAGS).union(wanted.intersection(FLAGS));
    let is_kept = with == now || ioctl_setflags(new, with).is_ok();
    Ok((!is_kept).then(|| "flags (chattr)".to_owned()))
}

/// Copies the ACL and the extended attributes. The kernel may keep those of `security.` to
/// itself; they are told. To lose any other is an error.
fn keep_attributes(old: &Found, new: &File) -> Result<Vec<String>, FileError> {
    let failed = || FileError::io("keep the extended attributes of", &old.asked);
    let source = by_descriptor(&old.fd);
    let mut buffer = vec![0; XATTR_MAX];
    let length = match listxattr(&source, &mut buffer[..]) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        listed => listed.map_err(failed())?,
    };
    let names: Vec<String> = buffer[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    let mut not_kept = Vec::new();
    for name in &names {
        if OF_CONTENT.contains(&name.as_str()) {
            not_kept.push(name.clone());
            continue;
        }
        let length = getxattr(&source, name.as_str(), &mut buffer[..]).map_err(failed())?;
        match fsetxattr(new, name.as_str(), &buffer[..length], XattrFlags::empty()) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::NOTSUP) if name.starts_with("security.") => {
                not_kept.push(name.clone());
            }
            Err(error) => return Err(failed()(error)),
        }
    }
    if !names.iter().any(|name| name == ACL) {
        // A new file may have one from its directory, which this one has not.
        match fremovexattr(new, ACL) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(error) => return Err(failed()(error)),
        }
    }
    Ok(not_kept)
}

#[cfg(test)]
pub(in crate::tools::files) fn replace_by_name(
    target: &Target,
    bytes: &[u8],
) -> Result<Vec<String>, FileError> {
    let new = New {
        bytes,
        permissions: None,
        old: None,
    };
    target.fill_and_commit(Temporary::named(target)?, &new, &|| false)
}
