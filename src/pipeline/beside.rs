//! What would keep the event loop from everything else for too long.

pub use crate::runner::beside;

/// Texts of this many bytes or more are not handled on the event loop: binary data, which is nearly all escapes in
/// JSON, takes some 50 ms at this length. It is more than an answer holds by default.
pub(super) const LONG: usize = 2 << 20;
