//! What this process keeps of memory: much while it works, little while nothing runs.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use libc::{PF_W, PT_LOAD, dl_phdr_info};

/// How much freed memory the allocator holds on to at the top of its heap, and up to which size
/// it takes blocks from there at all, in bytes. With glibc's own values (128 KiB both, mallopt(3))
/// every answer of a megabyte is mapped, faulted in and unmapped several times over, which costs
/// more than all the copying. What is held in vain goes back with [`give_back`].
const HELD_BYTES: libc::c_int = 64 << 20;

/// How long everything is given back at once, at the most.
const REST: Duration = Duration::from_secs(5);

/// Tunes the allocator to answers that come and go.
pub(super) fn tune() {
    // SAFETY: changes parameters of the allocator, which is made for being told so at any time.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, HELD_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, HELD_BYTES / 2);
        // Two heaps: the ledger's writer, which is the first thread, has one of its own. With one for all
        // it and the event loop wait for each other, once in an execution with eight clients; each more is
        // never full.
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Gives freed memory back to the kernel. For a moment when nothing runs.
///
/// malloc_trim(3) passes over what is free at the top of a heap that is not the main one. That goes back when a large
/// block is freed there, which `rest` is to do: the ledger does on its thread, which has the other one.
pub(super) async fn give_back(rest: impl Future<Output = ()>) {
    // SAFETY: see `hold`.
    unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, 0) };
    // A ledger whose disk stands still rests later.
    let _ = tokio::time::timeout(REST, rest).await;
    // SAFETY: releases free memory only; for the other see `hold`.
    unsafe {
        libc::malloc_trim(0);
        libc::mallopt(libc::M_TRIM_THRESHOLD, HELD_BYTES);
    }
}

/// Has the kernel forget where code and constants are mapped, of which it maps 64 KiB for each page that is
/// run. They stay in the page cache; what is run again is mapped again, a microsecond for each piece.
/// For a moment when nothing runs.
pub(super) fn unmap_code() {
    // SAFETY: `unmap_constants` keeps to what it is given, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(unmap_constants), ptr::null_mut()) };
}

/// Unmaps the pages of a loaded object that are as its file has them.
///
/// # Safety
/// `info` is one of dl_iterate_phdr(3)'s, during its call.
unsafe extern "C" fn unmap_constants(
    info: *mut dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> libc::c_int {
    // SAFETY: it points to what is valid for this call, as do its name and its headers.
    let (info, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info, headers)
    };
    // SAFETY: the name is a string; sysconf only reads.
    let (first, page) = unsafe { (*info.dlpi_name, libc::sysconf(libc::_SC_PAGESIZE) as u64) };
    // The program itself has no name here. What the kernel itself has mapped (vdso(7)) has one
    // that is no path.
    if first != 0 && first != b'/' as libc::c_char {
        return 0;
    }
    let constant =
        |header: &&libc::Elf64_Phdr| header.p_type == PT_LOAD && header.p_flags & PF_W == 0;
    for header in headers.iter().filter(constant) {
        // Whole pages of it only: its neighbours may be writable.
        let from = (info.dlpi_addr + header.p_vaddr).next_multiple_of(page);
        let end = info.dlpi_addr + header.p_vaddr + header.p_memsz;
        let length = (end - end % page).saturating_sub(from);
        // SAFETY: the loader's lock is held, so that the object stays where it is. Nobody can have
        // written to these pages: the next access reads them from the file again (madvise(2)).
        unsafe {
            libc::madvise(
                ptr::with_exposed_provenance_mut(from as usize),
                length as usize,
                libc::MADV_DONTNEED,
            )
        };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::unmap_code;

    fn resident_file_pages() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("this process");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssFile:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse().ok()).expect("a number")
    }

    #[test]
    fn what_the_start_has_run_is_not_resident_for_ever() {
        // Touches all of the program's code, as reading it does.
        let before = resident_file_pages();
        unmap_code();
        let after = resident_file_pages();
        assert!(after < before, "{before} KiB before, {after} after");
        // And runs on.
        assert_eq!(
            format!("{:.3}", f64::from(before as u32).sqrt().powi(2)),
            format!("{before}.000")
        );
    }
}
