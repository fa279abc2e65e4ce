use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use uuid::Uuid;

/// The state directory, held by this process alone as long as it lives.
#[derive(Debug)]
pub(super) struct State {
    dir: PathBuf,
    instance: String,
    lock: Flock<File>,
}

/// How long the directory may still be held after its daemon has died.
const HANDOVER: Duration = Duration::from_millis(500);

/// What is where in the state directory.
#[derive(Clone, Debug)]
pub(super) struct StatePlaces {
    /// The directory of full outputs.
    pub(super) spool: PathBuf,
    /// The file of all that lasts.
    pub(super) ledger: PathBuf,
    /// The directory of what sandboxes are made of.
    pub(super) sandbox: PathBuf,
}

impl State {
    /// Looks whether `dir` can be one, and makes nothing: what else is read of it would be refused
    /// in other words.
    ///
    /// # Errors
    /// When it is no directory, or may not be looked into.
    pub(super) fn check(dir: &Path) -> io::Result<()> {
        match fs::metadata(dir.join(".")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(advised(error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Opens `dir`, making it when it is not there.
    ///
    /// # Errors
    /// When it cannot be made or written to, or another daemon holds it.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        Self::take(dir).map_err(advised)
    }

    fn take(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(dir.join("lock"))?;
        let lock = take(lock)?;
        let instance = instance(&dir.join("instance"))?;
        Ok(Self {
            dir: dir.to_owned(),
            instance,
            lock,
        })
    }

    /// What is locked as long as the directory is this process's.
    pub(super) fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// The name under which this directory's daemons mark what they run.
    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// What is where in it.
    pub(super) fn places(&self) -> StatePlaces {
        StatePlaces {
            spool: self.dir.join("spool"),
            ledger: self.dir.join("ledger.db"),
            // Another program is told of it, which is elsewhere.
            sandbox: absolute(&self.dir).join("sandbox"),
        }
    }
}

/// With what to do about it.
fn advised(error: io::Error) -> io::Error {
    let kind = error.kind();
    let text = if kind == io::ErrorKind::NotADirectory {
        "it is no directory; --state needs one that can be made and written".to_owned()
    } else if kind == io::ErrorKind::PermissionDenied || kind == io::ErrorKind::ReadOnlyFilesystem {
        format!("{error}; name a directory with --state that can be made and written")
    } else {
        return error;
    };
    io::Error::new(kind, text)
}

fn absolute(dir: &Path) -> PathBuf {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())
}

/// Takes the lock. A command that was being started when the last daemon was killed holds it for
/// as long as it takes to execute its program.
fn take(mut lock: File) -> io::Result<Flock<File>> {
    let began = Instant::now();
    loop {
        match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, nix::Error::EWOULDBLOCK)) if began.elapsed() < HANDOVER => {
                lock = back;
                std::thread::sleep(HANDOVER / 50);
            }
            Err((_, nix::Error::EWOULDBLOCK)) => {
                let text = "another daemon is using it, or a command that one was just starting when it was killed: stop it, or give this one its own with --state";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
            }
            Err((_, error)) => return Err(error.into()),
        }
    }
}

/// Reads the instance id, or makes one at the first start.
fn instance(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Ok(text) if Uuid::try_parse(text.trim()).is_ok() => return Ok(text.trim().to_owned()),
        // Half written by a crash: what ran under it then was never started.
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let instance = Uuid::now_v7().to_string();
    fs::write(path, &instance)?;
    Ok(instance)
}
