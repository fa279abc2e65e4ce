//! The signals that ask a program to stop.

use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// SIGINT, SIGTERM and SIGHUP; none of them ends the program by itself once this is made. One that is ignored
/// stays so, as nohup(1) and a shell's `&` want it.
pub struct Signals(Vec<Signal>);

impl Signals {
    pub fn new() -> Result<Self, Failure> {
        Self::of(&[
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ])
    }

    /// SIGQUIT as well, for a program that has a terminal to give back.
    pub fn with_quit() -> Result<Self, Failure> {
        let Self(mut signals) = Self::new()?;
        let Self(quit) = Self::of(&[SignalKind::quit()])?;
        signals.extend(quit);
        Ok(Self(signals))
    }

    fn of(kinds: &[SignalKind]) -> Result<Self, Failure> {
        let ignored = ignored();
        let heard = kinds.iter().filter(|kind| {
            let bit = kind.as_raw_value() - 1;
            ignored >> bit & 1 == 0
        });
        let taken = heard.map(|kind| signal(*kind)).collect::<Result<_, _>>();
        taken.map(Self).map_err(|source| Failure::Setup { source })
    }

    /// Waits for the next of them.
    pub async fn next(&mut self) {
        poll_fn(|context| {
            let mut signals = self.0.iter_mut();
            match signals.any(|signal| signal.poll_recv(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// The signals that are ignored, as the kernel tells it (`SigIgn` in proc_pid_status(5)); none where it does not.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
