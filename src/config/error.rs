use std::io;
use std::path::{Path, PathBuf};

use crate::domain::with_meant;

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// It is no TOML, or holds a key or value that is not known.
    #[error("{}:{line}: {}{detail}", path.display(), key_prefix(key.as_deref()))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The key the value belongs to, where that is known.
        key: Option<String>,
        /// What is wrong and what was expected.
        detail: String,
    },
}

impl ConfigError {
    /// Locates `error` in `text` and puts it into the words of this project.
    pub(super) fn from_toml(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let start = error.span().map_or(0, |span| span.start).min(text.len());
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_text = text[line_start..].lines().next().unwrap_or_default();
        let line_text = line_text.trim_start();
        let quote = line_text.chars().next().filter(|c| ['"', '\''].contains(c));
        let key = match quote {
            Some(quote) => line_text[1..]
                .split_once(quote)
                .filter(|(_, rest)| rest.trim_start().starts_with(['=', '.'])),
            None => line_text.split_once('='),
        };
        let key = key
            .map(|(key, _)| key.trim())
            .filter(|key| !key.is_empty() && !key.starts_with('#'));
        let member = member(&text[line_start..start]);
        let key = key.map(|key| match member {
            Some(member) => format!("{key}.{member}"),
            None => key.to_owned(),
        });
        Self::Invalid {
            path: path.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            key,
            detail: with_meant(error.message().trim().replace('\n', " ")),
        }
    }

    /// Whether there was no such file.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// The file this is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::Unreadable { path, .. } | Self::Invalid { path, .. } => path,
        }
    }

    /// The message with its cause.
    pub fn chain(&self) -> String {
        match self {
            Self::Unreadable { source, .. } => format!("{self}: {source}"),
            Self::Invalid { .. } => self.to_string(),
        }
    }
}

/// Of a line up to a value, whose that is, if it is a member of an inline table that is in no other.
fn member(before: &str) -> Option<&str> {
    if before.matches('{').count() != 1 {
        return None;
    }
    let (_, own) = before.rsplit_once(['{', ','])?;
    let name = own.trim_end().strip_suffix('=')?.trim();
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    (!name.is_empty() && name.chars().all(is_bare)).then_some(name)
}

fn key_prefix(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!("`{key}`: "))
}
