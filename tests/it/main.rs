//! The real programs on real sockets. One binary, so that it is linked once.

mod cli;
mod daemon;
mod processes;
mod smoke;
mod support;
