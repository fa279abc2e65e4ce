use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Mode, OFlags, Stat, StatxAttributes, StatxFlags, fchmod, fsync, mkdirat, openat,
    statat, statx, unlinkat,
};
use rustix::io::Errno;

use super::open::{TRIES, ends_with_a_slash};
use super::{Access, Found, Kind};
use crate::tools::files::FileError;

/// A place for a file: a directory that is held open, and one name in it.
pub(crate) struct Target {
    /// The directory, or the nearest there is.
    pub(crate) dir: Found,
    /// The directories that are missing between that and the file.
    pub(crate) missing: Vec<OsString>,
    /// The file's name.
    pub(crate) name: OsString,
    /// What was asked for.
    pub(crate) asked: String,
    /// Where that really is.
    pub(crate) real: PathBuf,
    /// The file, if there is one.
    pub(crate) existing: Option<Existing>,
}

/// A regular file that may be replaced.
pub(crate) struct Existing {
    pub(crate) found: Found,
    /// As it was when it was found.
    pub(crate) stamp: Stamp,
}

/// What changes whenever a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    dev: u64,
    ino: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl Access {
    /// The place where what was asked for is, or would be. The last link is followed, so that
    /// what is replaced is the file and not the link.
    pub(crate) fn target(&self, asked: &str) -> Result<Target, FileError> {
        // What has changed while it was looked for was seen by nobody yet: it is looked for again.
        let mut sought = (0..TRIES).map(|_| self.seek(asked));
        let is_settled = |sought: &Result<_, _>| !matches!(sought, Err(FileError::Changed { .. }));
        let target = sought
            .find(is_settled)
            .unwrap_or_else(|| self.seek(asked))?;
        self.hold_settings(&target.real)?;
        Ok(target)
    }

    fn seek(&self, asked: &str) -> Result<Target, FileError> {
        match self.find(asked) {
            Err(error) if !error.is_missing() => Err(error),
            _ if asked.ends_with('/') => Err(ends_with_a_slash(asked)),
            Ok(found) => self.existing(found),
            Err(_) => self.missing(asked),
        }
    }

    fn existing(&self, found: Found) -> Result<Target, FileError> {
        let found = found.regular(self)?;
        refuse_shared(&found)?;
        let (Some(parent), Some(name)) = (found.real.parent(), found.real.file_name()) else {
            return Err(FileError::refused(
                &found.asked,
                "is no file in a directory",
            ));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let dir = match self.walk(&found.asked, parent.to_owned(), flags) {
            Err(error) if error.is_missing() => {
                let path = found.asked.clone();
                return Err(FileError::Changed { path });
            }
            walked => walked?,
        };
        let stamp = Stamp::of(&found.stat);
        let target = Target {
            dir,
            missing: Vec::new(),
            name: name.to_owned(),
            asked: found.asked.clone(),
            real: found.real.clone(),
            existing: Some(Existing { found, stamp }),
        };
        // It was moved since, if the name now stands for something else.
        target.check_same_file()?;
        Ok(target)
    }

    fn missing(&self, asked: &str) -> Result<Target, FileError> {
        let path = self.absolute(asked)?;
        let (mut at, name) = parted(&path, asked)?;
        let mut missing = Vec::new();
        let mut dir = loop {
            match self.walk(asked, at.to_owned(), OFlags::PATH | OFlags::DIRECTORY) {
                Ok(dir) if dir.stat.st_nlink > 0 => break dir,
                // It is gone since: its real path is none any more.
                Ok(_) => {}
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
            let (parent, name) = parted(at, asked)?;
            missing.insert(0, name.to_owned());
            at = parent;
        };
        let real = missing
            .iter()
            .fold(dir.real.clone(), |path, name| path.join(name))
            .join(name);
        self.hold(&real)?;
        self.check_extension(&real)?;
        // What is wrong with a directory that is made in it is not said of the file.
        dir.asked = dir.real.display().to_string();
        let target = Target {
            dir,
            missing,
            name: name.to_owned(),
            asked: asked.to_owned(),
            real,
            existing: None,
        };
        target.check_unchanged()?;
        Ok(target)
    }
}

impl Target {
    /// Makes the missing directories. They are removed again with what is returned, unless it is
    /// kept.
    pub(crate) fn make_dirs(&mut self) -> Result<MadeDirs, FileError> {
        let mut made = MadeDirs(Vec::new());
        for name in std::mem::take(&mut self.missing) {
            let (child, is_ours) = self.make_dir(&name)?;
            let parent = std::mem::replace(&mut self.dir, child);
            if is_ours {
                made.0.push((parent, name));
            }
        }
        // Without it a power cut may take the directories and the file in them.
        made.0.iter().try_for_each(|(parent, _)| parent.sync())?;
        Ok(made)
    }

    /// Makes one, and says whether it was not made by somebody else meanwhile.
    fn make_dir(&self, name: &OsStr) -> Result<(Found, bool), FileError> {
        let mode = Mode::from_raw_mode(0o755);
        let is_ours = match mkdirat(&self.dir.fd, name, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(FileError::io("make a directory for", &self.asked)(error)),
        };
        let enter = || {
            let child = self.dir.child(Path::new(name))?;
            if is_ours {
                // Whatever the daemon's umask is, which is about files of its own.
                let opened = child.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
                let set = fchmod(opened, mode);
                set.map_err(FileError::io(
                    "set the permissions of a directory for",
                    &self.asked,
                ))?;
            }
            Ok((child, is_ours))
        };
        enter().inspect_err(|_| {
            if is_ours {
                // Nobody has used it.
                let _ = unlinkat(&self.dir.fd, name, AtFlags::REMOVEDIR);
            }
        })
    }

    /// Refuses to go on once the name stands for something else than at first.
    pub(crate) fn check_unchanged(&self) -> Result<(), FileError> {
        if !self.missing.is_empty() {
            return Ok(());
        }
        let now = match statat(&self.dir.fd, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(FileError::io("look at", &self.asked)(error)),
        };
        match (&self.existing, now) {
            (Some(existing), Some(now)) if existing.stamp == Stamp::of(&now) => Ok(()),
            (None, None) => Ok(()),
            (None, Some(now)) if Kind::of(&now) == Kind::Symlink => Err(FileError::refused(
                &self.asked,
                "is a symbolic link to nothing: name the file that it should lead to",
            )),
            (_, _) => Err(self.changed()),
        }
    }

    /// Refuses to go on once the file holds something else than it did.
    pub(super) fn check_content(&self, old: Option<&[u8]>) -> Result<(), FileError> {
        let (Some(existing), Some(old)) = (&self.existing, old) else {
            return Ok(());
        };
        let mut now = Vec::with_capacity(old.len() + 1);
        let file = existing.found.open(OFlags::RDONLY)?;
        let read = file.take(old.len() as u64 + 1).read_to_end(&mut now);
        read.map_err(FileError::io("read", &self.asked))?;
        match now == old {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    /// Refuses to go on once the name stands for another file, or for none.
    pub(crate) fn check_same_file(&self) -> Result<(), FileError> {
        let now = match statat(&self.dir.fd, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) => now,
            Err(Errno::NOENT) => return Err(self.changed()),
            Err(error) => return Err(FileError::io("look at", &self.asked)(error)),
        };
        let then = self.existing.as_ref().map(|existing| existing.stamp);
        match then.is_some_and(|then| (then.dev, then.ino) == (now.st_dev, now.st_ino)) {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    pub(super) fn changed(&self) -> FileError {
        FileError::Changed {
            path: self.asked.clone(),
        }
    }
}

impl Found {
    /// Writes a directory's entries to the disk, if it can be read: of one that may only be written to, what was put
    /// into it is there all the same.
    pub(crate) fn sync(&self) -> Result<(), FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match openat(&self.fd, ".", flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::ACCESS) => return Ok(()),
            Err(error) => return Err(FileError::io("open the directory of", &self.asked)(error)),
        };
        fsync(dir).map_err(FileError::io(
            "write to the disk the directory of",
            &self.asked,
        ))
    }
}

/// Directories that were made for a file that is not there yet.
pub(crate) struct MadeDirs(Vec<(Found, OsString)>);

impl MadeDirs {
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeDirs {
    fn drop(&mut self) {
        for (parent, name) in self.0.iter().rev() {
            // Somebody may have put something into it; then it stays.
            let _ = unlinkat(&parent.fd, name, AtFlags::REMOVEDIR);
        }
    }
}

/// A path's directory and last name, which must be one.
fn parted<'a>(path: &'a Path, asked: &str) -> Result<(&'a Path, &'a OsStr), FileError> {
    path.parent()
        .zip(path.file_name())
        .ok_or_else(|| FileError::refused(asked, "does not end in a name: leave out the `..`"))
}

/// Refuses a file that is more than its name: replacing it would part it from its other names, or
/// what is mounted from what it hides.
fn refuse_shared(found: &Found) -> Result<(), FileError> {
    if found.stat.st_nlink > 1 {
        let why = format!(
            "has {} hard links, which replacing it would part: use bash if that is meant",
            found.stat.st_nlink
        );
        return Err(FileError::refused(&found.asked, why));
    }
    let seen = statx(&found.fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
        .map_err(FileError::io("look at", &found.asked))?;
    if seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        let why = "is a mount point, which cannot be replaced: change the file that is mounted";
        return Err(FileError::refused(&found.asked, why));
    }
    Ok(())
}
