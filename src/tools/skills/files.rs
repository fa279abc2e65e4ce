//! Files of a skill, opened so that no link leads out and nothing hangs.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};

/// A directory to open things beneath.
pub(super) struct Dir {
    fd: OwnedFd,
    lack: Lack,
}

/// Whether something could not be opened for want of descriptors, which says nothing of what is there.
#[derive(Clone, Default)]
pub(super) struct Lack(Arc<AtomicBool>);

impl Lack {
    /// Whether there was any.
    pub(super) fn was_felt(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, error: &io::Error) {
        let lacking = [Errno::EMFILE, Errno::ENFILE].map(|errno| errno as i32);
        let is_lack = error
            .raw_os_error()
            .is_some_and(|code| lacking.contains(&code));
        self.0.fetch_or(is_lack, Ordering::Relaxed);
    }
}

impl Dir {
    /// Opens it, and notes here and beneath what is lacking.
    pub(super) fn open(path: &Path, lack: &Lack) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = open(path, flags, Mode::empty()).map_err(io::Error::from);
        let fd = opened.inspect_err(|error| lack.note(error))?;
        let lack = lack.clone();
        Ok(Self { fd, lack })
    }

    /// A directory in it.
    pub(super) fn dir(&self, name: &Path) -> io::Result<Self> {
        let fd = self.beneath(name, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        let lack = self.lack.clone();
        Ok(Self { fd, lack })
    }

    /// Whether it is what is at `path` now.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let same = |own: FileStat| {
            std::fs::metadata(path).map(|at| (at.dev(), at.ino()) == (own.st_dev, own.st_ino))
        };
        let own = fstat(&self.fd).map_err(io::Error::from);
        own.and_then(same).unwrap_or(false)
    }

    /// Whether there is something of that name in it.
    pub(super) fn has(&self, name: &str) -> bool {
        let found = fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        found != Err(Errno::ENOENT)
    }

    /// The text of a file in it, of at most `limit` bytes.
    pub(super) fn read(&self, name: &Path, limit: u64) -> Result<String, String> {
        // Without O_NONBLOCK a FIFO waits for somebody to write.
        let opened = self.beneath(name, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY);
        let mut file = File::from(opened.map_err(|error| told(&error))?);
        regular(&file)?;
        let mut bytes = Vec::new();
        let read = Read::by_ref(&mut file)
            .take(limit + 1)
            .read_to_end(&mut bytes);
        read.map_err(|error| told(&error))?;
        if bytes.len() as u64 > limit {
            return Err(format!("is larger than {} KiB", limit >> 10));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            format!(
                "is no UTF-8 from byte {} on",
                error.utf8_error().valid_up_to()
            )
        })?;
        // A byte order mark, which some editors write, is none of it.
        Ok(text
            .strip_prefix('\u{feff}')
            .map_or_else(|| text.clone(), str::to_owned))
    }

    /// What is wrong with a file in it as a program.
    pub(super) fn program(&self, name: &Path) -> Result<(), String> {
        let opened = self
            .beneath(name, OFlag::O_PATH)
            .map_err(|error| told(&error))?;
        executable(&File::from(opened))
    }

    fn beneath(&self, name: &Path, flags: OFlag) -> io::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let opened = openat2(self.fd.as_fd(), name, how).map_err(io::Error::from);
        opened.inspect_err(|error| self.lack.note(error))
    }
}

/// What is wrong with `path`, which is absolute, as a program.
pub(super) fn program(path: &Path) -> Result<(), String> {
    let opened = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
    let opened = opened.map_err(|error| told(&error.into()))?;
    executable(&File::from(opened))
}

fn executable(file: &File) -> Result<(), String> {
    regular(file)?;
    let meta = file.metadata().map_err(|error| told(&error))?;
    if meta.mode() & 0o111 == 0 {
        return Err("is not executable: expected `chmod +x`".to_owned());
    }
    match beginning(file) {
        Ok(beginning) => loadable(&beginning),
        // One that may be executed and not read.
        Err(_) => Ok(()),
    }
}

/// The first bytes of a file, as many as the kernel reads of a script's first line.
fn beginning(file: &File) -> io::Result<Vec<u8>> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut bytes = Vec::new();
    File::open(path)?.take(256).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether the kernel knows how to execute what begins so (execve(2)). Other formats may be registered
/// with it; what is text without a first line is none of them.
fn loadable(beginning: &[u8]) -> Result<(), String> {
    let Some(line) = beginning.strip_prefix(b"#!") else {
        return match std::str::from_utf8(beginning) {
            Ok(text) if !text.contains('\0') => Err(
                "is text whose first line does not name what runs it: expected one such as `#!/bin/sh`"
                    .to_owned(),
            ),
            Ok(_) | Err(_) => Ok(()),
        };
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let Some(interpreter) = line.split([' ', '\t']).find(|word| !word.is_empty()) else {
        return Err("begins with `#!` and names nothing: expected `#!/bin/sh`".to_owned());
    };
    let is_there = Path::new(interpreter).metadata();
    match is_there {
        Ok(meta) if meta.is_file() && meta.mode() & 0o111 != 0 => Ok(()),
        Ok(_) => Err(format!("is run by {interpreter:?}, which is no program")),
        Err(error) => Err(format!("is run by {interpreter:?}, which {}", told(&error))),
    }
}

fn regular(file: &File) -> Result<(), String> {
    let kind = file.metadata().map_err(|error| told(&error))?.file_type();
    let found = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(format!("is {found}: expected a regular file"))
}

/// Why something cannot be opened, in words.
pub(super) fn told(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EXDEV) => {
            "leads out of its directory: expected no link to elsewhere".to_owned()
        }
        Some(Errno::ENOENT) => "is not there".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}
