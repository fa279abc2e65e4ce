//! How a child gets a table of descriptors of its own, with its 0 to 2 in it.
//!
//! A copy of this process's table costs the more the more is open in it, twice: each descriptor is
//! copied, and closed again. So the child is born with the same table (`CLONE_FILES`), puts what
//! becomes its 0 to 2 into places low in it, and leaves with a copy of the low ones
//! (`CLOSE_RANGE_UNSHARE`, close_range(2)), which all stand for one file.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::dup3;
use parking_lot::Mutex;
use rustix::io::fcntl_dupfd_cloexec;

use super::raw::syscall;

/// How many children may be on their way out at once: each needs four system calls for it. Who finds
/// no place takes a copy of the whole table. More would be twelve descriptors to copy for everybody.
const PLACES: usize = 4;

/// Up to which descriptor the kernel copies: tables grow by as many (`sane_fdtable_size` in fs/file.c).
const LOW: RawFd = 64;

/// How many descriptors a process must be allowed to have to spare as many for this.
const ENOUGH: u64 = 4096;

/// Names a child between its birth and its execve: the address of its `Birth`, which is unique while that lives.
pub(super) type Token = usize;

/// The places.
#[derive(Debug)]
pub(super) struct Handover {
    places: [Place; PLACES],
    /// The first descriptor behind all of them.
    end: RawFd,
    /// What is in a place that nobody needs.
    null: File,
    /// Fills the remaining descriptors below `LOW` with copies of one file. Each is copied for every child, and
    /// many copies of one file cost far less than as many different files.
    low: Mutex<Vec<OwnedFd>>,
}

#[derive(Debug)]
struct Place {
    /// Three descriptors, whatever is behind them.
    numbers: [RawFd; 3],
    /// The same, for this process.
    owned: Mutex<[OwnedFd; 3]>,
    /// Who may change it: 0 when anybody may begin to.
    holder: AtomicUsize,
    /// Whose descriptors are in it; 0 when there are none.
    content: AtomicUsize,
}

/// That of this process, which has one table. Best made before anything else is opened.
static OF_THIS_PROCESS: OnceLock<Option<Handover>> = OnceLock::new();

impl Handover {
    /// `None` where there are not enough descriptors for it.
    pub(super) fn of_this_process() -> Option<&'static Self> {
        let make = || {
            let (allowed, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
            (allowed >= ENOUGH).then(Self::new)?.ok()
        };
        OF_THIS_PROCESS.get_or_init(make).as_ref()
    }

    fn new() -> io::Result<Self> {
        let null = File::open("/dev/null")?;
        let places = [
            Place::new(&null)?,
            Place::new(&null)?,
            Place::new(&null)?,
            Place::new(&null)?,
        ];
        let highest = places.iter().flat_map(|place| place.numbers).max();
        let mut low = Vec::new();
        while let Some(copy) = Some(copy(&null)?).filter(|copy| copy.as_raw_fd() < LOW) {
            low.push(copy);
        }
        Ok(Self {
            end: highest.unwrap_or_default().max(LOW - 1) + 1,
            places,
            null,
            low: Mutex::new(low),
        })
    }

    /// Has every child that is born from now on keep `file` open until it executes its program.
    ///
    /// # Errors
    /// As dup3(2).
    pub(super) fn hold(&self, file: impl AsFd) -> io::Result<()> {
        match self.low.lock().first_mut() {
            Some(copy) => Ok(dup3(file, copy, OFlag::O_CLOEXEC)?),
            // All that is low is taken, by what children take with them.
            None => Ok(()),
        }
    }

    /// What a child does that shares this process's table: leaves with a table of its own, in which
    /// `stdio` are 0 to 2 and whatever else is open. Returns 0 or a negated error number, with which
    /// the child has to exit, for the table may still be its parent's.
    ///
    /// # Safety
    /// For a child that shares memory and table with its parent, as who has this `token`.
    pub(super) unsafe fn leave(&self, stdio: [RawFd; 3], token: Token) -> isize {
        if let Some(place) = self.places.iter().find(|place| place.hold(token)) {
            place.content.store(token, Ordering::Release);
            // SAFETY: as this function; nobody else changes the place meanwhile.
            let left = unsafe { self.leave_by(place.numbers, stdio) };
            place.let_go();
            if left >= 0 {
                // SAFETY: the table is the child's own now.
                return unsafe { take(place.numbers) };
            }
        }
        // All places are taken, or something between us and the kernel does not know the other way.
        // SAFETY: no pointers.
        let left = unsafe { syscall(libc::SYS_unshare, [libc::CLONE_FILES as usize, 0, 0, 0, 0]) };
        if left < 0 {
            return left;
        }
        // SAFETY: the table is the child's own now.
        unsafe { take(stdio) }
    }

    /// # Safety
    /// As [`Handover::leave`], by who holds the place of these numbers.
    unsafe fn leave_by(&self, numbers: [RawFd; 3], stdio: [RawFd; 3]) -> isize {
        for (to, from) in numbers.into_iter().zip(stdio) {
            let flags = libc::O_CLOEXEC as usize;
            // SAFETY: no pointers; only who holds the place cares what is behind its numbers.
            let copied =
                unsafe { syscall(libc::SYS_dup3, [from as usize, to as usize, flags, 0, 0]) };
            if copied < 0 {
                return copied;
            }
        }
        let (end, last) = (self.end as usize, u32::MAX as usize);
        let flags = libc::CLOSE_RANGE_UNSHARE as usize;
        // SAFETY: no pointers, and nothing is closed in the table that is shared.
        unsafe { syscall(libc::SYS_close_range, [end, last, flags, 0, 0]) }
    }

    /// Lets go of what a child has put into a place, once it has ended: the pipes it wrote to would
    /// not come to their end. Where another is just using the place it does so itself.
    pub(super) fn clear(&self, token: Token) {
        for place in &self.places {
            let died_in_it = place.holder.load(Ordering::Acquire) == token;
            if died_in_it || (place.content.load(Ordering::Acquire) == token && place.hold(token)) {
                place.empty(&self.null);
                place.let_go();
            }
        }
    }
}

impl Place {
    fn new(null: &File) -> io::Result<Self> {
        let owned = [copy(null)?, copy(null)?, copy(null)?];
        Ok(Self {
            numbers: owned.each_ref().map(AsRawFd::as_raw_fd),
            owned: Mutex::new(owned),
            holder: AtomicUsize::new(0),
            content: AtomicUsize::new(0),
        })
    }

    /// Takes it, if nobody has it.
    fn hold(&self, token: Token) -> bool {
        let held = self
            .holder
            .compare_exchange(0, token, Ordering::AcqRel, Ordering::Relaxed);
        held.is_ok()
    }

    fn let_go(&self) {
        self.holder.store(0, Ordering::Release);
    }

    /// For this process, while nobody else holds it.
    fn empty(&self, null: &File) {
        let mut owned = self.owned.lock();
        for descriptor in &mut *owned {
            // Both are open, and the latter is not closed on failure (dup(2)).
            let _ = dup3(null, descriptor, OFlag::O_CLOEXEC);
        }
        self.content.store(0, Ordering::Release);
    }
}

/// A copy of it, with the lowest number that is free from 3 on.
fn copy(file: &File) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(file, 3)?)
}

/// Makes these 0 to 2.
///
/// # Safety
/// In a child whose table is its own.
pub(super) unsafe fn take(stdio: [RawFd; 3]) -> isize {
    for (target, fd) in stdio.into_iter().enumerate() {
        // SAFETY: no pointers. The parent's ends are all above 2, and close-on-exec is not copied.
        let taken = unsafe { syscall(libc::SYS_dup3, [fd as usize, target, 0, 0, 0]) };
        if taken < 0 {
            return taken;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what_is_in(place: &Place) -> Vec<String> {
        let links = place
            .numbers
            .map(|number| format!("/proc/self/fd/{number}"));
        let links = links.map(|link| std::fs::read_link(link).expect("open"));
        links.map(|link| link.display().to_string()).to_vec()
    }

    #[test]
    fn who_dies_in_a_place_leaves_it_to_others() {
        let handover = Handover::new().expect("descriptors");
        let (reading, writing) = nix::unistd::pipe().expect("a pipe");
        let place = &handover.places[0];
        let (dead, living) = (1, 2);
        // As far as a child got that was killed then.
        assert!(place.hold(dead));
        place.content.store(dead, Ordering::Release);
        for owned in &mut *place.owned.lock() {
            dup3(&writing, owned, OFlag::O_CLOEXEC).expect("copied");
        }
        drop(writing);
        assert!(!place.hold(living));

        handover.clear(living);
        assert!(!place.hold(living), "it is the other's");
        handover.clear(dead);
        assert_eq!(what_is_in(place), ["/dev/null"; 3]);
        let mut end = [0];
        assert_eq!(
            nix::unistd::read(&reading, &mut end),
            Ok(0),
            "nobody writes"
        );
        assert!(place.hold(living));
    }

    #[test]
    fn who_uses_a_place_after_another_keeps_it() {
        let handover = Handover::new().expect("descriptors");
        let place = &handover.places[0];
        let (ended, busy) = (1, 2);
        place.content.store(ended, Ordering::Release);
        assert!(place.hold(busy));
        handover.clear(ended);
        assert_eq!(place.holder.load(Ordering::Acquire), busy);
    }
}
