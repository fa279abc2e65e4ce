//! `[files]` of `executor.toml`: what the file tools may touch.

use std::path::{Component, Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::values::Bounded;

/// What the file tools may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesConfig {
    /// Whether there are file tools at all. Default no: the library has only `bash`.
    pub enabled: bool,
    /// They reach nothing outside of these. Default the caller's home.
    pub base_dirs: Vec<BaseDir>,
    /// Nor anything at or below these, unless a base directory there is named by its path.
    pub forbidden: Vec<PathBuf>,
    /// The largest file that is read whole or written, in bytes. Default 10 MiB.
    pub max_file_size: u64,
    /// The ends of the names of files that may be touched, in lower case, with their dots; `""`
    /// stands for names without. Empty for all.
    pub allowed_extensions: Vec<String>,
    /// Whether somebody is asked before a file is written.
    pub confirm_write: bool,
    /// Whether somebody is asked before what a file held is lost.
    pub confirm_delete: bool,
}

impl Default for FilesConfig {
    fn default() -> Self {
        let forbidden = ["/etc", "/sys", "/proc", "/dev", "/boot", "/root"];
        Self {
            enabled: false,
            base_dirs: vec![BaseDir::Home(PathBuf::new())],
            forbidden: forbidden.map(PathBuf::from).into(),
            max_file_size: 10 << 20,
            allowed_extensions: Vec::new(),
            confirm_write: false,
            confirm_delete: false,
        }
    }
}

/// A directory that the file tools may work in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseDir {
    /// Named by its absolute path, which beats the forbidden paths above it.
    Named(PathBuf),
    /// The caller's home, or what is at this path in it.
    Home(PathBuf),
}

impl<'de> Deserialize<'de> for BaseDir {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = || {
            D::Error::custom(format!(
                "{text:?} is no base directory: expected an absolute path or one that begins with `~/`, without `..`"
            ))
        };
        if !is_plain(Path::new(&text)) {
            return Err(expected());
        }
        match text.strip_prefix('~') {
            Some("") => Ok(Self::Home(PathBuf::new())),
            Some(rest) => {
                let rest = rest.strip_prefix('/').ok_or_else(expected)?;
                Ok(Self::Home(rest.trim_start_matches('/').into()))
            }
            None if text.starts_with('/') => Ok(Self::Named(text.into())),
            None => Err(expected()),
        }
    }
}

/// Whether a path means what it says: no NUL, and no `..`, which symbolic links turn elsewhere.
fn is_plain(path: &Path) -> bool {
    let has_nul = path.as_os_str().as_encoded_bytes().contains(&0);
    !has_nul && !path.components().any(|part| part == Component::ParentDir)
}

/// `[files]` as it is written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [files]")]
pub(super) struct FilesFile {
    enabled: Option<bool>,
    base_dirs: Option<Vec<BaseDir>>,
    forbidden: Option<Vec<Forbidden>>,
    max_file_size_mb: Option<Bounded<1, 1024>>,
    allowed_extensions: Option<Vec<Extension>>,
    confirm_write: Option<bool>,
    confirm_delete: Option<bool>,
}

impl FilesFile {
    /// What is not set has the library's value; the shipped file sets everything.
    pub(super) fn config(self) -> FilesConfig {
        let library = FilesConfig::default();
        let forbidden = self
            .forbidden
            .map(|all| all.into_iter().map(|Forbidden(path)| path).collect());
        let extensions = self
            .allowed_extensions
            .map(|all| all.into_iter().map(|Extension(text)| text).collect());
        FilesConfig {
            enabled: self.enabled.unwrap_or(library.enabled),
            base_dirs: self.base_dirs.unwrap_or(library.base_dirs),
            forbidden: forbidden.unwrap_or(library.forbidden),
            max_file_size: self
                .max_file_size_mb
                .map_or(library.max_file_size, |mib| mib.get() << 20),
            allowed_extensions: extensions.unwrap_or(library.allowed_extensions),
            confirm_write: self.confirm_write.unwrap_or(library.confirm_write),
            confirm_delete: self.confirm_delete.unwrap_or(library.confirm_delete),
        }
    }
}

/// An absolute path, and no pattern, which would forbid nothing.
struct Forbidden(PathBuf);

impl<'de> Deserialize<'de> for Forbidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = PathBuf::deserialize(deserializer)?;
        if path.as_os_str().as_encoded_bytes().contains(&b'*') {
            let detail = format!(
                "{path:?} is no path: expected one without `*`, at or below which nothing may be touched"
            );
            Err(D::Error::custom(detail))
        } else if path.is_absolute() && is_plain(&path) {
            Ok(Self(path))
        } else {
            let detail = format!("{path:?} is no absolute path without `..`");
            Err(D::Error::custom(detail))
        }
    }
}

/// The end of a name.
struct Extension(String);

impl<'de> Deserialize<'de> for Extension {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_one = text.strip_prefix('.').is_some_and(|rest| !rest.is_empty());
        if (is_one || text.is_empty()) && !text.contains(['/', '*', '\0']) {
            Ok(Self(text.to_lowercase()))
        } else {
            Err(D::Error::custom(format!(
                "{text:?} is no extension: expected one with its dot, as in \".py\", or \"\" for names without"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn parse(text: &str) -> Result<FilesConfig, String> {
        let text = format!("[files]\n{text}\n");
        let settings = Settings::parse(Path::new("e.toml"), &text);
        settings
            .map(|settings| settings.executor.files)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_shipped_file_differs_from_the_library_only_in_that_there_are_file_tools() {
        let shipped = parse("").expect("valid");
        let library = FilesConfig {
            enabled: true,
            ..FilesConfig::default()
        };
        assert_eq!(shipped, library);
    }

    #[test]
    fn every_value_is_read() {
        let config = parse(
            "enabled = false\nbase_dirs = [\"/srv\", \"~\", \"~/work\"]\nforbidden = [\"/a\"]\n\
             max_file_size_mb = 3\nallowed_extensions = [\".PY\", \"\"]\nconfirm_write = true\n\
             confirm_delete = true",
        );
        let expected = FilesConfig {
            enabled: false,
            base_dirs: vec![
                BaseDir::Named("/srv".into()),
                BaseDir::Home(PathBuf::new()),
                BaseDir::Home("work".into()),
            ],
            forbidden: vec!["/a".into()],
            max_file_size: 3 << 20,
            allowed_extensions: vec![".py".to_owned(), String::new()],
            confirm_write: true,
            confirm_delete: true,
        };
        assert_eq!(config, Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        for (text, parts) in [
            (
                "base_dirs = [\"srv\"]",
                &["e.toml:2: ", "absolute path"][..],
            ),
            ("base_dirs = [\"~bob\"]", &["e.toml:2: ", "~bob", "`~/`"]),
            ("base_dirs = [\"/srv/../etc\"]", &["e.toml:2: ", "`..`"]),
            ("forbidden = [\"etc\"]", &["e.toml:2: ", "etc"]),
            ("forbidden = [\"~\"]", &["e.toml:2: ", "~"]),
            ("forbidden = [\"/etc/*\"]", &["e.toml:2: ", "/etc/*", "`*`"]),
            ("max_file_size_mb = 0", &["e.toml:2: ", "from 1 to 1024"]),
            ("allowed_extensions = [\"py\"]", &["e.toml:2: ", "\".py\""]),
            (
                "confirm = true",
                &["e.toml:2: ", "confirm", "expected one of"],
            ),
            ("confirm_write = 1", &["e.toml:2: ", "confirm_write"]),
        ] {
            let refusal = parse(text).expect_err(text);
            for part in parts {
                assert!(refusal.contains(part), "{text} gave {refusal}");
            }
        }
    }
}
