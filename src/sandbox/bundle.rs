//! The OCI bundle of one run: a directory with `config.json` and what is shared with the inside.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Gid, Uid, chown};
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxBuilder, LinuxCapabilitiesBuilder, LinuxMemoryBuilder, LinuxNamespaceBuilder,
    LinuxNamespaceType, LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder, Mount,
    MountBuilder, PosixRlimit, PosixRlimitBuilder, PosixRlimitType, Process, ProcessBuilder,
    RootBuilder, Spec, SpecBuilder, UserBuilder, get_default_maskedpaths,
    get_default_readonly_paths,
};

use super::basis::Basis;
use super::init;
use super::report::{Made, Report};
use super::{Grants, is_directory};
use crate::config::SandboxConfig;
use crate::domain::{Connection, Door, ExecutionId, Secrets};
use crate::egress::{Egress, Rules};
use crate::runner::LEAF_PREFIX;

/// What there is in the shared directory, besides what an order puts there: what the first process
/// says, the socket for calls and that of the way out, if there are any.
const REPORT: &str = "report";
const CALLS: &str = "sock";
const PROXY: &str = "out";

/// How much room there is for what a first process usually says, in bytes.
const REPORT_BYTES: i64 = 16 * 1024;

/// The most files that may be open at once: what systemd gives services as their soft limit.
const OPEN_FILES: u64 = 1024;

/// What of a sandbox cgroups hold, and whose.
#[derive(Clone, Copy)]
pub(super) struct Held {
    /// Its memory.
    pub(super) memory: bool,
    /// How many processes it has.
    pub(super) pids: bool,
    /// By a cgroup that the runtime makes, instead of the one that the runtime runs in.
    pub(super) by_runtime: bool,
}

/// A bundle. Dropping it removes it.
pub(super) struct Bundle {
    dir: PathBuf,
    workspace: Option<PathBuf>,
    /// The report as it was made.
    made: Option<Made>,
    /// Where the shared directory is inside.
    inside: PathBuf,
    door: Option<Door>,
    egress: Option<Egress>,
}

impl Bundle {
    /// Makes one that has `id` in its name.
    ///
    /// # Errors
    /// When the directory cannot be made or written to.
    pub(super) fn make(
        id: ExecutionId,
        basis: &Basis,
        grants: &Grants,
        held: Held,
    ) -> io::Result<Self> {
        let config = &basis.config;
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no directory is set for bundles");
        let parent = config.sandbox.dir.as_deref().ok_or_else(missing)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
        let mut bundle = Self {
            // A socket in it has to be found by a path of no more than 107 bytes (unix(7)).
            dir: parent.join(id.to_string()),
            workspace: basis.workspace().map(Path::to_owned),
            made: None,
            inside: place_of_shared(parent),
            door: None,
            egress: None,
        };
        // Traversed by whoever is inside.
        DirBuilder::new().mode(0o711).create(&bundle.dir)?;
        for dir in [bundle.state(), bundle.shared()] {
            DirBuilder::new().mode(0o711).create(dir)?;
        }
        fs::set_permissions(bundle.shared(), Permissions::from_mode(0o711))?;
        let report = bundle.shared().join(REPORT);
        let file = File::create_new(&report)?;
        // Its last line is told on a full disk, too, where the file system can promise that.
        let _ = fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, REPORT_BYTES);
        if let Some(calls) = &grants.calls {
            bundle.door = Some(calls.open_door(bundle.listen_inside(CALLS)?)?);
        }
        if !grants.destinations.is_empty() {
            let rules = Rules {
                destinations: grants.destinations.clone(),
                private_networks: config.sandbox.private_networks.clone(),
            };
            bundle.egress = Some(Egress::open(bundle.listen_inside(PROXY)?, rules, id)?);
        }
        let user = &config.sandbox.user;
        chown(
            &report,
            Some(Uid::from_raw(user.uid)),
            Some(Gid::from_raw(user.gid)),
        )?;
        bundle.made = Some(Made::of(&report)?);
        let spec = Inside {
            bundle: &bundle,
            basis,
            held,
        };
        let spec = spec.spec().map_err(io::Error::other)?;
        spec.save(bundle.dir.join("config.json"))
            .map_err(io::Error::other)?;
        Ok(bundle)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The container's name.
    pub(super) fn id(&self) -> String {
        id(&self.dir)
    }

    /// A socket for those inside.
    fn listen_inside(&self, name: &str) -> io::Result<UnixListener> {
        let path = self.shared().join(name);
        let listener = UnixListener::bind(&path)?;
        // Its directory is seen only inside, where one is somebody else.
        fs::set_permissions(path, Permissions::from_mode(0o666))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Where the runtime keeps its state.
    pub(super) fn state(&self) -> PathBuf {
        state(&self.dir)
    }

    /// What is shared with the inside.
    pub(super) fn shared(&self) -> PathBuf {
        self.dir.join("in")
    }

    /// Where that is inside.
    pub(super) fn inside(&self) -> &Path {
        &self.inside
    }

    /// The directory that may be written to, if there is one.
    pub(super) fn workspace(&self) -> Option<&Path> {
        self.workspace.as_deref()
    }

    /// Where calls are made, inside.
    pub(super) fn calls(&self) -> PathBuf {
        self.inside.join(CALLS)
    }

    /// Whether there is somebody to take calls.
    pub(super) fn has_calls(&self) -> bool {
        self.door.is_some()
    }

    /// Whether there is a way out.
    pub(super) fn has_egress(&self) -> bool {
        self.egress.is_some()
    }

    /// Whether there is a socket to be reached from inside.
    pub(super) fn has_socket(&self) -> bool {
        self.has_calls() || self.has_egress()
    }

    /// Has these masked in what is told of the way out.
    pub(super) fn mask_egress(&self, secrets: &Arc<Secrets>) {
        if let Some(egress) = &self.egress {
            egress.mask(secrets);
        }
    }

    /// Closes the way out, and says which connections were asked for.
    pub(super) fn close_egress(&mut self) -> Vec<Connection> {
        self.egress.take().map(Egress::close).unwrap_or_default()
    }

    /// What the first process has said.
    pub(super) fn report(&self) -> Report {
        let path = self.shared().join(REPORT);
        self.made
            .map(|made| Report::read(&path, made))
            .unwrap_or_default()
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(%error, path = %self.dir.display(), "cannot remove a sandbox's bundle");
        }
    }
}

/// What the container of the bundle in `dir` is called.
pub(super) fn id(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default();
    format!("shelly-{}", name.to_string_lossy())
}

/// Where the runtime keeps the state of that in `dir`.
pub(super) fn state(dir: &Path) -> PathBuf {
    dir.join("state")
}

/// Where what is shared is inside, if bundles are in `dir`: in the place of the daemon's state, which
/// is thereby hidden.
fn place_of_shared(dir: &Path) -> PathBuf {
    let state = dir.parent().filter(|state| may_be_hidden(state));
    state.unwrap_or(dir).to_owned()
}

/// Everything is not hidden for the sake of a file in it.
fn may_be_hidden(dir: &Path) -> bool {
    dir != Path::new("/") && dir != Path::new("/tmp")
}

/// What there is inside.
struct Inside<'a> {
    bundle: &'a Bundle,
    basis: &'a Basis,
    held: Held,
}

impl Inside<'_> {
    fn sandbox(&self) -> &SandboxConfig {
        &self.basis.config.sandbox
    }

    fn spec(&self) -> Result<Spec, Box<dyn Error + Send + Sync>> {
        let namespaces = [
            LinuxNamespaceType::Pid,
            LinuxNamespaceType::Ipc,
            LinuxNamespaceType::Uts,
            LinuxNamespaceType::Mount,
            LinuxNamespaceType::Network,
        ];
        let namespaces = namespaces.map(|typ| LinuxNamespaceBuilder::default().typ(typ).build());
        let mut linux = LinuxBuilder::default()
            .namespaces(namespaces.into_iter().collect::<Result<Vec<_>, _>>()?)
            .masked_paths(get_default_maskedpaths())
            .readonly_paths(get_default_readonly_paths());
        if self.held.by_runtime {
            // Beside the cgroup that the runtime runs in, as runc takes what has no `/` before it; and
            // named as one of the runner's, which are removed when the daemon starts.
            let cgroup = format!("{LEAF_PREFIX}{}", self.bundle.id());
            linux = linux.cgroups_path(cgroup).resources(self.resources()?);
        }
        let root = RootBuilder::default()
            .path(&self.sandbox().rootfs)
            .readonly(true);
        Ok(SpecBuilder::default()
            .version("1.0.2")
            .hostname("sandbox")
            .root(root.build()?)
            .mounts(self.mounts()?)
            .process(self.process()?)
            .linux(linux.build()?)
            .build()?)
    }

    /// What the cgroup that the runtime makes is to hold.
    fn resources(&self) -> Result<LinuxResources, OciSpecError> {
        let limit = |most: u64| i64::try_from(most).unwrap_or(i64::MAX);
        let mut resources = LinuxResourcesBuilder::default();
        if self.held.memory {
            let most = limit(self.sandbox().memory_max);
            resources = resources.memory(LinuxMemoryBuilder::default().limit(most).build()?);
        }
        if self.held.pids {
            let most = limit(self.sandbox().pids_max);
            resources = resources.pids(LinuxPidsBuilder::default().limit(most).build()?);
        }
        resources.build()
    }

    fn process(&self) -> Result<Process, OciSpecError> {
        let user = &self.sandbox().user;
        let user = UserBuilder::default()
            .uid(user.uid)
            .gid(user.gid)
            .umask(0o022_u32);
        let none = LinuxCapabilitiesBuilder::default()
            .bounding([])
            .effective([])
            .inheritable([])
            .permitted([])
            .ambient([]);
        ProcessBuilder::default()
            .terminal(false)
            .user(user.build()?)
            .args(self.args())
            .env(Vec::new())
            .cwd("/")
            .capabilities(none.build()?)
            .rlimits(self.rlimits()?)
            .no_new_privileges(true)
            .build()
    }

    /// The first process (see [`super::init`]), where it reports, and where its way out is.
    fn args(&self) -> Vec<String> {
        let inside = |name: &str| self.bundle.inside.join(name).display().to_string();
        let proxy = match self.bundle.has_egress() {
            true => inside(PROXY),
            false => String::new(),
        };
        vec![
            self.sandbox().init.display().to_string(),
            init::VERSION.to_owned(),
            inside(REPORT),
            proxy,
        ]
    }

    fn rlimits(&self) -> Result<Vec<PosixRlimit>, OciSpecError> {
        let sandbox = self.sandbox();
        let mut limits = vec![
            (PosixRlimitType::RlimitFsize, sandbox.file_size_max),
            (PosixRlimitType::RlimitNofile, OPEN_FILES),
            (PosixRlimitType::RlimitCore, 0),
        ];
        if !(self.held.pids && self.held.by_runtime) {
            // On the host's own kernel it counts all that the user runs, in other sandboxes as well.
            limits.push((PosixRlimitType::RlimitNproc, sandbox.pids_max));
        }
        if !self.held.memory {
            // No cgroup counts it: at least nobody takes more by himself.
            limits.push((PosixRlimitType::RlimitAs, sandbox.memory_max));
        }
        let limit = |(typ, most)| {
            PosixRlimitBuilder::default()
                .typ(typ)
                .soft(most)
                .hard(most)
                .build()
        };
        limits.into_iter().map(limit).collect()
    }

    /// What is mounted, each over what comes before it. Nothing is where the root has no directory for
    /// it: it is read-only.
    fn mounts(&self) -> Result<Vec<Mount>, Box<dyn Error + Send + Sync>> {
        let sandbox = self.sandbox();
        let mut mounts = Mounts {
            root: &sandbox.rootfs,
            all: Vec::new(),
        };
        let is_host = sandbox.rootfs == Path::new("/");
        let private = format!("size={}", sandbox.tmp_max);
        let flags = ["nosuid", "nodev"];
        mounts.add("proc", Path::new("/proc"), &["nosuid", "noexec", "nodev"])?;
        mounts.add(
            "tmpfs",
            Path::new("/dev"),
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        )?;
        mounts.empty(Path::new("/sys"))?;
        for dir in ["/tmp", "/var/tmp"] {
            mounts.add(
                "tmpfs",
                Path::new(dir),
                &[flags[0], flags[1], "mode=1777", &private],
            )?;
        }
        for dir in &sandbox.hidden {
            mounts.empty(dir)?;
            // What is hidden by a name that is a link is hidden where it is.
            match fs::canonicalize(dir) {
                Ok(real) if is_host && real != *dir => mounts.empty(&real)?,
                Ok(_) | Err(_) => {}
            }
        }
        let socket = self.basis.config.socket.as_deref().and_then(Path::parent);
        if let Some(dir) = socket.filter(|dir| may_be_hidden(dir)) {
            mounts.empty(dir)?;
        }
        if self.bundle.has_socket() && is_host {
            // Who has a socket may connect to any of the host's that is inside and lets everybody, for
            // gVisor knows that as one permission.
            for socket in bound_sockets()?.iter().filter(|path| is_socket(path)) {
                let dir = socket.parent().and_then(|dir| fs::canonicalize(dir).ok());
                match dir {
                    Some(dir) if may_be_hidden(&dir) => mounts.empty(&dir)?,
                    Some(_) | None => {}
                }
            }
        }
        // To be written to, for the report is there. The rest belongs to root, who is nobody inside. One
        // mount and no more: each takes some milliseconds of a start.
        mounts.bind(&self.bundle.shared(), &self.bundle.inside, "rw")?;
        for dir in self.basis.visible() {
            mounts.bind(dir, dir, "ro")?;
        }
        if let Some(workspace) = &self.bundle.workspace {
            mounts.bind(workspace, workspace, "rw")?;
            // What was hidden there comes to light with it.
            for dir in &sandbox.hidden {
                let real = fs::canonicalize(dir).unwrap_or_else(|_| dir.clone());
                if real != *workspace && real.starts_with(workspace) && is_directory(&real) {
                    mounts.cover(&real)?;
                }
            }
        }
        if !is_host || mounts.hides(&sandbox.init) {
            mounts.bind(&sandbox.init, &sandbox.init, "ro")?;
        }
        Ok(mounts.all)
    }
}

/// The absolute paths of Unix sockets in the daemon's network namespace (proc_net(5)), of those that take
/// datagrams as well.
fn bound_sockets() -> io::Result<BTreeSet<PathBuf>> {
    // Paths are bytes, and anybody may make one.
    let text = fs::read("/proc/net/unix")?;
    let lines = text.split(|byte| *byte == b'\n').skip(1);
    let names = lines.filter_map(name_of_socket);
    let paths = names.filter(|name| name.starts_with(b"/"));
    Ok(paths
        .map(|path| PathBuf::from(OsStr::from_bytes(path)))
        .collect())
}

/// Whether there is one where the daemon sees it, and so will the inside. The path is what its maker has called it, in a
/// place of its own perhaps: without a look anybody could have a directory of the system's hidden.
fn is_socket(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) => metadata.file_type().is_socket(),
        // What the daemon may not see somebody else may.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// What stands behind the seven columns of numbers, after one blank: a path, or `@` and an abstract name
/// that may look like one.
fn name_of_socket(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    for _ in 0..7 {
        let begin = rest.iter().position(|byte| *byte != b' ')?;
        let end = rest[begin..].iter().position(|byte| *byte == b' ')?;
        rest = &rest[begin + end..];
    }
    rest.get(1..)
}

/// The options of an empty directory.
const EMPTY: [&str; 5] = ["nosuid", "nodev", "noexec", "mode=755", "size=64k"];

/// Mounts in their order.
struct Mounts<'a> {
    root: &'a Path,
    all: Vec<Mount>,
}

impl Mounts<'_> {
    fn add(&mut self, kind: &str, dir: &Path, options: &[&str]) -> Result<(), OciSpecError> {
        let below = dir.strip_prefix("/").unwrap_or(dir);
        if is_directory(&self.root.join(below)) && !self.hides(dir) {
            self.push(kind, Path::new(kind), dir, options)?;
        }
        Ok(())
    }

    /// An empty directory in which only root could write, if anybody inside were root.
    fn empty(&mut self, dir: &Path) -> Result<(), OciSpecError> {
        self.add("tmpfs", dir, &EMPTY)
    }

    /// The same over what comes before it.
    fn cover(&mut self, dir: &Path) -> Result<(), OciSpecError> {
        self.push("tmpfs", Path::new("tmpfs"), dir, &EMPTY)
    }

    /// What the host has there.
    fn bind(&mut self, from: &Path, to: &Path, how: &str) -> Result<(), OciSpecError> {
        self.push("bind", from, to, &["bind", "nosuid", "nodev", how])
    }

    fn push(
        &mut self,
        kind: &str,
        source: &Path,
        destination: &Path,
        options: &[&str],
    ) -> Result<(), OciSpecError> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let mount = MountBuilder::default()
            .typ(kind)
            .source(source)
            .destination(destination)
            .options(options);
        self.all.push(mount.build()?);
        Ok(())
    }

    /// Whether what the root has at `path` is below something that is mounted empty.
    fn hides(&self, path: &Path) -> bool {
        let is_empty = |mount: &&Mount| mount.typ().as_deref() == Some("tmpfs");
        self.all
            .iter()
            .filter(is_empty)
            .any(|mount| path.starts_with(mount.destination()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;

    #[test]
    fn a_name_alone_hides_nothing() {
        let path = std::env::temp_dir().join(format!("socket-{}", ExecutionId::new()));
        assert!(
            !is_socket(&path),
            "its maker saw it elsewhere, or it is gone"
        );
        fs::write(&path, "").expect("written");
        assert!(!is_socket(&path));
        fs::remove_file(&path).expect("there");
        let listener = UnixListener::bind(&path).expect("bound");
        assert!(is_socket(&path));
        drop(listener);
        fs::remove_file(&path).expect("there");
    }

    #[test]
    fn sockets_are_found_whatever_their_names() {
        let dir = std::env::temp_dir().join(format!("sockets-{}", ExecutionId::new()));
        fs::create_dir(&dir).expect("made");
        let paths =
            [&b"plain"[..], b"\xff", b"with a blank"].map(|name| dir.join(OsStr::from_bytes(name)));
        let listeners = paths.each_ref().map(UnixListener::bind);
        assert!(listeners.iter().all(Result::is_ok));
        let datagrams = UnixDatagram::bind(dir.join("datagrams")).expect("bound");
        let lie = SocketAddr::from_abstract_name(b"x /usr/bin/x").expect("a name");
        let liar = UnixListener::bind_addr(&lie).expect("bound");
        let found = bound_sockets().expect("readable");
        for path in paths.iter().chain([&dir.join("datagrams")]) {
            assert!(found.contains(path), "{path:?}");
        }
        // Anybody may listen on an abstract name that looks like the end of a line.
        assert!(!found.contains(Path::new("/usr/bin/x")));
        drop((datagrams, liar));
        fs::remove_dir_all(dir).expect("ours");
    }
}
