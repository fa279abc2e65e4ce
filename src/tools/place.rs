//! Where the paths of a call lead.

use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

use crate::config::{ExecutorConfig, found};
use crate::domain::{Call, Caller};

/// What relative paths and `~` in a call stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The home of who called, as the user database has it.
    pub home: Option<PathBuf>,
    /// What kept it from being looked up: a user who was not found may have one all the same.
    pub fault: Option<String>,
    /// Where the call runs, as far as it says so or the configuration does.
    pub working_dir: Option<PathBuf>,
}

impl Place {
    /// That of a call. Asks the user database, which may take a while.
    pub(crate) fn of(call: &Call, caller: &Caller, config: &ExecutorConfig) -> Self {
        let working_dir = call.options.working_dir.as_ref();
        Self {
            working_dir: working_dir.or(config.working_dir.as_ref()).cloned(),
            ..Self::at_home(caller.uid, User::from_uid(Uid::from_raw(caller.uid)))
        }
    }

    /// That of a user, by what the database says. Who is not in it has no home.
    fn at_home(uid: u32, answer: nix::Result<Option<User>>) -> Self {
        let (home, fault) = match found(answer) {
            Ok(user) => (user.map(|user| user.dir), None),
            Err(error) => (
                None,
                Some(format!("uid {uid} cannot be looked up: {error}")),
            ),
        };
        Self {
            home,
            fault,
            working_dir: None,
        }
    }

    /// `path` as an absolute one, its `..` and links still in it.
    ///
    /// # Errors
    /// One that begins with `~` where there is no home or it cannot be looked up, or is relative to nothing.
    pub(crate) fn absolute(&self, path: &str) -> Result<PathBuf, String> {
        if let Some(below) = path.strip_prefix('~').filter(|rest| is_below(rest)) {
            let home = self.home.as_ref().ok_or_else(|| {
                self.nowhere(path, "is below the home of who called, and that user has none: name an absolute path")
            })?;
            return Ok(home.join(below.trim_start_matches('/')));
        }
        if Path::new(path).is_absolute() {
            return Ok(PathBuf::from(path));
        }
        let base = self.working_dir.as_ref().or(self.home.as_ref());
        let base = base.ok_or_else(|| {
            self.nowhere(path, "is relative, and to nothing: name an absolute path, or a `working_dir` with the call")
        })?;
        Ok(base.join(path))
    }

    /// What is wrong with a path that would lead somewhere if there were a home.
    fn nowhere(&self, path: &str, why: &str) -> String {
        match &self.fault {
            None => format!("`{path}` {why}"),
            Some(fault) => format!(
                "`{path}` leads to the home of who called, and {fault}: name an absolute path, or try again"
            ),
        }
    }
}

/// Whether `~` with this behind it is the caller's own home, rather than that of another user.
fn is_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// A parameter that holds a path, and where that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The parameter's name.
    pub parameter: String,
    /// The path as it was written, made absolute.
    pub absolute: PathBuf,
    /// The same with every link followed, as it was when it was looked at.
    pub real: PathBuf,
    /// What the tool does with what is there.
    pub use_of_it: UseOfIt,
}

/// What a tool does with what is at a path, as far as that is not said by its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UseOfIt {
    /// What its name says.
    Named,
    /// It reads a file, as `read_file` would, where it was made for directories.
    ReadsFile,
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn paths_are_relative_to_the_call_and_then_to_home() {
        let home = Some(PathBuf::from("/home/u"));
        let at_home = Place {
            home: home.clone(),
            ..Place::default()
        };
        let at_work = Place {
            home,
            working_dir: Some(PathBuf::from("/srv")),
            ..Place::default()
        };
        let nowhere = Place::default();
        for (place, path, expected) in [
            (&at_home, "~/a", Some("/home/u/a")),
            (&at_home, "~", Some("/home/u")),
            (&at_work, "a", Some("/srv/a")),
            (&at_home, "a", Some("/home/u/a")),
            (&at_work, "/a", Some("/a")),
            (&at_work, "~other/a", Some("/srv/~other/a")),
            (&nowhere, "a", None),
            (&nowhere, "~", None),
        ] {
            let found = place.absolute(path).ok();
            assert_eq!(found.as_deref(), expected.map(Path::new), "{path}");
        }
    }

    #[test]
    fn a_home_that_cannot_be_looked_up_is_not_taken_for_none() {
        let told = |answer| {
            let place = Place::at_home(7, answer);
            ["~/a", "a"].map(|path| place.absolute(path).expect_err(path))
        };
        for told in told(Ok(None)) {
            assert!(!told.contains("looked up"), "{told}");
        }
        for told in told(Err(Errno::EIO)) {
            assert!(told.contains("uid 7 cannot be looked up: EIO"), "{told}");
        }
    }
}
