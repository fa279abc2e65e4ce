use std::io;

/// Whether something failed for want of descriptors or memory, so that the same may succeed in a moment.
pub(crate) fn is_for_want(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
    )
}
