//! The real programs on real sockets. One binary, so that it is linked once.

mod cli;
mod daemon;
mod layering;
mod manifest;
mod processes;
mod readme;
mod smoke;
mod support;
