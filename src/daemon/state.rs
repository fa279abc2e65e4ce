use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use uuid::Uuid;

use crate::config::refuse_foreign;

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
    /// All of it.
    pub(super) dir: PathBuf,
    /// The directory of full outputs.
    pub(super) spool: PathBuf,
    /// The file of all that lasts.
    pub(super) ledger: PathBuf,
    /// The directory of what sandboxes are made of.
    pub(super) sandbox: PathBuf,
}

/// How the directory came to be the one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// By whoever started the daemon, who answers for it.
    Named,
    /// By its being the usual one, which may be below `/tmp`.
    Usual,
}

impl Chosen {
    fn vet(self, dir: &Path) -> io::Result<()> {
        match self {
            Self::Named => Ok(()),
            Self::Usual => refuse_foreign(dir, "--state"),
        }
    }
}

impl State {
    /// Looks whether `dir` can be one, and makes nothing: what else is read of it would be refused
    /// in other words.
    ///
    /// # Errors
    /// When it is no directory, may not be looked into, or may be somebody else's.
    pub(super) fn check(dir: &Path, chosen: Chosen) -> io::Result<()> {
        chosen.vet(dir)?;
        match fs::metadata(dir.join(".")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(advised(error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Opens `dir`, making it when it is not there.
    ///
    /// # Errors
    /// When it cannot be made or written to, may be somebody else's, or another daemon holds it.
    pub(super) fn open(dir: &Path, chosen: Chosen) -> io::Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(advised)?;
        // Somebody may have been faster since it was looked for.
        chosen.vet(dir)?;
        Self::take(dir).map_err(advised)
    }

    fn take(dir: &Path) -> io::Result<Self> {
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
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
            dir: self.dir.clone(),
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

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn the_usual_place_is_refused_where_others_may_write_and_a_link_for_a_lock_everywhere() {
        let open = std::env::temp_dir().join(format!("state-{}-open", std::process::id()));
        let dir = open.join("state");
        DirBuilder::new()
            .recursive(true)
            .create(&dir)
            .expect("made");
        for dir in [&open, &dir] {
            fs::set_permissions(dir, Permissions::from_mode(0o1777)).expect("ours");
        }
        for refused in [
            State::check(&dir, Chosen::Usual),
            State::open(&dir, Chosen::Usual).map(drop),
        ] {
            let told = refused.expect_err("others may write").to_string();
            assert!(told.contains("state` belongs to uid"), "{told}");
        }
        assert_eq!(fs::read_dir(&dir).expect("ours").count(), 0);
        State::open(&open.join("new"), Chosen::Usual).expect("ours alone");
        // Whoever names it answers for it.
        State::open(&dir, Chosen::Named).expect("named");
        fs::remove_file(dir.join("lock")).expect("ours");
        symlink(open.join("elsewhere"), dir.join("lock")).expect("made");
        State::open(&dir, Chosen::Named).expect_err("a link");
        assert!(!open.join("elsewhere").exists());
        fs::remove_dir_all(open).expect("ours");
    }
}
