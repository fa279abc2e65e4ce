use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::{Policy, PolicyError, SHIPPED_POLICY, Source};

/// Why there is no policy.
#[derive(Debug, thiserror::Error)]
pub enum UnusablePolicy {
    /// The file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It says something that is not understood.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
}

impl UnusablePolicy {
    /// The message with its cause.
    pub fn chain(&self) -> String {
        match self {
            Self::Unreadable { source, .. } => format!("{self}: {source}"),
            Self::Invalid(_) => self.to_string(),
        }
    }
}

/// Reads the policy file. Where there never was one the shipped policy is in force; one that cannot
/// be read never means that there is none.
pub(super) fn read(path: &Path, must_exist: bool) -> Result<Policy, UnusablePolicy> {
    let unreadable = |source| UnusablePolicy::Unreadable {
        path: path.to_owned(),
        source,
    };
    let built_in = Path::new("built-in policy.toml");
    let text = match fs::metadata(path) {
        // Reading a FIFO would wait for a writer, and the daemon with it.
        Ok(metadata) if !metadata.is_file() => {
            return Err(unreadable(io::Error::other("it is not a regular file")));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => None,
        Ok(_) | Err(_) => Some(fs::read_to_string(path).map_err(unreadable)?),
    };
    let source = match &text {
        Some(text) => Source { path, text },
        None => Source {
            path: built_in,
            text: SHIPPED_POLICY,
        },
    };
    let policy = Policy::parse(&[source])?;
    if !policy.sets_default() {
        // A file that is only half written, or was emptied by accident, permits nothing.
        return Err(UnusablePolicy::Invalid(PolicyError {
            path: source.path.to_owned(),
            line: 1,
            key: Some("default".to_owned()),
            detail: "is missing: expected \"allow\", \"ask\" or \"deny\"".to_owned(),
        }));
    }
    Ok(policy)
}
