//! One of the two logs: a file whose lines outlive the daemon, not the machine.
//!
//! Its beginning is mapped into memory, where a line is a copy of some bytes and no system call: the kernel
//! has the page as soon as it is there, and keeps it when the daemon is killed. What has no room there is
//! written behind it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::{MmapMut, MmapOptions, UncheckedAdvice};
use nix::sys::statfs::{EXT4_SUPER_MAGIC, TMPFS_MAGIC, fstatfs};

/// How much of a log is mapped, in bytes: a hundred and more calls of the usual kind. What is behind the
/// last line of it is zeros. It is resident while it is in use, until it [rests](Part::rest).
pub(super) const MAPPED: usize = 256 << 10;

/// A log, and where in it the next line goes.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    /// `None` where it cannot be, or is not yet.
    mapped: Option<MmapMut>,
    length: usize,
    /// How many of its lines are not in the ledger's file.
    open: Arc<AtomicUsize>,
}

/// A line that is in the log; dropped when it is in the ledger's file, too.
#[derive(Debug)]
pub(super) struct Logged(Arc<AtomicUsize>);

impl Drop for Logged {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Part {
    /// Opens one, or makes it, and reads all that is there: lines, the last of which may have been cut off,
    /// and zeros behind them.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<u8>)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let mut found = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut found, 0)?;
        let part = Self {
            mapped: None,
            length: found.len(),
            file,
            open: Arc::default(),
        };
        Ok((part, found))
    }

    /// Maps one that is empty. Where that cannot be each line is a system call, and nothing else is different.
    pub(super) fn map(&mut self) {
        self.mapped = map(&self.file).ok();
        if self.mapped.is_none() {
            // It is as long as its lines then.
            let _ = self.file.set_len(0);
        }
    }

    /// Has lines written from now on.
    pub(super) fn unmap(&mut self) {
        self.mapped = None;
    }

    /// Has the kernel forget what of it is mapped, until it is touched again. For a while in which nothing happens.
    pub(super) fn rest(&self) {
        if let Some(mapped) = &self.mapped {
            // SAFETY: it is shared with its file, from whose pages it is mapped again (madvise(2)): what is in
            // there stays as it is.
            let _ = unsafe { mapped.unchecked_advise(UncheckedAdvice::DontNeed) };
        }
    }

    /// Whether a line of so many bytes still has room where there is most to gain.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.length + bytes <= MAPPED
    }

    /// Whether all of its lines are in the ledger's file.
    pub(super) fn is_done(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Adds a line.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<Logged> {
        let end = self.length + line.len();
        let room = self.mapped.as_mut();
        match room.and_then(|mapped| mapped.get_mut(self.length..end)) {
            Some(room) => room.copy_from_slice(line),
            None => {
                if let Err(error) = self.file.write_all_at(line, self.length as u64) {
                    // A part of it may be there, which reads like a line that was cut off.
                    let _ = self.cut(self.length, end);
                    return Err(error);
                }
            }
        }
        self.length = end;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Logged(Arc::clone(&self.open)))
    }

    /// Forgets its lines.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.cut(0, self.length)?;
        self.length = 0;
        Ok(())
    }

    /// Takes away what is from `begin` to `end`, where the file ends or zeros follow. What is mapped stays.
    fn cut(&mut self, begin: usize, end: usize) -> io::Result<()> {
        let mapped = self.mapped.as_deref_mut().unwrap_or_default();
        if let Some(lines) = mapped.get_mut(begin..end.min(mapped.len())) {
            lines.fill(0);
        }
        if end > mapped.len() {
            self.file.set_len(begin.max(mapped.len()) as u64)?;
        }
        Ok(())
    }
}

/// Maps the beginning of a log that is empty.
fn map(file: &File) -> io::Result<MmapMut> {
    // Who touches a page for which the disk has no room is killed by SIGBUS (mmap(2)). So there is room for
    // all of it beforehand, and only where what is written over is written where it is: not so with btrfs,
    // with copies that share blocks (XFS), or with files that are another machine's.
    if ![EXT4_SUPER_MAGIC, TMPFS_MAGIC].contains(&fstatfs(file)?.filesystem_type()) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // Made here: as a constant it would be a part of the program.
    file.write_all_at(&vec![0; MAPPED], 0)?;
    // SAFETY: the file is as long as that, and stays so while it is mapped: it is private to this user, other
    // daemons are kept out by the ledger's lock, and it is unmapped before that is let go of. Who cuts it all
    // the same kills the daemon, as who cuts the `-shm` that SQLite maps beside it.
    unsafe { MmapOptions::new().len(MAPPED).map_mut(file) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::{AsRawFd as _, OwnedFd};
    use std::path::PathBuf;

    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::super::tests::Scratch;
    use super::*;

    /// A file of tmpfs, whatever the directories of this machine are on, and a name for it.
    fn file_in_memory() -> (OwnedFd, PathBuf) {
        let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC;
        let file = memfd_create(c"log", flags).expect("a file");
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        (file, path)
    }

    /// What the kernel has of it, whoever asks.
    fn lines(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).expect("a log");
        let text = text.trim_end_matches('\0');
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_are_where_the_next_daemon_reads_them_with_room_and_without() {
        let (_file, path) = file_in_memory();
        let (mut part, found) = Part::open(&path).expect("opened");
        assert_eq!(found, b"");
        part.map();
        assert!(part.mapped.is_some());
        let long = "x".repeat(MAPPED / 3);
        for turn in 0..3 {
            let mut logged = Vec::new();
            for n in 0..4 {
                let line = format!("{turn}{n}{long}\n");
                assert_eq!(part.has_room(line.len()), n < 2, "{n}");
                logged.push(part.append(line.as_bytes()).expect("appended"));
            }
            let short: Vec<_> = lines(&path)
                .iter()
                .map(|line| line[..2].to_owned())
                .collect();
            assert_eq!(short, ["0", "1", "2", "3"].map(|n| format!("{turn}{n}")));
            assert!(!part.is_done());
            drop(logged);
            assert!(part.is_done());
            part.clear().expect("cleared");
            assert!(lines(&path).is_empty());
            assert_eq!(path.metadata().expect("a log").len(), MAPPED as u64);
        }
        drop(part.append(b"last\n").expect("appended"));
        drop(part);
        let (mut part, found) = Part::open(&path).expect("opened");
        assert!(found.starts_with(b"last\n\0"));
        part.clear().expect("cleared");
        assert_eq!(path.metadata().expect("a log").len(), 0);
    }

    #[test]
    fn what_rests_is_not_resident_and_has_its_lines() {
        let (_file, path) = file_in_memory();
        let (mut part, _) = Part::open(&path).expect("opened");
        part.map();
        let resident_kib = |part: &Part| -> u64 {
            let mapped = part.mapped.as_ref().expect("mapped");
            let smaps = fs::read_to_string("/proc/self/smaps").expect("this process");
            let begin = format!("{:x}-", mapped.as_ptr().addr());
            let mut of_it = smaps.lines().skip_while(|line| !line.starts_with(&begin));
            let line = of_it.find_map(|line| line.strip_prefix("Rss:"));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
            kib.and_then(|kib| kib.parse().ok()).expect("a number")
        };
        let line = |letter: &str| format!("{}\n", letter.repeat(MAPPED / 3)).into_bytes();
        drop(part.append(&line("a")).expect("appended"));
        assert!(resident_kib(&part) > 0);
        part.rest();
        assert_eq!(resident_kib(&part), 0);
        drop(part.append(&line("b")).expect("appended"));
        let first: Vec<_> = lines(&path)
            .iter()
            .map(|line| line[..1].to_owned())
            .collect();
        assert_eq!(first, ["a", "b"]);
    }

    #[test]
    fn what_is_mapped_stays_where_there_is_no_room_behind_it() {
        // A file that cannot grow, as on a disk that is full.
        let (full, path) = file_in_memory();
        let (mut part, _) = Part::open(&path).expect("opened");
        part.map();
        assert!(part.mapped.is_some());
        fcntl(&full, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW)).expect("sealed");
        let line = |bytes: usize| format!("{}\n", "x".repeat(bytes - 1)).into_bytes();
        drop(part.append(&line(MAPPED - 100)).expect("appended"));
        part.append(&line(200)).expect_err("no room");
        drop(part.append(&line(50)).expect("appended"));
        assert_eq!(lines(&path).len(), 2);
        part.append(&line(51)).expect_err("no room");
        assert_eq!(lines(&path).len(), 2);
        part.clear().expect("cleared");
        assert!(lines(&path).is_empty());
        assert_eq!(path.metadata().expect("a log").len(), MAPPED as u64);
    }

    #[test]
    fn one_that_cannot_be_mapped_holds_lines_all_the_same() {
        let scratch = Scratch::new();
        let path = scratch.0.join("log");
        fs::write(&path, "once\n").expect("written");
        let (mut part, found) = Part::open(&path).expect("opened");
        assert_eq!(found, b"once\n");
        part.clear().expect("cleared");
        for line in ["one\n", "two\n"] {
            drop(part.append(line.as_bytes()).expect("appended"));
        }
        assert_eq!(fs::read(&path).expect("a log"), b"one\ntwo\n");
    }
}
