//! Room on the disk that is kept for a start on a full one. SQLite needs some before it reads a file (for its `-shm`),
//! and what an earlier daemon left has to be settled.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::statvfs;

use super::file::beside;

/// What its name ends in, after the ledger's own.
const RESERVE: &str = "-reserve";

/// How much it is, in bytes: both [logs](super::part::MAPPED) settled, and some hundred executions.
const BYTES: u64 = 4 << 20;

/// Of how small a part of the file system that is at the most.
const PART: u64 = 16;

/// How much is to be left beside it, in bytes: it is not to be what fills a disk.
const BESIDE: u64 = BYTES;

/// Keeps the room, unless the disk has too little. One that has it already costs a look.
pub(super) fn keep(file: &Path) {
    let path = beside(file, RESERVE);
    // A copy of it may be all holes.
    let is_there = fs::metadata(&path).is_ok_and(|reserve| reserve.blocks() * 512 >= BYTES);
    if !is_there && has_room(&path) && take(&path).is_err() {
        // None is as good as it was, and a part of it in somebody's way.
        let _ = fs::remove_file(&path);
    }
}

/// Gives it up; says whether there was any.
pub(super) fn give_up(file: &Path) -> bool {
    fs::remove_file(beside(file, RESERVE)).is_ok()
}

fn has_room(path: &Path) -> bool {
    path.parent()
        .and_then(|dir| statvfs(dir).ok())
        .is_some_and(|disk| {
            let bytes = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
            bytes(disk.blocks()) / PART >= BYTES && bytes(disk.blocks_available()) >= BYTES + BESIDE
        })
}

fn take(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(path)?;
    Ok(fallocate(&file, FallocateFlags::empty(), 0, BYTES as i64)?)
}
