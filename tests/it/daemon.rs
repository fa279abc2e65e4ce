//! The daemon's own life: start, configuration, what it tells systemd and the log, stop.

mod log;
mod mistyped;
mod reload;
mod reload_links;
mod scarcity;
mod scripts;
mod stalled;
mod start;
mod stop;
mod systemd;
