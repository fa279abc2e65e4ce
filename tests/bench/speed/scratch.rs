//! What a run needs around it: its directory, its files, its daemons.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Fallible;
use crate::daemon::{Daemon, Mode, Setup};

/// The shell of a row, with the command that makes it do nothing.
#[derive(Clone, Copy)]
pub struct Shell {
    pub name: &'static str,
    pub path: &'static str,
}

pub const SH: Shell = Shell {
    name: "sh -c true",
    path: "/bin/sh",
};
pub const BASH: Shell = Shell {
    name: "bash -c true",
    path: "/bin/bash",
};

/// Daemons of one mode: the shipped configuration (bash), and the same with `sh`.
pub struct Measured {
    pub mode: Mode,
    pub bash: Daemon,
    sh: Daemon,
}

impl Measured {
    pub fn with(&self, shell: Shell) -> &Daemon {
        if shell.path == SH.path {
            &self.sh
        } else {
            &self.bash
        }
    }
}

/// The directory of this run, removed at its end.
pub struct Scratch {
    root: PathBuf,
    pub one_mib: PathBuf,
    pub sixty_four_mib: PathBuf,
}

impl Scratch {
    pub fn create() -> Fallible<Self> {
        let root = crate::report::directory().join(format!("run-{}", std::process::id()));
        fs::create_dir_all(&root)?;
        let scratch = Self {
            one_mib: root.join("1MiB"),
            sixty_four_mib: root.join("64MiB"),
            root,
        };
        let text = text(1 << 20);
        fs::write(&scratch.one_mib, &text)?;
        fs::write(&scratch.sixty_four_mib, text.repeat(64))?;
        Ok(scratch)
    }

    /// A directory for something else.
    pub fn directory(&self, name: &str) -> Fallible<PathBuf> {
        let dir = self.root.join(name);
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    pub fn daemons(&self, mode: Mode) -> Fallible<Measured> {
        let start = |shell: Option<&str>, suffix: &str| {
            Daemon::start(
                &self.root,
                &Setup {
                    mode,
                    shell,
                    policy: None,
                    name: &format!("{}-{suffix}", mode.name()),
                },
            )
        };
        Ok(Measured {
            mode,
            bash: start(None, "bash")?,
            sh: start(Some(SH.path), "sh")?,
        })
    }

    /// A daemon that has done nothing yet.
    pub fn fresh(&self, mode: Mode) -> Fallible<Daemon> {
        self.ruled(mode, "fresh", None)
    }

    /// The same under this policy, or the shipped one; `suffix` tells it from others of its mode.
    pub fn ruled(&self, mode: Mode, suffix: &str, policy: Option<&str>) -> Fallible<Daemon> {
        let name = format!("{}-{suffix}", mode.name());
        let _nothing_there_the_first_time = fs::remove_dir_all(self.root.join(&name));
        Daemon::start(
            &self.root,
            &Setup {
                mode,
                shell: None,
                policy,
                name: &name,
            },
        )
    }

    /// A copy of a program as a package would install it.
    pub fn stripped(&self, program: &Path) -> Fallible<PathBuf> {
        let copy = self.root.join("stripped");
        let done = std::process::Command::new("strip")
            .arg("-o")
            .arg(&copy)
            .arg(program)
            .status();
        match done.map_err(|error| format!("cannot run strip: {error}"))? {
            status if status.success() => Ok(copy),
            status => Err(format!("strip: {status}").into()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            eprintln!("cannot remove {}: {error}", self.root.display());
        }
    }
}

/// `length` bytes of something like a log: lines, quotes, tabs and a few characters of more than one byte, so that
/// making JSON of it is neither the best nor the worst case.
fn text(length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 200);
    let mut line = 0u32;
    while text.len() < length {
        let level = ["info", "warn", "débug"][line as usize % 3];
        let millis = line.wrapping_mul(7919) % 1000;
        text.extend(format!("2025-01-01T00:00:00.{millis:03}Z\t{level}\tworker[{line}]: read \"/var/lib/data/{line}\" in {millis} ms\n").bytes());
        line += 1;
    }
    text.truncate(length);
    // Not in the middle of a character, whatever the length.
    while std::str::from_utf8(&text).is_err() {
        text.pop();
    }
    text.resize(length, b'\n');
    text
}
