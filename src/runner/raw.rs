//! System calls without libc: what a child may use between `clone3` and `execve` while it shares
//! its parent's memory and thread-local storage, where even setting `errno` would be a race.

use std::arch::asm;

/// `struct clone_args` of clone3(2), up to and including `cgroup` (Linux 5.7).
#[repr(C, align(8))]
#[derive(Default)]
pub(super) struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

/// What the child runs. It must not return: there is nothing to return to.
pub(super) type Entry = unsafe extern "C" fn(*mut libc::c_void) -> !;

/// Calls clone3(2); the child begins at `entry(argument)` on the stack that `args` names.
/// Returns the child's pid, or the negated error number.
///
/// # Safety
/// `args.stack` and `args.stack_size` must name memory that stays valid and otherwise unused, and
/// `argument` must stay valid, until the child has executed another program or exited. `entry`
/// must use nothing but [`syscall`] and memory that its parent leaves alone meanwhile.
pub(super) unsafe fn clone3(args: &CloneArgs, entry: Entry, argument: *mut libc::c_void) -> isize {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the parent sees an ordinary system call, which clobbers rax, rcx and r11. The child
    // leaves the block by calling `entry`, on its own stack whose top the caller has aligned to
    // 16 bytes as the ABI asks at a call; a zero frame pointer ends backtraces.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r8",
            "call r9",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") args,
            in("rsi") size_of::<CloneArgs>(),
            in("r8") argument,
            in("r9") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; a system call clobbers x0 only. The link register is zeroed in the child.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, {argument}",
            "blr {entry}",
            "brk #1",
            "2:",
            in("x8") libc::SYS_clone3,
            inlateout("x0") args => result,
            in("x1") size_of::<CloneArgs>(),
            argument = in(reg) argument,
            entry = in(reg) entry,
            // Not `lateout`: that may share its register with `entry` or `argument`, which are used after it is zeroed.
            out("x30") _,
        );
    }
    result
}

/// Makes system call `number` with up to five arguments. Returns its result, or the negated error
/// number (at most 4095).
///
/// # Safety
/// As the system call itself.
#[inline(always)]
pub(super) unsafe fn syscall(number: libc::c_long, args: [usize; 5]) -> isize {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention (syscall(2)); the caller answers for the rest.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            options(nostack),
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "processes are started by clone3, which needs a few lines of assembly for this architecture"
);
