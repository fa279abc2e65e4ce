//! Which directories somebody has had to do with: opened them or a file in them, made a directory there,
//! changed whose they are. The kernel tells (inotify(7)): of what a process has done it has told when
//! the process is gone.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// What counts as having to do with a directory. Whoever writes to a file in it opens that first. `MODIFY`
/// is left out: the kernel reports it itself for files that announce changes, such as `cgroup.events`.
const EVENTS: WatchFlags = WatchFlags::OPEN
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE);

/// How much is read in one go, in events: who does no end of things is not waited for.
const MOST: usize = 4096;

/// One queue for all directories: an ordinary user may have 128 of them.
#[derive(Debug)]
pub(super) struct Touched {
    queue: OwnedFd,
    /// How much is read in one go, in events.
    most: usize,
    /// Those that are watched, and whether they were touched.
    watched: Mutex<HashMap<i32, bool>>,
}

/// A directory under watch, until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    touched: Arc<Touched>,
    number: i32,
}

impl Touched {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            queue: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            most: MOST,
            watched: Mutex::default(),
        })
    }

    /// Watches `dir` from now on.
    pub(super) fn watch(self: &Arc<Self>, dir: &Path) -> io::Result<Watch> {
        // Locked before: nobody may read what is told of a directory that is not known yet.
        let mut watched = self.lock();
        let number = inotify::add_watch(&self.queue, dir, EVENTS | WatchFlags::ONLYDIR)?;
        watched.insert(number, false);
        Ok(Watch {
            touched: Arc::clone(self),
            number,
        })
    }

    /// Takes in what the kernel has told since.
    fn look(&self, watched: &mut HashMap<i32, bool>) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.queue, &mut buffer);
        for _ in 0..self.most {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => break,
                Ok(event) => {
                    if let Some(touched) = watched.get_mut(&event.wd()) {
                        *touched = true;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot read from inotify; no cgroup is used again");
                    break;
                }
            }
        }
        // What there is besides is not known.
        watched.values_mut().for_each(|touched| *touched = true);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, bool>> {
        self.watched.lock()
    }
}

impl Watch {
    /// Whether somebody has had to do with the directory since it is watched.
    pub(super) fn is_touched(&self) -> bool {
        let mut watched = self.touched.lock();
        self.touched.look(&mut watched);
        watched.get(&self.number) != Some(&false)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.touched.lock().remove(&self.number);
        // An error says that the kernel has forgotten it already.
        let _ = inotify::remove_watch(&self.touched.queue, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// Watched directories, removed when dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("shelly-{name}-{}", std::process::id()));
            fs::create_dir(&dir).expect("a directory");
            Self(dir)
        }

        fn watched(&self, touched: &Arc<Touched>, name: &str) -> (PathBuf, Watch) {
            let dir = self.0.join(name);
            fs::create_dir(&dir).expect("a directory");
            fs::write(dir.join("file"), "").expect("written");
            let watch = touched.watch(&dir).expect("inotify");
            (dir, watch)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn each_is_told_of_by_itself_and_for_good() {
        let scratch = Scratch::new("touched");
        let touched = Arc::new(Touched::new().expect("inotify"));
        let (one, of_one) = scratch.watched(&touched, "one");
        let (two, of_two) = scratch.watched(&touched, "two");
        assert!(!of_one.is_touched());
        fs::read(one.join("file")).expect("readable");
        assert!(of_one.is_touched());
        assert!(of_one.is_touched());
        assert!(!of_two.is_touched());
        fs::metadata(two.join("file")).expect("there");
        assert!(!of_two.is_touched(), "nothing was opened");
        fs::create_dir(two.join("child")).expect("a directory");
        assert!(of_two.is_touched());
    }

    /// Has more told of than there is room for.
    fn overflow(dir: &Path) -> usize {
        let room = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("readable");
        let room: usize = room.trim().parse().expect("a number");
        // In turns, for two of the same kind become one.
        for _ in 0..=room / 2 {
            fs::read(dir.join("file")).expect("readable");
            fs::read_dir(dir).expect("readable");
        }
        room
    }

    #[test]
    fn what_the_kernel_could_not_tell_counts_as_touched() {
        let scratch = Scratch::new("overflow");
        let touched = Arc::new(Touched {
            most: usize::MAX,
            ..Touched::new().expect("inotify")
        });
        let (busy, _of_busy) = scratch.watched(&touched, "busy");
        let (_, of_quiet) = scratch.watched(&touched, "quiet");
        overflow(&busy);
        assert!(of_quiet.is_touched());
        let (_, of_next) = scratch.watched(&touched, "next");
        assert!(!of_next.is_touched());
    }

    #[test]
    fn what_is_not_read_yet_counts_as_touched() {
        let scratch = Scratch::new("flood");
        let touched = Arc::new(Touched::new().expect("inotify"));
        let (busy, _of_busy) = scratch.watched(&touched, "busy");
        let (_, of_quiet) = scratch.watched(&touched, "quiet");
        let room = overflow(&busy);
        assert!(of_quiet.is_touched());
        let is_told_of_again = (0..=room / MOST).any(|look| {
            let (_, of_next) = scratch.watched(&touched, &format!("next-{look}"));
            !of_next.is_touched()
        });
        assert!(is_told_of_again);
    }

    #[test]
    fn what_is_watched_no_more_is_forgotten() {
        let scratch = Scratch::new("forgotten");
        let touched = Arc::new(Touched::new().expect("inotify"));
        let (dir, watch) = scratch.watched(&touched, "dir");
        drop(watch);
        fs::read(dir.join("file")).expect("readable");
        let (_, other) = scratch.watched(&touched, "other");
        assert!(!other.is_touched());
        assert_eq!(touched.lock().len(), 1);
    }
}
