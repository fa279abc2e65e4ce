//! What the file tools may reach. The kernel holds every way to its base directory (`openat2`,
//! `RESOLVE_BENEATH`), so that neither `..` nor symbolic links nor races lead out; where that
//! ends is then held against what is forbidden.

mod append;
mod open;
mod replace;
mod target;
mod turns;

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

pub(crate) use append::Since;
pub(crate) use open::{Found, Kind, TRIES};
pub(crate) use replace::New;
#[cfg(test)]
pub(super) use replace::replace_by_name;
pub(crate) use target::{Existing, Target};
pub(crate) use turns::{Of, Turn};

use super::FileError;
use crate::config::{BaseDir, ExecutorConfig, LedgerConfig};
use crate::tools::Place;

const NOT_THE_LEDGER: &str = "it is the daemon's ledger, which no file tool touches whatever [files] names: ask for executions (GET /executions) instead";

/// What one call may reach, with its base directories held open.
pub(crate) struct Access {
    bases: Vec<Base>,
    forbidden: Vec<Forbidden>,
    own: Own,
    place: Place,
    /// The largest file that is read whole or written, in bytes.
    pub(crate) max_file_size: u64,
    extensions: Vec<String>,
}

struct Base {
    /// As configured, `~` replaced.
    given: PathBuf,
    /// Where that really is.
    real: PathBuf,
    is_named: bool,
    /// Else why it cannot be opened.
    dir: Result<OwnedFd, String>,
}

struct Forbidden {
    given: PathBuf,
    /// Where that really is: /var/run is /run on most machines.
    real: PathBuf,
}

/// What the daemon keeps for itself.
struct Own {
    dir: Option<Forbidden>,
    /// What says what it may do.
    settings: Vec<Forbidden>,
    /// What must not even be opened, by device and inode: a path does not tell of hard links.
    files: Vec<(u64, u64)>,
}

impl Own {
    fn new(config: &ExecutorConfig) -> Self {
        let locked = config.ledger.iter().flat_map(LedgerConfig::locked);
        let files = locked.filter_map(|file| file.metadata().ok());
        Self {
            dir: config.state_dir.as_deref().map(Forbidden::new),
            settings: config
                .own_files
                .iter()
                .map(|file| Forbidden::file(file))
                .collect(),
            files: files.map(|file| (file.dev(), file.ino())).collect(),
        }
    }
}

impl Forbidden {
    fn new(path: &Path) -> Self {
        Self {
            given: path.components().collect(),
            real: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
        }
    }

    /// A file that need not be there.
    fn file(path: &Path) -> Self {
        let place = path.parent().and_then(|dir| dir.canonicalize().ok());
        let place = place.and_then(|dir| Some(dir.join(path.file_name()?)));
        let real = path.canonicalize().ok().or(place);
        Self {
            given: path.components().collect(),
            real: real.unwrap_or_else(|| path.to_owned()),
        }
    }

    fn covers(&self, path: &Path) -> bool {
        path.starts_with(&self.given) || path.starts_with(&self.real)
    }
}

impl Access {
    /// What a call at `place` may reach.
    pub(crate) fn new(config: &ExecutorConfig, place: &Place) -> Self {
        let home = place.home.as_deref();
        let files = &config.files;
        let bases = files.base_dirs.iter();
        let forbidden = files.forbidden.iter();
        Self {
            bases: bases.filter_map(|base| open_base(base, home)).collect(),
            forbidden: forbidden.map(|path| Forbidden::new(path)).collect(),
            own: Own::new(config),
            place: place.clone(),
            max_file_size: files.max_file_size,
            extensions: files.allowed_extensions.clone(),
        }
    }

    /// The absolute path that was asked for, `..` and links left to the kernel.
    fn absolute(&self, asked: &str) -> Result<PathBuf, FileError> {
        if asked.is_empty() || asked.contains('\0') {
            let why = "is no path: it is empty or holds a NUL";
            return Err(FileError::refused(asked, why));
        }
        let path = self.place.absolute(asked);
        let path = path.map_err(|why| FileError::denied(asked, why))?;
        Ok(path.components().collect())
    }

    /// The base directory that `path` is in, as it is written, and the way from there.
    fn base_of(&self, path: &Path) -> Result<(&Base, &OwnedFd, PathBuf), FileError> {
        let ways = self.bases.iter().filter_map(|base| {
            let given = path.strip_prefix(&base.given);
            let rest = given.or_else(|_| path.strip_prefix(&base.real)).ok()?;
            Some((base, rest))
        });
        // The nearest, which is the one with the least left to go.
        let nearest = ways.min_by_key(|(base, rest)| (rest.components().count(), !base.is_named));
        let Some((base, rest)) = nearest else {
            return Err(FileError::denied(path, self.outside()));
        };
        self.hold(path)?;
        let dir = base.dir.as_ref().map_err(|error| {
            let base = base.given.display();
            FileError::denied(
                path,
                format!("its base directory `{base}` cannot be opened: {error}"),
            )
        })?;
        let rest = match rest.components().next() {
            None => PathBuf::from("."),
            Some(_) => rest.to_owned(),
        };
        Ok((base, dir, rest))
    }

    /// Why a path that leads to `real` now can only be refused; others are found out about when they are opened.
    pub(super) fn refuses(&self, absolute: &Path, real: &Path) -> Option<FileError> {
        let mut paths = [absolute, real].into_iter();
        paths.find_map(|path| self.base_of(path).err())
    }

    /// The same of a path to one file.
    pub(super) fn refuses_file(&self, absolute: &Path, real: &Path) -> Option<FileError> {
        self.refuses(absolute, real)
            .or_else(|| self.check_extension(real).err())
    }

    fn outside(&self) -> String {
        let bases = self
            .bases
            .iter()
            .map(|base| format!("`{}`", base.given.display()));
        let bases: Vec<String> = bases.collect();
        match bases.as_slice() {
            [] => "there are no base directories: name some in [files] base_dirs".to_owned(),
            _ => format!(
                "it is outside of the base directories ({}): use a path in one of them, or name another in [files] base_dirs",
                bases.join(", ")
            ),
        }
    }

    /// Refuses what was found, before it is opened, as its path would be, and the ledger under whatever name.
    pub(super) fn hold_found(&self, found: &Found) -> Result<(), FileError> {
        self.hold(&found.real)?;
        match self
            .own
            .files
            .contains(&(found.stat.st_dev, found.stat.st_ino))
        {
            true => Err(FileError::denied(&found.real, NOT_THE_LEDGER)),
            false => Ok(()),
        }
    }

    /// Refuses to change what says what the daemon may do, whatever `[files]` names: who writes it might as well be let do
    /// everything.
    pub(super) fn hold_settings(&self, path: &Path) -> Result<(), FileError> {
        match self.own.settings.iter().any(|file| file.covers(path)) {
            false => Ok(()),
            true => Err(FileError::denied(
                path,
                "it is the daemon's own configuration or policy, or one of its skills, to which no file tool writes whatever [files] names: have an operator change it",
            )),
        }
    }

    /// Refuses what is at or below a forbidden path, unless somebody has named a base directory
    /// there by its path, and what the daemon keeps for itself, whatever is named.
    pub(super) fn hold(&self, path: &Path) -> Result<(), FileError> {
        if let Some(own) = self.own.dir.as_ref().filter(|own| own.covers(path)) {
            let given = own.given.display();
            let why = format!(
                "it is at or below `{given}`, the daemon's state directory, which no file tool touches whatever [files] names: ask for executions and their outputs (GET /executions) instead"
            );
            return Err(FileError::denied(path, why));
        }
        let is_exempt = |forbidden: &Forbidden| {
            let mut named = self.bases.iter().filter(|base| base.is_named);
            named.any(|base| {
                let is_within = path.starts_with(&base.given) || path.starts_with(&base.real);
                forbidden.covers(&base.given) && is_within
            })
        };
        let mut forbidden = self.forbidden.iter();
        match forbidden.find(|forbidden| forbidden.covers(path) && !is_exempt(forbidden)) {
            None => Ok(()),
            Some(forbidden) => {
                let given = forbidden.given.display();
                let why = format!(
                    "it is at or below `{given}`, which is forbidden: to allow it, name \"{given}\" or the directory below it that is meant in [files] base_dirs"
                );
                Err(FileError::denied(path, why))
            }
        }
    }

    /// Refuses files whose names do not end as configured.
    pub(super) fn check_extension(&self, path: &Path) -> Result<(), FileError> {
        if self.has_allowed_extension(path) {
            return Ok(());
        }
        let allowed = self
            .extensions
            .iter()
            .map(|extension| format!("{extension:?}"));
        let allowed = allowed.collect::<Vec<_>>().join(", ");
        let why = format!("[files] allowed_extensions has only {allowed}");
        Err(FileError::denied(path, why))
    }

    pub(super) fn has_allowed_extension(&self, path: &Path) -> bool {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        let fits = |extension: &String| match extension.as_str() {
            "" => path.extension().is_none(),
            extension => name.len() > extension.len() && name.ends_with(extension),
        };
        !self.restricts_extensions() || self.extensions.iter().any(fits)
    }

    /// Whether only some kinds of files may be touched.
    pub(super) fn restricts_extensions(&self) -> bool {
        !self.extensions.is_empty()
    }
}

/// Opens a base directory. What is below a home is its owner's to turn elsewhere, so that the way
/// there is held to it.
fn open_base(base: &BaseDir, home: Option<&Path>) -> Option<Base> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (given, dir, is_named) = match base {
        BaseDir::Named(path) => (path.clone(), openat(CWD, path, flags, Mode::empty()), true),
        BaseDir::Home(rest) => {
            let home = home.filter(|home| home.is_absolute())?;
            let dir = openat(CWD, home, flags, Mode::empty());
            let dir = match rest.components().next() {
                None => dir,
                Some(_) => dir.and_then(|dir| {
                    let held = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                    openat2(dir, rest, flags, Mode::empty(), held)
                }),
            };
            (home.join(rest), dir, false)
        }
    };
    let given: PathBuf = given.components().collect();
    let real = dir.as_ref().ok().and_then(|dir| open::real_path(dir).ok());
    Some(Base {
        real: real.unwrap_or_else(|| given.clone()),
        given,
        is_named,
        dir: dir.map_err(|error| error.to_string()),
    })
}
