use std::io;
use std::path::{Path, PathBuf};

use tokio::task::JoinError;

use crate::config::{
    ConfigError, FilesConfig, foreign_hand, is_absent, read_text, remembered_files, skills_dir,
};
use crate::pipeline::Executor;
use crate::policy::{BUILT_IN_POLICY, Policy, PolicyError, Remembered, SHIPPED_POLICY, Source};

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

impl From<ConfigError> for UnusablePolicy {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Unreadable { path, source } => Self::Unreadable { path, source },
            ConfigError::Invalid {
                path,
                line,
                key,
                detail,
            } => Self::Invalid(PolicyError {
                path,
                line,
                key,
                detail,
            }),
        }
    }
}

impl UnusablePolicy {
    /// The file this is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::Unreadable { path, .. } => path,
            Self::Invalid(error) => &error.path,
        }
    }

    /// What stays in force at a reload, and what to do where that takes more than mending the file.
    pub(super) fn meanwhile(&self) -> String {
        const STAYS: &str = "the last valid policy stays in force";
        match self {
            Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound => format!(
                "{STAYS}: put the file back, or restart the daemon to go without, which allows everything"
            ),
            Self::Unreadable { .. } | Self::Invalid(_) => STAYS.to_owned(),
        }
    }

    /// Reading `path` has ended in a panic.
    pub(super) fn panicked(path: &Path, error: JoinError) -> Self {
        Self::Unreadable {
            path: path.to_owned(),
            source: io::Error::other(error),
        }
    }

    /// The message with its cause.
    pub fn chain(&self) -> String {
        match self {
            Self::Unreadable { source, .. } => format!("{self}: {source}"),
            Self::Invalid(_) => self.to_string(),
        }
    }
}

/// What makes up the policy.
#[derive(Clone, Debug)]
pub(super) struct PolicyFiles {
    /// The policy itself.
    pub path: PathBuf,
    /// The directory of remembered approvals, where they count.
    pub remembered: Option<PathBuf>,
}

impl PolicyFiles {
    /// That there is no policy, in words, if there is none.
    pub(super) fn absence(&self) -> Option<String> {
        is_absent(&self.path).then(|| {
            let path = self.path.display();
            format!("there is no `{path}`: everything is allowed that [access] lets in")
        })
    }

    /// Which of the files beside this `configuration`, it among them, others than root and we can change, in words.
    pub(super) fn foreign_hands(&self, configuration: &Path) -> Vec<String> {
        let tools = configuration.with_file_name("tools.toml");
        let skills = skills_dir(configuration);
        let remembered = self.remembered.as_deref();
        let read = [configuration, &self.path, &tools, &skills];
        let read = read.into_iter().chain(remembered);
        // Who can write to a directory can put another file there.
        let around = [configuration.parent(), remembered.and_then(Path::parent)];
        let all = read.chain(around.into_iter().flatten());
        // More of them are told once others are not any more.
        let each = std::fs::read_dir(&skills).into_iter().flatten();
        let each = each.flatten().take(1000).map(|entry| entry.path());
        let each = each.filter_map(|skill| foreign_hand(&skill)).take(10);
        all.filter_map(foreign_hand).chain(each).collect()
    }

    /// Reads all of it, or nothing. Where there is no policy file when the daemon starts, the shipped
    /// policy is in force; one that cannot be read never means that there is none.
    pub(super) fn read(
        &self,
        must_exist: bool,
        files: &FilesConfig,
    ) -> Result<Policy, UnusablePolicy> {
        let mut policy = self.read_policy(must_exist, files)?;
        if let Some(dir) = &self.remembered {
            for path in &remembered_files(dir).map_err(unreadable(dir))? {
                let text = match read_text(path) {
                    // To remove it is how one is revoked. Somebody may put another in its place by now, which is then read
                    // in its turn; a link that leads nowhere is a mistake.
                    Err(error) if error.is_not_found() && !path.is_symlink() => continue,
                    read => read?,
                };
                let approvals = Remembered::read(Source { path, text: &text })?;
                policy = policy.with_remembered(&approvals)?;
            }
        }
        policy.check_parameters(Executor::built_in_parameters)?;
        Ok(policy)
    }

    fn read_policy(&self, must_exist: bool, files: &FilesConfig) -> Result<Policy, UnusablePolicy> {
        let path = &self.path;
        let text = match is_absent(path) && !must_exist {
            true => None,
            false => Some(read_text(path)?),
        };
        let source = match &text {
            Some(text) => Source { path, text },
            None => Source {
                path: Path::new(BUILT_IN_POLICY),
                text: SHIPPED_POLICY,
            },
        };
        let confirmation = confirmation_rules(files);
        let policy = Policy::parse(&[source, in_files(&confirmation)])?;
        Ok(policy.with_default_set(source.path)?)
    }
}

/// The policy that stays in force though its file cannot be used, with what `[files]` says by now.
pub(super) fn with_confirmation(
    policy: &Policy,
    files: &FilesConfig,
) -> Result<Policy, PolicyError> {
    policy.with_source(in_files(&confirmation_rules(files)))
}

fn in_files(confirmation: &str) -> Source<'_> {
    Source {
        path: Path::new("[files] of executor.toml"),
        text: confirmation,
    }
}

/// What `[files]` says somebody is to be asked about, as rules. A `dry_run` changes nothing.
fn confirmation_rules(files: &FilesConfig) -> String {
    let mut rules = Vec::new();
    if files.confirm_write {
        rules.push(("write_file(dry_run:false)", "confirm_write"));
    }
    if files.confirm_delete {
        rules.push(("write_file(mode:w)", "confirm_delete"));
    }
    if files.confirm_write || files.confirm_delete {
        let key = if files.confirm_write {
            "confirm_write"
        } else {
            "confirm_delete"
        };
        rules.push(("edit_file(dry_run:false)", key));
    }
    let rules = rules.iter().map(|(rule, key)| {
        format!("{{ rule = \"{rule}\", reason = \"`{key}` is set in [files] of executor.toml\" }}")
    });
    format!("ask = [{}]", rules.collect::<Vec<_>>().join(", "))
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> UnusablePolicy {
    move |source| UnusablePolicy::Unreadable {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn an_approval_that_is_revoked_while_the_policy_is_read_is_none() {
        const TEXT: &str = "[[remembered]]\nrule = \"bash(command:ls)\"\nuid = 1\napproval = \"01980000-0000-7000-8000-000000000000\"\napproved_by = 0\nat = \"2026-11-22T09:00:00Z\"\n";
        let root = std::env::temp_dir().join(format!("shelly-revoked-{}", std::process::id()));
        let remembered = root.join("policy.d");
        fs::create_dir_all(&remembered).expect("a directory");
        let files = PolicyFiles {
            path: root.join("policy.toml"),
            remembered: Some(remembered.clone()),
        };
        let is_done = AtomicBool::new(false);
        let failed = thread::scope(|scope| {
            scope.spawn(|| {
                let new = root.join("new");
                for n in (0..20).cycle() {
                    let file = remembered.join(format!("{n}.toml"));
                    fs::write(&new, TEXT).expect("written");
                    fs::rename(&new, &file).expect("remembered");
                    fs::remove_file(remembered.join(format!("{}.toml", (n + 10) % 20))).ok();
                    if is_done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let failed = (0..200).find_map(|_| files.read(false, &FilesConfig::default()).err());
            is_done.store(true, Ordering::Relaxed);
            failed
        });
        fs::remove_dir_all(&root).expect("removed");
        assert!(failed.is_none(), "{failed:?}");
    }
}
