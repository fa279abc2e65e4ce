//! OCI runtimes, as programs with arguments.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::SandboxError;
use super::bundle::Bundle;
use super::{init, kata};
use crate::config::SandboxConfig;

/// Where a runtime that is named without its path is looked for: where packages install programs.
const DIRECTORIES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Kata Containers, whose containers are in a virtual machine.
const KATA: &str = "kata-runtime";

/// An OCI runtime.
#[derive(Clone, Debug, Default)]
pub(super) struct Runtime {
    pub(super) program: PathBuf,
    /// The last component of it, which says of what kind it is.
    pub(super) name: String,
    /// The operator's options.
    args: Vec<String>,
}

impl Runtime {
    /// The one that is configured.
    ///
    /// # Errors
    /// When it is not there, with what to install, or cannot work as it is configured.
    pub(super) fn of(config: &SandboxConfig) -> Result<Self, SandboxError> {
        let wanted = &config.runtime;
        let name = wanted.file_name().unwrap_or_default().to_string_lossy();
        let found = if wanted.is_absolute() {
            is_program(wanted).then(|| wanted.clone())
        } else {
            let all = DIRECTORIES.iter().map(|dir| Path::new(dir).join(wanted));
            all.into_iter().find(|path| is_program(path))
        };
        let program = found.ok_or_else(|| {
            let package = match name.as_ref() {
                "runsc" => "gVisor (`apt-get install runsc`, or from gvisor.dev)",
                "crun" | "runc" => "the package of that name",
                _ => "it",
            };
            SandboxError::Unavailable(format!(
                "there is no runtime `{}` for the sandbox: install {package}, or name another as `runtime` in [sandbox]",
                wanted.display()
            ))
        })?;
        if matches!(name.as_ref(), "runc" | "crun" | KATA) && config.rootfs == Path::new("/") {
            // The first two make another root with pivot_root(2), which has to be another mount; Kata lets its
            // virtual machine write to all of it, and leaves the guest's kernel to see that nobody does.
            return Err(SandboxError::Unavailable(format!(
                "`{name}` cannot safely give the host's own `/` to the inside: name a directory with a system of its own as `rootfs` in [sandbox]"
            )));
        }
        Ok(Self {
            name: name.into_owned(),
            program,
            args: config.runtime_args.clone(),
        })
    }

    /// The arguments that run a bundle to its end.
    pub(super) fn run(&self, bundle: &Bundle) -> Vec<String> {
        let command = ["run", "--bundle"].map(str::to_owned);
        let dir = bundle.dir().display().to_string();
        let mut args = self.global(bundle);
        args.extend(command.into_iter().chain([dir, bundle.id()]));
        args
    }

    /// The arguments that have the first process inside ask the program to end.
    pub(super) fn kill(&self, bundle: &Bundle) -> Vec<String> {
        let mut args = self.global(bundle);
        args.extend(["kill".to_owned(), bundle.id(), init::ASK.to_string()]);
        args
    }

    /// The arguments that remove what is left of the container `id`, of which the runtime keeps its state
    /// in that directory.
    pub(super) fn delete(&self, state: &Path, id: &str) -> Vec<String> {
        let mut args = self.root(state);
        args.extend(self.args.iter().cloned());
        args.extend(["delete", "--force", id].map(str::to_owned));
        args
    }

    /// Whether a container of it has cgroups of its own, which outlast its processes. Those that can do
    /// without are told to: cgroups are the runner's affair.
    pub(super) fn makes_cgroups(&self) -> bool {
        !matches!(self.name.as_str(), "runsc" | "crun")
    }

    /// Whether something outside of the bundle may be left of a container: cgroups, or what Kata has
    /// mounted, which keeps its state in a place of its own.
    pub(super) fn may_leave(&self, state: &Path) -> bool {
        self.makes_cgroups() && (self.name == KATA || has_entries(state))
    }

    /// Removes what `delete` does not know of the container `id`, whose processes are dead.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub(super) fn clear(&self, id: &str) -> io::Result<()> {
        if self.name == KATA {
            return kata::clear(id);
        }
        Ok(())
    }

    /// Whether a Unix socket that is mounted can be connected to from inside. It is the kernel that knows
    /// who listens, and that of a virtual machine is another.
    pub(super) fn lets_sockets_in(&self) -> bool {
        self.name != KATA
    }

    /// Where it keeps its state.
    fn root(&self, state: &Path) -> Vec<String> {
        vec!["--root".to_owned(), state.display().to_string()]
    }

    /// Options that go before the command.
    fn global(&self, bundle: &Bundle) -> Vec<String> {
        let own: &[&str] = match self.name.as_str() {
            "runsc" => &["--ignore-cgroups", "--network=none"],
            "crun" => &["--cgroup-manager=disabled"],
            _ => &[],
        };
        let mut args = self.root(&bundle.state());
        args.extend(own.iter().map(|&arg| arg.to_owned()));
        if self.name == "runsc" && bundle.has_socket() {
            // Sockets may be connected to: those made for it, for the host's are hidden.
            args.push("--host-uds=open".to_owned());
        }
        args.extend(self.args.iter().cloned());
        args
    }
}

/// The version in what a runtime says to `--version`: `runsc version release-2023`, `crun version
/// 1.8`.
pub(super) fn version(text: &str) -> Option<String> {
    let line = text.lines().next()?;
    // Kata 1 says `kata-runtime  : 1.13.0`.
    let (_, rest) = line
        .split_once(" version ")
        .or_else(|| line.split_once(" : "))?;
    let version: String = rest.split_whitespace().next()?.chars().take(64).collect();
    Some(version)
}

fn has_entries(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}

fn is_program(path: &Path) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok() && path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found() {
        for (text, expected) in [
            (
                "runsc version 0.0~20221219.0\nspec: 1.0.2-dev\n",
                Some("0.0~20221219.0"),
            ),
            ("crun version 1.8.1\ncommit: f8a\n", Some("1.8.1")),
            (
                "kata-runtime  : 1.13.0-alpha0\n   commit   : 04f2983\n",
                Some("1.13.0-alpha0"),
            ),
            ("", None),
            ("usage: x", None),
        ] {
            assert_eq!(version(text).as_deref(), expected);
        }
    }

    #[test]
    fn what_is_missing_says_what_to_install() {
        let config = SandboxConfig {
            runtime: PathBuf::from("/nowhere/runsc"),
            ..SandboxConfig::default()
        };
        let error = Runtime::of(&config).expect_err("nothing there").to_string();
        for part in ["/nowhere/runsc", "install gVisor", "[sandbox]"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_shares_the_hosts_kernel_wants_a_root_of_its_own() {
        let dir = std::env::temp_dir().join(format!("runtimes-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir(&dir).expect("made");
        for (name, is_right) in [
            ("runc", false),
            ("crun", false),
            (KATA, false),
            ("runsc", true),
        ] {
            let runtime = dir.join(name);
            std::os::unix::fs::symlink("/bin/true", &runtime).expect("made");
            let config = SandboxConfig {
                runtime,
                ..SandboxConfig::default()
            };
            match Runtime::of(&config) {
                Ok(_) => assert!(is_right, "{name}"),
                Err(error) => {
                    assert!(
                        !is_right && error.to_string().contains("`rootfs`"),
                        "{error}"
                    );
                }
            }
            let rootfs = dir.clone();
            assert!(Runtime::of(&SandboxConfig { rootfs, ..config }).is_ok());
        }
        std::fs::remove_dir_all(dir).expect("ours");
    }
}
