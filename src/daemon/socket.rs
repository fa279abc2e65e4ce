use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};

use nix::fcntl::{AtFlags, Flock, FlockArg};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, getsockname, listen, socket,
};
use nix::unistd::{Group, Uid, fchownat};
use tokio::net::UnixListener;

use crate::api;
use crate::config::{found, refuse_foreign};

/// Who may connect: the owner and the group.
const MODE: u32 = 0o660;

/// The group that may connect when root runs the daemon.
const GROUP: &str = "shelly";

/// How many connections may wait to be accepted. The kernel's own default bound
/// (`net.core.somaxconn`) since Linux 5.4; accepting is never held up for long.
const BACKLOG: i32 = 4096;

/// A listening socket and what keeps it ours.
#[derive(Debug)]
pub(super) struct Socket {
    pub listener: UnixListener,
    pub guard: Guard,
}

/// Removes the socket at the end, if it was this process that made it.
#[derive(Debug)]
pub(super) struct Guard {
    path: PathBuf,
    /// The inode of a socket of our own, and the lock that says so.
    own: Option<(u64, Flock<File>)>,
}

impl Socket {
    /// The socket that systemd has handed over, else a new one at `path`. `asked` is the path a
    /// flag names: it wins over systemd's.
    ///
    /// # Errors
    /// When another daemon listens there, something else is in the way, or it cannot be made.
    pub(super) fn open(asked: Option<&Path>, path: &Path) -> io::Result<Self> {
        if asked.is_none()
            && let Some(socket) = Self::inherited()?
        {
            return Ok(socket);
        }
        if asked.is_none() {
            make_parent(path)?;
        }
        Self::bind(path).map_err(meant_for_another)
    }

    pub(super) fn path(&self) -> &Path {
        self.guard.path()
    }

    /// Takes over the descriptor of socket activation (sd_listen_fds(3)).
    fn inherited() -> io::Result<Option<Self>> {
        let mut descriptors = sd_notify::listen_fds()?;
        let Some(descriptor) = descriptors.next() else {
            return Ok(None);
        };
        if descriptors.next().is_some() {
            let text = "systemd handed over more than one socket: expected one ListenStream=";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // SAFETY: systemd opened it for this process, whose only use of it this is.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let address: UnixAddr = getsockname(descriptor.as_raw_fd())?;
        let Some(path) = address.path().map(Path::to_owned) else {
            let text = "systemd's socket has no path: expected ListenStream=/…";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let listener = listener(descriptor)?;
        Ok(Some(Self {
            listener,
            guard: Guard { path, own: None },
        }))
    }

    fn bind(path: &Path) -> io::Result<Self> {
        // What can never be had is refused before the lock, whose file stays.
        let address = address(path)?;
        is_there(path)?;
        let lock = lock(path)?;
        clear(path)?;
        let descriptor = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            None,
        )?;
        bind(descriptor.as_raw_fd(), &address)?;
        // Nobody can connect until it is listened on, so who may is settled before.
        let (file, inode) = open_bound(path)?;
        give_access(&file)?;
        listen(&descriptor, Backlog::new(BACKLOG)?)?;
        let listener = listener(descriptor)?;
        Ok(Self {
            listener,
            guard: Guard {
                path: path.to_owned(),
                own: Some((inode, lock)),
            },
        })
    }
}

impl Guard {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Of one that systemd has handed over, the next daemon accepts those who wait.
    pub(super) fn backlog(&self) -> api::Backlog {
        match self.own {
            Some(_) => api::Backlog::Answered,
            None => api::Backlog::Left,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some((inode, _)) = &self.own else { return };
        // Somebody may have put another in its place.
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.ino() == *inode)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove the socket");
        }
    }
}

fn listener(descriptor: OwnedFd) -> io::Result<UnixListener> {
    let listener = StdListener::from(descriptor);
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Makes the directory of a socket at its usual place. Of one that was asked for it has to be there:
/// a slip of the pen should not be made true.
fn make_parent(path: &Path) -> io::Result<()> {
    let mode = if Uid::effective().is_root() {
        0o755
    } else {
        0o700
    };
    let dir = path.parent().unwrap_or(Path::new("/"));
    refuse_foreign(dir, "--socket")?;
    DirBuilder::new().recursive(true).mode(mode).create(dir)?;
    // Somebody may have been faster since it was looked for.
    refuse_foreign(dir, "--socket")
}

/// The longest path of a socket, in bytes: `sun_path` has 108, and NUL ends it (unix(7)).
const MAX_PATH: usize = 107;

fn address(path: &Path) -> io::Result<UnixAddr> {
    let bytes = path.as_os_str().len();
    if bytes > MAX_PATH {
        let text = format!(
            "the path has {bytes} bytes, and that of a socket has at most {MAX_PATH}: name a shorter one with --socket"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(UnixAddr::new(path)?)
}

/// Makes sure that no other daemon is between looking at `path` and binding it, or listens there.
fn lock(path: &Path) -> io::Result<Flock<File>> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // Where others may make files, this could be a link to one of ours, or a FIFO that nobody reads.
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(&name)
        .map_err(|error| {
            let text = format!(
                "cannot open its lock `{}`: {error}",
                Path::new(&name).display()
            );
            io::Error::new(error.kind(), text)
        })?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| {
        if error == nix::Error::EWOULDBLOCK {
            in_use()
        } else {
            error.into()
        }
    })
}

/// Whether there is a socket at `path` already.
///
/// # Errors
/// When something else is there, or there is no directory for one.
fn is_there(path: &Path) -> io::Result<bool> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    if !dir.try_exists()? {
        let text = format!(
            "there is no directory `{}`: make it, or name another path with --socket",
            dir.display()
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(meta) if !meta.file_type().is_socket() => {
            let text = "something that is no socket is in the way: move it, or name another path with --socket";
            Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
        }
        Ok(_) => Ok(true),
    }
}

/// Removes what a daemon that died has left at `path`, and nothing else.
fn clear(path: &Path) -> io::Result<()> {
    if !is_there(path)? {
        return Ok(());
    }
    match StdStream::connect(path) {
        Ok(_) => Err(in_use()),
        // The one answer that proves that nobody listens (connect(2)).
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

/// What may be behind it that somebody listens there: systemd has handed over the socket, though to a process of another
/// number than this one sees of itself (sd_listen_fds(3)), as in a PID namespace of the unit's own.
fn meant_for_another(error: io::Error) -> io::Error {
    let meant = std::env::var("LISTEN_PID").ok();
    let meant = meant.filter(|meant| *meant != std::process::id().to_string());
    match (error.kind(), meant) {
        (io::ErrorKind::AddrInUse, Some(meant)) => {
            let own = std::process::id();
            let text = format!(
                "{error}. LISTEN_PID says that a socket was handed over to process {meant}, and this is {own}: if it is systemd's, the unit must not have `PrivatePIDs=`"
            );
            io::Error::new(io::ErrorKind::AddrInUse, text)
        }
        _ => error,
    }
}

fn in_use() -> io::Error {
    let text = "another daemon listens there: stop that one, or name another path with --socket";
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

/// The file that binding has made at `path`, and its inode. From here on it is named by this: where others may write to
/// the directory, they could put something else at the path, or a link.
///
/// # Errors
/// When they have done so already.
fn open_bound(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_PATH | nix::libc::O_NOFOLLOW)
        .open(path)?;
    let found = file.metadata()?;
    if !found.file_type().is_socket() || found.uid() != Uid::effective().as_raw() {
        let text = "somebody else has put something in its place: name a path in a directory of your own with --socket";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok((file, found.ino()))
}

fn give_access(file: &File) -> io::Result<()> {
    if Uid::effective().is_root() {
        match found(Group::from_name(GROUP))? {
            Some(group) => fchownat(
                file.as_fd(),
                "",
                None,
                Some(group.gid),
                AtFlags::AT_EMPTY_PATH,
            )?,
            None => tracing::warn!("there is no group `{GROUP}`: only root can connect"),
        }
    }
    // A descriptor of this kind takes no fchmod(2) before Linux 6.6; this is the way that open(2) names.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(&path, fs::Permissions::from_mode(MODE)).map_err(|error| {
        let text = format!(
            "cannot set its mode through `{path}`, for which /proc has to be mounted: {error}"
        );
        io::Error::new(error.kind(), text)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("socket-{}-{name}", std::process::id()));
        fs::create_dir(&dir).expect("made");
        dir
    }

    #[test]
    fn only_what_was_bound_is_given_away() {
        let dir = scratch("hold");
        let (path, link, file) = (dir.join("s"), dir.join("link"), dir.join("file"));
        let _listener = StdListener::bind(&path).expect("bound");
        let (held, inode) = open_bound(&path).expect("ours");
        assert_eq!(inode, fs::symlink_metadata(&path).expect("there").ino());
        // Whatever is put in its place meanwhile keeps its mode.
        fs::write(&file, "precious").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours");
        fs::rename(&path, dir.join("moved")).expect("ours");
        symlink(&file, &path).expect("made");
        give_access(&held).expect("given");
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        assert_eq!((mode(&file), mode(&dir.join("moved"))), (0o600, MODE));
        symlink(dir.join("moved"), &link).expect("made");
        for other in [&path, &link, &file] {
            assert!(open_bound(other).is_err(), "{other:?}");
        }
        if Uid::effective().is_root() {
            std::os::unix::fs::lchown(dir.join("moved"), Some(4242), None).expect("root may");
            assert!(open_bound(&dir.join("moved")).is_err());
        }
        fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn a_lock_is_not_sought_behind_a_link() {
        let dir = scratch("lock");
        let path = dir.join("s");
        symlink(dir.join("elsewhere"), dir.join("s.lock")).expect("made");
        let refused = lock(&path).expect_err("a link").to_string();
        assert!(refused.contains("s.lock"), "{refused}");
        assert!(!dir.join("elsewhere").exists());
        fs::remove_file(dir.join("s.lock")).expect("ours");
        lock(&path).expect("no link");
        fs::remove_dir_all(dir).expect("ours");
    }
}
