//! Running processes (CONTRACT 5), held against the real daemon, by process group and by cgroup.

mod background;
mod endings;
mod flood;
mod text;
mod timeout;

/// No processes, to compare with.
const NOBODY: [i32; 0] = [];
