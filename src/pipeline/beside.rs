//! What would keep the event loop from everything else for too long.

/// Texts of this many bytes or more are not handled on the event loop: binary data, which is nearly all escapes in
/// JSON, takes some 50 ms at this length. It is more than an answer holds by default.
pub(super) const LONG: usize = 2 << 20;

/// Does `work` on a thread that may block. A panic comes out of it as it does elsewhere.
pub fn beside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = T> {
    // Not inside of the future, which would then hold `work`: that may be large, and callers' futures hold this one.
    let done = tokio::task::spawn_blocking(work);
    async {
        match done.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // It was never begun: the event loop is going, and with it whoever waits for this.
            Err(Err(_)) => std::future::pending().await,
        }
    }
}
