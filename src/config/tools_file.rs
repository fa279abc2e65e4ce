use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::ConfigError;

/// The shipped `tools.toml`.
pub const DEFAULT_TOOLS_TOML: &str = include_str!("../../config/tools.toml");

/// The largest `tools.toml` that is read, in bytes: it is read at every `GET /tools`, and a
/// description is a page of text.
const MAX_BYTES: u64 = 1 << 20;

/// The tools' descriptions by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct ToolDescriptions(BTreeMap<String, Description>);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    description: String,
}

impl ToolDescriptions {
    /// Reads `path`. A file that is not there holds no descriptions.
    ///
    /// # Errors
    /// A file that cannot be read, is larger than 1 MiB, or is not what it should be.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        };
        match std::fs::metadata(path) {
            Ok(meta) if !meta.is_file() => {
                return Err(unreadable(io::Error::other("it is not a regular file")));
            }
            Ok(meta) if meta.len() > MAX_BYTES => {
                return Err(unreadable(io::Error::other("it is larger than 1 MiB")));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Ok(_) | Err(_) => {}
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(path, &text)
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
    fn a_broken_file_names_its_line() {
        let error = ToolDescriptions::parse(Path::new("t.toml"), "[bash]\ndescription = 3\n");
        let text = error.expect_err("no string").to_string();
        assert!(text.starts_with("t.toml:2: `description`: "), "{text}");
    }
}
