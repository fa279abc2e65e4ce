use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Config, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// What is watched while this lasts, and what tells of changes.
pub struct Watch {
    _watcher: RecommendedWatcher,
    changes: mpsc::Receiver<()>,
    written: Written,
}

/// The names of files that were written to by somebody who has them open, as far as is known.
type Written = Arc<Mutex<HashSet<OsString>>>;

impl Watch {
    /// Waits for the next change; `None` when there will be none.
    pub async fn changed(&mut self) -> Option<()> {
        self.changes.recv().await
    }

    /// Whether somebody has written a part of a file, and not closed it.
    pub fn is_written_to(&self) -> bool {
        !self.written.lock().is_empty()
    }
}

/// Watches a file, and `others` beside it, through the directory they are in, and says when one of
/// them may have changed.
///
/// The directory and not the files: editors and package managers replace a file by renaming
/// another over it, after which a watch of the old one sees nothing. A regular file that a symbolic link leads to is
/// watched itself. All that is by what is there now: after a change, and where [`leads_to`] says something else,
/// watch anew.
///
/// # Errors
/// When the directory cannot be watched: not there, or out of inotify watches.
pub fn watch_files(path: &Path, others: &[&str]) -> notify::Result<Watch> {
    // One place is enough: whoever reads the file reads it as it is then.
    let (changed, changes) = mpsc::channel(1);
    let dir = directory(path);
    let files = names(path, others);
    let mut names = files.clone();
    // It goes, or another comes into its place.
    names.extend(dir.file_name().map(OsStr::to_owned));
    let written = Written::default();
    let notes = Arc::clone(&written);
    let mut watcher = watcher(move |event: notify::Result<notify::Event>| {
        let is_closed = event
            .as_ref()
            .is_ok_and(|event| note_writing(event, &names, &mut notes.lock()));
        if is_closed || concerns(&event, &names) {
            // A full channel says it already.
            let _ = changed.try_send(());
        }
    })?;
    watcher.watch(dir, RecursiveMode::NonRecursive)?;
    let files = files.iter().map(|name| dir.join(name));
    for link in files.filter(|file| file.is_symlink() && file.is_file()) {
        // It may be gone by now, which the next look tells.
        let _ = watcher.watch(&link, RecursiveMode::NonRecursive);
    }
    Ok(Watch {
        _watcher: watcher,
        changes,
        written,
    })
}

/// Makes a watcher. notify takes it for granted that its thread could be started, which the limit of the daemon's unit may
/// refuse: without one each use of it panics, but this.
fn watcher(handler: impl notify::EventHandler) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(handler)?;
    match watcher.configure(Config::default()) {
        Ok(_) => Ok(watcher),
        Err(error) => {
            // So does its end, which the panic hook tells of.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(watcher)));
            let told = format!("no thread could be started that watches: {error}");
            Err(notify::Error::generic(&told))
        }
    }
}

/// Notes who of `names` is written to, and says whether one of them is so no more.
fn note_writing(
    event: &notify::Event,
    names: &[OsString],
    written: &mut HashSet<OsString>,
) -> bool {
    let files = event.paths.iter().filter_map(|path| path.file_name());
    let mut files = files.filter(|name| names.iter().any(|watched| watched == name));
    match event.kind {
        EventKind::Modify(ModifyKind::Data(_)) => {
            written.extend(files.map(OsStr::to_owned));
            false
        }
        // Of a file that is another now nobody knows; to its name nobody writes.
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Name(_))
        | EventKind::Remove(_) => files.any(|name| written.remove(name)),
        EventKind::Any
        | EventKind::Access(_)
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Other => false,
    }
}

/// Where the file and `others` beside it are, links followed; none where no link is on the way, so that what
/// [`watch_files`] watches says all.
pub fn leads_to(path: &Path, others: &[&str]) -> Option<Vec<Option<PathBuf>>> {
    let dir = directory(path);
    let files = names(path, others).into_iter().map(|name| dir.join(name));
    let files: Vec<PathBuf> = files
        .filter(|file| file.symlink_metadata().is_ok())
        .collect();
    let ends: Vec<Option<PathBuf>> = files.iter().map(|file| file.canonicalize().ok()).collect();
    let is_there = |(file, end): (&PathBuf, &Option<PathBuf>)| end.as_ref() == Some(file);
    (!files.iter().zip(&ends).all(is_there)).then_some(ends)
}

fn directory(path: &Path) -> &Path {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}

fn names(path: &Path, others: &[&str]) -> Vec<OsString> {
    let others = others.iter().map(OsString::from);
    others
        .chain(path.file_name().map(OsStr::to_owned))
        .collect()
}

/// Watches a directory and all below it, likewise. What is put in the directory's own place is not
/// seen: watch what it is in as well.
///
/// # Errors
/// When there is no such directory, or it cannot be watched.
pub fn watch_tree(dir: &Path) -> notify::Result<Watch> {
    let (changed, changes) = mpsc::channel(1);
    let mut watcher = watcher(move |event: notify::Result<notify::Event>| {
        let is_change = |event: &notify::Event| {
            event.need_rescan() || !matches!(event.kind, EventKind::Access(_))
        };
        if event.as_ref().map_or(true, is_change) {
            let _ = changed.try_send(());
        }
    })?;
    watcher.watch(dir, RecursiveMode::Recursive)?;
    Ok(Watch {
        _watcher: watcher,
        changes,
        written: Written::default(),
    })
}

/// Whether an event may mean that a file of one of these names is another now. An error (an overflow,
/// say) may hide a change; reads are what our own loading causes.
fn concerns(event: &notify::Result<notify::Event>, names: &[OsString]) -> bool {
    match event {
        Err(_) => true,
        Ok(event) if event.need_rescan() => true,
        Ok(event) => {
            !matches!(event.kind, EventKind::Access(_))
                && event
                    .paths
                    .iter()
                    .filter_map(|path| path.file_name())
                    .any(|name| names.iter().any(|watched| watched == name))
        }
    }
}
