use std::io;
use std::path::Path;

use rustix::io::Errno;
use thiserror::Error;

/// Why a file tool did not do what it was asked.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    /// The configuration or the policy does not allow it.
    #[error("access to `{path}` is denied: {why}")]
    Denied {
        /// As asked, or where that really is.
        path: String,
        /// And what to do.
        why: String,
    },
    /// Somebody else was faster.
    #[error("`{path}` was changed by somebody else meanwhile and is left as it is: read it again")]
    Changed {
        /// As asked.
        path: String,
    },
    /// The call was stopped; nothing was changed.
    #[error("stopped before it was done; nothing was changed")]
    Stopped,
    /// Something about the file is in the way.
    #[error("`{path}` {why}")]
    Refused {
        /// As asked.
        path: String,
        /// A verb first, and what to do.
        why: String,
    },
    /// A member of the input makes no sense, by itself or with another.
    #[error("`{member}`: {why}")]
    Input {
        /// Its name.
        member: &'static str,
        /// And what was expected.
        why: String,
    },
    /// The system refused.
    #[error("cannot {step} `{path}`: {source}")]
    Io {
        /// A verb.
        step: &'static str,
        /// As asked.
        path: String,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

impl FileError {
    pub(super) fn denied(path: impl AsRef<Path>, why: impl Into<String>) -> Self {
        Self::Denied {
            path: path.as_ref().display().to_string(),
            why: why.into(),
        }
    }

    pub(super) fn refused(path: impl AsRef<Path>, why: impl Into<String>) -> Self {
        Self::Refused {
            path: path.as_ref().display().to_string(),
            why: why.into(),
        }
    }

    pub(super) fn input(member: &'static str, why: impl Into<String>) -> Self {
        Self::Input {
            member,
            why: why.into(),
        }
    }

    /// Takes the error of a system call.
    pub(super) fn io<E: Into<io::Error>>(
        step: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.as_ref().display().to_string();
        move |source| Self::Io {
            step,
            path,
            source: source.into(),
        }
    }

    /// Whether there is nothing where something was looked for.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.raw_os_error() == Some(Errno::NOENT.raw_os_error()))
    }
}
