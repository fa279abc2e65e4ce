use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat,
};
use rustix::io::Errno;

use super::{Access, Base};
use crate::tools::files::{FileError, ShouldStop};

/// How many symbolic links are gone after whose targets are absolute: as many as the kernel would.
const HOPS: usize = 40;

/// How often `openat2` is called again that met with a rename while it went through a `..`. Each
/// takes such a rename in the same instant, so that this many in a row are an attack.
const RACES: usize = 1000;

/// How often something is looked for again that was moved or removed at the same moment. Not more, for there are file
/// systems on which what is there has no links, or another number each time, and one such search is part of another.
pub(crate) const TRIES: usize = 100;

/// How many names of one directory are looked at: more take more memory than a listing is worth.
const MOST_NAMES: usize = 200_000;

/// The names in a directory.
pub(crate) struct Entries {
    pub(crate) names: Vec<OsString>,
    /// Whether there are more.
    pub(crate) is_cut: bool,
}

/// Something that was found, held but not opened: looking at it has no effects, whatever it is.
pub(crate) struct Found {
    pub(super) fd: OwnedFd,
    /// What was asked for.
    pub(crate) asked: String,
    /// Where it really is.
    pub(crate) real: PathBuf,
    /// What the kernel says of it.
    pub(crate) stat: Stat,
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
    Unknown,
}

impl Kind {
    pub(crate) fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice | FileType::BlockDevice => Self::Device,
            FileType::Unknown => Self::Unknown,
        }
    }

    /// With its article.
    fn described(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Unknown => "something unknown",
        }
    }
}

impl Access {
    /// Finds what is at a path, after all links.
    pub(crate) fn find(&self, asked: &str) -> Result<Found, FileError> {
        let path = self.absolute(asked)?;
        for _ in 0..TRIES {
            let found = self.walk(asked, path.clone(), OFlags::PATH)?;
            // Else its last name is gone, and what has that now, if anything, is what was asked for.
            if found.stat.st_nlink > 0 {
                return Ok(found);
            }
        }
        Err(FileError::io("find", asked)(Errno::NOENT))
    }

    /// Opens a path from its base directory. Each step that `openat2` makes is held to one; an
    /// absolute link, which it does not follow, is begun with anew.
    pub(super) fn walk(
        &self,
        asked: &str,
        mut path: PathBuf,
        flags: OFlags,
    ) -> Result<Found, FileError> {
        for _ in 0..HOPS {
            let (base, dir, rest) = self.base_of(&path)?;
            match beneath(dir, &rest, flags) {
                Ok(fd) => {
                    let real = real_path(&fd).map_err(FileError::io("find", asked))?;
                    let stat = fstat(&fd).map_err(FileError::io("look at", asked))?;
                    let asked = asked.to_owned();
                    let found = Found {
                        fd,
                        asked,
                        real,
                        stat,
                    };
                    self.hold_found(&found)?;
                    return Ok(found);
                }
                Err(Errno::XDEV) => match next_hop(base, dir, &rest) {
                    Some(next) => path = next,
                    None => return Err(FileError::denied(asked, self.outside())),
                },
                Err(error) => return Err(unopened(error, asked)),
            }
        }
        Err(unopened(Errno::LOOP, asked))
    }
}

impl Found {
    /// Refuses everything but regular files of the configured kinds.
    pub(crate) fn regular(self, access: &Access) -> Result<Self, FileError> {
        let found = self.regular_of_any_name()?;
        access.check_extension(&found.real)?;
        Ok(found)
    }

    /// Refuses everything but regular files.
    pub(crate) fn regular_of_any_name(self) -> Result<Self, FileError> {
        let kind = self.kind();
        if kind == Kind::File {
            // open(2) has ENOTDIR for it.
            return match self.asked.ends_with('/') {
                true => Err(ends_with_a_slash(&self.asked)),
                false => Ok(self),
            };
        }
        let hint = if kind == Kind::Directory {
            ": use list_dir or search_files for directories"
        } else {
            ""
        };
        let why = format!("is {}, not a regular file{hint}", kind.described());
        Err(FileError::refused(&self.asked, why))
    }

    /// Refuses everything but directories.
    pub(crate) fn directory(self) -> Result<Self, FileError> {
        let kind = self.kind();
        if kind == Kind::Directory {
            return Ok(self);
        }
        let why = format!("is {}, not a directory", kind.described());
        Err(FileError::refused(&self.asked, why))
    }

    /// The names in a directory, sorted.
    pub(crate) fn entries(&self, stop: ShouldStop<'_>) -> Result<Entries, FileError> {
        let failed = || FileError::io("list", &self.asked);
        let dir = self.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        let mut is_cut = false;
        for entry in Dir::new(dir).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if names.len() >= MOST_NAMES {
                is_cut = true;
                break;
            }
            names.push(OsString::from_vec(name.to_vec()));
            if names.len() % 1024 == 0 && stop() {
                return Err(FileError::Stopped);
            }
        }
        names.sort_unstable();
        Ok(Entries { names, is_cut })
    }

    /// Where a symbolic link leads, unless it is none.
    pub(crate) fn link_target(&self) -> Option<PathBuf> {
        if self.kind() != Kind::Symlink {
            return None;
        }
        let target = readlinkat(&self.fd, "", Vec::new()).ok()?;
        Some(OsString::from_vec(target.into_bytes()).into())
    }

    pub(crate) fn kind(&self) -> Kind {
        Kind::of(&self.stat)
    }

    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    /// Opens it: through /proc, so that it is what was looked at, whatever its name stands for now.
    pub(crate) fn open(&self, flags: OFlags) -> Result<File, FileError> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = openat(CWD, by_descriptor(&self.fd), flags, Mode::empty());
        opened
            .map(File::from)
            .map_err(FileError::io("open", &self.asked))
    }

    /// Opens a directory's own entry, without following it.
    pub(crate) fn child(&self, name: &Path) -> Result<Self, FileError> {
        let asked = Path::new(&self.asked).join(name).display().to_string();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let fd = retried(|| openat2(&self.fd, name, flags, Mode::empty(), held))
            .map_err(|error| unopened(error, &asked))?;
        let stat = fstat(&fd).map_err(FileError::io("look at", &asked))?;
        let real = self.real.join(name);
        Ok(Self {
            fd,
            asked,
            real,
            stat,
        })
    }
}

/// What is asked for as a directory is no file.
pub(super) fn ends_with_a_slash(asked: &str) -> FileError {
    let why = "ends with a slash, which only a directory does: name a file";
    FileError::refused(asked, why)
}

/// The path of what a descriptor holds.
pub(super) fn by_descriptor(fd: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// Where what a descriptor holds is now, as the kernel says.
pub(super) fn real_path(fd: impl AsFd) -> io::Result<PathBuf> {
    let path = std::fs::read_link(by_descriptor(fd))?;
    match path.is_absolute() {
        true => Ok(path),
        false => Err(io::Error::other(
            "it has no place among this process's files",
        )),
    }
}

fn beneath(dir: &OwnedFd, rest: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let held = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    retried(|| openat2(dir, rest, flags | OFlags::CLOEXEC, Mode::empty(), held))
}

fn retried(mut open: impl FnMut() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    for _ in 0..RACES {
        match open() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::AGAIN)
}

/// The path that `rest` is with its first symbolic link read; `None` when there is none, so that
/// it was a `..` that led out.
fn next_hop(base: &Base, dir: &OwnedFd, rest: &Path) -> Option<PathBuf> {
    let parts: Vec<_> = rest.components().collect();
    for end in 1..=parts.len() {
        let part: PathBuf = parts[..end].iter().collect();
        let fd = beneath(dir, &part, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        if Kind::of(&fstat(&fd).ok()?) != Kind::Symlink {
            continue;
        }
        let link = OsString::from_vec(readlinkat(&fd, "", Vec::new()).ok()?.into_bytes());
        // A link's own directory, which an absolute target replaces.
        let mut next = base.given.join(&part);
        next.pop();
        next.push(link);
        next.extend(&parts[end..]);
        return Some(next.components().collect());
    }
    None
}

fn unopened(error: Errno, asked: &str) -> FileError {
    match error {
        Errno::NOSYS | Errno::PERM => FileError::refused(
            asked,
            "cannot be opened safely: the kernel has no openat2 (Linux 5.6), or a sandbox forbids it; no file is touched without",
        ),
        Errno::LOOP => FileError::refused(
            asked,
            "leads through too many symbolic links, or one of /proc",
        ),
        error => FileError::io("find", asked)(error),
    }
}
