//! What systemd is told (sd_notify(3)). Elsewhere all of it does nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;

/// Whether it was ever proven that the daemon answers.
static IS_PROVEN: AtomicBool = AtomicBool::new(false);

/// The daemon answers.
pub(super) fn ready() {
    IS_PROVEN.store(true, Ordering::Relaxed);
    notify(&[NotifyState::Ready]);
}

/// A reload is over. No new proof is needed for that: a reload only puts one snapshot of values in the place of another,
/// while the socket, the event loop and the routes, which the proof at the start was about, stay as they are; and the
/// watchdog goes on asking for more. Before that first proof nothing is said: what is said then ends the reload, too.
pub(super) fn reloaded() {
    if IS_PROVEN.load(Ordering::Relaxed) {
        notify(&[NotifyState::Ready]);
    }
}

/// A reload has begun, asked for by `systemctl reload`; `reloaded` ends it.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot read the monotonic clock"),
    }
}

/// The stop has begun and may take this long, which may be more than the unit says.
pub(super) fn stopping(at_most: Duration) {
    let micros = u32::try_from(at_most.as_micros()).unwrap_or(u32::MAX);
    notify(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(micros),
    ]);
}

/// The line that `systemctl status` shows.
pub(super) fn status(line: &str) {
    notify(&[NotifyState::Status(line)]);
}

/// The daemon has just proven that it lives.
pub(super) fn alive() {
    notify(&[NotifyState::Watchdog]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}
