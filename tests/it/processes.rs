//! Running processes (CONTRACT 5), held against the real daemon, by process group and by cgroup.

mod background;
mod crash;
mod endings;
mod flood;
mod hangup;
mod isolation;
mod leaves;
mod limits;
mod order;
mod scripts;
mod secrets;
mod silent;
mod text;
mod timeout;
mod unattended;

/// No processes, to compare with.
const NOBODY: [i32; 0] = [];
