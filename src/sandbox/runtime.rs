//! OCI runtimes, as programs with arguments.

use std::path::{Path, PathBuf};

use super::SandboxError;
use super::bundle::Bundle;
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
    /// When it is not there, with what to install.
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

    /// The arguments that send SIGTERM to the first process inside.
    pub(super) fn kill(&self, bundle: &Bundle) -> Vec<String> {
        let mut args = self.global(bundle);
        args.extend(["kill".to_owned(), bundle.id(), "TERM".to_owned()]);
        args
    }

    /// The arguments that remove what is left of a bundle's container.
    pub(super) fn delete(&self, bundle: &Bundle) -> Vec<String> {
        let mut args = self.global(bundle);
        args.extend(["delete".to_owned(), "--force".to_owned(), bundle.id()]);
        args
    }

    /// Whether a container of it is more than its processes, which are dead when this matters, and files
    /// in its root directory: cgroups and mounts of the host.
    pub(super) fn keeps_more_than_files(&self) -> bool {
        !matches!(self.name.as_str(), "runsc" | "crun")
    }

    /// Options that go before the command. Cgroups are the runner's affair.
    fn global(&self, bundle: &Bundle) -> Vec<String> {
        let own: &[&str] = match self.name.as_str() {
            "runsc" => &["--ignore-cgroups", "--network=none"],
            "crun" => &["--cgroup-manager=disabled"],
            _ => &[],
        };
        let mut args = vec!["--root".to_owned(), bundle.state().display().to_string()];
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
    let (_, rest) = text.lines().next()?.split_once(" version ")?;
    let version: String = rest.split_whitespace().next()?.chars().take(64).collect();
    Some(version)
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
}
