use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
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
        let instance = instance(dir)?;
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

    /// Says that this process leaves nothing of its own behind: what carries its mark all the same has found another
    /// place for itself, as a job of at(1)'s or a container does, and is none of the next daemon's.
    pub(super) fn leave(&self) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .append(true)
            .open(self.dir.join("instance"))?;
        file.write_all(format!("{LEFT}\n").as_bytes())
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

/// What stands behind an instance id that is nobody's any more.
const LEFT: &str = "left";

/// Reads the instance id, or makes one at the first start of a daemon on this directory and behind each that has left
/// nothing running. A copy of one has the id of the
/// original, whose commands may well be running: so it is kept with the device and the inode of the directory.
fn instance(dir: &Path) -> io::Result<String> {
    let path = dir.join("instance");
    let place = fs::metadata(dir)?;
    let place = format!("{}:{}", place.dev(), place.ino());
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        read => read.unwrap_or_default(),
    };
    let mut lines = text.lines();
    // One that is none was half written by a crash: what ran under it then was never started.
    let id = lines.next().filter(|id| Uuid::try_parse(id).is_ok());
    let instance = match (id, lines.next(), lines.next()) {
        (Some(id), Some(at), None) if at == place => return Ok(id.to_owned()),
        // Of a daemon that did not say so yet.
        (Some(id), None, None) => id.to_owned(),
        (Some(_) | None, _, _) => Uuid::now_v7().to_string(),
    };
    fs::write(&path, format!("{instance}\n{place}\n"))?;
    Ok(instance)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_copy_has_an_id_of_its_own() {
        let room = std::env::temp_dir().join(format!("state-{}-copy", std::process::id()));
        let (dir, copy) = (room.join("state"), room.join("copy"));
        let id = |dir: &Path| {
            let state = State::open(dir, Chosen::Named).expect("opened");
            state.instance().to_owned()
        };
        let first = id(&dir);
        assert_eq!(id(&dir), first);
        fs::create_dir(&copy).expect("made");
        fs::copy(dir.join("instance"), copy.join("instance")).expect("copied");
        let other = id(&copy);
        assert_ne!(other, first);
        assert_eq!((id(&copy), id(&dir)), (other, first.clone()));
        // One that was moved is the same, and so is one of a daemon that wrote nothing but its id.
        fs::rename(&dir, room.join("moved")).expect("moved");
        assert_eq!(id(&room.join("moved")), first);
        fs::write(copy.join("instance"), &first).expect("written");
        assert_eq!(id(&copy), first);
        // Whoever has left nothing has left no mark either.
        let state = State::open(&copy, Chosen::Named).expect("opened");
        let left = state.instance().to_owned();
        state.leave().expect("written");
        drop(state);
        let next = id(&copy);
        assert_ne!(next, left);
        assert_eq!(id(&copy), next);
        for broken in ["", "\n", "no id", "no id\n1:2\n"] {
            fs::write(copy.join("instance"), broken).expect("written");
            let fresh = id(&copy);
            assert!(
                Uuid::try_parse(&fresh).is_ok() && fresh != first,
                "{broken:?}"
            );
            assert_eq!(id(&copy), fresh);
        }
        fs::remove_dir_all(room).expect("ours");
    }

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
