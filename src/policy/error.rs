use std::path::PathBuf;

/// A policy that cannot be used. Nothing of it is: a broken policy never means "no policy".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {}{detail}", path.display(), key.as_deref().map_or_else(String::new, |key| format!("`{key}`: ")))]
pub struct PolicyError {
    /// The file.
    pub path: PathBuf,
    /// Counted from 1.
    pub line: usize,
    /// The key the value belongs to, where that is known.
    pub key: Option<String>,
    /// What is wrong and what was expected.
    pub detail: String,
}
