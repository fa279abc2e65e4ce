//! What systemd is told (sd_notify(3)). Elsewhere all of it does nothing.

use std::time::Duration;

use sd_notify::NotifyState;

/// The daemon answers.
pub(super) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// A reload has begun, asked for by `systemctl reload`; `ready` ends it.
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
