use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Deserialize;

use super::ConfigError;
use super::text::read_text;

/// The shipped `tools.toml`.
pub const DEFAULT_TOOLS_TOML: &str = include_str!("../../config/tools.toml");

/// How long ago a file was changed at least if it is taken to be changed no more in that moment, in
/// seconds.
const TICK_SECS: i64 = 2;

/// The tools' descriptions by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct ToolDescriptions(BTreeMap<String, Description>);

#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { description = \"...\" }"
)]
struct Description {
    description: String,
}

impl ToolDescriptions {
    /// Reads `path`. A file that is not there holds no descriptions.
    ///
    /// # Errors
    /// A file that cannot be read, is larger than 1 MiB, or is not what it should be.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        match read_text(path) {
            Err(ConfigError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Ok(Self::default())
            }
            text => Self::parse(path, &text?),
        }
    }

    /// Parses `text`, which came from `path`.
    ///
    /// # Errors
    /// What is no TOML, or holds other than `[tool] description = "…"`.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::from_toml(path, text, &error))
    }

    /// The tools that are described.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The description of `tool`, without the white space around it.
    pub fn of(&self, tool: &str) -> Option<&str> {
        self.0.get(tool).map(|entry| entry.description.trim())
    }
}

/// The file as it was when nothing was found wrong with it, for whoever looks every second.
#[derive(Debug, Default)]
pub struct CheckedTools(Mutex<Option<(PathBuf, Stamp)>>);

/// What of a file is another when it was changed (inode(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl CheckedTools {
    /// Reads `path` unless it is the file that was found good.
    ///
    /// # Errors
    /// As [`ToolDescriptions::read`].
    pub fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let stamp = std::fs::metadata(path).ok().map(|found| Stamp {
            device: found.dev(),
            inode: found.ino(),
            length: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
        });
        let now = stamp.map(|stamp| (path.to_owned(), stamp));
        let mut good = self.0.lock();
        if now.is_some() && *good == now {
            return Ok(());
        }
        *good = None;
        ToolDescriptions::read(path)?;
        // The clock of some kernels' files has ticks: what is changed twice in one looks the same.
        let age = SystemTime::now().duration_since(UNIX_EPOCH);
        let changed = stamp.map_or(0, |stamp| stamp.changed.0);
        let is_settled = age.is_ok_and(|age| age.as_secs() as i64 - changed > TICK_SECS);
        *good = now.filter(|_| is_settled);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_describes_bash_and_names_the_shell() {
        let tools = ToolDescriptions::parse(Path::new("tools.toml"), DEFAULT_TOOLS_TOML);
        let tools = tools.expect("the shipped file is valid");
        assert!(tools.of("bash").expect("there").contains("/bin/bash"));
    }

    #[test]
    fn what_was_found_good_is_read_again_when_it_has_changed() {
        let path = std::env::temp_dir().join(format!("tools-{}.toml", std::process::id()));
        let checked = CheckedTools::default();
        checked.check(&path).expect("none is as good as one");
        std::fs::write(&path, DEFAULT_TOOLS_TOML).expect("written");
        checked.check(&path).expect("good");
        let is_known = |checked: &CheckedTools| checked.0.lock().is_some();
        assert!(!is_known(&checked), "it was changed just now");
        std::fs::write(&path, "no = toml = here").expect("written");
        checked.check(&path).expect_err("bad");
        std::fs::remove_file(&path).expect("ours");
        checked.check(&path).expect("none");
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/config/tools.toml");
        checked.check(Path::new(shipped)).expect("good");
        checked.check(Path::new(shipped)).expect("still good");
    }

    #[test]
    fn a_broken_file_names_its_line() {
        let error = ToolDescriptions::parse(Path::new("t.toml"), "[bash]\ndescription = 3\n");
        let text = error.expect_err("no string").to_string();
        assert!(text.starts_with("t.toml:2: `description`: "), "{text}");
    }
}
