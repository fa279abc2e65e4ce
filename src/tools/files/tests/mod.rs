//! The tools on real files: what they do, and what they cannot be made to do.

mod edit;
mod glue;
mod keep;
mod list;
mod reach;
mod read;
mod search;
mod write;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Access, FileError, Work};
use crate::config::{BaseDir, ExecutorConfig, FilesConfig};
use crate::domain::{ExecutionId, Secrets};
use crate::tools::{Answer, Place};

/// A directory with a base directory in it, and what is outside of that.
struct Room {
    root: PathBuf,
    config: ExecutorConfig,
    secrets: Secrets,
}

/// A value that is long enough for a cut to go through it.
const VALUE: &str = "correct-horse-battery-staple-0123456789";

type Tool<I> = fn(&Work<'_>, &I) -> Result<Answer, FileError>;

impl Room {
    fn new() -> Self {
        let temporary = std::env::temp_dir().canonicalize().expect("there");
        let root = temporary.join(format!("shelly-files-{}", ExecutionId::new()));
        fs::create_dir_all(root.join("base")).expect("created");
        fs::create_dir_all(root.join("outside")).expect("created");
        fs::write(root.join("outside/secret"), "secret\n").expect("written");
        let files = FilesConfig {
            base_dirs: vec![BaseDir::Named(root.join("base"))],
            ..FilesConfig::default()
        };
        let config = ExecutorConfig {
            files,
            ..ExecutorConfig::default()
        };
        Self {
            root,
            config,
            secrets: Secrets::default(),
        }
    }

    /// A path in the base directory.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join("base").join(path)
    }

    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("below")).expect("created");
        fs::write(&path, bytes).expect("written");
        path
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        fs::read(self.at(path)).expect("readable")
    }

    fn access(&self) -> Access {
        let place = Place {
            home: Some(self.root.join("base")),
            ..Place::default()
        };
        Access::new(&self.config, &place)
    }

    fn call<I: DeserializeOwned>(&self, tool: Tool<I>, input: Value) -> Result<Answer, FileError> {
        self.call_until(tool, input, &|| false)
    }

    /// A call that looks at `should_stop` now and then, which is when a test may step in.
    fn call_until<I: DeserializeOwned>(
        &self,
        tool: Tool<I>,
        input: Value,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Answer, FileError> {
        let access = self.access();
        let work = Work {
            access: &access,
            should_stop,
            permits: &|_| true,
            secrets: &self.secrets,
        };
        tool(&work, &serde_json::from_value(input).expect("an input"))
    }

    /// What a call answers to programs.
    fn output<I: DeserializeOwned>(&self, tool: Tool<I>, input: Value) -> Value {
        let answer = self.call(tool, input).expect("done");
        answer.output.expect("there is an output")
    }

    /// What a call that is refused says, in which all these must be.
    fn refusal<I: DeserializeOwned>(&self, tool: Tool<I>, input: Value, parts: &[&str]) -> String {
        let shown = input.to_string();
        let error = self.call(tool, input).expect_err(&shown).to_string();
        for part in parts {
            assert!(
                error.contains(part),
                "{shown} gave {error:?}, which lacks {part:?}"
            );
        }
        error
    }

    /// All names in the base directory, so that nothing can be left behind unseen.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.at("")).expect("listed").flatten();
        let names = entries.map(|entry| entry.file_name().into_string().expect("UTF-8"));
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Ends what goes on beside a test, also when that fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Says what is not tested here and why; `tests/run` counts and repeats it.
fn skip(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

fn run(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program)
        .args(args)
        .stderr(std::process::Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// A small file system, gone when dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` where this user may not mount anything.
    fn tmpfs(at: &Path, what: &str) -> Option<Self> {
        let path = at.to_str().expect("UTF-8");
        let options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", path];
        Self::mount(at, &options, what)
    }

    fn bind(from: &Path, at: &Path, what: &str) -> Option<Self> {
        let [from, path] = [from, at].map(|path| path.to_str().expect("UTF-8"));
        Self::mount(at, &["--bind", from, path], what)
    }

    fn mount(at: &Path, options: &[&str], what: &str) -> Option<Self> {
        if run("mount", options) {
            return Some(Self(at.to_owned()));
        }
        skip(&format!("{what}, which takes the right to mount"));
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &["-l", self.0.to_str().expect("UTF-8")]);
    }
}
