//! A directory copied so that nothing but itself is copied, and all of it is on disk afterwards.
//! Everything is opened from its directory's descriptor: what others change meanwhile leads nowhere else.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::fs::{fchmod, fstat, mkdirat, openat, openat2, readlinkat, statat, symlinkat};

use super::error::{ToolsError, cannot};

/// The most that is copied, in bytes: a program with its data, and no home directory by mistake.
const MOST_BYTES: u64 = 64 << 20;
/// How many files and directories.
const MOST_FILES: usize = 10_000;
/// How deep in one another.
const DEEPEST: usize = 32;
/// What running it leaves behind.
const LEFT_OUT: &[&str] = &["__pycache__"];
/// What is kept of a mode: nobody but the owner may write what a daemon runs.
const KEPT_MODE: u32 = 0o755;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Copies what is in the directory `from` to the new directory `to`.
pub fn copy(from: &Path, to: &Path) -> Result<(), ToolsError> {
    let source = openat(CWD, from, DIRECTORY, Mode::empty()).map_err(cannot("open", from))?;
    std::fs::create_dir(to).map_err(cannot("make", to))?;
    let target = openat(CWD, to, DIRECTORY, Mode::empty()).map_err(cannot("open", to))?;
    let mut copying = Copying {
        root: &source,
        from,
        bytes: 0,
        files: 0,
    };
    copying.directory(&source, &target, &PathBuf::new(), 0)
}

struct Copying<'a> {
    root: &'a OwnedFd,
    from: &'a Path,
    bytes: u64,
    files: usize,
}

impl Copying<'_> {
    fn refuse<T>(&self, path: &Path, why: impl Into<String>) -> Result<T, ToolsError> {
        Err(ToolsError::Refused {
            path: self.from.join(path),
            why: why.into(),
        })
    }

    fn directory(
        &mut self,
        source: &OwnedFd,
        target: &OwnedFd,
        path: &Path,
        depth: usize,
    ) -> Result<(), ToolsError> {
        if depth > DEEPEST {
            return self.refuse(path, format!("is more than {DEEPEST} directories deep"));
        }
        let at = self.from.join(path);
        let entries = Dir::read_from(source).map_err(cannot("read", &at))?;
        for entry in entries {
            let entry = entry.map_err(cannot("read", &at))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || LEFT_OUT.iter().any(|left_out| name == *left_out) {
                continue;
            }
            self.files += 1;
            if self.files > MOST_FILES {
                return self.refuse(path, format!("is one of more than {MOST_FILES} files"));
            }
            self.entry((source, target), name, path, depth)?;
        }
        keep_mode(source, target).map_err(cannot("copy", &at))
    }

    fn entry(
        &mut self,
        (source, target): (&OwnedFd, &OwnedFd),
        name: &OsStr,
        parent: &Path,
        depth: usize,
    ) -> Result<(), ToolsError> {
        let path = parent.join(name);
        let at = self.from.join(&path);
        let stat = statat(source, name, AtFlags::SYMLINK_NOFOLLOW).map_err(cannot("read", &at))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file((source, target), name, &path),
            FileType::Symlink => self.link((source, target), name, &path),
            FileType::Directory => {
                let inner =
                    openat(source, name, DIRECTORY, Mode::empty()).map_err(cannot("open", &at))?;
                mkdirat(target, name, Mode::RWXU).map_err(cannot("copy", &at))?;
                let made =
                    openat(target, name, DIRECTORY, Mode::empty()).map_err(cannot("copy", &at))?;
                self.directory(&inner, &made, &path, depth + 1)
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => self.refuse(
                &path,
                "is no file, directory or symbolic link: expected those",
            ),
        }
    }

    fn file(
        &mut self,
        (source, target): (&OwnedFd, &OwnedFd),
        name: &OsStr,
        path: &Path,
    ) -> Result<(), ToolsError> {
        let at = self.from.join(path);
        // Should it have become a FIFO by now, it must not wait for somebody to write.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = openat(source, name, flags, Mode::empty()).map_err(cannot("open", &at))?;
        let is_file =
            |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !fstat(&from).is_ok_and(is_file) {
            return self.refuse(path, "is no regular file any more");
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to = openat(target, name, flags, Mode::RUSR | Mode::WUSR);
        let mut to = File::from(to.map_err(cannot("copy", &at))?);
        let from = File::from(from);
        let room = MOST_BYTES - self.bytes;
        let copied = io::copy(&mut (&from).take(room + 1), &mut to);
        let copied = copied.map_err(cannot("copy", &at))?;
        if copied > room {
            let limit = MOST_BYTES >> 20;
            return self.refuse(
                path,
                format!("goes beyond the {limit} MiB that a skill may have"),
            );
        }
        self.bytes += copied;
        keep_mode(&from, &to).map_err(cannot("copy", &at))
    }

    fn link(
        &mut self,
        (source, target): (&OwnedFd, &OwnedFd),
        name: &OsStr,
        path: &Path,
    ) -> Result<(), ToolsError> {
        let at = self.from.join(path);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if let Err(error) = openat2(self.root, path, flags, Mode::empty(), resolve) {
            let why = match error {
                rustix::io::Errno::XDEV => "is a symbolic link that leads out of the skill",
                _ => "is a symbolic link that leads nowhere",
            };
            return self.refuse(path, why);
        }
        let text = readlinkat(source, name, Vec::new()).map_err(cannot("read", &at))?;
        symlinkat(&text, target, name).map_err(cannot("copy", &at))
    }
}

/// Gives a copy the permissions of what it is a copy of, and sees to it that it is on disk.
fn keep_mode(source: impl AsFd, target: impl AsFd) -> rustix::io::Result<()> {
    let mode = fstat(source)?.st_mode & KEPT_MODE;
    fchmod(&target, Mode::from_raw_mode(mode))?;
    rustix::fs::fsync(target)
}
