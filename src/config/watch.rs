use std::path::Path;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// Watches the directory that holds the configuration and says when something in it changed.
///
/// The directory and not the files: editors and package managers replace a file by renaming
/// another over it, after which a watch of the old one sees nothing. The watch ends when the
/// returned watcher is dropped.
///
/// # Errors
/// When the directory cannot be watched: not there, or out of inotify watches.
pub fn watch_directory(dir: &Path) -> notify::Result<(RecommendedWatcher, mpsc::Receiver<()>)> {
    // One place is enough: whoever reads the files reads all of them as they are then.
    let (changed, changes) = mpsc::channel(1);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // An error (an overflow, say) may hide a change; reads are what our own loading causes.
        if !matches!(event, Ok(ref event) if matches!(event.kind, EventKind::Access(_))) {
            let _ = changed.try_send(());
        }
    })?;
    watcher.watch(dir, RecursiveMode::NonRecursive)?;
    Ok((watcher, changes))
}
