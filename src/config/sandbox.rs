//! `[sandbox]` of `executor.toml`: where and how what is not trusted runs.

use std::path::{Component, Path, PathBuf};

use ipnet::IpNet;
use nix::unistd::{Gid, Uid, User};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::EgressLists;
use super::values::Bounded;

const MIB: u64 = 1 << 20;

/// Where and how what is not trusted runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxConfig {
    /// The OCI runtime: a name that is looked for where programs are, or an absolute path. Default
    /// `runsc` (gVisor).
    pub runtime: PathBuf,
    /// Its own options, before its command. Default none.
    pub runtime_args: Vec<String>,
    /// The directory that is `/` inside, read-only. Default the host's own.
    pub rootfs: PathBuf,
    /// Who one is inside. Default `nobody`.
    pub user: SandboxUser,
    /// The most memory it may have, in bytes: in all where there is a cgroup controller, else each
    /// process. Default 512 MiB.
    pub memory_max: u64,
    /// How many processes there may be. Default 128.
    pub pids_max: u64,
    /// The largest file that it may write, in bytes. Default 64 MiB.
    pub file_size_max: u64,
    /// How much fits into `/tmp`, which is in memory, in bytes. Default 64 MiB.
    pub tmp_max: u64,
    /// Directories of the host that are empty inside, besides the daemon's own.
    pub hidden: Vec<PathBuf>,
    /// A call may ask to write to these directories and what is below them. Default none.
    pub workspaces: Vec<PathBuf>,
    /// What tools may connect to from inside. Default nothing.
    pub egress: EgressLists,
    /// What the names of `egress` may stand for, besides public addresses. Default nothing.
    pub private_networks: Vec<IpNet>,
    /// How many sandboxes are kept that wait for a call, each like one that was used last; 0 starts each
    /// for its call. Default 1.
    pub ready: u32,
    /// Where bundles are made; `None` where there is no sandbox. Default none.
    pub dir: Option<PathBuf>,
    /// The program that is the first process inside: one whose `main` is
    /// [`sandbox_init`](crate::sandbox_init).
    pub init: PathBuf,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            runtime: PathBuf::from("runsc"),
            runtime_args: Vec::new(),
            rootfs: PathBuf::from("/"),
            user: SandboxUser::nobody(),
            memory_max: 512 * MIB,
            pids_max: 128,
            file_size_max: 64 * MIB,
            tmp_max: 64 * MIB,
            hidden: ["/root", "/home", "/run", "/etc/shelly-executor"]
                .map(PathBuf::from)
                .into(),
            workspaces: Vec::new(),
            egress: EgressLists::new(),
            private_networks: Vec::new(),
            ready: 1,
            dir: None,
            init: PathBuf::new(),
        }
    }
}

impl SandboxConfig {
    /// Those of `hidden` that are there and no directories, which alone can be hidden. Looks at the disk.
    pub fn shown_files(&self) -> impl Iterator<Item = &Path> {
        let hidden = self.hidden.iter().map(PathBuf::as_path);
        hidden.filter(|path| {
            let inside = self.rootfs.join(path.strip_prefix("/").unwrap_or(path));
            inside.exists() && !inside.is_dir()
        })
    }

    /// Whether a call may have that directory to write to, as written: it is one of `workspaces`, or what
    /// the policy has `granted` it, or below one.
    pub fn may_write_to(&self, dir: &Path, granted: Option<&Path>) -> bool {
        let is_plain = !dir.components().any(|part| part == Component::ParentDir);
        is_plain
            && (self.workspaces.iter().map(PathBuf::as_path))
                .chain(granted)
                .any(|allowed| dir.starts_with(allowed))
    }
}

/// Who one is inside of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxUser {
    /// The name, for `USER`.
    pub name: String,
    /// The user id, of the host as well.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

impl SandboxUser {
    fn nobody() -> Self {
        Self {
            name: "nobody".to_owned(),
            uid: 65_534,
            gid: 65_534,
        }
    }

    /// The user of that name, or of that number.
    fn named(name: &str) -> Result<Self, String> {
        let expected = "expected the name or the number of a user other than root";
        let found = match name.parse::<u32>() {
            Ok(uid) => User::from_uid(Uid::from_raw(uid)),
            Err(_) => User::from_name(name),
        };
        let found =
            super::found(found).map_err(|error| format!("cannot look up {name:?}: {error}"))?;
        let (uid, gid, name) = match (found, name.parse::<u32>()) {
            (Some(user), _) => (user.uid, user.gid, user.name),
            // Nobody's number is as good as any.
            (None, Ok(number)) => (
                Uid::from_raw(number),
                Gid::from_raw(number),
                number.to_string(),
            ),
            (None, Err(_)) => {
                return Err(format!("this machine knows no user {name:?}: {expected}"));
            }
        };
        if uid.is_root() || gid.as_raw() == 0 {
            return Err(format!("{name:?} is root, or in its group: {expected}"));
        }
        Ok(Self {
            name,
            uid: uid.as_raw(),
            gid: gid.as_raw(),
        })
    }
}

/// `[sandbox]` as it is written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [sandbox]")]
pub(super) struct SandboxFile {
    runtime: Option<Runtime>,
    runtime_args: Option<Vec<String>>,
    rootfs: Option<Absolute>,
    user: Option<String>,
    memory_max: Option<Bounded<{ 16 * MIB }, { 1 << 50 }>>,
    // The shell, and what it runs.
    pids_max: Option<Bounded<2, 1_000_000>>,
    // What tells how a command ended is a file, too.
    file_size_max: Option<Bounded<64, { 1 << 50 }>>,
    tmp_max: Option<Bounded<4096, { 1 << 50 }>>,
    #[serde(deserialize_with = "hidden")]
    hidden: Option<Vec<Absolute>>,
    workspaces: Option<Vec<Absolute>>,
    egress: Option<EgressLists>,
    private_networks: Option<Vec<Network>>,
    ready: Option<Bounded<0, 16>>,
}

impl SandboxFile {
    /// What is not set has the library's value; the shipped file sets everything.
    pub(super) fn config(self) -> Result<SandboxConfig, String> {
        let library = SandboxConfig::default();
        let paths = |all: Option<Vec<Absolute>>, otherwise| {
            let paths = all.map(|all| all.into_iter().map(|Absolute(path)| path).collect());
            paths.unwrap_or(otherwise)
        };
        let user = self.user.as_deref().map(SandboxUser::named).transpose()?;
        Ok(SandboxConfig {
            runtime: self.runtime.map_or(library.runtime, |Runtime(path)| path),
            runtime_args: self.runtime_args.unwrap_or(library.runtime_args),
            rootfs: self.rootfs.map_or(library.rootfs, |Absolute(path)| path),
            user: user.unwrap_or(library.user),
            memory_max: self.memory_max.map_or(library.memory_max, Bounded::get),
            pids_max: self.pids_max.map_or(library.pids_max, Bounded::get),
            file_size_max: self
                .file_size_max
                .map_or(library.file_size_max, Bounded::get),
            tmp_max: self.tmp_max.map_or(library.tmp_max, Bounded::get),
            hidden: paths(self.hidden, library.hidden),
            workspaces: paths(self.workspaces, library.workspaces),
            egress: self.egress.unwrap_or(library.egress),
            private_networks: self
                .private_networks
                .map_or(library.private_networks, |all| {
                    all.into_iter().map(|Network(network)| network).collect()
                }),
            ready: self.ready.map_or(library.ready, Bounded::number),
            dir: None,
            init: PathBuf::new(),
        })
    }
}

/// A program: a name, or an absolute path.
struct Runtime(PathBuf);

impl<'de> Deserialize<'de> for Runtime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_name = !text.is_empty() && !text.contains(['/', '\0']);
        if is_name || (text.starts_with('/') && !text.contains('\0')) {
            Ok(Self(PathBuf::from(text)))
        } else {
            Err(D::Error::custom(format!(
                "{text:?} is no program: expected a name such as \"runsc\", or an absolute path"
            )))
        }
    }
}

/// Addresses that begin alike, in CIDR notation (RFC 4632, RFC 4291).
struct Network(IpNet);

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let network = text.parse::<IpNet>().ok();
        let network = network.filter(|network| network.addr() == network.network());
        network.map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is no network: expected one in CIDR notation such as \"10.1.0.0/16\""
            ))
        })
    }
}

/// The directories to hide; `/` is refused.
fn hidden<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Absolute>>, D::Error> {
    let dirs = Vec::<Absolute>::deserialize(deserializer)?;
    match dirs.iter().any(|Absolute(dir)| dir.parent().is_none()) {
        true => Err(D::Error::custom(
            "\"/\" is all there is: expected directories below it",
        )),
        false => Ok(Some(dirs)),
    }
}

/// An absolute path that means what it says.
struct Absolute(PathBuf);

impl<'de> Deserialize<'de> for Absolute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = PathBuf::deserialize(deserializer)?;
        let has_nul = path.as_os_str().as_encoded_bytes().contains(&0);
        let goes_up = path.components().any(|part| part == Component::ParentDir);
        if path.is_absolute() && !has_nul && !goes_up {
            Ok(Self(path))
        } else {
            let detail = format!("{path:?} is no absolute path without `..`");
            Err(D::Error::custom(detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn parse(text: &str) -> Result<SandboxConfig, String> {
        let text = format!("[sandbox]\n{text}\n");
        let settings = Settings::parse(Path::new("e.toml"), &text);
        settings
            .map(|settings| settings.executor.sandbox)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_shipped_file_is_the_librarys_default() {
        assert_eq!(parse("").expect("valid"), SandboxConfig::default());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, parts) in [
            ("runtime = \"bin/runsc\"", &["e.toml:2: ", "bin/runsc"][..]),
            ("rootfs = \"../x\"", &["e.toml:2: ", "../x"]),
            ("user = \"root\"", &["user", "root"]),
            ("user = \"no-such-user\"", &["user", "no-such-user"]),
            ("memory_max = 1", &["e.toml:2: ", "memory_max"]),
            ("pids_max = 1", &["e.toml:2: ", "pids_max", "from 2"]),
            (
                "file_size_max = 0",
                &["e.toml:2: ", "file_size_max", "from 64"],
            ),
            (
                "hidden = [\"/srv\", \"/\"]",
                &["e.toml:2: `hidden`", "directories below it"],
            ),
            (
                "workspaces = [\"/srv/../etc\"]",
                &["e.toml:2: ", "/srv/../etc"],
            ),
            ("network = true", &["e.toml:2: ", "network"]),
            (
                "egress = { bash = [\"crates.io\"] }",
                &["e.toml:2: ", "\"crates.io\"", "host:port"],
            ),
            (
                "private_networks = [\"10.1.2.3/16\"]",
                &["e.toml:2: ", "10.1.2.3/16", "CIDR"],
            ),
        ] {
            let error = parse(text).expect_err(text);
            for part in parts {
                assert!(error.contains(part), "{error:?} lacks {part:?}");
            }
        }
    }

    #[test]
    fn a_workspace_is_below_one_that_is_allowed() {
        let config = parse("workspaces = [\"/srv/work\"]").expect("valid");
        for (dir, may) in [
            ("/srv/work", true),
            ("/srv/work/a", true),
            ("/srv/workshop", false),
            ("/srv", false),
            ("/srv/work/../x", false),
        ] {
            assert_eq!(config.may_write_to(Path::new(dir), None), may, "{dir}");
        }
        let (dir, granted) = (Path::new("/srv/a/b"), Path::new("/srv/a"));
        assert!(config.may_write_to(dir, Some(granted)) && !config.may_write_to(dir, None));
    }
}
